"""`python -m devshim.certify._fresh MODULE FUNCTION SETTING`: run one function, print its result as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import devshim as ds
from devshim.certify.claims import Setting, Skip
from devshim.registry import processes

__all__: list[str] = []


def _answer(module: str, name: str, setting: str) -> dict[str, Any]:
    at = Setting.from_json(setting)
    ds.use(at.backend)
    try:
        return {"returned": getattr(importlib.import_module(module), name)(at)}
    except Skip as reason:
        return {"skipped": str(reason)}
    except Exception as error:  # the calling claim reports it
        return {"raised": f"{type(error).__name__}: {error}"}


def main(module: str, name: str, setting: str) -> None:
    """Print the return value or the error of the function; what frameworks print goes to standard error."""
    with processes.answer_stream() as stream:
        print(json.dumps(_answer(module, name, setting)), file=stream)


if __name__ == "__main__":
    main(*sys.argv[1:])

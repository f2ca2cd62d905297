"""`python -m devshim.certify._worker SETTING FROM`: check the claims of one framework, with a line of JSON per result.

Each claim is named before it runs, so that the process which reads these lines knows which claim was running if this
process dies.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.certify.catalogue import claims_for
from devshim.certify.claims import Setting, check
from devshim.registry import processes

if TYPE_CHECKING:
    from typing import TextIO

__all__: list[str] = []


def main(setting: str, begin: str) -> None:
    """Check the claims from number ``begin`` on."""
    answers = processes.answer_stream()
    at = Setting.from_json(setting)
    try:
        _start(at)
    except ds.DevshimError as error:
        sys.exit(error.problem.rstrip())  # its last line is the framework's own error
    for i, claim in enumerate(claims_for(at)):
        if i >= int(begin):
            _write(answers, {"begins": i, "name": claim.name, "says": claim.says})
            _write(answers, {"result": asdict(check(claim, at))})
    _write(answers, {"finished": True})


def _start(at: Setting) -> None:
    ds.use(at.backend)
    if not at.simulated:
        with suppress(ds.UnsupportedError):
            ds.memory_policy("grow")  # the GPU is shared with the processes that claims start
    ds.framework()


def _write(stream: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=stream, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

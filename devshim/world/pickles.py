"""Functions, arguments and results as bytes for another process.

A plain pickle is enough for objects that the other process can import. Ray's pickle, which takes 0.3 s to import in
each rank, is needed for the rest: lambdas, local functions, and definitions in the program or in a notebook.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

__all__ = ["dumps"]

_PROGRAM = b"__main__"
"""The name of a module that differs in each process."""


def dumps(value: Any) -> bytes:
    """Return a value as bytes for `pickle.loads` in another process of this machine or cluster.

    Raises:
        Exception: Neither pickle works; the error comes from the object or from Ray's pickle.
    """
    with suppress(Exception):  # Ray's pickle raises the same error if it cannot help
        found = pickle.dumps(value)
        if _PROGRAM not in found:
            return found
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value))

"""The process of a rank that runs a function: ``python -m devshim.world.program FOLDER``.

The folder belongs to the agent, in a directory that only this user can read. ``in`` is the pickled function with its
arguments; ``out`` becomes the pickled result.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from devshim.world import heartbeat, pickles

__all__ = ["main"]


def main(folder: Path) -> None:
    """Call the function, and write its result."""
    heartbeat.begin()
    paths, job = pickle.loads((folder / "in").read_bytes())
    sys.path += [each for each in paths if each not in sys.path]
    fn, arguments = pickles.loads(job)
    try:
        result: Any = fn(*arguments)
    except SystemExit as error:
        heartbeat.note_exit(heartbeat.position_of(error))
        raise
    (folder / "out").write_bytes(_dumps(result, fn))


def _dumps(result: Any, fn: Any) -> bytes:
    """Return the result of a function as bytes.

    Raises:
        ArgumentError: It cannot be pickled. The error names the first line of the function, which has ended.
    """
    try:
        return pickles.dumps(result)
    except Exception as error:
        from devshim.errors import ArgumentError
        from devshim.errors.formatting import describe

        code = getattr(inspect.unwrap(fn), "__code__", None)
        if code is not None:
            heartbeat.note_exit(f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} in {code.co_name}")
        msg = f"the result of the function, {describe(result)}, cannot be sent to the caller of ds.launch: {error}"
        raise ArgumentError(msg, "return numbers, arrays, text, or trees of them") from error


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The process of a rank that runs a function: ``python -m devshim.world.program FOLDER``.

The folder belongs to the agent, in a directory that only this user can read. ``in`` is the pickled function with its
arguments; ``out`` becomes the pickled result.
"""

from __future__ import annotations

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
    result: Any = fn(*arguments)
    (folder / "out").write_bytes(pickles.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

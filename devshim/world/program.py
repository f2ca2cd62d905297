"""The process of a rank that runs a function: ``python -m devshim.world.program FOLDER``.

The folder is of the agent, in a directory that this user alone can read. ``in`` is the pickled function with its
arguments; ``out`` becomes what it returned.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from devshim.world import pulse

__all__ = ["main"]


def main(folder: Path) -> None:
    """Call the function, and write its result."""
    pulse.begin()
    from ray import cloudpickle

    paths, job = cloudpickle.loads((folder / "in").read_bytes())
    sys.path += [each for each in paths if each not in sys.path]
    fn, arguments = cloudpickle.loads(job)
    result: Any = fn(*arguments)
    (folder / "out").write_bytes(cloudpickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

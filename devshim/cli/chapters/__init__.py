"""The chapters of `devshim tour`: ``devices``, ``models``, their ``networks``, and the lines of each framework.

Their files are in ``examples/tour`` of the repository, because they are examples to read. A wheel contains these files
in this folder.
"""

from pathlib import Path

__all__ = ["FOLDER"]

_HERE = Path(__file__).parent
FOLDER = _HERE if (_HERE / "devices.py").exists() else _HERE.parents[2] / "examples" / "tour"
"""The folder of the chapters: this one in a wheel, ``examples/tour`` in a clone."""

__path__ = [str(FOLDER)]

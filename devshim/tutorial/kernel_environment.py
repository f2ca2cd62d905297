"""The environment of a kernel: its environment variables, without those that make runs differ, and its folder."""

from __future__ import annotations

import os
from pathlib import Path

from devshim.devices import nvml

__all__ = ["variables", "working_folder"]

_QUIET = {
    "GLOG_minloglevel": "2",  # Paddle's C++ code
    "GLOG_v": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYTHONHASHSEED": "0",  # sets print in the same order
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",  # other orders of sums, and a line about it
}
_DROPPED = ("PYTHONSTARTUP", "MPLBACKEND", "JPY_PARENT_PID")


def variables(folder: Path, real: bool, python: Path) -> dict[str, str]:
    """Return the variables for a kernel.

    Args:
        folder: A new folder for IPython's files; the user's startup files are not run.
        real: True to leave real GPUs visible; otherwise they are hidden, so that GPUs can be simulated.
        python: The Python of the kernel. The commands beside it come first, as in an active environment: ``!python``
            and ``!devshim`` of a cell are those of its framework.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    for name in [name for name in kept if name.startswith("DEVSHIM_")]:
        del kept[name]
    path = os.pathsep.join(filter(None, [str(python.parent), kept.get("PATH")]))
    found = {**_QUIET, **kept, "IPYTHONDIR": str(folder / "ipython"), "PATH": path}
    if not real:
        found.update(_hidden())
    return found


def _hidden() -> dict[str, str]:
    """Return the variables that hide the real GPUs of this machine; none on a machine without any."""
    try:
        nvidia = bool(nvml.cards())
    except ImportError:
        nvidia = False
    amd = Path("/dev/kfd").exists()
    return {**({"CUDA_VISIBLE_DEVICES": ""} if nvidia else {}), **({"HIP_VISIBLE_DEVICES": "-1"} if amd else {})}


def working_folder(page: Path, parent: Path) -> Path:
    """Make a folder in which a page runs, and return it.

    It has links to the files beside the page, so that cells can read them. What cells write stays in the folder:
    nothing is left behind, and frameworks that run at the same time do not overwrite each other's files.
    """
    folder = parent / "page"
    folder.mkdir()
    for each in page.absolute().parent.iterdir():
        (folder / each.name).symlink_to(each)
    return folder

"""What Python runs before a program that `devshim run` has started, and before the Python programs that one starts.

Requirements this module answers:

* Every framework has its simulated GPUs before it starts, whoever imports it, also where devshim is never imported.
* The program finds everything as ``python script.py`` gives it: this folder leaves its path again, and another
  ``sitecustomize`` that this one stands in front of is run after all.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

HERE = os.path.dirname(os.path.abspath(__file__))


def simulate() -> None:
    """Ask for the simulated GPUs that the environment names."""
    if find_spec("devshim") is None:
        print(f"devshim run: {sys.executable} has no devshim, so nothing is simulated in it", file=sys.stderr)
        return
    import devshim as ds

    ds.simulate(int(os.environ["DEVSHIM_SIMULATE_GPUS"]), os.environ.get("DEVSHIM_SIMULATE_MEMORY") or None)


def make_way() -> None:
    """Leave the path, and run the ``sitecustomize`` that is next on it, if there is one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    own = sys.modules.pop("sitecustomize")
    if find_spec("sitecustomize") is None:
        sys.modules["sitecustomize"] = own
    else:
        import_module("sitecustomize")


if __name__ == "sitecustomize":
    try:
        if os.environ.get("DEVSHIM_SIMULATE_GPUS", "0") != "0":  # the program may have switched them off for its own
            simulate()
    finally:
        make_way()

"""The code that Python runs before a program of `devshim run` or `devshim launch`, and before its Python children.

Requirements of this module:

* Every framework has its simulated GPUs before it starts, even if devshim is never imported.
* The program sees the same environment as with ``python script.py``: this folder is removed from the path again, and
  another ``sitecustomize`` that this one hides is run afterwards.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

HERE = os.path.dirname(os.path.abspath(__file__))


def simulate() -> None:
    """Simulate the GPUs that the environment asks for."""
    if find_spec("devshim") is None:
        print(f"devshim run: devshim is not installed for {sys.executable}, so it simulates no GPUs", file=sys.stderr)
        return
    import devshim as ds

    memory, like = os.environ.get("DEVSHIM_SIMULATE_MEMORY") or None, os.environ.get("DEVSHIM_SIMULATE_LIKE") or "cuda"
    names = os.environ.get("DEVSHIM_SIMULATE_NATIVE_NAMES") == "1"
    gpus = int(os.environ["DEVSHIM_SIMULATE_GPUS"])
    arrival = os.environ.get("DEVSHIM_SIMULATE_ASYNC_COPIES") or "immediate"
    from devshim.simulation import runs

    runs.answer_questions()
    ds.simulate(gpus, memory, like=like, native_names=names, async_copies=arrival)  # type: ignore[arg-type]


def make_way() -> None:
    """Remove this folder from the path, and run the next ``sitecustomize`` on it, if there is one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    own = sys.modules.pop("sitecustomize")
    if find_spec("sitecustomize") is None:
        sys.modules["sitecustomize"] = own
    else:
        import_module("sitecustomize")


if __name__ == "sitecustomize":
    try:
        if "DEVSHIM_HEARTBEAT" in os.environ:  # a rank of `devshim launch`
            from devshim.world import heartbeat

            heartbeat.begin()
        if os.environ.get("DEVSHIM_SIMULATE_GPUS", "0") != "0":  # a parent program may have switched them off
            simulate()
    finally:
        make_way()

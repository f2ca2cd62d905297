"""`devshim run`: run a program on simulated GPUs, and otherwise as Python runs it.

This process becomes the program: Python restarts with the program's own arguments, so that ``sys.argv``,
``sys.path``, ``__main__``, tracebacks, signals and the exit status are Python's. The environment requests the
simulated GPUs, and the program's child processes inherit it; `devshim.cli._startup.sitecustomize` switches them on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli._console import size
from devshim.devices import platforms
from devshim.registry import processes, simulation_request
from devshim.simulation import runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]

CARDS = 2
"""The number of GPUs simulated by default."""
_STARTUP = Path(__file__).parent / "_startup"
_PROGRAMS = Path(__file__).parent / "_programs"
"""The folder of ``nvidia-smi`` for simulated GPUs."""
_DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
"""Files of the drivers on Linux: NVIDIA's, the one of its small computers, that of Windows below Linux, and AMD's."""


def main(
    gpus: int | None,
    memory: str | None,
    backend: str | None,
    program: Sequence[str],
    like: str | None = None,
    native_names: bool | None = None,
    async_copies: str | None = None,
) -> NoReturn:
    """Print that GPUs are simulated, and become the program.

    ``native_names`` is None unless it was given: then the names are simulated where the framework allows it.
    """
    environment = dict(os.environ)
    platform: Any = like or environment.get("DEVSHIM_SIMULATE_LIKE") or "cuda"
    most = platforms.LIKE.get(platform, CARDS)
    cards: Any = gpus if gpus is not None else environment.get("DEVSHIM_SIMULATE_GPUS") or min(CARDS, most)
    memory = memory or environment.get("DEVSHIM_SIMULATE_MEMORY") or None
    if backend is not None:
        ds.use(backend)  # refuses an unknown name, and a framework that is not installed
        environment["DEVSHIM_BACKEND"] = backend
    arrival = async_copies or environment.get("DEVSHIM_SIMULATE_ASYNC_COPIES") or "immediate"
    handle = _simulate(cards, native_names, memory=memory, like=platform, async_copies=arrival)
    environment["DEVSHIM_SIMULATE_ASYNC_COPIES"] = handle.async_copies
    environment["DEVSHIM_SIMULATE_NATIVE_NAMES"] = "1" if handle.native_names else "0"
    shown = simulation_request.visible_count(handle.gpus) if handle.native_names else handle.gpus
    environment["DEVSHIM_SIMULATE_GPUS"] = str(handle.gpus)
    environment["DEVSHIM_SIMULATE_LIKE"] = handle.like
    environment.pop(simulation_request.EMPTY_HIDES, None)
    if handle.gpus and _may_have_real_gpus():  # simulated GPUs are never shown together with real ones
        environment["CUDA_VISIBLE_DEVICES"] = "" if shown else "-1"  # a number may be that of a real GPU
        environment["DEVSHIM_SIMULATE_GPUS"] = str(shown or handle.gpus)
    elif handle.gpus:
        if not (handle.native_names and environment.get("CUDA_VISIBLE_DEVICES", "").strip()):
            environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment[simulation_request.EMPTY_HIDES] = "1"
    if handle.memory is not None:
        environment["DEVSHIM_SIMULATE_MEMORY"] = str(handle.memory)
    path = [str(_STARTUP), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment[runs.RUN] = f"{os.getpid()}:{sys.executable}"  # the program's, because this process becomes it
    if handle.native_names:
        environment["PATH"] = os.pathsep.join([str(_PROGRAMS), *filter(None, [environment.get("PATH")])])
    hidden = f" (CUDA_VISIBLE_DEVICES hides {handle.gpus - shown})" if shown < handle.gpus else ""
    print(f"devshim: {_description(shown, handle.memory, handle.like)}{hidden}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *processes.interpreter_options(), *program], environment)


def _may_have_real_gpus() -> bool:
    """Return False if this machine certainly has no GPU that CUDA_VISIBLE_DEVICES would hide."""
    return sys.platform != "linux" or any(map(os.path.exists, _DRIVERS))


def _simulate(gpus: Any, native_names: bool | None, **options: Any) -> Any:
    """Refuse invalid values, and what the backend declares as a gap; native names only if they were requested."""
    wanted = options["like"] == "cuda" if native_names is None else native_names
    try:
        return ds.simulate(gpus, native_names=wanted, **options)
    except ds.UnsupportedError:
        if native_names or not wanted:
            raise
        return ds.simulate(gpus, **options)


def _description(gpus: int, memory: int | None, like: str) -> str:
    if not gpus:
        return "no GPU is visible, simulated or real"
    each = "" if memory is None else f" of {size(memory)}"
    named = "" if like == "cuda" else f" like {like}"
    cards = f"{gpus} simulated GPU{'' if gpus == 1 else 's'}{named}{each}"
    return f"{cards}: real data, computed on the CPU; real GPUs are hidden"

"""Simulated GPUs: `simulate`, and the environment variables that request the same.

A request applies to the whole process. Frameworks that are already imported get it immediately, so that a "too late"
error is raised where the user can still fix it; the others get it when devshim first loads them. devshim never
simulates GPUs beside real ones, and everything it prints about a simulated GPU says that it is simulated.
"""

from __future__ import annotations

from _thread import RLock
from sys import modules

from devshim.contract import capabilities
from devshim.devices import parsing, platforms
from devshim.devices.amounts import is_size, read_count, read_limit
from devshim.devices.platforms import read_like
from devshim.errors import ArgumentError, SimulationError, UnsupportedError, messages
from devshim.errors.formatting import show
from devshim.registry import argument_hints, discovery, import_hooks, registry, simulation_request, tracing
from devshim.registry import current as current_module
from devshim.registry.simulation_request import read_async_copies, read_native_names
from devshim.transfers import observing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from devshim.contract.backend import Backend
    from devshim.registry.simulation_request import Request
    from devshim.simulation.faults import Fault

__all__ = ["simulate", "switch"]

_SWITCHING = RLock()


class Simulation:
    """The return value of `simulate`; used as a ``with`` block, it restores the earlier state at the end.

    Attributes:
        gpus: The number of simulated GPUs requested.
        memory: The bytes of each, or None for no limit.
        faults: The faults on them.
        like: The platform that they imitate.
        native_names: True if the framework's own names for GPUs mean them.
        async_copies: When a copy that does not block arrives.
    """

    def __init__(self, request: Request, before: Request) -> None:
        self.gpus: int = request[0]
        self.memory: int | None = request[1]
        self.faults: tuple[Fault, ...] = request[2]
        self.like: str = request[3]
        self.native_names: bool = request[4]
        self.async_copies: str = request[5]
        self._before = before

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *failure: object) -> None:
        switch(self._before)

    def __repr__(self) -> str:
        names = " with native names" if self.native_names else ""
        return f"<{_description(self.gpus, self.memory, self.faults, self.like)}{names}>"


def _description(gpus: int, memory: int | None, faults: tuple[Fault, ...], like: str) -> str:
    cards = f"{gpus} simulated GPU{'' if gpus == 1 else 's'}{'' if like == 'cuda' else f' like {like!r}'}"
    size = "" if memory is None else f" of {memory:,} bytes"
    failing = f" with {len(faults)} fault{'' if len(faults) == 1 else 's'}" if faults else ""
    return f"{cards}{size}{failing}"


def simulate(
    gpus: int = 2,
    memory: str | int | None = None,
    *,
    faults: Fault | Sequence[Fault] = (),
    like: Literal["cuda", "mps", "xpu"] = "cuda",
    native_names: bool = False,
    async_copies: Literal["immediate", "late"] = "immediate",
) -> Simulation:
    """Show simulated GPUs, in every framework that supports it, on a machine that has none.

    Args:
        gpus: The number of GPUs; 0 switches them off. At most 1,024 on NumPy, 16 on PaddlePaddle and 64 on the others.
        memory: The memory of each, in bytes or as text such as ``"4GiB"``; None for no limit.
        faults: Failures on them, for tests of error handling: a `Fault` or several.
        like: The platform that they imitate. ``"mps"`` is the GPU of a Mac: there is one, and it refuses float64 and
            complex128, in the words of PyTorch. ``"xpu"`` is an Intel Arc GPU, which refuses these dtypes too.
        native_names: True if the framework's own names for GPUs, such as ``"cuda:1"`` on PyTorch and ``/GPU:1`` on
            TensorFlow, mean the simulated GPUs, for programs that are written for real ones. A value of
            ``CUDA_VISIBLE_DEVICES`` then hides simulated GPUs as it hides real ones.
        async_copies: With ``"late"``, a copy with ``non_blocking=True`` in PyTorch's own calls, to the host or from
            pinned memory, arrives only when something waits for it, and so does a copy between GPUs. So a missing wait
            gives wrong values every time, instead of now and then. On the other frameworks every copy is complete on
            return, and this changes nothing.

    Returns:
        A handle that restores the earlier state if it is used as a ``with`` block; otherwise it can be dropped.

    Raises:
        SimulationError: A framework started its devices before, sees real GPUs, or has a limit; nothing has changed.
        UnsupportedError: The current framework declares that it cannot simulate, or not under its own names.
        ArgumentError: ``gpus``, ``memory``, ``faults``, ``like``, ``native_names`` or ``async_copies`` is invalid.

    A simulated GPU stores real data, has its own label, and computes on the CPU. To request the same from the
    environment, set ``DEVSHIM_SIMULATE_GPUS=1``, ``DEVSHIM_SIMULATE_MEMORY=4GiB`` and ``DEVSHIM_SIMULATE_LIKE=mps``.
    For a whole program, use ``devshim run --gpus 2 script.py``. The logger ``devshim`` logs each framework that shows
    simulated GPUs.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2, memory="4GiB"):
        ...     x = ds.ones(3, device="gpu:1")
        ...     print(ds.device_of(x), ds.describe("gpu:1").simulated)
        gpu:1 True
    """
    tracing.refuse("simulate", "call it at the top of the program")
    if isinstance(gpus, str) and gpus[-1:] in ("b", "B") and is_size(gpus):
        raise argument_hints.swapped_simulate(gpus, memory)
    before = simulation_request.full_request()
    count = read_count(gpus)
    platform = like if like == "cuda" else read_like(like, count)
    names, arrival = read_native_names(native_names, platform), read_async_copies(async_copies)
    request = (count, read_limit(memory), _read_faults(faults), platform, names and count > 0, arrival)
    switch(request)
    return Simulation(request, before)


def apply_request(backend: Backend) -> None:
    """Give a backend that is being loaded the simulated GPUs that this process requested."""
    request = simulation_request.visible_request()
    if not (request[0] or request[4]):
        return
    try:
        _apply(backend, request)
    except (SimulationError, UnsupportedError) as error:
        # Loading continues, for work on the CPU; a call that asks for a GPU raises an error with this reason. It is
        # a copy, because a traceback would keep the program's variables, such as tensors.
        backend.simulation_refused = SimulationError(error.problem, error.hint)
    _simulate_nvml(request[4])


def switch(request: Request) -> None:
    """Set the process's request on all frameworks or on none; only one thread at a time does this."""
    with _SWITCHING:
        _switch_all(request)


def _switch_all(request: Request) -> None:
    name, gpus = current_module.chosen_name(), request[0]
    if gpus and name is not None:
        _refuse_gap(name, request)
    names = request[4]
    if names:
        gpus = simulation_request.visible_count(gpus)
    concerned = registry.imported_backends()
    changed: list[tuple[Backend, Request]] = []
    before = simulation_request.visible_request()
    refusals = [(backend, backend.simulation_refused) for backend in concerned]
    try:
        for backend in concerned:
            backend.simulation_refused = None
            was = (backend.simulated, *before[1:4], backend.native_names, before[5])
            is_concerned = backend.simulated_or_removed or backend.native_names or gpus or names
            if is_concerned and _offer(backend, (gpus, *request[1:]), backend.name == name):
                changed.append((backend, was))
    except BaseException:
        for backend, was in reversed(changed):
            _set(backend, was)
        for backend, refusal in refusals:
            backend.simulation_refused = refusal
        raise
    simulation_request.asked = request
    _simulate_nvml(names)
    _watch_copies(bool(request[2]))
    for each in discovery.BUILTIN:
        # A framework imported later, by any import statement, gets its GPUs before it starts.
        import_hooks.prepare_import(each)


def _simulate_nvml(wanted: bool) -> None:
    """Let NVIDIA's library for questions about GPUs answer for the simulated ones, or not."""
    if wanted or "devshim.simulation.nvml" in modules:
        from devshim.simulation import nvml

        nvml.set_simulated(wanted)


def _watch_copies(watched: bool) -> None:
    """Count every copy while faults are requested; without faults, copies cost nothing extra."""
    if watched:
        from devshim.simulation.faults import check_faults
    observing.activate(fault=check_faults if watched else None)


def _offer(backend: Backend, request: Request, current: bool) -> bool:
    """Switch one backend; one that cannot and is not current stores the reason for later requests for a GPU."""
    try:
        _apply(backend, request)
    except (SimulationError, UnsupportedError) as error:
        if current or backend.simulated:
            raise
        backend.simulation_refused = SimulationError(error.problem, error.hint)
        return False
    return True


def _apply(backend: Backend, request: Request) -> None:
    if "simulate" in backend.gaps:
        raise capabilities.unsupported_error(backend, "simulate")
    if (request[0] or request[4]) and not backend.simulated and (real := backend.count("gpu")):
        raise messages.real_gpus_present(backend, real)
    if request[0] > backend.most_simulated_gpus:
        raise messages.too_many_gpus(backend, request[0])
    _set(backend, request)


def _set(backend: Backend, request: Request) -> None:
    """Switch a backend, and log that to the logger "devshim" if the program has imported `logging`."""
    from devshim.simulation import removed_gpus

    gpus, memory, faults, like, names, async_copies = request
    named = names and "native_names" not in backend.gaps
    if backend.native_names and not (named and bool(gpus) == bool(backend.simulated)):
        _name_gpus(backend, False)  # and on again below, if GPUs that were hidden are shown, or the other way round
    backend.native_names_requested = named
    try:
        removed_gpus.switch(backend, gpus, memory, faults)
    except BaseException:
        backend.native_names_requested = backend.native_names
        raise
    _imitate(backend, like if gpus else "cuda")
    if backend.simulated_devices is not None:
        backend.simulated_devices.async_copies = async_copies if gpus else "immediate"
    if named and not backend.native_names:
        _name_gpus(backend, True)
    logging = modules.get("logging")
    if logging is not None:
        without = "no GPUs, because all simulated ones are hidden" if names else "no more simulated GPUs"
        state = f"{_description(gpus, memory, faults, like)}, computed on the CPU" if gpus else without
        logging.getLogger("devshim").info("%s shows %s", backend.title, state)
    simulation_request.notify_switched(backend)


def _name_gpus(backend: Backend, named: bool) -> None:
    """Let the framework's own names for GPUs mean the simulated GPUs, or let them mean what they meant before."""
    backend.set_native_names(named)
    backend.native_names = named
    if backend.out_of_memory_class is not None:
        backend.out_of_memory_class._native_names = named


def _imitate(backend: Backend, like: str) -> None:
    """Give a backend the names and the dtypes of a platform; without simulated GPUs, its own GPUs' names and dtypes."""
    backend.simulated_like = like
    platform = like if backend.simulated else backend.platform("gpu")
    backend.dtypes_lacking = platforms.missing_dtypes(platform, simulated=bool(backend.simulated))
    if backend.simulated_devices is not None:
        backend.simulated_devices.dtypes_lacking = backend.dtypes_lacking if backend.simulated else frozenset()
        backend.simulated_devices.like = like
    parsing.forget_platforms()


def _refuse_gap(name: str, request: Request) -> None:
    """Raise for a gap that the current backend declares, before anything is imported or changed."""
    declared = registry.gaps(name)
    has_names = "native_names" not in declared or declared["native_names"].kind != "never"
    needed = {"simulate": True, "simulate_memory": request[1] is not None, "native_names": request[4] and has_names}
    for feature in needed:
        if needed[feature] and feature in declared:
            raise capabilities.unsupported_error(registry.load(name), feature)


def _read_faults(faults: object) -> tuple[Fault, ...]:
    if faults == ():
        return ()
    from devshim.simulation.faults import Fault

    found = (faults,) if isinstance(faults, Fault) else tuple(faults) if isinstance(faults, (list, tuple)) else (None,)
    if not all(isinstance(fault, Fault) for fault in found):
        msg = f"faults is {show(faults)}, and it must be ds.Fault objects"
        raise ArgumentError(msg, "pass ds.Fault('gpu:1', 'allocation', at=3)")
    return found


registry.on_load(apply_request)

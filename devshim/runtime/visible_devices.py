"""Set which GPUs every framework of this process sees, with the driver's environment variable, and undo that.

A framework reads the variable once, when it starts its devices. Simulated GPUs with native names read it too. Of
other simulated GPUs, the first ones are shown. A call is too late once a tensor was made on a simulated GPU, because
the tensor would lose its device.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from devshim.errors import AlreadyStartedError, DeviceNotFoundError
from devshim.errors.messages import already_started
from devshim.registry import registry, simulation_request
from devshim.simulation import simulate
from devshim.transfers import observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["restore", "show"]

_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_before: dict[str, str | None] | None = None
"""The values of the variables before the first call."""
_simulated: tuple[int, int] | None = None
"""The number of simulated GPUs shown, and the number before the first call."""


def show(wanted: list[int]) -> None:
    """Show only these GPUs, in this order; see `devshim.set_visible_devices`."""
    global _before
    call = f"ds.set_visible_devices({wanted})"
    concerned = _require_unused(call)
    named = simulation_request.has_native_names()
    if simulation_request.is_requested() and not named:
        _show_simulated(wanted, call)
        return
    was = {name: os.environ.get(name) for name in _VARIABLES}
    _explain_line(*(_set_for_simulated if named else _set_environment)(wanted, call))
    try:
        _apply(concerned, wanted)
    except BaseException:
        _restore(was)
        raise
    _before = _before or was


def restore() -> None:
    """Undo all calls of `show`."""
    global _before, _simulated
    concerned = _require_unused("ds.set_visible_devices(None)")
    simulated, was = _simulated, _before
    if simulated is not None:
        shown, before = simulated
        if simulation_request.simulated_gpus() == shown:  # otherwise `simulate` was called since
            _keep_first(before)
        _simulated = None
    if was is not None:
        _restore(was)
        _before = None
        _apply(concerned, None)


def _apply(concerned: list[Backend], indices: list[int] | None) -> None:
    """Let the backends of this process follow the variables, which have changed."""
    if simulation_request.has_native_names():
        simulate.switch(simulation_request.full_request())
        return
    for backend in concerned:
        backend.set_visible(indices)


def _require_unused(call: str) -> list[Backend]:
    """Return the backends of this process; raise `AlreadyStartedError` if one of them has used its GPUs."""
    concerned = registry.imported_backends()
    for backend in concerned:
        if backend.simulated or backend.native_names:
            used = [gpu.device for gpu in backend.simulated_devices or () if gpu.info().peak]
            if used:
                msg = (
                    f"{call} came too late: {backend.title} has already made a tensor on {used[0]}, which is simulated"
                )
                raise AlreadyStartedError(
                    msg,
                    f"move {call} to the top of the program, before the first tensor on a GPU",
                )
        elif backend.started():
            raise already_started(backend, call)
    return concerned


def _restore(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _explain_line(variable: str, value: str) -> None:
    """Show the line that hides GPUs from every framework; it is the same for all."""
    shown = observing.explainer()
    if shown is not None:
        shown.line(f'os.environ["{variable}"] = "{value}"  # before the framework starts')


def _show_simulated(wanted: list[int], call: str) -> None:
    global _simulated
    have = simulation_request.simulated_gpus()
    _check(wanted, have, call, simulation_request.why_hidden() or f"devshim simulates {have}")
    _explain_line("CUDA_VISIBLE_DEVICES", ",".join(map(str, wanted)))
    _keep_first(len(wanted))
    earlier = _simulated
    before = earlier[1] if earlier is not None and earlier[0] == have else have
    _simulated = (len(wanted), before)


def _keep_first(gpus: int) -> None:
    """Show only the first simulated GPUs; they are all the same, so it does not matter which."""
    simulate.switch((gpus, *simulation_request.full_request()[1:]))


def _set_for_simulated(wanted: list[int], call: str) -> tuple[str, str]:
    """Set the variable for simulated GPUs with native names, and return its name and value."""
    variable = "CUDA_VISIBLE_DEVICES"
    value = os.environ.get(variable)
    numbers = simulation_request.visible_indices(simulation_request.full_request()[0])
    given = f"{variable} is {value!r}" if value else f"devshim simulates {len(numbers)}"
    _check(wanted, len(numbers), call, simulation_request.why_hidden() or given)
    if value and value.strip():
        names = list(map(str.strip, value.split(",")))
    else:  # an empty value hides real GPUs: a number may be that of one of them, but none has one of these UUIDs
        names = list(map(str if value is None else simulation_request.uuid, numbers))
    os.environ[variable] = ",".join(names[index] for index in wanted) or "-1"
    return variable, os.environ[variable]


def _set_environment(wanted: list[int], call: str) -> tuple[str, str]:
    """Set the driver's variable, and return its name and value."""
    amd = os.path.exists("/dev/kfd")  # ROCm's driver, which reads its own variable
    if not amd:
        _require_unread(call)
    variable = "HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
    names, why = _visible(variable, wanted)
    _check(wanted, len(names), call, why)
    os.environ[variable] = ",".join(names[index] for index in wanted)
    return variable, os.environ[variable]


def _require_unread(call: str) -> None:
    """Refuse if CUDA has already read its variable: a framework imported later would see other GPUs than set now."""
    from devshim.devices import nvml

    if nvml.cuda_started():
        msg = f"{call} came too late: CUDA is initialized in this process, and has read CUDA_VISIBLE_DEVICES"
        raise AlreadyStartedError(
            msg,
            f"move {call} to the top of the program, before any library, including CuPy and numba, looks for GPUs",
        )


def _visible(variable: str, wanted: list[int]) -> tuple[list[str], str]:
    """Return the GPUs that a variable shows now, by the driver's names, and why there are that many."""
    from devshim.devices import cuda, nvml

    value = os.environ.get(variable)
    if value is not None:
        return nvml.parse_visible_devices(value), f"{variable} is {value!r}"
    if variable == "HIP_VISIBLE_DEVICES":  # no cheap call counts AMD GPUs: the framework refuses a missing one
        return [str(index) for index in range(max(wanted, default=-1) + 1)], ""
    count = cuda.count()
    return [str(index) for index in range(count)], nvml.why_no_more(count)


def _check(wanted: list[int], have: int, call: str, why: str) -> None:
    if wanted and max(wanted) >= have:
        msg = f"{call} asks for gpu:{max(wanted)}, and {have} {'is' if have == 1 else 'are'} visible: {why}"
        raise DeviceNotFoundError(
            msg,
            "run `devshim devices` to see the cards, or ds.simulate(gpus=...) to go on without them",
        )

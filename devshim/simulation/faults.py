"""The faults that a test can request on a simulated GPU; `devshim.simulation.memory` counts their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.devices.device import CPU, Device, as_int
from devshim.devices.parsing import device as as_device
from devshim.errors import ArgumentError
from devshim.errors.formatting import show

if TYPE_CHECKING:
    from typing import Literal

    from devshim.contract.backend import Backend
    from devshim.devices.parsing import DeviceLike

__all__ = ["EVENTS", "Fault", "check_faults"]

EVENTS = ("allocation", "copy", "vanish")


class Fault:
    """A failure on a simulated GPU, for tests of error handling: ``ds.simulate(faults=...)``.

    Args:
        device: The simulated GPU.
        what: ``"allocation"``: an allocation on it does not fit (`OutOfMemoryError`). ``"copy"``: a copy that devshim
            makes to it or from it fails (`DeviceFailedError`). ``"vanish"``: starting with an allocation or a copy,
            every operation on it fails (`DeviceFailedError`), until `simulate` is called again.
        at: The number of the event that fails, counted from 1 for each framework and GPU since `simulate`; for
            ``"vanish"``, allocations and copies are counted together.
        times: How many events in a row fail; a GPU that has vanished stays vanished.

    Raises:
        ArgumentError: ``device`` is not a GPU, or another argument is invalid.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2, faults=ds.Fault("gpu:1", "copy")):
        ...     try:
        ...         ds.place(ds.ones(3, dtype="float32"), "gpu:1")
        ...     except ds.DeviceFailedError as error:
        ...         print(error.problem)
        gpu:1 failed during a copy of 12 bytes
    """

    __slots__ = ("at", "device", "times", "what")
    device: Device
    what: str
    at: int
    times: int

    def __init__(
        self, device: DeviceLike, what: Literal["allocation", "copy", "vanish"], at: int = 1, times: int = 1
    ) -> None:
        self.device = as_device(device)
        if self.device.kind != "gpu":
            msg = f"a fault is for a simulated GPU, not for {self.device}"
            raise ArgumentError(msg, "pass 'gpu:0'")
        if what not in EVENTS:
            msg = f"a fault is {show(what)}, and it must be one of {EVENTS}"
            raise ArgumentError(msg, f"pass {EVENTS[0]!r}")
        self.what = what
        self.at, self.times = _positive("at", at), _positive("times", times)

    def __repr__(self) -> str:
        more = "" if self.times == 1 else f", times={self.times}"
        return f"Fault({str(self.device)!r}, {self.what!r}, at={self.at}{more})"


def _positive(name: str, value: object) -> int:
    try:
        number = as_int(value)
    except TypeError:
        number = 0
    if number < 1:
        msg = f"{name} is {show(value)}, and it must be an int of at least 1"
        raise ArgumentError(msg, f"pass {name}=1")
    return number


def check_faults(backend: Backend, source: Device | None, target: Device, what: str) -> None:
    """Trigger faults; `transfers.engine` calls this before a copy, or (without a source) before other operations."""
    simulated = backend.simulated_devices
    if simulated is None or not backend.simulated:
        return
    for device in dict.fromkeys((target, source)):  # a set would count in another order in each process
        if device is None or device is CPU:
            continue
        if source is None:
            simulated[device.index].check_alive(what)
        else:
            simulated[device.index].count_copy(what)

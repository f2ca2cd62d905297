"""`timer`: the time of work on a device, from its start to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.devices import parsing
from devshim.errors import messages
from devshim.registry import current, start_failures, tracing
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from devshim.devices.parsing import DeviceLike

__all__ = ["timer"]


class timer:
    """A ``with`` block that measures the time of the work on a device.

    Args:
        device: The device.

    Raises:
        DeviceNotFoundError: On entry, if the current framework does not have the device, or it cannot start.

    Frameworks return before a GPU has computed. So the block waits for the device at its begin and at its end, and
    ``seconds`` is the time in between: by CUDA events where the framework has them (PyTorch), by the host's clock
    elsewhere. Without GPUs, and on simulated ones, it is the time of the block.

    Attributes:
        seconds: The time of the last block that ended; NaN before.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> with ds.timer("cpu") as t:
    ...     x = ds.ones((100, 100)) @ ds.ones((100, 100))
    >>> 0 < t.seconds < 10
    True
    """

    def __init__(self, device: DeviceLike) -> None:
        self._device = parsing.device_of_argument(device)
        self._running: list[Callable[[], float]] = []
        self.seconds: float = float("nan")

    def __enter__(self) -> timer:
        tracing.refuse("timer", "measure the call of the compiled function: inside it nothing has been computed yet")
        backend = current.current()
        target = engine.require(backend, self._device)
        observing.show_call(backend, "synchronize", target)
        self._running.append(start_failures.ask_device(backend, target, backend.start_timer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._running:
            raise messages.not_entered("timer")
        stop = self._running.pop()
        try:
            self.seconds = stop()
        except Exception:
            if error is None:  # the error of the block says more than that the device cannot be waited for
                raise

    def __repr__(self) -> str:
        return f"<timer of {self._device}: {self.seconds:.6f} seconds>"

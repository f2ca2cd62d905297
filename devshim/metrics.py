"""`MetricLog`: numbers that a loop computes on a device stay there, and come to the host together.

Writing down a loss each step (``float(loss)``) makes the host wait for the device each time; a thousand numbers in one
transfer cost what one costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim import _arguments, _context, _outside, _registry, _spec, _transfer
from devshim._refusals import bad_argument
from devshim._show import show, type_name
from devshim.errors import ArgumentError, DeviceMismatchError

if TYPE_CHECKING:
    from devshim._spec import DeviceLike
    from devshim.backend import Backend, Tensor
    from devshim.device import Device

__all__ = ["MetricLog"]


class MetricLog:
    """Scalars kept on a device until they are wanted.

    Args:
        device: Where the scalars are computed, and stay; without it where the first one is.
        capacity: How many are kept there at most; one more, and those before it are brought to the host in one transfer
            first.

    Raises:
        ArgumentError: ``capacity`` is less than 1.
        DeviceNotFoundError: The current framework does not have the device.

    >>> log = ds.MetricLog("gpu:0")  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     log.append(step(batch))
    >>> losses = log.flush()  # doctest: +SKIP
    """

    def __init__(self, device: DeviceLike | None = None, capacity: int = 1024) -> None:
        self._device: Device | None = None
        if device is not None:
            self._device = _transfer.require(_context.current(), _spec.device(device))
        self.capacity = _arguments.integer("capacity", capacity)
        if self.capacity < 1:
            raise bad_argument("capacity", capacity, "at least 1")
        self._backend: Backend | None = None
        self._kept: list[Tensor] = []
        self._numbers: dict[int, float] = {}
        self._values: list[np.ndarray] = []
        self._length = 0

    def __len__(self) -> int:
        """How many values have been appended since the last `flush`."""
        return self._length

    def append(self, value: Tensor | float) -> None:
        """Take a value as it is now; a later change of the tensor in place does not change what was taken.

        Args:
            value: A tensor of one element on the log's device, of any shape and gradient, or a Python number.

        Raises:
            DeviceMismatchError: The tensor is elsewhere: the log moves nothing unasked.
            ArgumentError: It has more than one element, or is of another framework than those before it.
        """
        # Also where the compiler could repeat it: torch.compile (2.13) compiles anew for each length, up to 8.
        _outside.refuse("MetricLog.append", "return the value from the function, and append it outside")
        backend = _registry.serving(value)
        if backend is None or isinstance(value, np.generic):
            self._numbers[self._length] = float(_arguments.real("value", value))
        else:
            self._check(backend, value)
            if len(self._kept) >= self.capacity:
                self._bring()
            self._kept.append(backend.snapshot(value))
        self._length += 1

    def _check(self, backend: Backend, value: Any) -> None:
        here = backend.device_of(value)
        device = here if self._device is None else self._device
        if here is not device:
            raise DeviceMismatchError(
                f"a MetricLog on {device} got a value on {here}",
                f"ds.place(value, {str(device)!r}), or ds.MetricLog({str(here)!r})",
            )
        size = 1
        for length in backend.shape(value):
            size *= length
        if size != 1:
            raise ArgumentError(
                f"a MetricLog takes one number at a time, and this tensor has the shape {show(backend.shape(value))}",
                "append its mean or sum",
            )
        if self._backend is not None and backend is not self._backend:
            raise ArgumentError(
                f"a MetricLog of {self._backend.title} got a {type_name(value)} of {backend.title}",
                "keep a log for each framework",
            )
        self._backend, self._device = backend, device

    def _bring(self) -> None:
        """Bring what is on the device to the host, in one transfer."""
        if self._kept:
            assert self._backend is not None
            together = self._backend.stack(self._kept)
            self._values.append(_transfer.to_host(self._backend, together, copy=True))
            self._kept.clear()

    def flush(self) -> np.ndarray:
        """Return all values in the order they were appended, in one transfer, and empty the log.

        Returns:
            An array of shape (n,): of the scalars' dtype, or of the widest among them; float64 where all were Python
            numbers.  Where the transfer fails, the log keeps what it has.
        """
        _outside.refuse("MetricLog.flush", "flush outside the compiled function")
        self._bring()
        tensors = np.concatenate(self._values) if self._values else np.empty(0)
        if not self._numbers:
            found = tensors
        else:
            found = np.empty(self._length, tensors.dtype if self._values else "float64")
            at = np.ones(self._length, bool)
            at[list(self._numbers)] = False
            found[at] = tensors
            found[~at] = list(self._numbers.values())
        self._values, self._numbers, self._length = [], {}, 0
        return found

    def __repr__(self) -> str:
        where = "" if self._device is None else f" on {self._device}"
        return f"<MetricLog{where}: {self._length} values, {len(self._kept)} of them there>"


MetricLog.__module__ = "devshim"

"""The contract for tensors on several devices: what `split`, `gather`, `all_reduce` and `MetricLog` need of an adapter.

An adapter implements these methods in ``collectives.py``. A backend without them inherits everything here, and each
method raises `UnsupportedError` with the gap that the backend declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from devshim.contract import capabilities
from devshim.contract.rank_engines import RanksBackend

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.devices.device import Device

__all__ = ["CollectiveBackend"]


class CollectiveBackend(RanksBackend):
    """The mixin of `Backend` for tensors on several devices."""

    def narrow(self, x: Any, axis: int, start: int, stop: int) -> Any:
        """Return the part of a tensor from ``start`` to ``stop`` along an axis, as a view or a copy; gradients flow."""
        raise self._no_collectives()

    def narrow_copies(self, x: Any) -> bool:
        """Return True if a shorter part that `narrow` returns has new memory, on the tensor's device, and is complete.

        `devshim.split` then does not copy it again.
        """
        return False

    def concatenate(self, xs: Sequence[Any], axis: int) -> Any:
        """Join tensors of one device along an axis, in new memory; gradients flow."""
        raise self._no_collectives()

    def stack_tensors(self, xs: Sequence[Any]) -> Any:
        """Join tensors of one device and shape along a new first axis, in new memory; gradients flow.

        dtypes are promoted as in the framework's own ``stack``, or refused with the framework's error.
        """
        raise self._no_collectives()

    def combine(self, xs: Sequence[Any], op: Literal["sum", "mean", "max", "min"]) -> Any:
        """Return the elementwise sum, mean, maximum or minimum of tensors of one device, shape and dtype.

        The result is new, in the tensors' own dtype, computed in the given order; NaN if any of them is. No gradients.
        """
        raise self._no_collectives()

    def detached_copy(self, x: Any) -> Any:
        """Return a copy of a tensor on its device, free of any graph, even if the tensor needs gradients.

        Returns the tensor itself if nothing can change it or take its memory.
        """
        raise self._no_collectives()

    def ran_on(self, x: Any) -> Device | None:
        """Return the device that computed a tensor whose result stays in host memory; None: ask `device_of`."""
        return None

    def scalar_reader(self, x: Any) -> tuple[Callable[[Any], Any], np.dtype] | None:
        """Return a function that reads one-element tensors like ``x``, and the dtype of the values it reads.

        The function returns the element's bytes or the Python number; or, if reading would wait for the computation,
        a `detached_copy`, which `scalar_bytes` reads later. It returns None, or may raise, for a tensor of another
        type, dtype or device, or with more elements. Called only for plain tensors of one element on the host and on
        simulated GPUs: their memory is the host's, and reading a number there costs less than an operator that copies
        it. The result is None if that is not so, and for dtypes that NumPy lacks.
        """
        return None

    def scalar_bytes(self, x: Any) -> bytes:
        """Wait for a copy that a `scalar_reader` has returned, and return the bytes of its element."""
        return memoryview(x).tobytes()

    def scalar_copier(self, x: Any) -> Callable[[Any], Any] | None:
        """Return a function that makes a `detached_copy` of one-element tensors like ``x``, with few calls.

        It returns None, or may raise, for a tensor of another type, dtype or device, or with more elements. Called only
        for tensors that `devshim.MetricLog` has checked and `scalar_reader` does not read, such as those of a real GPU.
        The result is None if there is no faster way than `detached_copy`.
        """
        return None

    def stack_scalars(self, xs: Sequence[Any]) -> Any:
        """Return the numbers of one-element tensors of one device as one tensor of shape (n,) on that device.

        The result has the widest of the dtypes; bfloat16, which NumPy lacks, becomes float32. Gradients do not flow.
        """
        raise self._no_collectives()

    def assign(self, x: Any, value: Any) -> None:
        """Overwrite the values of ``x`` in place with those of a tensor on its device. Not for immutable tensors."""
        raise self._no_collectives()

    def all_reduce(self, xs: Sequence[Any], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Any] | None:
        """Reduce tensors of several devices with the framework's own engine into a new one on each; None without it."""
        return None

    def all_reduce_many(
        self, groups: Sequence[Sequence[Any]], op: Literal["sum", "mean", "max", "min"]
    ) -> Sequence[Sequence[Any] | None]:
        """Return `all_reduce` of each leaf of a tree, all on the same devices in one order; override to be faster."""
        return [self.all_reduce(xs, op) for xs in groups]

    def supports_inplace(self, x: Any) -> bool:
        """Return True if `assign` can overwrite ``x``; otherwise `all_reduce_` replaces it in the list it was given."""
        return not self.immutable  # type: ignore[attr-defined]  # the backend's own

    def has_overlap(self, x: Any) -> bool:
        """Return True if elements of ``x`` share memory, as those of an expanded tensor: `assign` cannot write them.

        Default: the framework has no such tensors, or its tensors are immutable.
        """
        return False

    def is_variable(self, x: Any) -> bool:
        """Return True if `assign` can overwrite ``x`` although the framework's tensors are immutable."""
        return False

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        """Capture this thread's state, such as gradient recording; the result makes a context for another thread."""
        return nullcontext

    def _no_collectives(self) -> Exception:
        return capabilities.unsupported_error(self, "several")  # type: ignore[arg-type]  # only Backend derives from this

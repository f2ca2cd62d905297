"""The creation functions of an array-API namespace: those of `devshim.tensors.creation`, for one framework.

Without ``device=`` they use the device of `devshim.on`, or the CPU, as the public functions do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim._compiler_marks import constant_under_compile
from devshim.contract.namespaces import CREATION
from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.errors import ConversionError, TracingError, messages
from devshim.errors.messages import bad_argument
from devshim.registry import current, registry, tracing
from devshim.tensors import arguments, creation, from_values, plans
from devshim.transfers import alignment, engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["functions"]


def functions(backend: Backend, native: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the creation functions of a framework by name; those of ``fft`` are native ones with a device."""
    made = _Creation(backend)
    frequencies = [name for name in ("fft.fftfreq", "fft.rfftfreq") if name in native]
    return {
        **{name: getattr(made, name) for name in CREATION},
        **{name: made.frequencies(name, native[name]) for name in frequencies},
    }


class _Creation:
    """The creation functions of one framework."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def _make(
        self, call: str, args: tuple[object, ...], dtype: object, device: DeviceLike | None, *more: object
    ) -> Tensor:
        backend = self._backend
        try:
            where = arguments.target(backend, device)
            return engine.make(*plans.plan_for(backend, call, where, args, dtype), *more)
        except TracingError:
            return self._make_when_traced(call, (*args, *more), dtype, device)

    def _make_when_traced(
        self, call: str, args: tuple[object, ...], dtype: object, device: DeviceLike | None
    ) -> Tensor:
        """Make a tensor where a compiled function runs, as the handler of a TracingError: raise that if it cannot."""
        if device is not None or self._backend.traces_bytecode:
            raise
        return engine.make(*plans.beside(self._backend, None, call, args, dtype))

    def asarray(
        self, obj: object, /, *, dtype: object = None, device: DeviceLike | None = None, copy: bool | None = None
    ) -> Tensor:
        """Return a tensor with the values of an object: see `devshim.asarray`."""
        owner = registry.backend_for(obj)
        if owner is not None and owner is not self._backend and not owner.has_plain_arrays:
            raise messages.several_frameworks("xp.asarray", (self._backend, owner), self._backend)
        try:
            if _is_current(self._backend.name):
                return from_values.asarray(obj, dtype=dtype, device=device, copy=copy)
            with current.using(self._backend.name):
                return from_values.asarray(obj, dtype=dtype, device=device, copy=copy)
        except TracingError as error:
            if copy is False:
                raise
            return self._asarray_when_traced(obj, dtype, device, error)

    def _asarray_when_traced(self, obj: Any, dtype: object, device: DeviceLike | None, error: TracingError) -> Tensor:
        """Return the values of an object where a compiled function runs; raise if that is not possible."""
        backend = self._backend
        if device is not None or backend.traces_bytecode:
            raise messages.tracing(backend, "asarray", "create the tensor outside, and pass it in") from error
        if registry.backend_for(obj) is backend and backend.immutable:
            return from_values.asarray(obj, dtype=dtype)  # nothing in the function can tell it from a copy
        values = from_values.values_of(backend, obj)
        if values is None:
            raise error
        if dtype is None and isinstance(values, np.ndarray):
            dtype = values.dtype.name
        return engine.make(*plans.beside(backend, None, "asarray", (values,), dtype))

    def empty(self, shape: Shape, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return a tensor of a shape with uninitialized values."""
        return self._make("empty", (arguments.shape(shape),), dtype, device)

    def zeros(self, shape: Shape, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return a tensor of zeros."""
        return self._make("zeros", (arguments.shape(shape),), dtype, device)

    def ones(self, shape: Shape, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return a tensor of ones."""
        return self._make("ones", (arguments.shape(shape),), dtype, device)

    def full(
        self, shape: Shape, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None
    ) -> Tensor:
        """Return a tensor filled with one value."""
        return self._make("full", (arguments.shape(shape), arguments.fill_number(fill_value)), dtype, device)

    def arange(
        self,
        start: float,
        /,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: object = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """Return evenly spaced values in ``[start, stop)``."""
        low, high = (0, start) if stop is None else (start, stop)
        return self._make("arange", arguments.steps(low, high, step), dtype, device)

    def linspace(
        self,
        start: complex,
        stop: complex,
        /,
        num: int,
        *,
        dtype: object = None,
        device: DeviceLike | None = None,
        endpoint: bool = True,
    ) -> Tensor:
        """Return ``num`` evenly spaced values from ``start`` to ``stop``."""
        (count,) = arguments.shape(arguments.integer("num", num))
        args = (arguments.number("start", start), arguments.number("stop", stop), count)
        return self._make("linspace", args, dtype, device, bool(endpoint))

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: object = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """Return ones on the k-th diagonal and zeros elsewhere."""
        rows, columns = arguments.shape((n_rows, n_rows if n_cols is None else n_cols))
        return self._make("eye", (rows, columns, arguments.integer("k", k)), dtype, device)

    def empty_like(self, x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return uninitialized values in the shape of ``x``."""
        return creation.empty_like(self._own(x, "xp.empty_like"), dtype=dtype, device=device)

    def zeros_like(self, x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return zeros in the shape of ``x``."""
        return creation.zeros_like(self._own(x, "xp.zeros_like"), dtype=dtype, device=device)

    def ones_like(self, x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
        """Return ones in the shape of ``x``."""
        return creation.ones_like(self._own(x, "xp.ones_like"), dtype=dtype, device=device)

    def full_like(
        self, x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None
    ) -> Tensor:
        """Return one value in the shape of ``x``."""
        return creation.full_like(self._own(x, "xp.full_like"), fill_value, dtype=dtype, device=device)

    def from_dlpack(self, x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
        """Return a tensor over the memory of an object with ``__dlpack__``, moved to a device if one is given."""
        backend = self._backend
        if isinstance(x, np.ndarray) and (reading := tracing.reading) is not None and reading():
            tracing.refuse_where_read("from_dlpack", "make the tensor outside, and pass it in")
        try:
            made = x if registry.backend_for(x) is backend else self._share(x)
        except ConversionError as error:
            if copy is False:
                raise
            return self._copy_from_host(x, device, error)
        where = (
            backend.device_of(made) if device is None else engine.require(backend, parsing.device_of_argument(device))
        )
        return made if engine.is_placed(backend, made, where, copy) else engine.move(backend, made, where)

    def _share(self, x: Any) -> Tensor:
        """Return a tensor over the memory of an object, which is aligned as the framework's operators need it."""
        backend = self._backend
        if not isinstance(x, np.ndarray):
            return backend.from_dlpack(alignment.check_producer(backend, x))
        if not alignment.is_aligned(backend, x):
            why = alignment.alignment_problem(backend, x.dtype.name, x.itemsize, x.ctypes.data)
            raise ConversionError(str(why), "leave copy out to copy it")
        return backend.from_dlpack(x)

    def _copy_from_host(self, x: Any, device: DeviceLike | None, error: ConversionError) -> Tensor:
        """Copy host memory that the framework refuses to share, such as memory that is not aligned."""
        backend = self._backend
        where = CPU if device is None else engine.require(backend, parsing.device_of_argument(device))
        try:
            array = x if isinstance(x, np.ndarray) else np.from_dlpack(x)
        except Exception:  # producers raise BufferError, RuntimeError, TypeError, ...
            raise ConversionError(error.problem, "ds.convert copies tensors of other frameworks") from error
        return engine.make(*from_values.from_array(backend, arguments.numpy_array(array, None), where, True))

    def frequencies(self, name: str, fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function of frequencies, such as ``fft.fftfreq``, with a device."""

        def make(n: int, /, *, d: float = 1.0, dtype: Any = None, device: DeviceLike | None = None) -> Tensor:
            backend = self._backend
            where, wanted = arguments.target(backend, device), arguments.dtype(backend, dtype)
            if type(n) is int and n < 1:
                raise bad_argument("n", n, "at least 1", "write the length of the transformed axis: n=8")
            made = fn(n, d=d) if wanted is None else fn(n, d=d, dtype=wanted)
            try:
                return made if backend.device_of(made) is where else engine.move(backend, made, where)
            except TracingError as error:
                if device is None:
                    return made  # where the compiled function runs
                raise messages.tracing(backend, name, "leave device out, or create the tensor outside") from error

        return make

    def _own(self, x: Tensor, call: str) -> Tensor:
        """Return a tensor that a call was given, after checking that it belongs to this framework."""
        owner = registry.backend_for(x)
        if owner is not None and owner is not self._backend:
            raise messages.several_frameworks(call, (self._backend, owner), self._backend)
        return x


@constant_under_compile
def _is_current(name: str) -> bool:
    return current.chosen_name() == name

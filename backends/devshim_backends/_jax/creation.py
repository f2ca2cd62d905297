"""Functions that create JAX arrays on a device.

Workarounds:

* JAX creates uncommitted arrays on its default device; an uncommitted array later moves to the device of any other
  operand. Here the array is made under ``jax.default_device`` and then committed to that device, so that mixing devices
  raises. A transfer guard that the user set is lifted meanwhile, because the call asks for the transfer explicitly.
* Without ``jax_enable_x64``, ``dtype=float64`` gives float32 with a warning: see `wide`.
* ``jnp.full((2,), 2**40)`` gives zeros, so an integer that does not fit the dtype is refused.
* ``jnp.full`` first makes an array of one element for the value, which takes memory on a GPU: see `_fill_compiled`.
* If a device is full, JAX may still return an array and raise the error when the array is read (0.10.2): see
  `commit`.
* ``jnp.full((2,), 3)`` is weakly typed: adding a float changes its dtype. So dtypes are explicit here.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean

from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.devices.ranges import read_numbers, require_fit, require_values_fit
from devshim.errors import ConversionError, messages
from devshim_backends._jax.devices import concrete
from devshim_backends._jax.host_tensors import commit_on_host, is_narrow, private_copy, private_memory
from devshim_backends._jax.internals.clients import is_on_one_device
from devshim_backends._jax.internals.widths import default_dtype, is_wide, wide
from devshim_backends._jax.tensors import JaxTensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_SCALAR_TYPES = type(jnp.float32)
_ARANGE_MATCHES = jax.__version_info__ >= (0, 10)
"""True if `_arange` returns the same floats as ``jnp.arange``; older versions of JAX round differently."""
_PYTHON = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
NAMES = frozenset(DTYPES)
"""The dtypes that JAX arrays, the array API and DLPack have in common."""


def _is_known(name: str) -> bool:
    """Return True if JAX has a dtype: it has more than the array API, such as float8_e4m3fn, but fewer than NumPy."""
    return name in NAMES or isinstance(getattr(jnp, name, None), _SCALAR_TYPES)


@partial(jax.jit, static_argnums=(1, 2))
def _fill_compiled(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """Fill an array without an array for the value, which would take memory on the device (unlike ``jnp.full``)."""
    return jax.lax.full(shape, value, dtype)


def _read(values: object, dtype: Any | None) -> np.ndarray:
    """Return Python numbers as an array of numbers that JAX can have."""
    host = read_numbers(values, None if dtype is None else np.dtype(dtype).name)
    if host.dtype.kind not in _PYTHON:
        msg = "JAX has no dtype for these values"
        raise ConversionError(msg, "pass numbers, or nested sequences of numbers whose rows are equally long")
    return host


def _is_plain() -> bool:
    """Return True if a compiled function runs as such: JAX is not tracing, and compilation is not switched off."""
    return bool(trace_state_clean() and not jax.config.jax_disable_jit)


@lru_cache(maxsize=64)
def _filler(native: Any) -> Callable[[int, tuple[int, ...], np.dtype], Tensor]:
    """Return a compiled function that fills an array on a device, and commits it there, in a third of the time.

    The value is a part of the program, so that nothing is transferred: this is for the few values of most calls. It is
    for the host, where no allocation fails by a fault: a failed call is made again on the slow path. Without simulated
    GPUs, `commit_on_host` is used, which compiles nothing.
    """
    options: dict[str, Any] = {"static_argnums": (0, 1, 2), "out_shardings": jax.sharding.SingleDeviceSharding(native)}
    return jax.jit(lambda value, shape, dtype: jax.lax.full(shape, value, dtype), **options)  # type: ignore[no-any-return]


def commit(x: Tensor, native: Any) -> Tensor:
    """Commit a new array to its device, and raise if JAX already knows that the device is full.

    In that case the array is ready immediately; devshim does not wait for an array that is still being computed.
    """
    y = jax.device_put(x, native)
    if y.is_ready():
        y.block_until_ready()
    return y


class JaxCreation(JaxTensors):
    """The mixin for creation functions."""

    def dtype(self, name: str) -> Any:
        if not _is_known(name):
            raise messages.no_dtype(self, name)
        return jnp.dtype(name)

    def is_dtype(self, value: object) -> bool:
        if isinstance(value, np.dtype):
            return bool(value.isnative) and _is_known(value.name)
        return isinstance(value, _SCALAR_TYPES)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        host = _read(values, dtype)
        wanted = default_dtype(_PYTHON[host.dtype.kind]) if dtype is None else np.dtype(dtype)
        require_values_fit(values, wanted.name, host)
        if not trace_state_clean() and self.compiling():
            raise self._creation_error("asarray")
        native = self.to_native(device)
        copied = private_copy(host, wanted)
        found = self._commit_on_host(copied, native, device)
        if found is not None:
            return found
        with wide(wanted):
            return jax.device_put(copied, native)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        value = concrete(x)
        wanted = np.dtype(dtype)
        if not isinstance(value, jax.Array) or not is_on_one_device(value):
            with wide(wanted), wide(x.dtype):
                return x.astype(wanted)
        (native,) = value.sharding.device_set
        # Without this, JAX would move an uncommitted array to the default device first.
        with jax.default_device(native), wide(wanted), wide(x.dtype):
            return x.astype(wanted)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._fill("empty", shape, 0, _dtype_or_float(dtype), device)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        wanted = default_dtype(type(value)) if dtype is None else np.dtype(dtype)
        require_fit(value, wanted.name)
        return self._fill("full", shape, value, wanted, device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._fill("zeros", shape, 0, _dtype_or_float(dtype), device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._fill("ones", shape, 1, _dtype_or_float(dtype), device)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        integers = all(isinstance(bound, int) for bound in (start, stop, step))
        wanted = default_dtype(int if integers else float) if dtype is None else np.dtype(dtype)
        if integers and (values := range(int(start), int(stop), int(step))):
            require_fit(values[0], wanted.name)
            require_fit(values[-1], wanted.name)
        if _ARANGE_MATCHES or wanted.kind in "iu":
            found = self._from_values(lambda: _arange(start, stop, step, wanted), wanted, device)
            if found is not None:
                return found
        return self._create("arange", partial(jnp.arange, start, stop, step, dtype=wanted), wanted, device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        kind = complex if isinstance(start, complex) or isinstance(stop, complex) else float
        wanted = default_dtype(kind) if dtype is None else np.dtype(dtype)
        make = partial(jnp.linspace, start, stop, num, endpoint=endpoint, dtype=wanted)
        return self._create("linspace", make, wanted, device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        wanted = _dtype_or_float(dtype)
        found = self._from_values(lambda: np.eye(n_rows, n_cols, k, wanted), wanted, device)
        if found is not None:
            return found
        return self._create("eye", partial(jnp.eye, n_rows, n_cols, k, dtype=wanted), wanted, device)

    def create_beside(self, x: Tensor | None, call: str, args: tuple[Any, ...], dtype: Any) -> Tensor:
        if call == "asarray":
            (values,) = args
            host = _read(values, dtype)
            dtype = default_dtype(_PYTHON[host.dtype.kind]) if dtype is None else np.dtype(dtype)
            require_values_fit(values, dtype.name, host)
            args = (private_copy(host, dtype),)
        elif call == "full" and dtype is None:
            dtype = default_dtype(type(args[-1]))
        elif call.endswith("_like"):
            args = (x, *args)
        with wide(dtype):
            made = getattr(jnp, call)(*args, dtype=dtype)
            # jax.jit runs on the device of the arguments on which a result depends: so this one depends on the tracer.
            # XLA computes nothing for it, because both alternatives are the same.
            return made if x is None else jax.lax.select(jnp.all(x == x), made, made)

    def _fill(self, call: str, shape: tuple[int, ...], value: complex, dtype: np.dtype, device: Device) -> Tensor:
        if device is CPU and trace_state_clean():
            with suppress(Exception):  # such as a size that NumPy refuses: the slow path says what is wrong
                values = private_memory(shape, dtype)
                values.fill(dtype.type(value))
                found = self._commit_on_host(values, self.to_native(device), device)
                if found is not None:
                    return found
        if device is CPU and type(value) is int and value in (0, 1) and not is_wide(dtype) and _is_plain():
            with suppress(Exception):  # such as in `jax.set_mesh`: the slow path works, or says what is wrong
                x = _filler(self.to_native(device))(value, shape, dtype)
                return x.block_until_ready() if x.is_ready() else x  # as in `commit`
        return self._create(call, partial(_fill_compiled, dtype.type(value), shape, dtype), dtype, device)

    def _from_values(self, values: Callable[[], np.ndarray], dtype: np.dtype, device: Device) -> Tensor | None:
        """Return the values that NumPy computes as an array on the host, or None if the slow path must make it.

        JAX compiles and dispatches several operators for each of these calls, which takes 80 to 200 us (0.10).
        """
        if device is CPU and is_narrow(dtype) and trace_state_clean():
            with suppress(Exception), np.errstate(over="ignore"):  # the slow path works, or says what is wrong
                return self._commit_on_host(private_copy(values(), dtype), self.to_native(device), device)
        return None

    def _commit_on_host(self, array: np.ndarray, native: Any, device: Device) -> Tensor | None:
        """Return the result of the fast path for an array on the host, or None if the slow path must make it."""
        if device is not CPU or self.simulated_or_removed or not is_narrow(array.dtype):
            return None
        return commit_on_host(array, native)

    def _create(self, call: str, make: Callable[[], Tensor], dtype: np.dtype, device: Device) -> Tensor:
        """Refuse to create an array inside a compiled function; otherwise see `create_on`."""
        if not trace_state_clean() and self.compiling():
            raise self._creation_error(call)
        return self.create_on(device, make, dtype)

    def create_on(self, device: Device, make: Callable[[], Tensor], dtype: np.dtype) -> Tensor:
        """Return the array of a dtype that ``make`` creates, committed to a device."""
        native = self.to_native(device)
        with jax.default_device(native), wide(dtype), jax.transfer_guard("allow"):
            return commit(make(), native)

    def _creation_error(self, call: str) -> Exception:
        return messages.tracing(
            self, call, "give it like=x, where x is an argument of the function, or create it outside and pass it in"
        )


def _arange(start: float, stop: float, step: float, dtype: np.dtype) -> np.ndarray:
    """Return the values of ``jnp.arange``, computed in the same way."""
    computed = dtype if dtype.itemsize > 2 or dtype.kind in "iu" else np.dtype("float32")
    count = max(0, ceil((stop - start) / step))
    return np.arange(count, dtype=computed) * computed.type(step) + computed.type(start)


def _dtype_or_float(dtype: Any | None) -> np.dtype:
    """Return a dtype, or JAX's default floating dtype for None."""
    return default_dtype(float) if dtype is None else np.dtype(dtype)

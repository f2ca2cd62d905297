"""`convert`: turn a tensor of one framework into a tensor of another, with equal values, dtype and shape.

There are two ways. If both frameworks can reach the tensor's memory, DLPack shares it without a copy.
Otherwise, and wherever sharing would be wrong, the values are copied through the host:

* tensors on simulated GPUs: their labels do not survive DLPack;
* memory that must not be written (a read-only array, a TensorFlow or JAX tensor), if the result could be written: a
  view would let one framework change what the other treats as immutable, so immutable tensors are copied. On a GPU
  that both frameworks have, it is copied there; NumPy, whose arrays can be read-only, gets a read-only view;
* memory at an address on which the other framework's operators would crash (`devshim.transfers.alignment`);
* anything that one of the adapters refuses (`Backend.to_dlpack`, `Backend.from_dlpack`); its reason is kept.

Most tensors are plain: on the host, dense, in C order, of a dtype that every framework has. For them there is a fast
path for each exact type and framework (`devshim.contract.fast_paths`), which checks the tensor's own attributes and
never stores a tensor. Other tensors, and all tensors while a ledger, a guard, a fault or `explain` is
active, take the slow path, which also raises the errors.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.errors import (
    BackendNotFoundError,
    ConversionError,
    CopyNeededError,
    DevshimError,
    messages,
)
from devshim.registry import argument_hints, current, discovery, registry, tracing
from devshim.tensors import arguments
from devshim.transfers import alignment as alignment_module
from devshim.transfers import dlpack, engine, observing, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.registry.discovery import BackendName
    from devshim.transfers.observing import Active

__all__ = ["convert"]

_FRESH = 16
"""The alignment in bytes of memory that NumPy allocates, regardless of its size."""

_OUTSIDE = "convert before or after the compiled function"

_FAST_PATHS: dict[tuple[type, str], Callable[[Tensor], Tensor | None]] = {}
"""The fast paths in use so far, by the tensors' exact type and the framework's name as the callers wrote it."""


def convert(
    x: Tensor, backend: BackendName | None = None, device: DeviceLike | None = None, *, copy: bool | None = None
) -> Tensor:
    """Return a tensor of another framework with the same values, dtype and shape.

    Args:
        x: A tensor of any framework.
        backend: The framework of the result; without it, the current one.
        device: The device of the result; without it, the device of ``x``.
        copy: None: share memory if that is safe, otherwise copy. True: new memory. False: shared memory or an error.
            docs/conversions.md lists what is shared between which frameworks.

    Returns:
        A tensor without a gradient graph, even if ``x`` is a variable or tracer that requires gradients:
        differentiation does not cross frameworks. For the same framework, the result of `place`, with gradients.
        A NumPy array that shares the memory of an immutable tensor is read-only.

    Raises:
        ConversionError: The other framework has no such dtype, or the values cannot be read.
        CopyNeededError: ``copy=False``, and the memory cannot be shared.
        DeviceNotFoundError: The other framework does not have the device.
        BackendNotFoundError: The other framework is not installed.
        TracingError: The call is inside a compiled function, and ``x`` is of another framework than the result.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(1):
        ...     x = ds.convert(ds.ones(2), "numpy", "gpu")
        ...     print(ds.device_of(x), x.shape)
        gpu:0 (2,)
    """
    if backend is None:
        arguments.tensor_of(x, "convert")  # an error about `x` comes before one about the framework
        backend = current.current().name
    active = observing.ACTIVE
    on_host = device is None or device is CPU or (type(device) is str and device == "cpu")
    if on_host and active is None and (copy is None or copy is False) and type(backend) is str:
        fast_path, reading = _FAST_PATHS.get((type(x), backend)), tracing.reading
        try:
            shared = None if fast_path is None or (reading is not None and reading()) else fast_path(x)
        except Exception:  # the slow path fails in the same way, and reports it
            shared = None
        if shared is not None:
            return shared
    return _convert_checked(active, x, backend, device, copy)


def _convert_checked(
    active: Active | None, x: Tensor, backend: str, device: DeviceLike | None, copy: bool | None
) -> Tensor:
    """Check all arguments and take the slow path; record the fast path for later calls, if there is one."""
    # before `x`'s own: see `devshim.devices.device`
    wanted = None if device is None else parsing.device_of_argument(device, framework=backend)
    source = registry.backend_for(x)
    if source is None:
        if argument_hints.is_tensor(backend):
            raise argument_hints.swapped_conversion(x)
        source, x = arguments.tensor_of(x, "convert")
    target = _load(source, backend)
    if source is not target and source.is_tracer(x):
        raise messages.tracing(source, "convert", _OUTSIDE)
    here = source.device_of(x)
    if wanted is None and here is not CPU and here.index >= target.count(here.kind):
        raise messages.missing_there(source, target, here)
    there = here if wanted is None else wanted
    if source is not target:  # otherwise the copy engine checks the device
        engine.require_observed(active, target, there)
    if active is not None and active.explain is not None:
        call = "convert" if source is not target else "copy" if copy else "place"
        active.explain.call(target, call, there)
    if source is target:
        return engine.place(active, source, x, there, copy)
    if copy is not None and type(copy) is not bool:
        raise messages.bad_flag(copy)
    if (type(x), backend) not in _FAST_PATHS:
        fast_path = _fast_path(source, target, type(x))
        if fast_path is not None:
            _FAST_PATHS[type(x), backend] = fast_path
    try:
        return _Conversion(active, source, target, x, here, there).run(copy)
    except (DevshimError, MemoryError):
        raise
    except Exception as error:  # a framework's own error, for a tensor that it cannot read or make
        raise messages.not_converted(source, target, error) from error


def _load(source: Backend, backend: str) -> Backend:
    """Return the backend of the framework that is the target of `convert`, or refuse it in code that a compiler reads.

    The compiler knows no memory that two frameworks could share, and cannot follow the import of another one.
    """
    try:
        name = discovery.canonical_name(backend)
        if name != source.name:
            tracing.refuse_where_read("convert", _OUTSIDE)
        return registry.load(name)
    except BackendNotFoundError as error:
        raise argument_hints.no_backend(backend, error) from error.__cause__


def _fast_path(source: Backend, target: Backend, kind: type) -> Callable[[Tensor], Tensor | None] | None:
    """Return the fast path from tensors of an exact type to a framework, or None."""
    if target.has_plain_arrays:
        return source.fast_paths.numpy_view.get(kind)
    export, import_ = source.fast_paths.dlpack_export.get(kind), target.fast_paths.dlpack_import
    if export is None or import_ is None or (source.immutable and not target.immutable):
        return None
    alignment = target.alignment

    def shared(x: Tensor) -> Tensor | None:
        exported = export(x, alignment)
        return None if exported is None else import_(*exported)

    return shared


class _Conversion:
    """The conversion of one tensor whose arguments are checked: share its memory where that is safe, or copy it."""

    def __init__(
        self, active: Active | None, source: Backend, target: Backend, x: Tensor, here: Device, there: Device
    ) -> None:
        self._active, self._source, self._target, self._x = active, source, target, x
        self._here, self._there = here, there

    def run(self, copy: bool | None) -> Tensor:
        """Return the tensor of the other framework."""
        source, target, here, there = self._source, self._target, self._here, self._there
        if source.random_key(self._x) is not None:
            raise messages.key_not_converted(source, target)
        target.dtype(source.dtype_name(self._x))  # refuses a missing dtype before anything is exported
        if copy is False and here is not there:
            why = f"the tensor is on {here}, and {there} was asked for"
            raise self._not_shared(why)
        if copy is not True and here is there:
            shared, reason = self._share()
            if reason is None:
                return shared
            if copy is False:
                raise self._not_shared(reason)
        if here is there and here is not CPU:
            copied = self._copy_on_gpu()
            if copied is not None:
                return copied
        recording = None
        if there is CPU and self._active is not None and self._active.record is not None:
            # Record one copy, even if values are also rearranged on the host.
            recording = self._active.record(source, here, CPU, source.nbytes(self._x), 1)
        bar = progress.bar("convert", source.nbytes(self._x)) if progress.is_wanted() else nullcontext()
        with recording or nullcontext(), bar:
            return self._copy_through_host()

    def _not_shared(self, why: str) -> CopyNeededError:
        return messages.cannot_share(f"{self._source.title} with {self._target.title}", why)

    def _share(self, *, to_read: bool = False) -> tuple[Tensor, str | None]:
        """Return a tensor on the same device over the same memory and None, or None and the reason.

        Args:
            to_read: True if the result is only read, and is not returned to a caller.
        """
        source, target, here = self._source, self._target, self._here
        if here is not CPU and (source.simulated or target.simulated):
            return None, "another framework does not see that memory belongs to a simulated GPU"
        read_only = not source.is_writable(self._x)
        if read_only and not to_read and not (target.immutable or target.has_readonly_tensors):
            return None, "the memory is read-only, and the result would be writable"
        try:
            exported = source.to_dlpack(self._x)
            if here is not CPU:
                exported = dlpack.Ordered(exported, lambda: source.wait_for_values(self._x, here))
            result = target.from_dlpack(alignment_module.check_producer(target, exported))
        except (ConversionError, CopyNeededError) as error:
            return None, error.problem
        if read_only and not to_read and target.has_readonly_tensors:
            target.freeze(result)
        if (
            target.device_of(result) is not here
            or target.dtype_name(result) != source.dtype_name(self._x)
            or target.shape(result) != source.shape(self._x)
        ):
            return None, "the exchange changed the device, dtype or shape"
        return result, None

    def _copy_on_gpu(self) -> Tensor | None:
        """Return a copy made on the GPU that both frameworks have, or None if one cannot read the other's memory."""
        shared, why = self._share(to_read=True)
        if why is not None:
            return None
        copied = engine.move(self._target, shared, self._there)
        self._target.wait_for_values(copied, self._there)  # the source may reuse its memory as soon as this returns
        return copied

    def _copy_through_host(self) -> Tensor:
        """Return new memory with the same values."""
        # If the result may share the values' copy on the host, make only that copy; otherwise only look at the values.
        shares = self._there is CPU and self._target.alignment <= _FRESH
        try:
            array = self._values(look=self._here is CPU and not shares)
        except ConversionError as error:
            name = self._source.dtype_name(self._x)
            if name in DTYPES and name != "bfloat16":  # `ml_dtypes` adds bfloat16 to NumPy; DLPack may do without
                raise
            return self._copy_via_dlpack(error)
        array = arguments.numpy_array(array)  # NumPy's own tensors may have the other byte order
        if shares:
            try:  # no other tensor uses this memory
                return self._make(array, copy=False)
            except CopyNeededError:
                pass
        return self._make(array, copy=True)

    def _make(self, array: np.ndarray, copy: bool) -> Tensor:
        return engine.make(*engine.from_host_observed(self._active, self._target, array, self._there, copy))

    def _values(self, look: bool) -> np.ndarray:
        """Return the tensor's values on the host; if ``look`` is True, without a copy where that is possible."""
        if look:
            try:
                return engine.to_host(self._source, self._x, copy=False, device=self._here)
            except CopyNeededError:
                pass
        return engine.to_host(self._source, self._x, copy=True)

    def _copy_via_dlpack(self, error: ConversionError) -> Tensor:
        """Copy shared memory into new memory, for a dtype that NumPy lacks."""
        source, target = self._source, self._target
        hosted = self._x if self._here is CPU else engine.move(source, self._x, CPU)
        shared, why = _Conversion(self._active, source, target, hosted, CPU, CPU)._share()
        if why is not None:
            what = f"{source.dtype_name(self._x)} from {source.title} to {target.title}"
            msg = f"neither NumPy nor DLPack carries {what}: {why}"
            raise ConversionError(msg, error.hint) from error
        return engine.move(target, shared, self._there)

"""`convert`: turn a tensor of one framework into a tensor of another, with equal values, dtype and shape.

There are two ways.  If both frameworks can reach the tensor's memory, DLPack shares it without a copy.
Otherwise, and wherever sharing would be wrong, the values are copied through the host:

* tensors on simulated GPUs: their labels do not survive DLPack;
* memory that must not be written (a read-only array, a TensorFlow or JAX tensor), if the result could be written: a
  view would let one framework change what the other treats as immutable, so such a tensor is copied. On a GPU
  that both frameworks have, it is copied there; NumPy, whose arrays can be read-only, gets a read-only view;
* memory at an address on which the other framework's operators would end the process (`devshim.transfers.alignment`);
* anything that one of the adapters refuses (`Backend.to_dlpack`, `Backend.from_dlpack`); its reason is kept.

Most tensors are plain: on the host, dense, in C order, of a dtype that every framework has.  For them there is a fast
path for each exact type and framework (`devshim.contract.fast_paths`), which checks the tensor's own attributes and
never stores a tensor. Other tensors, and all tensors while a ledger, a guard, a fault or `explain` is
active, take the slow path, which also raises the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.errors import (
    BackendNotFoundError,
    ConversionError,
    CopyNeededError,
    DeviceNotFoundError,
    DevshimError,
    messages,
)
from devshim.registry import argument_hints, current, discovery, registry
from devshim.tensors import arguments
from devshim.transfers import alignment as alignment_module
from devshim.transfers import dlpack, engine, explain

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.registry.discovery import BackendName

__all__ = ["convert"]

_FRESH = 16
"""The alignment in bytes of memory that NumPy allocates, whatever its size."""

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
        differentiation does not cross frameworks.  For the same framework, the result of `place`, with gradients.
        A NumPy array that shares the memory of an immutable tensor is read-only.

    Raises:
        ConversionError: The other framework has no such dtype, or the values cannot be read.
        CopyNeededError: ``copy=False``, and the memory cannot be shared.
        DeviceNotFoundError: The other framework does not have the device.
        BackendNotFoundError: The other framework is not installed.
    """
    if backend is None:
        arguments.tensor_of(x, "convert")  # an error about `x` comes before one about the framework
        backend = current.current().name
    short_cut = _FAST_PATHS.get((type(x), backend)) if type(backend) is str else None
    if (
        short_cut is not None
        and (copy is None or copy is False)
        and (device is None or device is CPU or (type(device) is str and device == "cpu"))
        and engine.LEDGER is None
        and engine.FAULTS is None
        and explain.HOOK is None
    ):
        try:
            shared = short_cut(x)
        except Exception:  # the slow path fails in the same way, and reports it
            shared = None
        if shared is not None:
            return shared
    return _convert_checked(x, backend, device, copy)


def _convert_checked(x: Tensor, backend: str, device: DeviceLike | None, copy: bool | None) -> Tensor:
    """Check all arguments and take the slow path; record the fast path for later calls, if there is one."""
    asked = (
        None if device is None else parsing.device(device)
    )  # before the device of ``x`` is read: see `devshim.devices.device`
    if registry.backend_for(x) is None and argument_hints.is_tensor(backend):
        raise argument_hints.swapped_conversion(x)
    source, x = arguments.tensor_of(x, "convert")
    try:
        target = registry.load(discovery.canonical(backend))
    except BackendNotFoundError as error:
        raise argument_hints.no_backend(backend, error) from error.__cause__
    if source is not target and source.is_tracer(x):
        raise messages.tracing(source, "convert", "convert before or after the compiled function")
    here = source.device_of(x)
    if asked is None and here is not CPU and here.index >= target.count(here.kind):
        raise _not_there_too(source, target, here)
    there = engine.require(target, here if asked is None else asked)
    hook = explain.HOOK
    if source is target:
        from devshim.tensors.placing import place

        if copy is True and hook is None:  # the fast path copies with operators, whatever the address
            return engine.move(source, x, there)
        return place(x, there, copy=copy)
    if copy is not None and type(copy) is not bool:
        raise messages.bad_flag(copy)
    if hook is not None:
        hook(target, "convert", there)
    short_cut = _fast_path(source, target, type(x))
    if short_cut is not None:
        _FAST_PATHS[type(x), backend] = short_cut
    try:
        return _convert_general(source, target, x, here, there, copy)
    except (DevshimError, MemoryError):
        raise
    except Exception as error:  # a framework's own error, for a tensor that it cannot read or make
        raise messages.not_converted(source, target, error) from error


def _not_there_too(source: Backend, target: Backend, device: Device) -> DeviceNotFoundError:
    """Return the error for a conversion without ``device`` if the other framework lacks the tensor's device."""
    count = target.count(device.kind)
    have = f"{count} {device.kind} device{'' if count == 1 else 's'}"
    return DeviceNotFoundError(
        f"the tensor of {source.title} is on {device}, and {target.title} has {have}",
        f"say where the result is to be: ds.convert(x, {target.name!r}, 'cpu')",
    )


def _fast_path(source: Backend, target: Backend, kind: type) -> Callable[[Tensor], Tensor | None] | None:
    """Return the fast path from tensors of an exact type to a framework, or None."""
    if target.name == "numpy":
        return source.fast_paths.numpy_view.get(kind)
    export, import_ = source.fast_paths.dlpack_export.get(kind), target.fast_paths.dlpack_import
    if export is None or import_ is None or (source.immutable and not target.immutable):
        return None
    alignment = target.alignment

    def shared(x: Tensor) -> Tensor | None:
        exported = export(x, alignment)
        return None if exported is None else import_(*exported)

    return shared


def _convert_general(
    source: Backend, target: Backend, x: Tensor, here: Device, there: Device, copy: bool | None
) -> Tensor:
    """Check everything; share memory where that is safe, and copy otherwise."""
    target.dtype(source.dtype_name(x))  # refuses a dtype that the other framework lacks, before anything is exported
    if copy is not True:
        shared, why = _shared(source, target, x, here, there)
        if why is None:
            return shared
        if copy is False:
            raise messages.cannot_share(f"{source.title} with {target.title}", why)
    copied = _copied_there(source, target, x, here, there)
    if copied is not None:
        return copied
    told, ledger = None, engine.LEDGER
    if there is CPU and ledger is not None:  # record one copy, whatever is rearranged on the host besides
        told = ledger(source, here, CPU, source.nbytes(x), 1)
    if told is None:
        return _through_the_host(source, target, x, here, there)
    with told:
        return _through_the_host(source, target, x, here, there)


def _copied_there(source: Backend, target: Backend, x: Tensor, here: Device, there: Device) -> Tensor | None:
    """Return a copy made on the GPU that both frameworks have, or None if one cannot read the other's memory."""
    if here is not there or here is CPU:
        return None
    lent, why = _shared(source, target, x, here, there, to_read=True)
    if why is not None:
        return None
    made = engine.move(target, lent, there)
    target.wait_for_values(made, there)  # the source may reuse its memory as soon as this returns
    return made


def _through_the_host(source: Backend, target: Backend, x: Tensor, here: Device, there: Device) -> Tensor:
    """Return new memory with the same values."""
    # If the result may share the values' copy on the host, make only that copy; otherwise only look at the values.
    shares = there is CPU and target.alignment <= _FRESH
    try:
        array = _values(source, x, here is CPU and not shares)
    except ConversionError as error:
        name = source.dtype_name(x)
        if name in DTYPES and name != "bfloat16":  # `ml_dtypes` adds bfloat16 to NumPy; DLPack may do without
            raise
        return _copy_via_dlpack(source, target, x, here, there, error)
    array = arguments.numpy_array(array)  # NumPy's own tensors may have the other byte order
    if shares:
        try:  # no other tensor uses this memory
            return engine.make(*engine.from_host(target, array, there, copy=False))
        except CopyNeededError:
            pass
    return engine.make(*engine.from_host(target, array, there, copy=True))


def _values(source: Backend, x: Tensor, look: bool) -> np.ndarray:
    """Return a tensor's values on the host; if ``look`` is True, without a copy where that is possible."""
    if look:
        try:
            return engine.to_host(source, x, copy=False)
        except CopyNeededError:
            pass
    return engine.to_host(source, x, copy=True)


def _shared(
    source: Backend, target: Backend, x: Tensor, here: Device, there: Device, *, to_read: bool = False
) -> tuple[Tensor, str | None]:
    """Return a tensor over the same memory and None, or None and the reason.

    Args:
        source: The framework of the tensor.
        target: The framework of the result.
        x: The tensor.
        here: The device of the tensor.
        there: The device of the result.
        to_read: True if the result is only read, and is not returned to a caller.
    """
    if here is not there:
        return None, f"the tensor is on {here}, and {there} was asked for"
    if here is not CPU and (source.simulated or target.simulated):
        return None, "a simulated card's label does not cross frameworks"
    frozen = not source.is_writable(x)
    if frozen and not to_read and not (target.immutable or target.has_readonly_tensors):
        return None, "the memory must not be written, and the result could be"
    try:
        lent = source.to_dlpack(x)
        if here is not CPU:
            lent = dlpack.Ordered(lent, lambda: source.wait_for_values(x, here))
        result = target.from_dlpack(alignment_module.checked(target, lent))
    except (ConversionError, CopyNeededError) as error:
        return None, error.problem
    if frozen and not target.immutable:
        target.freeze(result)
    faithful = target.device_of(result) is there and _same_form(source, target, x, result)
    return (result, None) if faithful else (None, "the exchange changed the device, dtype or shape")


def _same_form(source: Backend, target: Backend, x: Tensor, result: Tensor) -> bool:
    return target.dtype_name(result) == source.dtype_name(x) and target.shape(result) == source.shape(x)


def _copy_via_dlpack(
    source: Backend, target: Backend, x: Tensor, here: Device, there: Device, error: ConversionError
) -> Tensor:
    """Copy shared memory into new memory, for a dtype that NumPy lacks."""
    shared, why = _shared(source, target, _on_host(source, x, here), CPU, CPU)
    if why is not None:
        what = f"{source.dtype_name(x)} from {source.title} to {target.title}"
        raise ConversionError(f"neither NumPy nor DLPack carries {what}: {why}", error.hint) from error
    return engine.move(target, shared, there)


def _on_host(source: Backend, x: Tensor, here: Device) -> Tensor:
    return x if here is CPU else engine.move(source, x, CPU)


convert.__module__ = "devshim"

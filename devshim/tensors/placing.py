"""Find a tensor's device, and move, copy or read it: `device_of`, `place`, `copy`, `to_numpy`.

A call takes a fast path: one dictionary lookup by the tensor's type finds its backend, the backend reports the
tensor's device, and `devshim.transfers.engine` takes over only if the tensor must move.
"""

from __future__ import annotations

from devshim.devices import parsing
from devshim.devices.device import CPU, Device
from devshim.errors import SimulationError, TracingError, UnsupportedError
from devshim.placement.placement import Placement
from devshim.registry import registry
from devshim.transfers import engine, observing
from devshim.trees import trees

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.parsing import DeviceLike

    T = TypeVar("T")

__all__ = ["copy", "device_of", "dtype_of", "place", "to_numpy"]

_TENSORS = registry.TENSORS
_HOST_FLAGS = registry.HOST_FLAGS


def device_of(x: Tensor) -> Device:
    """Return the device that holds a tensor's data.

    Args:
        x: A tensor of any installed framework, of any shape and dtype.

    Returns:
        The true device: if TensorFlow's ``x.device`` and the memory behind it disagree, the memory's device.

    Raises:
        NotATensorError: ``x`` is not a tensor of a framework.
        UnsupportedError: The data is spread over several devices (`placement_of` returns them), or is on none.
        TracingError: The call is inside a compiled function, and the framework does not report the device there.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.device_of(ds.ones(3))
        Device('cpu')
    """
    backend = _TENSORS.get(type(x))
    if backend is None:
        backend, x = _tensor_of(x, "device_of")
    active = observing.ACTIVE
    if active is not None and active.explain is not None:
        active.explain.call(backend, "device_of")
    flag = backend.fast_paths.host_flag
    if flag and getattr(x, flag) is True:
        return CPU
    try:
        return backend.device_of(x)
    except SimulationError as error:
        return error.where()  # the GPU was removed: the error knows the device


def dtype_of(x: Tensor) -> str:
    """Return the name of a tensor's dtype in the array API, which is the same on every framework.

    Args:
        x: A tensor of any installed framework, on any device.

    Returns:
        ``"float32"``, ``"int64"``, ``"bool"``, ``"complex64"``, ``"bfloat16"``, ``"float8_e4m3fn"``, ...

    Raises:
        NotATensorError: ``x`` is not a tensor of a framework.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.dtype_of(ds.zeros(3, dtype="int32"))
        'int32'
    """
    backend = _TENSORS.get(type(x))
    if backend is None:
        backend, x = _tensor_of(x, "dtype_of")
    observing.show_call(backend, "dtype_of")
    return backend.dtype_name(x)


def place(x: T, device: DeviceLike | Placement, *, copy: bool | None = None, non_blocking: bool = False) -> T:
    """Return a tensor, or every tensor of a tree, on a device; models and optimizers are moved in place.

    Args:
        x: A tensor, or a tree of tensors: nested dicts, lists, tuples, dataclasses, attrs classes, mappings,
            `UserList`, `SimpleNamespace`, and pytrees registered with the framework, with Keras or with optree.
            Anything else passes through; None is an empty tree. A model or optimizer is moved in place, with gradients
            and state: it and its parameters stay the same objects, and tied parameters stay tied.
        device: The target; anything `ds.device` accepts, or a `Placement` that names the device of each leaf.
        copy: None: copy what is elsewhere. True: always new memory; an independent model. False: never copy.
        non_blocking: Let a copy from host to device overlap with other work if the framework can; `synchronize` waits
            for it. A copy from a device to the host is always complete on return.

    Returns:
        A tensor of the same framework, dtype and shape, with bit-identical values; gradients flow to ``x``. For a tree,
        a tree of the same types that shares the leaves that did not move; the same object if nothing moved.

    Raises:
        DeviceSpecError: ``device`` does not name a device.
        NotATensorError: ``x`` is a number, a loader, or another object that is not a container. In a tree, such objects
            pass through; one that contains tensors warns (`NotMovedWarning`).
        DeviceNotFoundError: The framework lacks the device. `from_numpy` puts a NumPy array on another framework's GPU.
        CopyNeededError: ``copy=False``, and the tensor is on another device.
        OutOfMemoryError: The device is full. After this and any other error, including Ctrl-C, nothing has moved. The
            target needs memory only for the tensors that move there.
        PlacementError: The framework put the result on another device.
        UnsupportedError: The backend declares that it cannot do this; the error gives the reason.
        TracingError: The call is inside a compiled function in which the framework would ignore it.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2):
        ...     batch = ds.place({"x": ds.ones(3), "label": 1}, "gpu:1")
        ...     print(ds.device_of(batch["x"]), ds.place(batch, "gpu:1") is batch)
        gpu:1 True
    """
    if type(device) is Device:
        target = device
    elif isinstance(device, Placement):
        return trees.place(x, device.of_leaf, copy, non_blocking)
    else:
        target = parsing.device_of_call("place", x, device)
    active = observing.ACTIVE
    if active is None and (copy is None or copy is False) and target.text == "cpu":  # see `devshim.devices.device`
        flag = _HOST_FLAGS.get(type(x))  # the most common call: the tensor itself reports that it is already there
        if flag is not None and getattr(x, flag) is True:
            return x
    backend = _TENSORS.get(type(x)) or registry.backend_for(x)
    if backend is None:
        return trees.place(x, target, copy, non_blocking)
    if active is not None and active.explain is not None:
        active.explain.call(backend, "copy" if copy else "place", target)
    if copy is None or copy is False:
        try:  # `engine.place` also checks this, but the call would take longer
            if backend.device_of(x) is target:
                return x
        except (TracingError, UnsupportedError):
            pass  # `engine.place` reports it, or gathers the parts of a sharded tensor
    return engine.place(active, backend, x, target, copy, non_blocking)


def copy(x: T, device: DeviceLike) -> T:
    """Return a copy of a tensor, or of every tensor of a tree, in new memory on a device.

    This is the same as ``place(x, device, copy=True)``: it copies even if the tensor is already there.

    Args:
        x: A tensor or a tree of tensors, of any shape and dtype; or a model or optimizer.
        device: The target; anything `ds.device` accepts.

    Returns:
        A tensor of the same framework, dtype and shape, with bit-identical values; gradients flow to ``x``. For a tree,
        a tree of the same types; for a model or optimizer, an independent one.

    Raises:
        DeviceSpecError: ``device`` does not name a device.
        DeviceNotFoundError: The framework does not have that device.
        OutOfMemoryError: The device is full.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> x = ds.ones(2)
        >>> y = ds.copy(x, "cpu")
        >>> y[0] = 5
        >>> x
        array([1., 1.])
    """
    target = device if type(device) is Device and device.text else parsing.device_of_call("copy", x, device)
    backend = _TENSORS.get(type(x)) or registry.backend_for(x)
    if backend is None:
        return trees.place(x, target, True, False, "copy")
    active = observing.ACTIVE
    if active is not None and active.explain is not None:
        active.explain.call(backend, "copy", target)
    return engine.place(active, backend, x, target, True)


def to_numpy(x: Tensor, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """Return a tensor's values as a NumPy array in host memory, detached from any gradient.

    Args:
        x: A tensor of any framework, on any device.
        copy: None or True: new, writable memory. False: a view of the tensor's host memory.

    Returns:
        An array of the same shape, dtype and values, valid when the call returns.

    Raises:
        NotATensorError: ``x`` is not a tensor.
        CopyNeededError: ``copy=False``, and the memory cannot be shared.
        ConversionError: NumPy has no such dtype (bfloat16 needs the ``ml_dtypes`` package).

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.to_numpy(ds.ones(2))
        array([1., 1.])
    """
    backend = _TENSORS.get(type(x))
    if backend is None:
        backend, x = _tensor_of(x, "to_numpy")
    if observing.ACTIVE is None and (copy is None or copy is True):
        fast = backend.fast_paths
        read = fast.numpy_copy.get(type(x))
        if read is not None and not (fast.reading or backend.compiling)():
            try:
                found = read(x)
                if found is not None:
                    return found
            except Exception:  # the slow path fails in the same way, with a reason
                pass
    observing.show_call(backend, "to_numpy")
    return engine.to_host(backend, x, copy is not False)


def _tensor_of(x: Tensor, call: str) -> tuple[Backend, Tensor]:
    from devshim.tensors import arguments

    return arguments.tensor_of(x, call)

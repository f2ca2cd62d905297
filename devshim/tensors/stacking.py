"""Stack lists of tensors: the work of `asarray([a, b])`, which also accepts numbers among the tensors.

Requirements of this module:

* The result is on the device that all tensors share, or the error names the devices; no data goes through the host.
* Gradients flow from the result to each tensor.
* Dtypes are promoted by one rule on every framework: NumPy, PyTorch and JAX have different ones, and the others none.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import RANKS, promoted, widest
from devshim.errors import ConversionError, DevshimError, TracingError, messages
from devshim.registry import current, mismatches, registry
from devshim.tensors import arguments, default_dtypes, fitting, plans
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

    Found = list[tuple[str, Tensor, Backend]]

__all__ = ["find_tensors", "framework_of", "stack_lists"]

_LISTS = (list, tuple)
_NUMBERS = (bool, int, float, complex)


def find_tensors(values: Any, label: str = "obj", framework: str | None = None) -> Found:
    """Return the tensors in nested lists, each with its name for errors.

    The list is empty if all are NumPy arrays on the host and the result is of another framework, the named one or the
    current one: that framework reads them as numbers.
    """
    found: Found = []
    _collect(values, label, found)
    if found and all(backend.has_plain_arrays and backend.device_of(x) is CPU for _, x, backend in found):
        return found if (framework or current.chosen_name()) == found[0][2].name else []
    return found


def _collect(values: Any, label: str, found: Found) -> None:
    if registry.LEAF_TYPES.issuperset(map(type, values)):
        return  # plain numbers, the most common case
    for i, value in enumerate(values):
        kind = type(value)
        if kind in _LISTS:
            if not registry.LEAF_TYPES.issuperset(map(type, value)):
                _collect(value, f"{label}[{i}]", found)
        elif kind not in registry.LEAF_TYPES:
            backend = registry.backend_for(value)
            if backend is not None:
                found.append((f"{label}[{i}]", value, backend))


def stack_lists(values: Any, found: Found, dtype: object, device: DeviceLike | None, copy: bool | None) -> Tensor:
    """Stack nested lists that contain tensors into one tensor; see `devshim.asarray`.

    Raises:
        ArgumentError: The tensors belong to several frameworks.
        DeviceMismatchError: They are on several devices, and no device is given.
        ConversionError: Shapes differ, or the framework does not stack these dtypes.
    """
    if copy is False:
        raise messages.cannot_share("a list of tensors", "the stacked tensor needs new memory")
    backend = framework_of(found)
    located = _locate(found, may_be_unknown=device is None and len({owner for _, _, owner in found}) == 1)
    if located is None:
        return _Stack(backend, None, dtype, found).of(values)
    devices = set(located.values())
    if device is None and len(devices) > 1:
        raise mismatches.mismatch_error("asarray", *[(label, located[label], owner.name) for label, _, owner in found])
    target = devices.pop() if device is None else engine.require(backend, parsing.device_of_argument(device))
    stack = _Stack(backend, next(iter(devices)) if len(devices) == 1 else target, dtype, found)
    observing.show_call(backend, "stack", target)
    made = stack.of(values)
    return made if stack.device is target else engine.move(backend, made, target)


def framework_of(found: Found) -> Backend:
    """Return the one framework of the tensors; NumPy arrays on the host may be mixed with tensors of another."""
    backends = list(dict.fromkeys(backend for _, _, backend in found))
    others = [backend for backend in backends if not backend.has_plain_arrays]
    if len(others) > 1 or (others and any(b.has_plain_arrays and b.device_of(x) is not CPU for _, x, b in found)):
        raise messages.several_frameworks("ds.asarray", backends, others[0])
    return others[0] if others else backends[0]


def _locate(found: Found, *, may_be_unknown: bool) -> dict[str, Device] | None:
    """Return the device of each tensor by its name; None if a compiled function knows them only when it is called."""
    if may_be_unknown and plans.runs_on_one_device(found[0][2]):
        return None
    try:
        return {label: owner.device_of(x) for label, x, owner in found}
    except TracingError:
        if may_be_unknown:
            return None
        raise


class _Stack:
    """The stacking of one list.

    Attributes:
        device: The device that all tensors share, or the requested one; None in a compiled function that learns the
            devices when it is called.
    """

    def __init__(self, backend: Backend, device: Device | None, dtype: object, found: Found) -> None:
        self.device = device
        self._backend = backend
        self._dtype = arguments.dtype(backend, dtype)
        self._names = [owner.dtype_name(x) for _, x, owner in found]

    def of(self, value: Any) -> Tensor:
        """Return a list, tensor or number as a tensor on the device."""
        if type(value) in _LISTS:
            return self._join([self.of(each) for each in value])
        owner = registry.backend_for(value)
        if owner is None:
            return self._of_number(value)
        x = value if self.device is None else self._bring(owner, value, self.device)
        if self._dtype is None:
            return x
        name = owner.dtype_name(value)
        if name.startswith("complex"):
            fitting.require_complex(name, arguments.dtype_name(self._backend, self._dtype))
        return self._backend.cast(x, self._dtype)

    def _bring(self, owner: Backend, x: Tensor, device: Device) -> Tensor:
        """Return a tensor, or a NumPy array on the host, as a tensor of this framework on the device."""
        if owner is not self._backend:
            return engine.make(*engine.from_host(self._backend, arguments.numpy_array(x), device, copy=True))
        return x if owner.device_of(x) is device else engine.move(owner, x, device)

    def _join(self, xs: list[Tensor]) -> Tensor:
        backend = self._backend
        shapes = dict.fromkeys(backend.shape(x) for x in xs)
        if len(shapes) != 1:
            found = " and ".join(map(str, shapes)) or "no rows"
            msg = f"ds.asarray was given a list of tensors of different shapes: {found}"
            raise ConversionError(msg, "give them one shape first; a list of lists needs rows of one length")
        try:
            xs = self._promoted(xs)
            nbytes = None if self.device is None else sum(map(backend.nbytes, xs))
            return engine.make(backend, self.device, nbytes, backend.stack_tensors, xs)
        except DevshimError:
            raise
        except Exception as error:  # a framework's own error, for example for an 8-bit float
            found = " and ".join(dict.fromkeys(map(backend.dtype_name, xs)))
            msg = f"{backend.title} does not stack tensors of {found}: {str(error).partition(chr(10))[0][:200]}"
            raise ConversionError(
                msg,
                f"name one dtype for all: ds.asarray(obj, dtype={widest(map(backend.dtype_name, xs))!r})",
            ) from error

    def _promoted(self, xs: list[Tensor]) -> list[Tensor]:
        """Return tensors in their common dtype; unchanged if there is no rule, as for 8-bit floats."""
        names = [self._backend.dtype_name(x) for x in xs]
        if len(set(names)) == 1 or not RANKS.keys() >= set(names):
            return xs
        common = reduce(promoted, names)
        dtype = self._backend.dtype(common)
        return [x if name == common else self._backend.cast(x, dtype) for name, x in zip(names, xs, strict=True)]

    def _of_number(self, value: Any) -> Tensor:
        """Return a number as a tensor, in the dtype of the first tensor that can hold it or the framework's default."""
        number = value.item() if isinstance(value, np.generic) else value
        if type(number) not in _NUMBERS:
            msg = f"ds.asarray was given a list of tensors with an object of type {type(value).__name__} among them"
            raise ConversionError(msg, "leave out what is neither a tensor nor a number")
        dtype = self._dtype
        if dtype is None:
            kind = _NUMBERS.index(type(number))
            able = [name for name in self._names if RANKS.get(name, 3) >= kind]
            name = able[0] if able else default_dtypes.default_for("full", ((), number))
            dtype = None if name is None else self._backend.dtype(name)
        if dtype is not None:
            fitting.require_fit("asarray", (number,), arguments.dtype_name(self._backend, dtype))
        if self.device is None:
            return engine.make(*plans.beside(self._backend, None, "asarray", (number,), dtype))
        return engine.make(self._backend, self.device, None, self._backend.asarray, number, dtype, self.device)

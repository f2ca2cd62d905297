"""Trees on their way between ranks: the containers unchanged, and NumPy arrays instead of tensors."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.errors import ArgumentError
from devshim.interop.leaf_values import assign, leaves
from devshim.registry import current
from devshim.tensors import arguments
from devshim.transfers import alignment, engine, observing
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["can_share", "pack", "tensor_of", "tensors_in", "unpack"]


class _Hole:
    """A placeholder for a tensor or model in a tree that travels."""

    __slots__ = ()


@dataclass
class _Packed:
    """A tree that travels.

    Attributes:
        tree: Its containers and other leaves, with holes.
        holes: The holes of tensors, and of models, which stay the same objects in the tree.
        arrays: The tensors' values.
        models: The values of each model, by path.
        flags: For each tensor, if it asks for a gradient.
    """

    tree: Any
    holes: tuple[list[_Hole], list[_Hole]]
    arrays: list[np.ndarray]
    models: list[dict[str, np.ndarray]]
    flags: list[bool]


def pack(tree: Any, *, models: bool = True) -> _Packed:
    """Return a tree in the form that travels.

    Raises:
        ArgumentError: It contains a model, and ``models`` is False; or an array of objects that contains tensors.
    """
    flat = flatten(tree)
    if flat.models and not models:
        msg = "world.all_gather takes tensors and values, and found a model"
        raise ArgumentError(msg, "gather its values: world.all_gather(ds.leaves(model))")
    tensors = dict(zip(flat.numbers, zip(flat.tensors, flat.backends, strict=True), strict=True))
    holes = {number: _Hole() for number in tensors}
    model_holes = {number: _Hole() for number, *_ in flat.models}
    arrays = [engine.to_host(backend, x, copy=True) for x, backend in tensors.values()]
    for number, array in zip(tensors, arrays, strict=True):
        if array.dtype.hasobject:
            _refuse_tensors_in(array, flat.name(flat.numbers.index(number)))
    values = [
        {path: engine.to_host(backend, x, copy=True) for path, x in leaves(model).items()}
        for _, _, model, backend in flat.models
    ]
    found = flat.rebuild({**holes, **model_holes})
    flags = [backend.wants_gradient(x) for x, backend in tensors.values()]
    return _Packed(found, (list(holes.values()), list(model_holes.values())), arrays, values, flags)


def _refuse_tensors_in(array: np.ndarray, where: str) -> None:
    """Refuse an array of Python objects with tensors or models: Ray would pickle them, and they would get no device.

    Raises:
        ArgumentError: An object in the array is or contains a model, or a tensor that is not NumPy's.
    """
    left, seen = [array], set[int]()
    while left:
        each = left.pop()
        if each.dtype.names is not None:
            left += [each[name] for name in each.dtype.names]
            continue
        if id(each) in seen or not each.dtype.hasobject:
            continue
        seen.add(id(each))
        flat = flatten(each.ravel().tolist())
        if flat.models or any(backend.name != "numpy" for backend in flat.backends):
            msg = f"an array of Python objects{where and f' at {where}'} contains tensors or models"
            raise ArgumentError(msg, "pass them in a list, which ds.world() looks into: array.tolist()")
        left += [x for x in flat.tensors if isinstance(x, type(array))]


def unpack(found: _Packed, mine: Any) -> Any:
    """Return a received tree, with tensors on the devices of this rank's own tree, and its own models.

    Raises:
        ArgumentError: The models do not match.
    """
    flat = flatten(mine)
    own = dict(zip(flat.numbers, zip(flat.tensors, flat.backends, strict=True), strict=True))
    targets = [(backend, backend.device_of(x)) for x, backend in own.values()]
    if len(targets) != len(found.arrays):
        backend = current.current()
        targets = [(backend, arguments.target(backend, None))] * len(found.arrays)
    if len(flat.models) != len(found.models):
        msg = f"world.broadcast found {len(flat.models)} models on this rank, and {len(found.models)} on the other"
        raise ArgumentError(msg, "build the same models on all ranks first")
    made = [tensor_of(backend, array, device) for array, (backend, device) in zip(found.arrays, targets, strict=True)]
    for x, (backend, _), is_wanted in zip(made, targets, found.flags, strict=True):
        if is_wanted:
            backend.request_gradient(x)
    for (_, _, model, backend), values in zip(flat.models, found.models, strict=True):
        assign(model, {path: tensor_of(backend, array, CPU) for path, array in values.items()})
    new: dict[int, Any] = {id(hole): each for hole, each in zip(found.holes[0], made, strict=True)}
    new.update((id(hole), model) for hole, (_, _, model, _) in zip(found.holes[1], flat.models, strict=True))
    return flatten(found.tree).rebuild(new) if new else found.tree


def tensors_in(tree: Any) -> list[tuple[Backend, Tensor]]:
    """Return the tensors of a tree, and those of the models in it, with their backends."""
    flat = flatten(tree)
    found = list(zip(flat.backends, flat.tensors, strict=True))
    return found + [(backend, x) for _, _, model, backend in flat.models for x in leaves(model).values()]


def tensor_of(backend: Backend, array: np.ndarray, device: Device, copy: bool = True, recorded: bool = True) -> Tensor:
    """Return a tensor on a device with the values of an array, in new memory or in the array's.

    Ledgers do not record the copy unless ``recorded`` is True: it belongs to an exchange, which they record.
    """
    active = observing.ACTIVE
    record = None if recorded or active is None else active.record
    with (record and record(backend, CPU, device, None, 1)) or nullcontext():
        return engine.make(*engine.from_host(backend, array, device, copy))


def can_share(backend: Backend, array: np.ndarray, device: Device) -> bool:
    """Return True if a tensor can use an array's memory and be written to."""
    if device is not CPU or backend.immutable or not array.size:
        return False
    return alignment.is_aligned(backend, array)

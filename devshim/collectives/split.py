"""Tensors on several devices: split them into parts, gather parts, and make copies or equal models on each device.

Requirements of this module:

* The caller names the devices, in order; the same device may occur twice, and the CPU is a device like any other.
* Results share no writable memory with the arguments, on any device: a part, a copy or a gathered tensor may be
  overwritten.
* No row is lost silently: sizes differ by at most one, and rows are dropped only if the caller asks for that.
* Every tensor takes the same path as all copies (`devshim.transfers.engine`); gradients flow back through it.
* The arguments are never changed. If something fails, the results so far are released.

`collectives.arguments` checks the arguments, `collectives.all_reduce` sums over devices, and `collectives.parallel`
runs functions on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from devshim.collectives import arguments
from devshim.collectives import parts as parts_module
from devshim.collectives.separable import require_separable
from devshim.devices import parsing
from devshim.errors import ArgumentError, NotATensorError
from devshim.errors.formatting import type_name
from devshim.registry import argument_hints, numpy_scalars, registry, tracing
from devshim.registry.registry import model_backend
from devshim.tensors import value_hints
from devshim.transfers import device_lists, engine, observing
from devshim.trees import multi_map, not_moved
from devshim.trees import trees as trees_module
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.transfers.observing import Explain
    from devshim.trees.flatten import Flattened
    from devshim.trees.key_paths import Cell

T = TypeVar("T")

__all__ = ["broadcast", "gather", "replicate", "split"]

_UNEVEN = ("balance", "error", "drop")


def split(
    tree: T,
    devices: Iterable[DeviceLike],
    *,
    axis: int = 0,
    uneven: Literal["balance", "error", "drop"] = "balance",
) -> list[T]:
    """Split a tensor, or every tensor of a tree, into one part per device, and put each part on its device.

    Args:
        tree: A tensor or a tree of tensors, all of the same length along the axis; other leaves are in every part.
        devices: One for each part; the same device may occur several times.
        axis: The axis to split; negative ones count from the end of each tensor's shape.
        uneven: What to do if the length is not a multiple of the number of devices: ``"balance"`` gives sizes that
            differ by at most one, larger ones first (7 over 3 is 3, 2, 2, and 2 over 3 is 1, 1, 0); ``"error"`` raises;
            ``"drop"`` drops the tail, so that all parts are equal (7 over 3 is 2, 2, 2, and 2 over 3 is 0, 0, 0).

    Returns:
        A list of trees of the same types, in new memory; `gather` joins them again. Gradients flow
        from each part to its range of the source.

    Raises:
        NotATensorError: The tree contains no tensor.
        ArgumentError: Lengths along the axis differ, a tensor has no such axis, ``devices`` is empty, the tree contains
            a model, or ``uneven="error"`` and the length is not a multiple.
        UnsupportedError: The tree has a sparse array, a graph, or another object that cannot be cut tensor by tensor.
        DeviceNotFoundError: The framework of a tensor does not have one of the devices; nothing was copied.
        OutOfMemoryError: A device is full.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> parts = ds.split(ds.ones((7, 2)), ["cpu", "cpu", "cpu"])
        >>> [part.shape for part in parts]
        [(3, 2), (2, 2), (2, 2)]
    """
    targets = device_lists.parse_devices(devices, "split", "tree", tree)
    if uneven not in _UNEVEN:
        raise value_hints.unknown_choice("uneven", uneven, _UNEVEN)
    backend = registry.TENSORS.get(type(tree))
    if backend is not None and observing.ACTIVE is None:
        return parts_module.split_tensor(backend, tree, targets, axis, uneven)
    flat = flatten(tree)
    if flat.models:
        _, cell, model, _ = flat.models[0]
        msg = f"ds.split cuts tensors up, and {brackets(cell) or 'this'} is a {type_name(model)}"
        raise ArgumentError(msg, "use ds.replicate(model, devices) for models")
    if not flat.tensors:
        msg = f"ds.split found no tensor in this {type_name(tree)}"
        raise NotATensorError(msg, "pass a tensor, or a dict or list of them; ds.asarray(...) makes one")
    return _split_tree(tree, flat, targets, axis, uneven)


def _split_tree(tree: T, flat: Flattened, targets: list[Device], axis: int, uneven: str) -> list[T]:
    """Return the parts of a tree on their devices."""
    for _, _, node, _ in flat.containers:
        require_separable("split", node, axis)
    leaves = flat.leaves
    found = [(cell, x, backend) for _, cell, x, backend in leaves]
    arguments.check_devices(flat.backends, targets)
    not_moved.check("split", flat)
    axes = [arguments.axis_of(axis, backend.shape(x), cell, "split") for cell, x, backend in found]
    bounds = arguments.split_bounds(arguments.length_of(found, axes), len(targets), uneven)
    shown = observing.explainer()
    if shown is not None:
        _show_split(shown, tree, targets, axis, bounds)
    parts: list[T] = []
    new: dict[int, Any] = {}  # defined here: Ctrl-C may come before the first part
    try:
        for target, (start, stop) in zip(targets, bounds, strict=True):
            new = {}
            for (number, cell, x, backend), along in zip(leaves, axes, strict=True):
                if number not in new:
                    new[number] = multi_map.locate_errors(
                        cell, parts_module.copy_part, backend, x, along, start, stop, target
                    )
            parts.append(flat.rebuild(new))
    except BaseException:
        parts.clear()  # the traceback would keep the parts, and their memory
        new.clear()
        raise
    return parts


def _show_split(shown: Explain, tree: Any, targets: list[Device], axis: int, bounds: list[tuple[int, int]]) -> None:
    backend = flatten(tree).backends[0]
    sizes = [stop - start for start, stop in bounds]
    devices = f"[{', '.join(map(backend.native_text, targets))}]"
    shown.tree("split", tree, None, axis=str(axis), devices=devices, count=str(len(targets)), sizes=str(sizes))


def gather(parts: Iterable[T], device: DeviceLike, axis: int = 0) -> T:
    """Join tensors, or the tensors of equal trees, along an axis on one device: the inverse of `split`.

    Args:
        parts: Tensors, or trees of one structure, in order; their tensors agree in framework, dtype, and shape except
            along the axis. 0-d tensors become one tensor of shape (parts,), such as the loss of each part; so do NumPy
            scalars that are parts themselves. A leaf that is not a tensor must be equal in all parts.
        device: The target. It needs memory for the parts and for the result.
        axis: The axis to join along; negative ones count from the end of each tensor's shape.

    Returns:
        A new tensor, or a new tree like the first part. Gradients flow back to each part, on its device.

    Raises:
        ArgumentError: ``parts`` is one tensor or dict, or empty, the parts differ where they must agree (the message
            names each), or a tensor has no such axis.
        UnsupportedError: The parts have sparse arrays, graphs, or other objects that cannot be joined tensor by tensor.
        DeviceNotFoundError: The framework does not have the device; nothing was copied.
        OutOfMemoryError: The device is full.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.gather([ds.ones(2), ds.zeros(1)], "cpu")
        array([1., 1., 0.])
    """
    target = parsing.device_of_call("gather", parts, device)
    wrong = argument_hints.no_parts(parts)
    if wrong is not None:
        raise wrong
    trees: list[T] = [numpy_scalars.as_array(part) for part in parts]
    if not trees:
        raise ArgumentError("ds.gather was given no parts", "pass what ds.split returned")
    owner = registry.TENSORS.get(type(trees[0]))
    if owner is not None and observing.ACTIVE is None:
        joined_tensor: T = parts_module.gather_tensors(owner, trees, target, axis)
        return joined_tensor
    return _gather_trees(trees, target, axis)


def _gather_trees(trees: list[T], target: Device, axis: int) -> T:
    """Return one tree, in which the tensors of equal trees are joined on a device."""
    found: list[tuple[Cell, list[Tensor], Backend, int]] = []

    def visit(cell: Cell, nodes: list[Any]) -> Any:
        if any(registry.backend_for(node) is not None for node in nodes):  # a scalar beside a 0-d array is like it
            nodes = list(map(numpy_scalars.as_array, nodes))
        backend = registry.backend_for(nodes[0])
        if backend is None:
            _refuse_variable(nodes[0])
            multi_map.require_equal("gather", "part", cell, nodes)
        else:
            found.append((cell, nodes, backend, parts_module.axis_of_parts(cell, nodes, backend, axis)))
        return nodes[0]

    first = multi_map.map_leaves(
        trees, visit, multi_map.structure_error("gather", "part"), enter=lambda x: require_separable("gather", x, axis)
    )
    arguments.check_devices([backend for _, _, backend, _ in found], [target])
    joined: dict[tuple[int, ...], Any] = {}
    shown = observing.explainer()
    if shown is not None:
        shown.tree("gather", trees[0], target, axis=str(axis))
    try:
        for cell, xs, backend, along in found:
            key = tuple(map(id, xs))
            if key not in joined:
                joined[key] = multi_map.locate_errors(cell, parts_module.join, backend, xs, along, target)
        results = iter([joined[tuple(map(id, xs))] for _, xs, _, _ in found])
    except BaseException:
        joined.clear()  # the traceback would keep the tensors, and their memory
        raise
    gathered: T = multi_map.map_leaves(
        [first],
        lambda cell, nodes: nodes[0] if registry.backend_for(nodes[0]) is None else next(results),
        multi_map.structure_error("gather", "part"),
    )
    return gathered


def _refuse_variable(node: Any) -> None:
    """Refuse a variable, which contains one tensor but is a model to devshim: the result would be the first part."""
    owner = model_backend(node)
    if owner is not None and [leaf.path for leaf in owner.leaves(node) if leaf.kind != "gradient"] == [""]:
        msg = f"ds.gather joins tensors, and this is a {type_name(node)}, which holds one"
        raise ArgumentError(msg, "pass the tensor in it: ds.gather([part.value for part in parts], device)")


def broadcast(tree: T, devices: Iterable[DeviceLike]) -> list[T]:
    """Return a copy of a tensor, or of every tensor of a tree, on each device.

    Args:
        tree: A tensor or a tree of tensors; other leaves are in every copy.
        devices: One for each copy; the same device may occur several times.

    Returns:
        A list of copies in new memory, even on the device where the tensor is.

    Raises:
        ArgumentError: ``devices`` is empty.
        DeviceNotFoundError: The framework does not have one of the devices; nothing was copied.
        OutOfMemoryError: A device is full; the copies so far are released.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.broadcast({"x": ds.ones(2)}, ["cpu", "cpu"])
        [{'x': array([1., 1.])}, {'x': array([1., 1.])}]
    """
    targets = device_lists.parse_devices(devices, "broadcast", "tree", tree)
    backend = None if observing.ACTIVE is not None else registry.TENSORS.get(type(tree))
    arguments.check_devices(flatten(tree).backends if backend is None else (backend,), targets)
    copies: list[T] = []
    try:
        for target in targets:
            if backend is None:
                copies.append(trees_module.place(tree, target, True, False, "broadcast"))
            else:
                copies.append(engine.move(backend, tree, target))
    except BaseException:
        copies.clear()
        raise
    return copies


def replicate(model: T, devices: Iterable[DeviceLike]) -> list[T]:
    """Return an independent model on each device, all with equal values; the argument stays unchanged where it is.

    Args:
        model: A model, or a tree of tensors if those are the model (JAX, NumPy). Not an optimizer: make one for
            each replica, or one for the model itself.
        devices: One for each replica; the same device may occur several times.

    Returns:
        A list of models. A replica is made on the model's device and then moved: that device needs memory for one more.

    Raises:
        NotATensorError: It contains no model and no tensor.
        UnsupportedError: The backend declares that it cannot move models.
        DeviceNotFoundError: The framework does not have one of the devices.
        OutOfMemoryError: A device is full; the replicas so far are released.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.replicate({"w": ds.ones(2)}, ["cpu", "cpu"])
        [{'w': array([1., 1.])}, {'w': array([1., 1.])}]
    """
    tracing.refuse_where_read("replicate", "make the replicas outside the compiled function")
    targets = device_lists.parse_devices(devices, "replicate", "model", model)
    flat = flatten(model)
    owners = [*flat.backends, *(backend for *_, backend in flat.models)]
    if not owners:
        msg = f"ds.replicate takes a model, and found neither one nor a tensor in this {type_name(model)}"
        raise NotATensorError(msg, "pass a model of an installed framework, or a tree of tensors")
    arguments.check_devices(owners, targets)
    return broadcast(model, targets)

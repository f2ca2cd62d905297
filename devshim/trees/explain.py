"""The `explain` lines for trees, models and files: one for each tensor or model of a call.

A tensor in a tree is named by its keys, ``x['weight']``. For a large tree, the first tensors get a line each, and one
more line says how many others there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError
from devshim.transfers import explain
from devshim.trees import key_paths
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device
    from devshim.models.moving import Where
    from devshim.transfers.observing import Explain
    from devshim.trees.flatten import Flattened

LINES = 8
"""The number of tensors of one tree that get a line each."""
_HELD = ("parameter", "buffer")
"""The kinds of leaves that a model has and an optimizer does not have."""


def placing(show: Explain, call: str, flat: Flattened, where: Where) -> None:
    """Show the lines for a placement (``call`` is ``"place"`` or ``"copy"``) of a tree.

    Args:
        show: `devshim.transfers.observing.Active.explain`, which the caller has read.
        call: The call whose line a tensor gets.
        flat: A tree of tensors, models and optimizers.
        where: The device of a leaf, as for `devshim.models.moving.ModelMove`.
    """
    for _, cell, x, backend in flat.leaves[:LINES]:
        device = where(key_paths.path_text(cell), "", not backend.shape(x))
        show(backend, call, device, x=_named("x", cell))
    _show_rest(len(flat.tensors), "tensors")
    for _, cell, obj, backend in flat.models:
        _place_object(show, call, key_paths.path_text(cell), cell, obj, backend, where)


def _place_object(show: Explain, call: str, prefix: str, cell: Any, obj: Any, backend: Backend, where: Where) -> None:
    """Show the placement of a model or optimizer; for a model over several devices, show each parameter."""
    leaves = [leaf for leaf in backend.leaves(obj) if leaf.kind != "gradient"]
    held = [leaf for leaf in leaves if leaf.kind in _HELD]
    kind = _kind(leaves)
    name = _named(kind, cell)
    targets = {leaf.path: _target(where, prefix, leaf, backend) for leaf in held or leaves}
    if len(set(targets.values())) > 1 and kind == "model":
        for path, device in list(targets.items())[:LINES]:
            show(backend, "place_parameter", device, x=name, path=repr(path))
        _show_rest(len(targets), "parameters")
        return
    device = next(iter(targets.values())) if targets else where(prefix, "")
    show(backend, f"{call}_{kind}", device, x=name)


def _target(where: Where, prefix: str, leaf: Leaf, backend: Backend) -> Device:
    """Return the target of a leaf; state that a placement does not name stays with its parameter."""
    try:
        return where(prefix, leaf.path, leaf.kind == "state")
    except ArgumentError:
        return backend.device_of(leaf.read())


def _show_rest(count: int, what: str) -> None:
    """Show how many there are besides those that got a line."""
    if count > LINES:
        explain.show(f"# and {count - LINES} more {what}")


def _kind(leaves: list[Leaf]) -> str:
    """Return ``"model"`` or ``"optimizer"``, whichever has such leaves; an object that is not built yet is a model."""
    return "model" if not leaves or any(leaf.kind in _HELD for leaf in leaves) else "optimizer"


def about(call: str, tree: Any, device: Device | None = None, **names: str) -> None:
    """Show one line for each tensor of a tree, and for each model and optimizer in it.

    A model's line is that of ``call`` followed by ``_model``, an optimizer's by ``_optimizer``, if the backend has one.
    """
    flat = flatten(tree)
    for _, cell, _, backend in flat.leaves[:LINES]:
        explain.show_call(backend, call, device, **{"x": _named("x", cell), **names})
    _show_rest(len(flat.tensors), "tensors")
    for _, cell, obj, backend in flat.models:
        kind = _kind(backend.leaves(obj))
        name = f"{call}_{kind}" if f"{call}_{kind}" in backend.snippets else call
        explain.show_call(backend, name, device, **{"x": _named(kind, cell), **names})


def filing(call: str, tree: Any, path: Any, device: Device | None = None) -> None:
    """Show the lines for `save` or `load` of a tree: one for its tensors together, and one for each model."""
    flat = flatten(tree)
    first: dict[Backend, Device] = {}
    for x, backend in zip(flat.tensors, flat.backends, strict=True):
        if backend not in first:
            first[backend] = device if device is not None else backend.device_of(x)
    named = {"path": repr(str(path))}
    for backend, target in first.items():
        explain.show_call(backend, call, target, **{"x": "tensors", **named})
    for _, cell, obj, backend in flat.models:
        kind = _kind(backend.leaves(obj))
        explain.show_call(backend, f"{call}_{kind}", None, **{"x": _named(kind, cell), **named})


def listed(backend: Backend, devices: Sequence[Device]) -> str:
    """Return source text for a list of devices, as the framework's users write it."""
    return f"[{', '.join(map(backend.native_text, devices))}]"


def _named(name: str, cell: Any) -> str:
    """Return the source text of an object in a tree: the variable's name and the keys to it."""
    return name + "".join(f"[{key!r}]" for key in key_paths.key_path(cell))

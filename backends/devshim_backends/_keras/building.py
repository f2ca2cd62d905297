"""Move what Keras creates later to its device: weights of unbuilt layers, optimizer slots, metrics.

Keras makes variables wherever its framework makes tensors, and some of them only when a symbolic call has ended.  So
what is made for something that was placed is brought there behind the call that made it, by one copy each.

Requirements this module answers:

* An unbuilt layer remembers where it was placed, and forgets it once its variables are there.
* A layer that is added to a model comes to the model's device, and a weight that is added to a built layer, such as
  those of LoRA, to the layer's.
* An optimizer's state is brought beside its variables, and the metrics of ``compile`` beside the weights before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError
from devshim.tensors import activations
from devshim_backends._keras.traversal import is_metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim_backends._keras.traversal import Contents

__all__ = ["add_beside", "bring", "bring_beside", "home_of", "settle"]

_HOME = "_devshim_home"
"""The attribute of a layer that has variables to make yet: the device it was placed on."""


def settle(contents: Contents, model: Any, where: Callable[[str], Device]) -> Callable[[], None]:
    """Note where the unbuilt parts of a model belong; returns what takes it back."""
    before = []
    for path, part in contents.parts(model):
        before.append((part, vars(part).get(_HOME)))
        _note(part, None if _is_built(part) else _wanted(where, path))

    def undo() -> None:
        for part, home in before:
            _note(part, home)

    return undo


def home_of(part: Any) -> Device | None:
    """Return where a layer that is not built yet was placed; None for any other."""
    found: Device | None = vars(part).get(_HOME)
    return found


def bring(backend: Backend, contents: Contents, model: Any) -> None:
    """Bring what was made in a model since it was placed to where it belongs."""
    homes: dict[str, Device] = {}
    for path, part in contents.parts(model):
        home = home_of(part) or _above(homes, path)
        if home is not None:
            homes[path] = home
    if homes:
        for leaf in backend.leaves(model):
            home = _above(homes, leaf.path)
            if home is not None and leaf.kind in ("parameter", "buffer"):
                _carry(backend, leaf, home)
        for _, part in contents.parts(model):
            if _has_values(contents, part):
                _note(part, None)
    bring_beside(backend, model)


def add_beside(backend: Backend, contents: Contents, whole: Any, add: Callable[[], Any]) -> Any:
    """Call a method that adds a weight or layer, and bring what it made to the device of all that was there before."""
    home = home_of(whole) if is_metric(whole) else None  # of a layer that is not built, `bring` takes care
    device = home or (_one_device(backend, whole) if _is_built(whole) else None)
    result = add()
    if device is None:
        return result
    for leaf in backend.leaves(whole):
        if leaf.beside is None:
            _carry(backend, leaf, device)
    for _, part in contents.parts(whole):
        if not _has_values(contents, part):
            _note(part, device)
    return result


def _one_device(backend: Backend, whole: Any) -> Device | None:
    devices = {backend.device_of(leaf.read()) for leaf in backend.leaves(whole) if leaf.beside is None}
    return devices.pop() if len(devices) == 1 else None


def _is_built(part: Any) -> bool:
    """Return True for a layer that is built, and a metric that has variables: some make them late."""
    return bool(part.variables) if is_metric(part) else getattr(part, "built", True)


def _has_values(contents: Contents, part: Any) -> bool:
    return _is_built(part) and all(contents.owner(x.variable) is not None for x in contents.held(part))


def bring_beside(backend: Backend, whole: Any) -> None:
    """Bring the states of a model or optimizer beside the weights that they belong to."""
    for leaf in backend.leaves(whole):
        if leaf.kind == "state" and leaf.beside is not None:
            _carry(backend, leaf, backend.device_of(leaf.beside))


def _carry(backend: Backend, leaf: Any, device: Device) -> None:
    x = leaf.read()
    if backend.device_of(x) is not device:
        leaf.write(activations.carry(x, device))


def _note(part: Any, home: Device | None) -> None:
    """Note it behind Keras's back, which tracks what is set on a layer."""
    if home is None:
        vars(part).pop(_HOME, None)
    else:
        vars(part)[_HOME] = home


def _above(homes: dict[str, Device], path: str) -> Device | None:
    """The device of the nearest part above a path."""
    while True:
        if path in homes:
            return homes[path]
        if not path:
            return None
        path = path.rpartition(".")[0]


def _wanted(where: Callable[[str], Device], path: str) -> Device | None:
    """Return the device of something without variables; None if the placement only names leaves."""
    try:
        return where(path)
    except ArgumentError:
        return None

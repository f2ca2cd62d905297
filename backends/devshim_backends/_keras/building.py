"""Move what Keras creates later to its device: weights of unbuilt layers, optimizer slots, metrics.

Keras makes variables wherever its framework makes tensors, and some of them only when a symbolic call has ended.  So
what is made for something that was placed is brought there behind the call that made it, by one copy each.

Requirements this module answers:

* An unbuilt layer remembers where it was placed, and forgets it once its variables are there.
* An optimizer's state is brought beside its variables, and the metrics of ``compile`` beside the weights before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim import _carrying
from devshim.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.backend import Backend
    from devshim.device import Device
    from devshim_backends._keras.contents import Contents

__all__ = ["bring", "bring_beside", "home_of", "settle"]

_HOME = "_devshim_home"
"""The attribute of a layer that has variables to make yet: the device it was placed on."""


def settle(contents: Contents, model: Any, where: Callable[[str], Device]) -> Callable[[], None]:
    """Note where the unbuilt parts of a model belong; returns what takes it back."""
    before = []
    for path, part in contents.parts(model):
        before.append((part, vars(part).get(_HOME)))
        _note(part, None if getattr(part, "built", True) else _wanted(where, path))

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
            if getattr(part, "built", True) and all(
                contents.owner(x.variable) is not None for x in contents.held(part)
            ):
                _note(part, None)
    bring_beside(backend, model)


def bring_beside(backend: Backend, whole: Any) -> None:
    """Bring the states of a model or optimizer beside the weights that they belong to."""
    for leaf in backend.leaves(whole):
        if leaf.kind == "state" and leaf.beside is not None:
            _carry(backend, leaf, backend.device_of(leaf.beside))


def _carry(backend: Backend, leaf: Any, device: Device) -> None:
    x = leaf.read()
    if backend.device_of(x) is not device:
        leaf.write(_carrying.carry(x, device))


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

"""The shapes that a Keras model was built for, which a checkpoint stores to build an unbuilt model again.

Keras builds a model when it is first called. Its own files store the same shapes, and build models from them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Undo = Callable[[], None]

__all__ = ["build", "shapes_of"]

_CONTAINERS: tuple[Any, ...] = (list, set, OrderedDict, dict)


def shapes_of(layer: Any) -> Any:
    """Return the shapes that a layer was built for; None if it has none, or if they are not plain values."""
    if not getattr(layer, "built", False) or not hasattr(layer, "get_build_config"):
        return None
    shapes = layer.get_build_config()
    return shapes if shapes and _is_plain(shapes) else None


def _is_plain(x: Any) -> bool:
    if isinstance(x, dict):
        return all(type(key) is str and _is_plain(each) for key, each in x.items())
    if type(x) in (list, tuple):
        return all(map(_is_plain, x))
    return x is None or type(x) in (int, str, bool)


def build(layer: Any, shapes: Any) -> Undo:
    """Build a layer for the shapes of another, unless it is built, and return a function that undoes it."""
    if getattr(layer, "built", True):
        return _nothing
    undo = _remember(layer)
    try:
        layer.build_from_config(shapes)
    except BaseException:
        undo()
        raise
    return undo


def _remember(layer: Any) -> Undo:
    """Return a function that restores a layer and its sublayers, in the same lists and dictionaries.

    Keras's tracker is restored too: otherwise it would ignore a new variable with the same `id` as an old one.
    """
    before = [(vars(x), dict(vars(x))) for each in layer._flatten_layers() for x in (each, each._tracker)]
    contents: dict[int, tuple[Any, Any]] = {}
    for _, attributes in before:
        for x in attributes.values():
            _remember_contents(x, contents)

    def undo() -> None:
        for attributes, old in before:
            attributes.clear()
            attributes.update(old)
        for held, content in contents.values():
            base = next(each for each in _CONTAINERS if isinstance(held, each))
            base.clear(held)  # not the override of Keras, which tracks its contents
            base.extend(held, content) if base is list else base.update(held, content)

    return undo


def _remember_contents(x: Any, contents: dict[int, tuple[Any, Any]]) -> None:
    """Store the present contents of a list, dictionary or set, and of those inside it."""
    if isinstance(x, _CONTAINERS) and id(x) not in contents:
        contents[id(x)] = x, next(each for each in (list, set, dict) if isinstance(x, each))(x)
        for each in x.values() if isinstance(x, dict) else ():
            _remember_contents(each, contents)


def _nothing() -> None:
    """Undo nothing."""

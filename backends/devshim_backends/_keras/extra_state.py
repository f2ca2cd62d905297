"""The extra state, in a checkpoint, of optimizers and of models that were compiled with one.

Settings that are plain numbers are restored (``momentum``, ``clipnorm``); rates and counts are variables. The state of
an optimizer that has not trained yet is created by its own ``build``, which needs its variables. They come from the
compiled model, from the model that is loaded together with it, or from ``optimizer.build(model.trainable_variables)``.
A model that is not built yet is built for the shapes that the saved one was built for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import CheckpointError
from devshim_backends._keras.input_shapes import build, shapes_of
from devshim_backends._keras.optimizers import wrapped_optimizers
from devshim_backends._keras.traversal import is_model_or_optimizer, is_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devshim.contract.backend import Backend

    Forms = Mapping[str, tuple[tuple[int, ...], str]]

__all__ = ["create_optimizer_state", "get_extra_state", "library_of", "set_extra_state"]

_NOT_SET = frozenset({"name", "learning_rate"})
"""Settings that are not restored: learning rates are variables, or schedules, which are code."""


def library_of(backend: Backend, obj: Any) -> str:
    """Return ``"keras"`` for a Keras object, regardless of its backend; see `ModelBackend.library`."""
    return "keras" if is_model_or_optimizer(type(obj)) else backend.name


def get_extra_state(obj: Any) -> Any:
    """Return the extra state of a Keras object for a checkpoint; see `ModelBackend.get_extra_state`."""
    if is_optimizer(obj):
        return _describe_optimizer(obj)
    extra_state: dict[str, Any] = {}
    optimizer = getattr(obj, "optimizer", None)
    if optimizer is not None:
        extra_state["optimizer"] = _describe_optimizer(optimizer)
    shapes = shapes_of(obj)
    if shapes is not None:
        extra_state["shapes"] = shapes
    return extra_state or None


def create_optimizer_state(optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
    """Create the state of an optimizer that has none; see `ModelBackend.create_optimizer_state`."""
    if not is_optimizer(optimizer) or optimizer.built:
        return _nothing
    slots = [path.rpartition("state.")[2] for path in forms if "state." in path]  # including wrapped optimizers
    count = len({slot.partition(".")[0] for slot in slots})
    known = [list(each.trainable_variables) for each in models if hasattr(each, "trainable_variables")]
    for variables in (*known, [each for of_one in known for each in of_one]):
        if count and len(variables) == count:
            undo = _remember(optimizer)
            optimizer.build(variables)
            return undo
    return _nothing


def set_extra_state(obj: Any, extra_state: Any, forms: Forms) -> Callable[[], None]:
    """Restore the extra state of a Keras object from a checkpoint; see `ModelBackend.set_extra_state`."""
    if is_optimizer(obj):
        _require_built(obj, any(path.startswith("state.") for path in forms))
        return _restore_settings(obj, extra_state)
    if extra_state.get("shapes") is None:
        return _restore_compiled(obj, extra_state, forms)
    unbuild = build(obj, extra_state["shapes"])
    try:
        undo = _restore_compiled(obj, extra_state, forms)
    except BaseException:
        unbuild()
        raise

    def both() -> None:
        undo()
        unbuild()

    return both


def _restore_compiled(obj: Any, extra_state: Any, forms: Forms) -> Callable[[], None]:
    """Restore the extra state of a compiled model's optimizer from a checkpoint."""
    optimizer = getattr(obj, "optimizer", None)
    if optimizer is None or "optimizer" not in extra_state:
        return _nothing  # only the weights are wanted, or nothing else was saved
    undo = _remember(optimizer)
    try:
        if not optimizer.built and any(".state." in path for path in forms):
            optimizer.build(obj.trainable_variables)
        _restore_settings(optimizer, extra_state["optimizer"])
    except BaseException:
        undo()
        raise
    return undo


def _describe_optimizer(optimizer: Any) -> dict[str, Any]:
    plain = {
        name: value
        for name, value in optimizer.get_config().items()
        if name not in _NOT_SET and name in vars(optimizer) and isinstance(value, (bool, int, float, type(None)))
    }
    return {
        "class": type(optimizer).__name__,
        "settings": plain,
        "within": {name: _describe_optimizer(inner) for name, inner in wrapped_optimizers(optimizer)},
    }


def _require_built(optimizer: Any, begun: bool) -> None:
    if begun and not optimizer.built:
        msg = f"the {type(optimizer).__name__} is not built, so it has no state into which the file could be loaded"
        raise CheckpointError(msg, "call optimizer.build(model.trainable_variables) first")


def _restore_settings(optimizer: Any, extra_state: Any) -> Callable[[], None]:
    """Give an optimizer the saved settings, and return a function that undoes it."""
    undo = _remember(optimizer)
    try:
        _set_settings(optimizer, extra_state)
    except BaseException:
        undo()
        raise
    return undo


def _set_settings(optimizer: Any, extra_state: Any) -> None:
    inner = dict(wrapped_optimizers(optimizer))
    if extra_state["class"] != type(optimizer).__name__ or extra_state["within"].keys() != inner.keys():
        msg = f"the file has the state of a {extra_state['class']}, but the optimizer is a {type(optimizer).__name__}"
        raise CheckpointError(msg, "load it into an optimizer of the same class")
    for name, value in extra_state["settings"].items():
        if name in vars(optimizer):
            setattr(optimizer, name, value)
    for name, each in inner.items():
        _set_settings(each, extra_state["within"][name])


def _remember(optimizer: Any) -> Callable[[], None]:
    """Return a function that restores an optimizer's present state, in the same lists and dictionaries."""
    before = dict(vars(optimizer))
    contents = [(x, x.copy()) for x in before.values() if isinstance(x, (list, dict))]
    deeper = [_remember(inner) for _, inner in wrapped_optimizers(optimizer)]

    def undo() -> None:
        vars(optimizer).clear()
        vars(optimizer).update(before)
        for held, content in contents:
            if len(held) != len(content):  # lists and dictionaries only ever grow
                held.clear()
                held.update(content) if isinstance(held, dict) else held.extend(content)
        for each in deeper:
            each()

    return undo


def _nothing() -> None:
    """Undo nothing."""

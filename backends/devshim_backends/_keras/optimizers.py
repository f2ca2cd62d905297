"""The variables of Keras optimizers, and the model variable that each belongs to.

Requirements of this module:

* Every variable of every optimizer is found, regardless of its attribute's name: momenta by the number of their
  variable, counts and rates by their names, those of wrapped optimizers below the wrapper's.
* A slot follows its variable. A variable without one (``iterations``, ``learning_rate``, a loss scale) follows the
  first model variable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim_backends._keras.traversal import is_optimizer, is_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.contract.models import Leaf
    from devshim_backends._keras.traversal import Contents

    LeavesOf = Callable[[str, Any, Any, Any], Iterable[Leaf]]
    """Makes the leaves for a path, kind, variable and owner; none for a variable without a value or that stays."""

__all__ = ["optimizer_leaves", "trained_variables", "wrapped_optimizers"]

_REGISTRIES = ("_variables", "_trainable_variables", "_tracker", "_self_")
"""Prefixes of attributes in which Keras and TensorFlow list every variable a second time."""


def optimizer_leaves(contents: Contents, leaves: LeavesOf, optimizer: Any, prefix: str = "") -> Iterator[Leaf]:
    """Yield the leaves of an optimizer: each slot follows its variable, everything else the first variable."""
    if not is_optimizer(optimizer):
        msg = f"a {type(optimizer).__name__} of {type(optimizer).__module__} is not a Keras 3 optimizer"
        raise UnsupportedError(msg, "use keras.optimizers")
    follows = [contents.owner(each) for each in trained_variables(optimizer)]
    first = follows[0] if follows else None
    for path, number, variable in _named_variables(optimizer):
        yield from leaves(prefix + path, "state", variable, first if number is None else follows[number])
    for name, inner in wrapped_optimizers(optimizer):
        for leaf in optimizer_leaves(contents, leaves, inner, f"{prefix}{name}."):
            yield leaf if leaf.follows is not None else replace(leaf, follows=first)


def trained_variables(optimizer: Any) -> list[Any]:
    """Return the variables that an optimizer was built for, in order; none before it is built."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def wrapped_optimizers(optimizer: Any) -> list[tuple[str, Any]]:
    """Return the optimizers that an optimizer wraps, with their names."""
    found: list[tuple[str, Any]] = []
    for name, value in vars(optimizer).items():
        several = isinstance(value, (list, tuple))
        for i, each in enumerate(value if several else (value,)):
            if is_optimizer(each):
                found.append((f"{name.strip('_')}.{i}" if several else name.strip("_"), each))
    return found


def _named_variables(optimizer: Any) -> list[tuple[str, int | None, Any]]:
    """Return each variable of an optimizer with its path and its model variable's number, in the order of Keras."""
    found: dict[int, tuple[str, int | None, Any]] = {}
    for name, value in vars(optimizer).items():
        if not name.startswith(_REGISTRIES):
            for path, number, variable in _attribute_variables(optimizer, name, value):
                found.setdefault(id(variable), (path, number, variable))
    own = [each for each in getattr(optimizer, "_variables", ()) if id(each) not in found]
    more = {id(each): (f"variables.{i}", None, each) for i, each in enumerate(own)}
    order = {id(each): i for i, each in enumerate(getattr(optimizer, "_variables", ()))}
    return [found_ for _, found_ in sorted({**found, **more}.items(), key=lambda item: order.get(item[0], len(order)))]


def _attribute_variables(optimizer: Any, name: str, value: Any) -> Iterator[tuple[str, int | None, Any]]:
    """Yield the variables in one attribute: a count, a list by variables' numbers, or a dictionary by their paths."""
    if is_variable(value):
        yield name.strip("_"), None, value
        return
    parameters = trained_variables(optimizer)
    if isinstance(value, dict):
        numbers = {each.path: i for i, each in enumerate(parameters) if hasattr(each, "path")}
        items = [(numbers.get(key), key, each) for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(i if i < len(parameters) else None, i, each) for i, each in enumerate(value)]
    else:
        return
    for number, key, each in items:
        if not is_variable(each):
            continue
        if number is None:
            yield f"{name.strip('_')}.{key}", None, each
        else:
            yield f"state.{number}.{_role(each, parameters[number], name)}", number, each


def _role(variable: Any, parameter: Any, attribute: str) -> str:
    """Return a slot's role: Keras names a slot by variable and role (``sequential_dense_kernel_momentum``)."""
    path = getattr(parameter, "path", None) or str(parameter.name).replace(":", "_")
    start = f"{path.replace('/', '_')}_"
    name: str = variable.name
    return name.removeprefix(start) if name.startswith(start) else attribute.strip("_")

"""Flax NNX modules and optimizers: objects whose arrays devshim replaces. All other flax models are trees.

Requirements of this module:

* A module, optimizer or variable stays the same object. A variable that appears twice is one leaf and stays shared.
* JAX computes on the device of committed arrays, so ``model(x)`` needs no change if ``x`` is on the model's device.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jax

from devshim.contract.backend import Backend
from devshim.contract.models import Block, Leaf
from devshim_backends._jax.models.models import do_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devshim.contract.models import Layer
    from devshim.devices.device import Device

    Forms = Mapping[str, tuple[tuple[int, ...], str]]


def is_nnx(cls: type) -> bool:
    """Return True if instances of a class are NNX modules, optimizers or other NNX graph objects."""
    nnx = sys.modules.get("flax.nnx")
    bases = () if nnx is None else tuple(getattr(nnx, name) for name in ("Pytree", "Object") if hasattr(nnx, name))
    return issubclass(cls, bases)


class JaxNnx(Backend):
    """The mixin for NNX. It comes before the mixin for Keras, because Keras layers can be NNX modules."""

    def is_model(self, cls: type) -> bool:
        return is_nnx(cls) or super().is_model(cls)

    def leaves(self, obj: Any) -> list[Leaf]:
        return list(_leaves(obj)) if self._is_nnx_object(obj) else super().leaves(obj)

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        return do_nothing if self._is_nnx_object(obj) else super().install_hooks(obj, where)

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        others = [each for each in objects if not self._is_nnx_object(each)]
        rest = iter(super().clones(others) if others else ())
        return [_clone(each) if self._is_nnx_object(each) else next(rest) for each in objects]

    def blocks(self, model: Any) -> list[Block]:
        if not self._is_nnx_object(model):
            return super().blocks(model)
        paths_by_module: dict[str, list[str]] = {}
        for leaf in _leaves(model):
            paths_by_module.setdefault(leaf.path.rpartition(".")[0], []).append(leaf.path)
        return [Block(path, tuple(leaves)) for path, leaves in paths_by_module.items()]

    def layers(self, model: Any) -> list[Layer]:
        if not self._is_nnx_object(model):
            return super().layers(model)
        if not isinstance(model, sys.modules["flax.nnx"].Module):  # an optimizer's state is in no layers
            return []
        from devshim_backends._jax.models.internals.nnx_layers import layers_of

        owners = {id(leaf.owner): leaf.path for leaf in _leaves(model) if leaf.kind in ("parameter", "buffer")}
        return layers_of(model, owners)

    def get_extra_state(self, obj: Any) -> Any:
        return None if self._is_nnx_object(obj) else super().get_extra_state(obj)

    def create_optimizer_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        return (
            do_nothing if self._is_nnx_object(optimizer) else super().create_optimizer_state(optimizer, models, forms)
        )

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        return do_nothing if self._is_nnx_object(obj) else super().set_extra_state(obj, state, forms)

    def _is_nnx_object(self, obj: Any) -> bool:
        cls = type(obj)
        return is_nnx(cls) and not super().is_model(cls)


def _leaves(obj: Any) -> Iterator[Leaf]:
    """Yield the arrays of all variables and attributes. One that appears twice is named after its first key path."""
    nnx: Any = sys.modules["flax.nnx"]
    is_optimizer = isinstance(obj, nnx.Optimizer)
    for path, node in nnx.iter_graph(obj):
        name = ".".join(map(str, path))
        if isinstance(node, nnx.Variable):
            yield from _variable_leaves(nnx, name, node, is_optimizer)
        elif is_nnx(type(node)):
            for key, value in list(vars(node).items()):
                if isinstance(value, jax.Array):
                    yield Leaf(
                        f"{name}.{key}" if name else key, "buffer", *_attribute_access(node, key), (id(node), key)
                    )


def _variable_leaves(nnx: Any, name: str, variable: Any, is_optimizer: bool) -> Iterator[Leaf]:
    kind: Any = "state" if is_optimizer else "parameter" if isinstance(variable, nnx.Param) else "buffer"
    kind = "stream" if isinstance(variable, nnx.RngState) else kind
    found, structure = jax.tree_util.tree_flatten_with_path(variable.get_raw_value())
    for i, (path, value) in enumerate(found):
        if isinstance(value, jax.Array):
            below = f"{name}.{jax.tree_util.keystr(path, simple=True, separator='.')}" if path else name
            yield Leaf(below, kind, *_value_access(variable, structure, i), (variable, i) if path else variable)


def _value_access(variable: Any, structure: Any, i: int) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return functions that read and write one array of a variable's value, which may be a tree."""

    def read() -> Any:
        return jax.tree_util.tree_leaves(variable.get_raw_value())[i]

    def write(new: Any) -> None:
        values = jax.tree_util.tree_leaves(variable.get_raw_value())
        values[i] = new
        variable.set_raw_value(jax.tree_util.tree_unflatten(structure, values))

    return read, write


def _attribute_access(node: Any, key: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: vars(node)[key], lambda new: vars(node).__setitem__(key, new)


def _clone(obj: Any) -> Any:
    """Return a clone of an NNX object whose arrays are copies on the same devices."""
    nnx: Any = sys.modules["flax.nnx"]
    new = nnx.clone(obj)
    for leaf in _leaves(new):
        leaf.write(jax.lax.copy_p.bind(leaf.read()))
    return new


def clone_in_trace(obj: Any) -> Any:
    """Return a clone that shares the arrays of an NNX object, and that code under the current trace may change."""
    return sys.modules["flax.nnx"].clone(obj)


__all__ = ["JaxNnx", "clone_in_trace", "is_nnx"]

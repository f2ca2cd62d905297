"""Models on JAX: those of Keras 3 with its JAX backend. JAX itself has only trees of arrays.

To move a Keras variable, devshim replaces its array with one on another device; the variable stays the same object.
JAX computes on the device of committed arrays, so ``model(x)``, ``fit`` and compiled steps need no other change.

Workarounds:

* JAX's default device gets what Keras makes later (a layer added to a placed model, a weight added to a layer) and
  values that Keras assigns from NumPy. devshim moves them to the device where the layer or variable was placed.
* While ``fit`` runs, Keras (3.15.1) takes the arrays out of the variables. devshim has Keras restore them before it
  reads leaves.
* Gradients may be on the device that their variables were on before the last move.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from devshim.contract.models import Leaf
from devshim.errors import UnsupportedError
from devshim_backends._jax.dlpack import JaxDlpack
from devshim_backends._keras import extra_state
from devshim_backends._keras.blocks import blocks_of, layers_of
from devshim_backends._keras.building import store_planned_devices
from devshim_backends._keras.cloning import clone_objects, rebuild_layer
from devshim_backends._keras.models import leaves_of
from devshim_backends._keras.traversal import Contents, is_layer, is_metric, is_model_or_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devshim.contract.models import Block, Layer
    from devshim.devices.device import Device

    Forms = Mapping[str, tuple[tuple[int, ...], str]]


HOME = "_devshim_home"
"""The attribute of a placed variable that stores the sharding on which it stays."""


class JaxContents(Contents):
    """The contents of Keras models on JAX. A variable owns its data, because devshim swaps its array."""

    def owner(self, variable: Any) -> Any:
        return None if variable._value is None else variable


CONTENTS = JaxContents()


class JaxModels(JaxDlpack):
    """The mixin for Keras models, layers and checkpoints."""

    def is_model(self, cls: type) -> bool:
        return is_model_or_optimizer(cls)

    def leaves(self, obj: Any) -> list[Leaf]:
        _restore_arrays(obj)
        return leaves_of(CONTENTS, self._leaves_of, obj)

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        from devshim_backends._jax.models.keras import calls

        calls.install(self)
        if is_layer(obj):
            self._require_one_device(obj)
        pin(self.leaves(obj))
        return store_planned_devices(CONTENTS, obj, where) if is_layer(obj) or is_metric(obj) else do_nothing

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        return clone_objects(self, CONTENTS, objects, lambda layer: rebuild_layer(CONTENTS, layer))

    def blocks(self, model: Any) -> list[Block]:
        return blocks_of(self, CONTENTS, model)

    def layers(self, model: Any) -> list[Layer]:
        return layers_of(self, CONTENTS, model)

    def library(self, obj: Any) -> str:
        return extra_state.library_of(self, obj)

    def get_extra_state(self, obj: Any) -> Any:
        return extra_state.get_extra_state(obj)

    def create_optimizer_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        return extra_state.create_optimizer_state(optimizer, models, forms)

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        return extra_state.set_extra_state(obj, state, forms)

    def _leaves_of(self, path: str, kind: Any, variable: Any, follows: Any) -> Iterator[Leaf]:
        if variable._value is not None:
            read, write = partial(getattr, variable, "_value"), partial(_write, variable)
            yield Leaf(path, kind, read, write, variable, follows)

    def _require_one_device(self, model: Any) -> None:
        """Refuse a model on several devices: JAX computes on one device, and Keras does not copy between devices."""
        leaf_on: dict[Device, str] = {}
        for leaf in self.leaves(model):
            leaf_on.setdefault(self.device_of(leaf.read()), leaf.path)
        if len(leaf_on) > 1:
            (one, first), (other, second), *_ = leaf_on.items()
            msg = (
                f"{first} would be on {one} and {second} on {other}, and Keras on JAX computes on one device, or "
                "on all devices of a keras.distribution"
            )
            raise UnsupportedError(msg, "place the model on one device, or use keras.distribution.DataParallel")


def _write(variable: Any, new: Any) -> None:
    """Give a variable another array, and pin the variable to that array's device."""
    variable._value = new
    if not isinstance(new, Tracer):  # as in a replica that `data_parallel` makes while JAX differentiates
        setattr(variable, HOME, new.sharding)


def pin(leaves: Iterable[Leaf]) -> None:
    """Pin variables to their current devices, even if other values are assigned to them later.

    JAX computes with uncommitted arrays on its default device, so arrays on other devices are committed.
    """
    default = jax.config.jax_default_device or jax.local_devices()[0]
    for leaf in leaves:
        x = leaf.read()
        if isinstance(x, Tracer):
            continue
        if not x.committed and x.sharding.device_set != {default}:
            leaf.write(jax.device_put(x, x.sharding))
        setattr(leaf.owner, HOME, x.sharding)


def _restore_arrays(obj: Any) -> None:
    """Make Keras restore the arrays that ``fit`` has taken out of a model's variables."""
    if is_layer(obj):
        for _, model in CONTENTS.compiled_parts(obj):
            synchronize = getattr(model, "jax_state_sync", None)
            if synchronize is not None:
                synchronize()


def do_nothing() -> None:
    """Undo nothing."""

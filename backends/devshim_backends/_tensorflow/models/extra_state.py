"""The extra state of Keras objects in a checkpoint. A ``tf.Module`` has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.backend import Backend
from devshim_backends._keras import extra_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Forms = Mapping[str, tuple[tuple[int, ...], str]]


class TensorflowExtraState(Backend):
    """The mixin for checkpoints."""

    def library(self, obj: Any) -> str:
        return extra_state.library_of(self, obj)

    def get_extra_state(self, obj: Any) -> Any:
        return None if isinstance(obj, tf.Module) else extra_state.get_extra_state(obj)

    def create_optimizer_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        return extra_state.create_optimizer_state(optimizer, models, forms)

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        if isinstance(obj, tf.Module):
            return super().set_extra_state(obj, state, forms)
        return extra_state.set_extra_state(obj, state, forms)

"""The extra state of Keras objects in a checkpoint. A ``tf.Module`` has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.backend import Backend
from devshim_backends._keras import extra_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Forms = Mapping[str, tuple[tuple[int, ...], str]]


class TensorflowResuming(Backend):
    """The mixin for checkpoints."""

    def library(self, whole: Any) -> str:
        return extra_state.library_of(self, whole)

    def facts(self, whole: Any) -> Any:
        return None if isinstance(whole, tf.Module) else extra_state.facts_of(whole)

    def begin_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        return extra_state.begin_state(optimizer, models, forms)

    def restore(self, whole: Any, facts: Any, forms: Forms) -> Callable[[], None]:
        if isinstance(whole, tf.Module):
            return super().restore(whole, facts, forms)
        return extra_state.restore(whole, facts, forms)

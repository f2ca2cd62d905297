"""The leaves of a Keras model.

Requirements of this module:

* Leaves are layers' weights and statistics, the states of their random generators and metrics, and raw variables among
  attributes.
* A compiled model's optimizer and metrics are part of it: the optimizer's state follows the weights.
* A variable without a value has no leaf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devshim_backends._keras.optimizers import optimizer_leaves
from devshim_backends._keras.traversal import is_metric, is_variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.models import Leaf
    from devshim_backends._keras.optimizers import LeavesOf
    from devshim_backends._keras.traversal import Contents

__all__ = ["leaves_of", "model_leaves"]


def leaves_of(contents: Contents, leaves: LeavesOf, obj: Any) -> list[Leaf]:
    """Return the leaves of a Keras layer, model, metric, optimizer or variable."""
    if is_variable(obj):
        return list(leaves("", "parameter" if obj.trainable else "buffer", obj, None))
    if is_metric(obj):
        return list(_metric_leaves(contents, leaves, "", obj))
    if hasattr(obj, "_layers"):
        return list(model_leaves(contents, leaves, obj))
    return list(optimizer_leaves(contents, leaves, obj))


def model_leaves(contents: Contents, leaves: LeavesOf, model: Any) -> Iterator[Leaf]:
    """Yield the leaves of a model; a state that belongs to no weight follows the weight before it."""
    last = None
    for leaf in _part_leaves(contents, leaves, model):
        if leaf.kind in ("parameter", "buffer"):
            last = leaf.owner
        yield replace(leaf, follows=last) if leaf.kind == "state" and leaf.follows is None else leaf


def _part_leaves(contents: Contents, leaves: LeavesOf, model: Any) -> Iterator[Leaf]:
    for path, part in contents.parts(model):
        start = f"{path}." if path else ""
        for name, variable, kind in contents.named_variables(part):
            for leaf in leaves(f"{start}{name}", kind, variable, None):
                yield _finalize_on_write(leaf, part) if name in _STATISTICS else leaf
        for name, metric in contents.metrics_in(part):
            yield from _metric_leaves(contents, leaves, f"{start}{name}.", metric)
    for path, part in contents.compiled_parts(model):
        start = f"{path}." if path else ""
        for i, metric in enumerate(contents.compiled_metrics(part)):
            yield from _metric_leaves(contents, leaves, f"{start}metrics.{i}.", metric)
        if part.optimizer is not None:
            yield from optimizer_leaves(contents, leaves, part.optimizer, f"{start}optimizer.")


_STATISTICS = frozenset({"mean", "variance", "adapt_mean", "adapt_variance"})
"""The names that Keras (3.15.1) gives the variables with a ``Normalization``'s statistics of data."""


def _finalize_on_write(leaf: Leaf, layer: Any) -> Leaf:
    """Return the leaf of a ``Normalization``, which computes with tensors derived from its variables."""
    if not hasattr(layer, "finalize_state"):
        return leaf

    def write(new: Any) -> None:
        leaf.write(new)
        layer.finalize_state()

    return replace(leaf, write=write)


def _metric_leaves(contents: Contents, leaves: LeavesOf, start: str, metric: Any) -> Iterator[Leaf]:
    for name, variable, kind in contents.named_variables(metric):
        yield from leaves(f"{start}{name}", kind, variable, None)

"""The extra state of optimizers, schedulers and scalers in a checkpoint: what they store beside tensors on devices.

It is their ``state_dict``, with a marker instead of every tensor that is a leaf. PyTorch's own ``load_state_dict``
creates the state of an optimizer that has none yet, on the devices of its parameters, and the leaves' values follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim import errors
from devshim.contract.backend import Backend
from devshim.contract.blocks import join_path
from devshim_backends._keras import extra_state
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.models.optimizers import HOST_COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Forms = Mapping[str, tuple[tuple[int, ...], str]]

_LEAF_MARKER = "(a leaf)"
"""The marker for a tensor that is saved as a leaf."""


class TorchExtraState(Backend):
    """Mixin for the extra state: settings, counts, and the state of an optimizer that has none yet."""

    def library(self, obj: Any) -> str:
        return extra_state.library_of(self, obj)

    def get_extra_state(self, obj: Any) -> Any:
        if is_model_or_optimizer(type(obj)):
            return extra_state.get_extra_state(obj)
        if isinstance(obj, (torch.nn.Module, torch.Generator)):
            return None
        leaves = {leaf.path for leaf in self.leaves(obj)}
        return _replace_leaves("", obj.state_dict(), leaves)

    def create_optimizer_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        # Only for optimizers of Keras: PyTorch's own know their parameters.
        return extra_state.create_optimizer_state(optimizer, models, forms)

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        if is_model_or_optimizer(type(obj)):
            return extra_state.set_extra_state(obj, state, forms)
        before = dict(vars(obj))
        loaded = _insert_tensors("", state, forms, self)
        if isinstance(obj, torch.optim.Optimizer):
            loaded["state"] = {int(number): each for number, each in loaded["state"].items()}

        def undo() -> None:
            vars(obj).clear()
            vars(obj).update(before)

        try:
            obj.load_state_dict(loaded)
            if isinstance(obj, torch.optim.Optimizer):
                _keep_on_host(obj, forms)
            if "_scale" in forms and obj._scale is None:  # a scaler that has not scaled anything yet
                obj._lazy_init_scale_growth_tracker(torch.device(obj._device))
        except (KeyError, RuntimeError, ValueError) as error:
            undo()
            msg = f"the file does not fit the {type(obj).__name__}: {error}"
            raise errors.CheckpointError(
                msg,
                "load it into an object that was created in the same way, for a model with the same parameters",
            ) from error
        return undo


def _keep_on_host(optimizer: Any, forms: Forms) -> None:
    """Move counts back to the host if they were there: PyTorch (2.13) keeps only ``step``, not ``mu_product``."""
    numbers = {id(p): i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    for parameter, state in optimizer.state.items():
        for name in HOST_COUNTERS & set(state):
            if isinstance(state[name], torch.Tensor) and f"state.{numbers[id(parameter)]}.{name}" not in forms:
                state[name] = state[name].cpu()


def _replace_leaves(path: str, state: Any, leaves: set[str]) -> Any:
    """Return a state_dict with markers for leaves, and with text for keys."""
    if isinstance(state, torch.Tensor):
        return _LEAF_MARKER if path in leaves else state.detach()
    if isinstance(state, dict):
        return {str(key): _replace_leaves(join_path(path, key), value, leaves) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return _same_sequence(
            state, [_replace_leaves(join_path(path, i), each, leaves) for i, each in enumerate(state)]
        )
    return state


def _insert_tensors(path: str, state: Any, forms: Forms, backend: Backend) -> Any:
    """Return a state_dict with a new tensor, of the given shape and dtype, for each marker."""
    if isinstance(state, str) and state == _LEAF_MARKER:
        shape, dtype = forms[path]
        return torch.zeros(shape, dtype=backend.dtype(dtype))
    if isinstance(state, dict):
        return {key: _insert_tensors(join_path(path, key), value, forms, backend) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        items = [_insert_tensors(join_path(path, i), each, forms, backend) for i, each in enumerate(state)]
        return _same_sequence(state, items)
    return state


def _same_sequence(original: Any, items: list[Any]) -> Any:
    """Return items in a sequence of the type of another, which may be a named tuple."""
    return original._make(items) if hasattr(original, "_make") else type(original)(items)

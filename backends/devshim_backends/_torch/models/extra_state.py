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
from devshim.trees.sequences import rebuild_sequence
from devshim_backends._keras import extra_state
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.models.optimizers import HOST_COUNTERS, with_inner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Forms = Mapping[str, tuple[tuple[int, ...], str]]

_LEAF_MARKER = "(a leaf)"
"""The marker for a tensor that is saved as a leaf, at its path; of another path, it is followed by that path."""


class TorchExtraState(Backend):
    """Mixin for the extra state: settings, counts, and the state of an optimizer that has none yet."""

    def library(self, obj: Any) -> str:
        return extra_state.library_of(self, obj)

    def get_extra_state(self, obj: Any) -> Any:
        if is_model_or_optimizer(type(obj)):
            return extra_state.get_extra_state(obj)
        if isinstance(obj, (torch.nn.Module, torch.Generator)):
            return None
        leaves = {id(leaf.owner): leaf.path for leaf in self.leaves(obj)}
        return _replace_leaves("", obj.state_dict(), leaves)

    def create_optimizer_state(self, optimizer: Any, models: Sequence[Any], forms: Forms) -> Callable[[], None]:
        # Only for optimizers of Keras: PyTorch's own know their parameters.
        return extra_state.create_optimizer_state(optimizer, models, forms)

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        if is_model_or_optimizer(type(obj)):
            return extra_state.set_extra_state(obj, state, forms)
        optimizers = with_inner(obj) if isinstance(obj, torch.optim.Optimizer) else []
        before = [(each, dict(vars(each))) for each in (obj, *(each for _, each in optimizers))]
        loaded = _insert_tensors("", state, forms, self)

        def undo() -> None:
            for each, attributes in before:
                vars(each).clear()
                vars(each).update(attributes)

        try:
            obj.load_state_dict(_number_state(loaded) if optimizers else loaded)
            for prefix, each in optimizers:
                _keep_on_host(join_path(prefix, "state"), each, forms)
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


def _number_state(loaded: Any) -> Any:
    """Return an optimizer's state_dict with numbers as keys of its state, and of the state of those that it wraps."""
    if isinstance(loaded, (list, tuple)):
        return rebuild_sequence(loaded, [_number_state(each) for each in loaded])
    if not isinstance(loaded, dict):
        return loaded
    numbered = {key: _number_state(value) for key, value in loaded.items()}
    if "param_groups" in numbered and "state" in numbered:
        numbered["state"] = {int(number): each for number, each in numbered["state"].items()}
    return numbered


def _keep_on_host(prefix: str, optimizer: Any, forms: Forms) -> None:
    """Move counts back to the host if they were there: PyTorch (2.13) keeps only ``step``, not ``mu_product``."""
    numbers = {id(p): i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    for parameter, state in optimizer.state.items():
        for name in HOST_COUNTERS & set(state):
            if isinstance(state[name], torch.Tensor) and f"{prefix}.{numbers[id(parameter)]}.{name}" not in forms:
                state[name] = state[name].cpu()


def _replace_leaves(path: str, state: Any, leaves: Mapping[int, str]) -> Any:
    """Return a state_dict with markers for leaves, whose paths are given by their ids, and with text for keys."""
    if isinstance(state, torch.Tensor):
        found = leaves.get(id(state))
        return state.detach() if found is None else _LEAF_MARKER if found == path else _LEAF_MARKER + found
    if isinstance(state, dict):
        return {str(key): _replace_leaves(join_path(path, key), value, leaves) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return rebuild_sequence(
            state, [_replace_leaves(join_path(path, i), each, leaves) for i, each in enumerate(state)]
        )
    return state


def _insert_tensors(path: str, state: Any, forms: Forms, backend: Backend) -> Any:
    """Return a state_dict with a new tensor, of the given shape and dtype, for each marker."""
    if isinstance(state, str) and state.startswith(_LEAF_MARKER):
        shape, dtype = forms[state.removeprefix(_LEAF_MARKER) or path]
        return torch.zeros(shape, dtype=backend.dtype(dtype))
    if isinstance(state, dict):
        return {key: _insert_tensors(join_path(path, key), value, forms, backend) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        items = [_insert_tensors(join_path(path, i), each, forms, backend) for i, each in enumerate(state)]
        return rebuild_sequence(state, items)
    return state

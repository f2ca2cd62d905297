"""What a checkpoint keeps of optimizers, schedulers and scalers besides their tensors, and state for those to go to.

Requirements this module answers:

* The learning rate or its scheduler, LBFGS's counts and lists, a scaler's counts.
* An optimizer that has not begun gets the state that the saved one had, where its parameters are, under the names that
  PaddlePaddle's own step looks for; one that has gone further gets rid of what that one had not.
* Nothing is computed for it: a first step on zeros would count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import paddle
from paddle.base import unique_name

from devshim.backend import Backend
from devshim.errors import CheckpointError
from devshim_backends._paddle.exchanging import is_made
from devshim_backends._paddle.optimizers import MASTER, accumulators_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.backend import Tensor
    from devshim.device import Device

    Forms = Mapping[str, tuple[tuple[int, ...], str]]
    Make = Callable[[str, Any], Any]

_LEAF = "(a leaf)"
"""What stands for a tensor that is saved by itself."""
_STATE = re.compile(r"state\.(\d+)\.(.+)")
"""The path of a parameter's state: its number, and what it is."""
_COUNTS = (
    *("_incr_ratio", "_decr_ratio", "_incr_every_n_steps", "_decr_every_n_nan_or_inf"),
    *("_incr_count", "_decr_count"),
)
"""What a scaler counts."""


class PaddleResuming(Backend):
    """Settings, counts, and the state of an optimizer that has not begun yet."""

    def facts(self, whole: Any) -> Any:
        if isinstance(whole, paddle.nn.Layer):
            return None
        paths = {leaf.path for leaf in self.leaves(whole)}
        rate = whole if isinstance(whole, paddle.optimizer.lr.LRScheduler) else getattr(whole, "_learning_rate", None)
        scheduled = isinstance(rate, paddle.optimizer.lr.LRScheduler)
        own = [path for path in paths if not _STATE.fullmatch(path)]
        names = {path.partition(".")[0] for path in own} - {"_learning_rate"}
        held = {name: _outline(name, vars(whole)[name], paths) for name in names if name in vars(whole)}
        return {
            "class": type(whole).__name__,
            "rate": None if scheduled or rate is None else float(rate),
            "scheduler": _plain(rate.state_dict()) if scheduled else None,
            "counts": {name: _plain(vars(whole)[name]) for name in (*_COUNTS, "_sign") if name in vars(whole)},
            "held": held,
        }

    def restore(self, whole: Any, facts: Any, forms: Forms) -> Callable[[], None]:
        if type(whole).__name__ != facts["class"]:
            raise CheckpointError(
                f"the file has the state of {facts['class']}, and this is {type(whole).__name__}",
                "load it into one made in the same way, for a model with the same parameters",
            )
        return _Restoring(self, whole, forms).restore(facts)


class _Restoring:
    """One restoring: everything that is replaced is replaced by a new object, so that the old attributes take it back.

    Args:
        backend: The backend.
        whole: What gets the facts of another.
        forms: Shape and dtype of the leaves there shall be.
    """

    def __init__(self, backend: Backend, whole: Any, forms: Forms) -> None:
        self._backend = backend
        self._whole = whole
        self._forms = forms
        self._old = {leaf.path: leaf.owner for leaf in backend.leaves(whole)}
        self._before = dict(vars(whole))
        self._scheduler = None

    def restore(self, facts: Any) -> Callable[[], None]:
        own = vars(self._whole)
        try:
            if facts["scheduler"] is not None:
                self._schedule(facts["scheduler"])
            if isinstance(self._whole, paddle.optimizer.Optimizer):
                self._give_state()
                if facts["rate"] is not None:
                    own["_learning_rate"], own["_learning_rate_map"] = facts["rate"], {}
            own.update(facts["counts"])
            own.update({name: _filled(name, held, self._make) for name, held in facts["held"].items()})
        except BaseException:
            self._undo()
            raise
        return self._undo

    def _undo(self) -> None:
        vars(self._whole).clear()
        vars(self._whole).update(self._before)
        if self._scheduler is not None:
            self._scheduler[0].set_state_dict(self._scheduler[1])

    def _schedule(self, state: Any) -> None:
        scheduler: Any = self._whole
        if isinstance(scheduler, paddle.optimizer.Optimizer):
            scheduler = scheduler._learning_rate
        if not isinstance(scheduler, paddle.optimizer.lr.LRScheduler):
            raise CheckpointError(
                "the file has an optimizer with a scheduler, and this one's learning rate is a number",
                "make the optimizer with a scheduler of the same class",
            )
        self._scheduler = (scheduler, scheduler.state_dict())
        scheduler.set_state_dict(state)

    # ------------------------------------------------------------------ state
    def _give_state(self) -> None:
        """Give an optimizer the state whose forms the file has, and no other."""
        optimizer, parameters = self._whole, parameters_of(self._whole)
        masters: dict[str, Tensor] = {}
        accumulators = type(optimizer._accumulators)(getattr(optimizer._accumulators, "default_factory", None))
        for path in sorted(self._forms, key=lambda path: not path.endswith(f".{MASTER}")):  # these have others' names
            found = _STATE.fullmatch(path)
            if found is None or int(found[1]) >= len(parameters):
                continue
            parameter, name = parameters[int(found[1])], found[2]
            tensor = self._tensor(path, self._backend.device_of(parameter))
            if name == MASTER:
                masters[parameter.name] = tensor
            else:
                owner = masters.get(parameter.name, parameter).name
                accumulators[name][owner] = tensor
        self._name(parameters, masters, accumulators)

    def _name(self, parameters: list[Tensor], masters: dict[str, Tensor], accumulators: Any) -> None:
        """Have the state be found where Paddle looks for it."""
        optimizer, kept = self._whole, {id(tensor) for tensor in self._old.values()}
        own = vars(optimizer)
        own["_master_weights"], own["_accumulators"] = masters, accumulators
        begun: set[str] = set()
        for parameter, name, tensor in accumulators_of(optimizer):
            begun.add(parameter.name)
            if id(tensor) not in kept:
                tensor.name = unique_name.generate(f"{parameter.name}_{name}")
                tensor.persistable = True
        own["_already_create_accumulator"] = begun
        own["_opti_name_list"] = [tensor.name for _, name, tensor in accumulators_of(optimizer) if name != MASTER]
        own["_accumulators_holder"] = {}

    def _make(self, path: str, mark: Any) -> Any:
        if mark != _LEAF:
            return mark
        parameters = parameters_of(self._whole) if isinstance(self._whole, paddle.optimizer.Optimizer) else []
        there = [parameter for parameter in parameters if is_made(parameter)]
        device = self._backend.device_of(there[0]) if there else self._backend.devices()[0]
        return self._tensor(path, device)

    def _tensor(self, path: str, device: Device) -> Tensor:
        """The leaf of a path where it is as it shall be, else a new tensor."""
        shape, dtype = self._forms[path]
        old = self._old.get(path)
        if old is not None and (self._backend.shape(old), self._backend.dtype_name(old)) == (tuple(shape), dtype):
            return old
        return self._backend.zeros(tuple(shape), self._backend.dtype(dtype), device)


# ---------------------------------------------------------------------- outlines
def _outline(path: str, held: Any, leaves: set[str]) -> Any:
    """What is held, with marks for leaves, and text for keys."""
    if isinstance(held, paddle.Tensor):
        return _LEAF if path in leaves else held.detach()
    if isinstance(held, dict):
        return {str(key): _outline(f"{path}.{key}", value, leaves) for key, value in held.items()}
    if isinstance(held, (list, tuple)):
        return [_outline(f"{path}.{i}", value, leaves) for i, value in enumerate(held)]
    return _plain(held)


def _filled(path: str, outline: Any, make: Make) -> Any:
    if isinstance(outline, dict):
        return {key: _filled(f"{path}.{key}", value, make) for key, value in outline.items()}
    if isinstance(outline, list):
        return [_filled(f"{path}.{i}", value, make) for i, value in enumerate(outline)]
    return make(path, outline)


def _plain(value: Any) -> Any:
    """A value of Python's, of NumPy's numbers, too."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") and not isinstance(value, paddle.Tensor) else value

"""The extra state of optimizers, schedulers and scalers in a checkpoint, and new tensors for the state to load into.

Requirements that this module meets:

* The extra state consists of the learning rate or its scheduler, LBFGS's counts and lists, and a scaler's counts.
* An optimizer that has not started gets the state that the saved one had, on the devices of its parameters and under
  the names that PaddlePaddle's own step uses; an optimizer that already has state loses the parts that the saved one
  lacked.
* No step is computed for this: a first step on zeros would count.
"""

from __future__ import annotations

import re
import warnings
from functools import reduce
from typing import TYPE_CHECKING, Any

import paddle
from paddle.base import unique_name

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.errors import CheckpointError
from devshim_backends._paddle.models.optimizers import MASTER, accumulators_of, inner_optimizers, parameters_of
from devshim_backends._paddle.models.storage_swap import has_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

    Forms = Mapping[str, tuple[tuple[int, ...], str]]
    Make = Callable[[str, Any], Any]

_LEAF = "(a leaf)"
"""The marker for a tensor that is saved separately."""
_STATE = re.compile(r"state\.(\d+)\.(.+)")
"""The path of a parameter's state: the parameter's number, and the name of the state."""
_COUNTS = (
    *("_incr_ratio", "_decr_ratio", "_incr_every_n_steps", "_decr_every_n_nan_or_inf"),
    *("_incr_count", "_decr_count"),
    *("_sign", "learning_rate"),
)
"""The counts of a scaler; the flag of Rprop that it has not started; the learning rate of LBFGS."""


class PaddleExtraState(Backend):
    """The mixin for settings, counts, and the state of an optimizer that has not started yet."""

    def get_extra_state(self, obj: Any) -> Any:
        if isinstance(obj, paddle.nn.Layer):
            return None
        inner = inner_optimizers(obj) if isinstance(obj, paddle.optimizer.Optimizer) else {}
        return {
            **self._own_extra_state(obj),
            "inner": {path: {**self._own_extra_state(each), "inner": {}} for path, each in inner.items()},
        }

    def _own_extra_state(self, obj: Any) -> dict[str, Any]:
        paths = {leaf.path for leaf in self.leaves(obj)}
        rate = _get_learning_rate(obj)
        scheduled = isinstance(rate, paddle.optimizer.lr.LRScheduler)
        own = [] if obj is rate else [path for path in paths if not _STATE.fullmatch(path)]
        names = {path.partition(".")[0] for path in own} - {"_learning_rate"}
        names -= {path.partition(".")[0] for path in inner_optimizers(obj)}
        held = {name: _outline(name, vars(obj)[name], paths) for name in names if name in vars(obj)}
        counts = [] if obj is rate else [name for name in _COUNTS if name in vars(obj)]
        return {
            "class": type(obj).__name__,
            "rate": None if scheduled or rate is None else float(rate),
            "scheduler": _to_plain(rate.state_dict()) if scheduled else None,
            "counts": {name: _to_plain(vars(obj)[name]) for name in counts},
            "held": held,
        }

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        if type(obj).__name__ != state["class"]:
            msg = f"the file has the state of {state['class']}, and this is {type(obj).__name__}"
            raise CheckpointError(
                msg,
                "load it into an object that was created in the same way, for a model with the same parameters",
            )
        return _Restore(self, obj, forms).apply(state)


class _Restore:
    """One restore; every replaced object is replaced by a new one, so that the old attributes undo it.

    Args:
        backend: The backend.
        obj: The object that gets the extra state of another.
        forms: The shapes and dtypes of the leaves that must exist afterwards.
    """

    def __init__(self, backend: Backend, obj: Any, forms: Forms) -> None:
        self._backend = backend
        self._obj = obj
        self._forms = forms
        self._existing = {leaf.path: leaf.owner for leaf in backend.leaves(obj)}
        self._before = [(obj, dict(vars(obj)))]
        self._inner: list[Callable[[], None]] = []

    def apply(self, extra_state: Any) -> Callable[[], None]:
        own = vars(self._obj)
        try:
            if extra_state["scheduler"] is not None:
                self._load_scheduler(extra_state["scheduler"])
            if isinstance(self._obj, paddle.optimizer.Optimizer):
                self._create_state()
                self._set_learning_rate(extra_state["rate"])
            own.update(extra_state["counts"])
            own.update({name: _fill(name, held, self._make_leaf) for name, held in extra_state["held"].items()})
            found = inner_optimizers(self._obj)
            for name, its in extra_state["inner"].items():
                start = f"{name}."
                forms = {path.removeprefix(start): form for path, form in self._forms.items() if path.startswith(start)}
                self._inner.append(self._backend.set_extra_state(found[name], its, forms))
        except BaseException:
            self._undo()
            raise
        return self._undo

    def _undo(self) -> None:
        for undo in self._inner:
            undo()
        for each, before in reversed(self._before):
            vars(each).clear()
            vars(each).update(before)

    def _set_learning_rate(self, rate: float | None) -> None:
        own = vars(self._obj)
        if rate is None:
            return
        if isinstance(own["_learning_rate"], paddle.optimizer.lr.LRScheduler):
            msg = "the file has an optimizer whose learning rate is a number, and this optimizer's is a scheduler"
            raise CheckpointError(msg, "make the optimizer with a number")
        own["_learning_rate"], own["_learning_rate_map"] = rate, {}

    def _load_scheduler(self, state: Any) -> None:
        scheduler = _get_learning_rate(self._obj)
        if not isinstance(scheduler, paddle.optimizer.lr.LRScheduler):
            msg = "the file has an optimizer with a scheduler, and this optimizer's learning rate is a number"
            raise CheckpointError(msg, "make the optimizer with a scheduler of the same class")
        self._before.extend((each, dict(vars(each))) for each in _iter_schedulers(scheduler))
        with warnings.catch_warnings():  # LinearWarmup warns of values that it then uses
            warnings.filterwarnings("ignore", "There are some unused values in state_dict", UserWarning)
            scheduler.set_state_dict(state)
        prefix = "" if scheduler is self._obj else "_learning_rate."
        for path in self._forms:  # for example the best loss so far, which a scheduler stores as a tensor
            if path.startswith(prefix) and not _STATE.fullmatch(path):
                *names, last = path[len(prefix) :].split(".")
                vars(reduce(getattr, names, scheduler))[last] = self._make_leaf(path, _LEAF)

    # ------------------------------------------------------------------ state
    def _create_state(self) -> None:
        """Give an optimizer the state whose forms are in the file, and no other state."""
        optimizer: Any = self._obj
        parameters: list[Any] = parameters_of(optimizer)
        masters: dict[str, Tensor] = {}
        accumulators = type(optimizer._accumulators)(getattr(optimizer._accumulators, "default_factory", None))
        for path in sorted(self._forms, key=lambda path: not path.endswith(f".{MASTER}")):  # others use their names
            found = _STATE.fullmatch(path)
            if found is None or int(found[1]) >= len(parameters):
                continue
            parameter, name = parameters[int(found[1])], found[2]
            tensor = self._get_tensor(path, self._backend.device_of(parameter))
            if tensor is not self._existing.get(path):
                tensor.name = unique_name.generate(f"{parameter.name}_{name}")
                tensor.persistable = True
            if name == MASTER:
                masters[parameter.name] = tensor
            else:
                accumulators[name][masters.get(parameter.name, parameter).name] = tensor
        own = vars(optimizer)
        own["_master_weights"], own["_accumulators"], own["_accumulators_holder"] = masters, accumulators, {}
        state: list[Any] = list(accumulators_of(optimizer))
        own["_opti_name_list"] = [tensor.name for _, name, tensor in state if name != MASTER]
        if hasattr(optimizer, "_already_create_accumulator"):  # from 3.0 on
            own["_already_create_accumulator"] = {parameter.name for parameter, *_ in state}

    def _make_leaf(self, path: str, mark: Any) -> Any:
        if mark != _LEAF:
            return mark
        parameters = parameters_of(self._obj) if isinstance(self._obj, paddle.optimizer.Optimizer) else []
        initialized = [parameter for parameter in parameters if has_memory(parameter)]
        device = self._backend.device_of(initialized[0]) if initialized else CPU
        return self._get_tensor(path, device)

    def _get_tensor(self, path: str, device: Device) -> Tensor:
        """Return the existing leaf of a path if it has the right shape and dtype; otherwise a new tensor."""
        shape, dtype = self._forms[path]
        old = self._existing.get(path)
        if old is not None and (self._backend.shape(old), self._backend.dtype_name(old)) == (tuple(shape), dtype):
            return old
        return self._backend.zeros(tuple(shape), self._backend.dtype(dtype), device)


def _get_learning_rate(obj: Any) -> Any:
    """Return an optimizer's learning rate, which is a number or a scheduler; a scheduler is returned unchanged."""
    return obj if isinstance(obj, paddle.optimizer.lr.LRScheduler) else getattr(obj, "_learning_rate", None)


def _iter_schedulers(scheduler: Any) -> Iterator[Any]:
    """Yield a scheduler and the schedulers inside it."""
    yield scheduler
    for held in vars(scheduler).values():
        if isinstance(held, paddle.optimizer.lr.LRScheduler):
            yield from _iter_schedulers(held)


# ---------------------------------------------------------------------- outlines
def _outline(path: str, nested: Any, leaves: set[str]) -> Any:
    """Return a tree of plain values with markers for leaves, and text for keys."""
    if isinstance(nested, paddle.Tensor):
        return _LEAF if path in leaves else nested.detach()
    if isinstance(nested, dict):
        return {str(key): _outline(f"{path}.{key}", value, leaves) for key, value in nested.items()}
    if isinstance(nested, (list, tuple)):
        return [_outline(f"{path}.{i}", value, leaves) for i, value in enumerate(nested)]
    return _to_plain(nested)


def _fill(path: str, outline: Any, make: Make) -> Any:
    if isinstance(outline, dict):
        return {key: _fill(f"{path}.{key}", value, make) for key, value in outline.items()}
    if isinstance(outline, list):
        return [_fill(f"{path}.{i}", value, make) for i, value in enumerate(outline)]
    return make(path, outline)


def _to_plain(value: Any) -> Any:
    """Return a value as plain Python values; NumPy scalars become Python numbers."""
    if isinstance(value, dict):
        return {key: _to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(each) for each in value]
    return value.item() if hasattr(value, "item") and not isinstance(value, paddle.Tensor) else value

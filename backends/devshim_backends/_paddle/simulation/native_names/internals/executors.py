"""The place of an executor of static programs, and the tensors that it returns: on the GPU that the program named.

The programs run on the host (`simulation.internals.programs`). Paddle's own code reads the host's place.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from paddle.base.executor import Executor, framework

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.native_names import names
from devshim_backends._paddle.simulation.native_names.internals.callers import is_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["attributes"]


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace in the class of executors: the owner, the name, the new value."""
    yield Executor, "__init__", _wrap_init(Executor.__init__)
    yield Executor, "place", property(_place, _set_place)
    yield Executor, "run", _wrap_run(Executor.run)


def _wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def construct(self: Any, place: Any = None) -> None:
        given = framework._current_expected_place_() if place is None else framework._get_paddle_place(place)
        self._devshim_gpu = given if names.is_simulated(given) else None
        original(self, place)

    return construct


def _place(executor: Any) -> Any:
    """Return the GPU to programs, and the place that computes to Paddle."""
    gpu = vars(executor).get("_devshim_gpu")
    return vars(executor)["place"] if gpu is None or not is_program() else gpu


def _set_place(executor: Any, place: Any) -> None:
    vars(executor)["place"] = place


def _wrap_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        results, gpu = original(self, *args, **kwargs), vars(self).get("_devshim_gpu")
        if gpu is None or not isinstance(results, list):
            return results
        return [_copy_to(x, gpu) if type(x) is core.LoDTensor and x._is_initialized() else x for x in results]

    return run


def _copy_to(x: Any, place: Any) -> Any:
    """Return a tensor of a program's results on a GPU; the results with `return_numpy=True` are NumPy's arrays."""
    result = core.LoDTensor()
    result._copy_from(x, place)
    result.set_lod(x.lod())
    return result

"""The array-API namespace of NumPy: the functions of array-api-compat, which is imported on first use.

NumPy's functions return scalars where the standard has arrays without dimensions: here they are arrays. Functions that
are written in terms of others make host arrays on their way, so on a simulated GPU each is run as a whole. A ufunc
needs no such care: NumPy asks the array itself to run it.

A tensor of another framework is refused, as by `devshim.namespace`.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.backend import Backend
from devshim.contract.namespaces import ABOUT_DTYPES, compat_namespace, native_functions, requiring_axis
from devshim.registry import mismatches
from devshim.trees.sequences import rebuild_sequence
from devshim_backends._numpy.simulation.simulate import SimulatedArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


_PLAIN = frozenset({np.ndarray, bool, int, float, complex, str, type(None)})
"""Types of arguments on the host that are not tensors of another framework."""


class NumpyNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = native_functions(compat_namespace(self.title, "numpy"))
        found["take"] = requiring_axis(found["take"])
        return {name: each if name in ABOUT_DTYPES else self._adapt(name, each) for name, each in found.items()}

    def _adapt(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that returns arrays, on the device of its arguments."""
        # NumPy would copy the tensors of another framework to the host, and their gradients would end.
        check = partial(mismatches.require_plain_arrays, self, name)
        if isinstance(fn, np.ufunc) and fn.signature is None and fn.nout == 1:
            return _of_one(fn, check) if fn.nargs == 2 else _of_two(fn, check)
        return _on_device(fn, check)


def _of_one(ufunc: np.ufunc, check: Callable[[Iterable[Any]], None]) -> Callable[..., Any]:
    array = np.ndarray

    @wraps(ufunc)
    def compute(x: Any, /, **options: Any) -> Any:
        if type(x) not in _PLAIN:
            check((x,))
        result = ufunc(x, **options) if options else ufunc(x)
        return result if type(result) is array else _as_arrays(result)

    return compute


def _of_two(ufunc: np.ufunc, check: Callable[[Iterable[Any]], None]) -> Callable[..., Any]:
    array = np.ndarray

    @wraps(ufunc)
    def compute(x1: Any, x2: Any, /, **options: Any) -> Any:
        if type(x1) not in _PLAIN or type(x2) not in _PLAIN:
            check((x1, x2))
        result = ufunc(x1, x2, **options) if options else ufunc(x1, x2)
        return result if type(result) is array else _as_arrays(result)

    return compute


def _on_device(fn: Callable[..., Any], check: Callable[[Iterable[Any]], None]) -> Callable[..., Any]:
    """Return a function that returns arrays, on the simulated GPU of its arguments if they are on one."""
    array = np.ndarray

    @wraps(fn)
    def compute(*args: Any, **options: Any) -> Any:
        if not _are_plain(args) or (options and not _are_plain(options.values())):
            check((*args, *options.values()))
            x = next(_simulated_arrays((*args, *options.values())), None)
            if x is not None:
                return type(x).__array_function__(x, fn, (), args, options)
        result = fn(*args, **options)
        return result if type(result) is array else _as_arrays(result)

    return compute


def _are_plain(values: Iterable[Any]) -> bool:
    """Return True if arguments are plain arrays and numbers, or lists and tuples of them."""
    for value in values:
        kind = type(value)
        if kind not in _PLAIN and not (kind in (tuple, list) and _are_plain(value)):
            return False
    return True


def _simulated_arrays(values: Iterable[Any]) -> Iterator[SimulatedArray]:
    """Yield the arrays on simulated GPUs among arguments, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, SimulatedArray):
            yield value
        elif type(value) in (list, tuple):
            yield from _simulated_arrays(value)


def _as_arrays(result: Any) -> Any:
    """Return NumPy's scalars among results as arrays without dimensions."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    if isinstance(result, tuple) and any(isinstance(each, np.generic) for each in result):
        arrays = [_as_arrays(each) for each in result]
        return rebuild_sequence(result, arrays)
    return result

"""The array-API namespace of CuPy: the functions of array-api-compat, on the GPU of their arguments.

CuPy computes on the current GPU, and refuses arrays on others. While CuPy is the current framework, its arrays in host
memory are NumPy arrays: on these, the functions are those for NumPy.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from devshim.contract.backend import Backend
from devshim.contract.namespaces import compat_namespace, native_functions, requiring_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class CupyNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        on_host = native_functions(compat_namespace(self.title, "numpy"))
        on_gpu = native_functions(compat_namespace(self.title, "cupy"))
        for functions in (on_host, on_gpu):
            functions["take"] = requiring_axis(functions["take"])
        return {name: _dispatch_on_device(found, on_host.get(name, found)) for name, found in on_gpu.items()}


def _dispatch_on_device(on_gpu: Callable[..., Any], on_host: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes on the GPU of its first array, or on the host if that is a NumPy array."""

    @wraps(on_gpu)
    def follow(*args: Any, **options: Any) -> Any:
        x = next(_arrays((*args, *options.values())), None)
        if x is None:
            return on_gpu(*args, **options)
        if isinstance(x, np.ndarray):
            result = on_host(*args, **options)
            return np.asarray(result) if isinstance(result, np.generic) else result  # a reduction gives a scalar
        with x.device:
            return on_gpu(*args, **options)

    return follow


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the arrays among arguments, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _arrays(value)
        elif isinstance(value, (cupy.ndarray, np.ndarray)):
            yield value

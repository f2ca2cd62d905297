"""Sparse tensors, which are refused on simulated GPUs: Paddle has kernels for them only on the CPU and on CUDA.

Paddle would silently compute them on the host. Sparse tensors on the host work.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import paddle

from devshim.errors import UnsupportedError
from devshim.transfers.observers import site
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.native_names.names import is_simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["attributes", "functions"]

_Tensor = core.eager.Tensor


def _refuse(instead: str) -> None:
    msg = f"simulated GPUs do not support sparse tensors of PaddlePaddle, and {site()} makes one"
    raise UnsupportedError(msg, instead)


def _on_host(create: Any) -> Any:
    """Return a function that creates a sparse tensor, on the host only."""

    @wraps(create)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = create(*args, **kwargs)
        if is_simulated(made.place):
            _refuse("make it on the host: place=paddle.CPUPlace()")
        return made

    return wrapper


def _of_host(convert: Any) -> Any:
    """Return a method that makes a sparse tensor of a dense one, on the host only."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_simulated(x.place):
            _refuse("convert a copy on the host: x.cpu()")
        return convert(x, *args, **kwargs)

    method.__name__, method.__doc__ = convert.__name__, convert.__doc__
    return method


def functions() -> dict[Any, Any]:
    """Return Paddle's functions that create sparse tensors -> their replacements."""
    return {each: _on_host(each) for each in (paddle.sparse.sparse_coo_tensor, paddle.sparse.sparse_csr_tensor)}


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield the methods to replace: owner, name and new value."""
    for name in ("to_sparse_coo", "to_sparse_csr"):
        yield _Tensor, name, _of_host(getattr(_Tensor, name))

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
_framework = paddle.base.framework


def _refuse(instead: str) -> None:
    msg = f"simulated GPUs do not support sparse tensors of PaddlePaddle, and {site()} makes one"
    raise UnsupportedError(msg, instead)


def _refuse_result_on_gpu(create: Any) -> Any:
    """Return a function that creates a sparse tensor, on the host only."""

    @wraps(create)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = create(*args, **kwargs)
        # A value in a program being built has no place: the program computes on the default device.
        place = made.place if paddle.in_dynamic_mode() else _framework._current_expected_place_()
        if is_simulated(place):
            _refuse("make it on the host: place=paddle.CPUPlace()")
        return made

    return wrapper


def _refuse_gpu_input(convert: Any) -> Any:
    """Return a method that makes a sparse tensor from a dense one, on the host only."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_simulated(x.place):
            _refuse("convert a copy on the host: x.cpu()")
        return convert(x, *args, **kwargs)

    method.__name__, method.__doc__ = convert.__name__, convert.__doc__
    return method


def _refuse_copy_to_gpu(copy_to: Any) -> Any:
    """Return a ``_copy_to``, which ``.to`` and ``.cuda`` call, that copies sparse tensors to the host only."""

    @wraps(copy_to)
    def method(x: Any, place: Any, *args: Any, **kwargs: Any) -> Any:
        if x.is_sparse() and is_simulated(place):
            _refuse("leave it on the host, or copy a dense one: x.to_dense()")
        return copy_to(x, place, *args, **kwargs)

    return method


def functions() -> dict[Any, Any]:
    """Return Paddle's functions that create sparse tensors -> their replacements."""
    create = paddle.sparse.sparse_coo_tensor, paddle.sparse.sparse_csr_tensor
    return {each: _refuse_result_on_gpu(each) for each in create}


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield the methods to replace: owner, name and new value."""
    for name in ("to_sparse_coo", "to_sparse_csr"):
        yield _Tensor, name, _refuse_gpu_input(getattr(_Tensor, name))
    yield _Tensor, "_copy_to", _refuse_copy_to_gpu(_Tensor._copy_to)

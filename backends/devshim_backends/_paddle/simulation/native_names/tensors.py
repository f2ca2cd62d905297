"""The methods of tensors and layers that name CUDA: ``x.cuda(1)``, ``x.is_cuda``, ``layer.cuda()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim.errors import UnsupportedError
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.native_names import names

if TYPE_CHECKING:
    from collections.abc import Iterator

_Tensor = core.eager.Tensor


def _cuda(x: Any, device_id: Any = None, blocking: bool = True) -> Any:
    """Return the tensor on a GPU, as Paddle's own method does: the same object if it is there already."""
    place = names.gpu_place(names.index_of(device_id))
    if x.place._equals(place):
        return x
    moved = x._copy_to(place, blocking)
    moved.stop_gradient, moved.persistable = x.stop_gradient, x.persistable
    return moved


def _is_cuda(x: Any) -> bool:
    return names.is_simulated(x.place)


def _layer_cuda(layer: Any, device: Any = None) -> Any:
    """Move a layer to a GPU, as Paddle's own method does."""
    return layer.to(device=names.gpu_place(names.index_of(device)))


def _pin_memory(x: Any, blocking: bool = True) -> Any:
    """Raise the error for pinned memory."""
    raise names.pinned()


def _refuse_gpus(to_dlpack: Any) -> Any:
    """Return a method that exports a tensor with DLPack, and refuses one on a simulated GPU."""

    def export(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if names.is_simulated(tensor.place if isinstance(tensor, _Tensor) else tensor._place()):
            msg = "the tensor is on a simulated GPU, which DLPack cannot name"
            raise UnsupportedError(msg, "copy it first: x.cpu()")
        return to_dlpack(tensor, *args, **kwargs)

    return export


def _place_text(x: Any) -> str:
    """Return the place as a printed tensor shows it."""
    return str(x.place)


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield the methods and properties to replace: owner, name and new value."""
    methods = vars(_Tensor)
    yield _Tensor, "cuda", _cuda
    yield _Tensor, "pin_memory", _pin_memory
    for name in ("_to_dlpack", "_to_dlpack_versioned"):
        if hasattr(core.LoDTensor, name):
            yield core.LoDTensor, name, _refuse_gpus(getattr(core.LoDTensor, name))
    for name in ("__dlpack_device__", "__dlpack__"):
        if name in methods:
            yield _Tensor, name, _refuse_gpus(methods[name])
    if "is_cuda" in methods:
        yield _Tensor, "is_cuda", property(_is_cuda)
    if "_place_str" in methods:
        yield _Tensor, "_place_str", property(_place_text)
    if hasattr(paddle.nn.Layer, "cuda"):
        yield paddle.nn.Layer, "cuda", _layer_cuda

"""Quantized tensors on simulated GPUs: their bytes are on the GPU, and the parameters of the quantizer on the host.

A capsule cannot hold them, and PyTorch makes one only in memory of its own allocators. Therefore a second tensor of the
same quantizer is made, and its storage is exchanged with that of a tensor over the relabelled memory. That storage, its
device and its dispatch keys are words of its implementation (see `replaced_data`).

CUDA has few operators on quantized tensors: those of `COMPUTED`, views, and the readers of parameters. Source:
``native_functions.yaml`` of PyTorch 2.13, the entries of ``QuantizedCUDA``. Others are refused with CUDA's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.state import NAME, require_simulated

aten = torch.ops.aten
_Key = torch._C.DispatchKey
FORM = "Quantized"
_QUANTIZED = _Key.QuantizedCPU
_alias_of = aten.alias.default._op_dk
_empty = aten.empty.memory_format
_set_all = aten.set_.source_Storage
_get_device = torch._C.TensorBase.get_device
_keys_of = torch._C._dispatch_keys

COMPUTED = (
    *("_empty_affine_quantized", "empty_quantized", "empty_like", "empty_strided", "empty.memory_format"),
    *("fill_.Scalar", "fill_.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor", "_index_put_impl_"),
    *("clone", "dequantize.self", "int_repr", "relu", "relu_", "gelu", "flip", "max.dim", "min.dim"),
    *("index_select", "index_select.out", "_adaptive_avg_pool2d", "quantized_max_pool2d"),
)
VIEWS = (*("as_strided", "view", "_reshape_alias", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "unfold"),)
READERS = ("q_scale", "q_zero_point", "q_per_channel_axis", "qscheme", "set_.source_Storage_storage_offset")
"""Operators that touch no memory: the CPU's kernels run on the GPU's tensor."""
_CHANNELS = ("q_per_channel_scales", "q_per_channel_zero_points")
_DIFFERENCE = 0xFF00 | int(torch._C._autograd.DeviceType.PrivateUse1.value)
"""The bits in which the device of a host tensor and that of one on the first GPU differ: type, and index."""
_CPU = torch.device("cpu")


@cache
def _words() -> tuple[int, int, int]:
    """Return the words of an implementation that contain its storage and its device, and the mask of the device.

    They are found by comparison: Python knows the address of a storage, and the type and the index of a device are
    0 and -1 on the host.
    """
    from devshim_backends._torch.simulation.internals.relabel import CODES, WORDS, relabel
    from devshim_backends._torch.simulation.internals.replaced_data import SIZE, address

    storages, devices = set(range(SIZE)), {(word, 8 * byte) for word in range(SIZE) for byte in range(7)}
    for dtype in (torch.uint8, torch.float32):
        host = _empty((3,), dtype=dtype, device=_CPU)
        there, of_storage = relabel(host, CODES[0]), host.untyped_storage()._cdata
        words = [(WORDS[address(host) + word], WORDS[address(there) + word]) for word in range(SIZE)]
        storages &= {word for word, (here, _) in enumerate(words) if here == of_storage}
        devices = {(word, at) for word, at in devices if words[word][0] ^ words[word][1] == _DIFFERENCE << at}
    if not len(storages) == len(devices) == 1:
        msg = "PyTorch's tensors do not have the layout that devshim expects"
        raise RuntimeError(msg)
    (word, shift), (storage,) = devices.pop(), storages
    return storage, word, 0xFFFF << shift


def move_bytes(tensor: Any, move: Callable[[Any], Any]) -> Any:
    """Return a quantized tensor of the same quantizer and shape over the memory of the tensor that ``move`` returns.

    ``move`` gets the bytes of the tensor. Its result, of which there must be no other reference, gets the storage of
    the tensor in exchange, so that each storage has as many references as before.
    """
    from devshim_backends._torch.simulation.internals.relabel import WORDS
    from devshim_backends._torch.simulation.internals.replaced_data import KEYS, address

    old = bytes_of(tensor)
    new = move(old)
    made = _alias_of(_Key.CompositeExplicitAutograd, tensor)
    storage, device, mask = _words()
    to, source = address(made), address(new)
    WORDS[to + device] = WORDS[to + device] & ~mask | WORDS[source + device] & mask
    WORDS[to + KEYS] ^= WORDS[address(old) + KEYS] ^ WORDS[source + KEYS]
    WORDS[to + storage], WORDS[source + storage] = WORDS[source + storage], WORDS[to + storage]
    return made


def bytes_of(tensor: Any) -> Any:
    """Return all the memory of a tensor's storage as bytes."""
    index = _get_device(tensor)
    device = _CPU if index < 0 else torch.device(NAME, index)
    return _set_all(_empty((0,), dtype=torch.uint8, device=device), tensor.untyped_storage())


def on_tensor(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of the CPU's kernel on the GPU's tensor itself."""
    require_simulated(_get_device(args[0]))
    return op(_QUANTIZED, *args, **kwargs)


def reader_kernels(adopt: Callable[[Any, int], Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels of operators that read parameters; those of channels are tensors on the GPU, as on CUDA."""
    for name in READERS:
        yield name, _reader(name)
    for name in _CHANNELS:
        yield name, _channel_reader(_reader(name), adopt)


def _reader(name: str) -> Callable[..., Any]:
    base, _, overload = name.partition(".")
    read = getattr(getattr(aten, base), overload or "default")._op_dk

    def kernel(*args: Any) -> Any:
        return on_tensor(read, args, {})

    return kernel


def _channel_reader(read: Callable[..., Any], adopt: Callable[[Any, int], Any]) -> Callable[..., Any]:
    def kernel(tensor: Any) -> Any:
        return adopt(read(tensor).clone(), _get_device(tensor))

    return kernel


def empty_per_channel(size: Any, *, scales: Any, zero_points: Any, axis: int, **options: Any) -> Any:
    """Return an empty host tensor with a quantizer per channel, whose parameters are copied, as on CUDA."""
    options["device"] = _CPU
    parameters = {"scales": scales.cpu(), "zero_points": zero_points.cpu(), "axis": axis}
    return aten._empty_per_channel_affine_quantized.default(size, **parameters, **options)

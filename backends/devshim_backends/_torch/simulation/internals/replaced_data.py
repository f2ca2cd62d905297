"""``x.data = y`` between the host and a simulated GPU: the tensor stays the same object, for Python and for C++.

PyTorch allows it between the devices that it knows: the tensor's implementation in C++ gets the memory, the shape and
the device of the other one, and keeps its gradient, its hooks and the nodes of graphs that lead to it. It refuses for a
custom device, whose set of dispatch keys it does not expect. Therefore the tensor's keys are replaced by those of the
other tensor first, in memory: a set is one word of the implementation, and PyTorch then replaces all else.
`Module.to` uses it for parameters and their gradients.
"""

from __future__ import annotations

from typing import Any

import torch

from devshim_backends._torch.simulation.internals.relabel import WORDS

__all__ = ["KEYS", "SIZE", "address", "apply", "set_data"]

_real_data = torch._C.TensorBase.data
_real_apply = torch.nn.Module._apply
_get_device = torch._C.TensorBase.get_device
_dispatch_keys = torch._C._dispatch_keys
_KEY = torch._C.DispatchKey
_CLASSES = (
    (_KEY.CPU, _KEY.PrivateUse1),
    (_KEY.SparseCPU, _KEY.SparsePrivateUse1),
    (_KEY.SparseCsrCPU, _KEY.SparseCsrPrivateUse1),
    (_KEY.NestedTensorCPU, _KEY.NestedTensorPrivateUse1),
    (_KEY.QuantizedCPU, _KEY.QuantizedPrivateUse1),
)
"""The keys, on the host and on a simulated GPU, of the tensors that are of one class in C++."""
SIZE = 26
"""The size of an implementation, in words."""


def address(tensor: Any) -> int:
    """Return the address of a tensor's implementation as the number of a word."""
    return int(tensor._cdata) >> 3


def _word_of_keys() -> int:
    """Return the word of an implementation that contains its keys; found once, by comparison with Python's answer."""
    examples = [torch.empty((2,), device="cpu"), torch.empty((2,), device="meta"), torch.empty((2,)).to_sparse()]
    words = set(range(SIZE))
    for each in examples:
        keys = _dispatch_keys(each).raw_repr()
        words = {word for word in words if WORDS[address(each) + word] & (1 << 64) - 1 == keys}
    if len(words) != 1:
        msg = "PyTorch's tensors do not have the layout that devshim expects"
        raise RuntimeError(msg)
    return words.pop()


KEYS = _word_of_keys()
"""The word of an implementation that contains its dispatch keys."""


def _changes_kind(tensor: Any, other: Any) -> bool:
    """Return True if one of two tensors is on a simulated GPU and the other on the host, in one class of C++.

    Tensors that consist of others are none of these.
    """
    if (_get_device(tensor) >= 0) == (_get_device(other) >= 0):
        return False
    keys, others = _dispatch_keys(tensor), _dispatch_keys(other)
    if keys.has(_KEY.Python) or others.has(_KEY.Python):
        return False
    return any((keys.has(a) and others.has(b)) or (keys.has(b) and others.has(a)) for a, b in _CLASSES)


def set_data(self: Any, value: Any) -> None:
    """Set ``x.data = y``, also between the host and a GPU."""
    if not _changes_kind(self, value):
        _real_data.__set__(self, value)
        return
    word = address(self) + KEYS
    before, WORDS[word] = WORDS[word], WORDS[address(value) + KEYS]
    try:
        _real_data.__set__(self, value)
    except BaseException:
        WORDS[word] = before
        raise


def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """Replace `Module._apply`, on which `Module.to` and similar methods are built.

    PyTorch would create new parameters and gradients for those that move between host and GPU. Therefore this function
    moves them first. What PyTorch then does with them, and with buffers, is unchanged.
    """
    future = torch.__future__
    if future.get_overwrite_module_params_on_conversion() or future.get_swap_module_params_on_conversion():
        return _real_apply(self, fn, recurse)
    for child in self.children() if recurse else ():
        child._apply(fn)
    parameters = [each for each in self._parameters.values() if each is not None]
    gradients = [each.grad for each in parameters if each.grad is not None]
    kept = {id(each) for each in (*parameters, *gradients)}

    def move(tensor: Any) -> Any:
        moved = fn(tensor)
        if id(tensor) in kept and _changes_kind(tensor, moved):
            set_data(tensor, moved)
            return tensor.data
        return moved

    return _real_apply(self, move, recurse=False)

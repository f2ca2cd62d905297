"""Each framework's own functions to create, read, overwrite and locate a tensor on the host, without devshim.

They judge devshim's results independently; this module only imports the frameworks in an order that they survive. A
source comes with its *root*: the tensor of whose memory it is a view, through which that memory can be written even if
the view is read-only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from cells import ADDRESSES
from values import INDEXED, at, numpy_dtype

import devshim as ds
from devshim.transfers import dlpack

Tensor = Any


class Side:
    """One framework.

    Attributes:
        name: Its backend's name.
        mutable: True if its tensors can be written.
    """

    name = ""
    mutable = True

    def kind(self) -> type:
        """Return the type of its plain tensors."""
        raise NotImplementedError

    def has(self, dtype: str) -> bool:
        """Return True if the framework computes with a dtype."""
        return True

    def make(self, array: Any) -> Tensor:
        """Return a tensor of an array's values, in the framework's own memory; None if it lacks the dtype."""
        raise NotImplementedError

    def over(self, array: Any) -> Tensor:
        """Return a tensor over an array's memory; None if the framework has no way to make one."""
        return None

    def read(self, x: Tensor) -> Any:
        """Return a tensor's values as an array of the same dtype."""
        raise NotImplementedError

    def wipe(self, x: Tensor) -> None:
        """Write zeros over a tensor's values, in place."""
        raise NotImplementedError

    def product(self, x: Tensor) -> Tensor:
        """Return the framework's own matrix product of a vector with itself."""
        return x.reshape((1, -1)) @ x.reshape((-1, 1))

    def computing(self) -> AbstractContextManager[object]:
        """Return the context that the framework's operators need to keep 64-bit values."""
        return nullcontext()

    def address(self, x: Tensor) -> int:
        """Return the address of a tensor's first element; used only for immutable tensors."""
        raise NotImplementedError

    def is_writable(self, x: Tensor) -> bool:
        """Return True if the framework allows writing to a tensor."""
        return self.mutable

    def trains(self, x: Tensor) -> bool:
        """Return True if a tensor requests its gradient, or was computed from one that does."""
        return False

    def source(self, layout: str, array: Any) -> tuple[Tensor, Tensor] | None:
        """Return a tensor of a layout, made of a base, and its root; None if it cannot be made."""
        if layout == "foreign memory" or layout in ADDRESSES:
            memory = at(array, ADDRESSES.get(layout, 0))
            x = self.over(memory)
            if x is None:
                return None
            return x, (memory if memory.flags.writeable else x)  # in memory that operators may not use, NumPy writes
        root = self.make(array)
        if root is None:
            return None
        if layout in ("contiguous", "0-d", "empty"):
            return root, root
        x = self.laid_out(layout, root)
        return None if x is None else (x, root)

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        """Return a view of the root; for immutable tensors the framework's equivalent; None for neither."""
        if layout in ("transposed", "sliced", "offset"):
            return INDEXED[layout](root)
        return None

    def trained(self, how: str, array: Any) -> Tensor:
        """Return a tensor that requests its gradient; None if it cannot be made."""
        return None


class NumpySide(Side):
    name = "numpy"

    def kind(self) -> type:
        return np.ndarray

    def make(self, array: Any) -> Tensor:
        return at(array, 0)

    def over(self, array: Any) -> Tensor:
        return array

    def read(self, x: Tensor) -> Any:
        return x.view(np.ndarray)

    def wipe(self, x: Tensor) -> None:
        x[...] = np.zeros((), x.dtype)

    def address(self, x: Tensor) -> int:
        return int(x.ctypes.data)

    def is_writable(self, x: Tensor) -> bool:
        return bool(x.flags.writeable)

    def source(self, layout: str, array: Any) -> tuple[Tensor, Tensor] | None:
        if layout in ADDRESSES:
            root = at(array, ADDRESSES[layout])
            return root, root
        return None if layout == "foreign memory" else super().source(layout, array)

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        if layout == "broadcast":
            return np.broadcast_to(root[0], root.shape)
        if layout == "reversed":
            return INDEXED[layout](root)
        if layout == "read-only":
            x = root.view()
            x.flags.writeable = False
            return x
        if layout == "byte-swapped" and root.itemsize > 1 and root.dtype != numpy_dtype("bfloat16"):
            root[...] = root.byteswap()
            return root.view(root.dtype.newbyteorder())
        return super().laid_out(layout, root)


class TorchSide(Side):
    name = "torch"

    def __init__(self) -> None:
        self.torch = ds.framework("torch")

    def kind(self) -> type:
        return self.torch.Tensor

    def make(self, array: Any) -> Tensor:
        return self.over(array).clone()

    def over(self, array: Any) -> Tensor:
        if array.dtype == numpy_dtype("bfloat16"):
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def read(self, x: Tensor) -> Any:
        plain = x.detach().cpu().resolve_conj().resolve_neg()
        if x.dtype is self.torch.bfloat16:
            return plain.view(self.torch.int16).numpy().view(numpy_dtype("bfloat16"))
        return plain.numpy()

    def wipe(self, x: Tensor) -> None:
        x.detach().zero_()

    def address(self, x: Tensor) -> int:
        return int(x.data_ptr())

    def trains(self, x: Tensor) -> bool:
        return bool(x.requires_grad)

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        if layout == "broadcast":
            return root[0].expand(root.shape)
        if layout == "lazy" and root.is_floating_point():
            return self.torch._neg_view(root)
        if layout == "lazy" and root.is_complex():
            return root.conj()
        return super().laid_out(layout, root)

    def trained(self, how: str, array: Any) -> Tensor:
        x = self.make(array).requires_grad_()
        if how == "computed":
            return x[1:]
        return self.torch.nn.Parameter(x.detach()) if how == "parameter" else x


class TensorflowSide(Side):
    name = "tensorflow"
    mutable = False

    def __init__(self) -> None:
        self.tf = ds.framework("tensorflow")

    def kind(self) -> type:
        return type(self.tf.constant(0))

    def make(self, array: Any) -> Tensor:
        return self.tf.constant(array)

    def over(self, array: Any) -> Tensor:
        if array.dtype == numpy_dtype("bfloat16") or array.ctypes.data % 64:
            return None  # NumPy exports the one, and TensorFlow's operators abort on the other
        return self.tf.experimental.dlpack.from_dlpack(array.__dlpack__())

    def read(self, x: Tensor) -> Any:
        return np.asarray(x.numpy())

    def product(self, x: Tensor) -> Tensor:
        return self.tf.reshape(x, (1, -1)) @ self.tf.reshape(x, (-1, 1))

    def address(self, x: Tensor) -> int:
        return dlpack.read(self.tf.experimental.dlpack.to_dlpack(self.tf.convert_to_tensor(x))).address

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        if layout == "transposed":
            return self.tf.transpose(root)
        if layout == "broadcast":
            return self.tf.broadcast_to(root[0], root.shape)
        return super().laid_out(layout, root)

    def trains(self, x: Tensor) -> bool:
        return isinstance(x, self.tf.Variable)

    def trained(self, how: str, array: Any) -> Tensor:
        return self.tf.Variable(array) if how == "parameter" else None

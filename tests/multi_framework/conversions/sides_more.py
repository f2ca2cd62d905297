"""The functions of `sides` for JAX, PaddlePaddle and MXNet."""

from __future__ import annotations

from typing import Any

import numpy as np
from sides import NumpySide, Side, Tensor, TensorflowSide, TorchSide
from values import numpy_dtype

import devshim as ds


class JaxSide(Side):
    name = "jax"
    mutable = False

    def __init__(self) -> None:
        self.jax = ds.framework("jax")
        self.jnp = self.jax.numpy
        whose = self.jax if hasattr(self.jax, "enable_x64") else self.jax.experimental  # before 0.8
        self.enable_x64 = whose.enable_x64

    def kind(self) -> type:
        return self.jax.Array

    def _wide(self) -> Any:
        return self.enable_x64(True)

    def computing(self) -> Any:
        return self._wide()

    def make(self, array: Any) -> Tensor:
        with self._wide():
            return self.jnp.array(array)

    def over(self, array: Any) -> Tensor:
        if array.dtype == numpy_dtype("bfloat16") or array.ctypes.data % 64:
            return None
        with self._wide():
            return self.jax.dlpack.from_dlpack(array)

    def read(self, x: Tensor) -> Any:
        with self._wide():  # a copy, because an array caches what NumPy has read from it
            return np.asarray(self.jnp.array(x, copy=True))

    def address(self, x: Tensor) -> int:
        return int(x.unsafe_buffer_pointer())

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        with self._wide():
            if layout == "transposed":  # JAX's own transposition would be contiguous
                return self._column_major(root.T)
            if layout == "broadcast":
                return self.jnp.broadcast_to(root[0], root.shape)
            return super().laid_out(layout, root)

    def _column_major(self, x: Tensor) -> Tensor:
        try:
            from jax.experimental.layout import Format, Layout
        except ImportError:  # before JAX 0.6
            return x
        return self.jax.device_put(x, Format(Layout(major_to_minor=(1, 0)), x.sharding))


class PaddleSide(Side):
    name = "paddle"

    def __init__(self) -> None:
        self.paddle = ds.framework("paddle")
        made = [self.make(np.zeros(1, name)) for name in ("uint16", "uint32", "uint64")]
        self.strange = [x.dtype for x in made if x is not None]  # can be made, but no operator accepts them

    def kind(self) -> type:
        return self.paddle.Tensor

    def has(self, dtype: str) -> bool:
        return dtype not in ("uint16", "uint32", "uint64")

    def make(self, array: Any) -> Tensor:
        if not self.has(array.dtype.name):
            return self.over(array)
        if array.dtype == numpy_dtype("bfloat16"):
            array = array.view(np.uint16)  # Paddle takes it for bfloat16
        return self.paddle.to_tensor(array, place=self.paddle.CPUPlace())

    def over(self, array: Any) -> Tensor:
        if array.dtype == numpy_dtype("bfloat16"):
            return None
        return self.paddle.utils.dlpack.from_dlpack(array.__dlpack__())

    def read(self, x: Tensor) -> Any:
        array = x.detach().cpu().numpy()
        return array.view(numpy_dtype("bfloat16")) if x.dtype == self.paddle.bfloat16 else array

    def wipe(self, x: Tensor) -> None:
        x.detach().zero_()

    def trains(self, x: Tensor) -> bool:
        return not x.stop_gradient

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        if root.dtype in self.strange:
            return None
        if layout == "broadcast":  # Paddle's own expansion would be contiguous
            return self.paddle.as_strided(root, root.shape, [0, 1])
        return super().laid_out(layout, root)

    def trained(self, how: str, array: Any) -> Tensor:
        x = self.make(array)
        if how == "parameter":
            return self.paddle.base.framework.EagerParamBase.from_tensor(x)
        x.stop_gradient = False
        return x[1:] if how == "computed" else x


class MxnetSide(Side):
    name = "mxnet"

    def __init__(self) -> None:
        self.mx = mx = ds.framework("mxnet")
        mx.npx.set_np()  # 2.0's default; without it, operators of 1.9 refuse tensors without axes or elements
        self.dtypes = {np.dtype(kind).name for kind in mx.ndarray.ndarray._DTYPE_NP_TO_MX if kind is not None}

    def kind(self) -> type:
        return self.mx.np.ndarray

    def has(self, dtype: str) -> bool:
        return dtype == "bfloat16" or dtype in self.dtypes

    def make(self, array: Any) -> Tensor:
        name = array.dtype.name
        if not self.has(name):
            return None
        if name == "bfloat16":  # MXNet cannot import the bits itself; `read` exports them
            with ds.using("mxnet"):
                return ds.from_numpy(array, "cpu")
        return self.mx.np.array(array, dtype=array.dtype)

    def over(self, array: Any) -> Tensor:
        share = getattr(self.mx.npx, "from_numpy", None)  # 1.9 has none for such arrays
        if share is None or array.dtype.name not in ("int32", "int64", "uint8", "float16", "float32", "float64"):
            return None
        return share(array, zero_copy=True)

    def read(self, x: Tensor) -> Any:
        array = x.asnumpy()
        return array.view(np.uint16).view(numpy_dtype("bfloat16")) if array.dtype.names else array

    def wipe(self, x: Tensor) -> None:
        zeros = self.make(np.zeros(x.shape, self.read(x).dtype))
        ds.place(zeros, ds.device_of(x)).copyto(x)
        x.wait_to_read()

    def trains(self, x: Tensor) -> bool:
        return x.grad is not None

    def product(self, x: Tensor) -> Tensor:
        return self.mx.np.dot(x.reshape((1, -1)), x.reshape((-1, 1)))

    def laid_out(self, layout: str, root: Tensor) -> Tensor:
        if layout == "older kind":
            return root.as_nd_ndarray()
        return super().laid_out(layout, root) if layout == "offset" else None  # the only view that exists

    def trained(self, how: str, array: Any) -> Tensor:
        x = self.make(array) if how == "trainable" else None
        if x is not None:
            x.attach_grad()
        return x


SIDES = (TorchSide, TensorflowSide, JaxSide, PaddleSide, MxnetSide, NumpySide)


def sides() -> dict[str, Side]:
    """Return the side of every installed framework, with all of them imported."""
    return {side.name: side() for side in SIDES if side.name in ds.backends()}

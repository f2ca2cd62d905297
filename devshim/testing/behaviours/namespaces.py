"""Tests of `namespace`: the array API's functions, on the framework's own tensors, where these are."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.namespaces import CREATION, FFT, FUNCTIONS, LINALG
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

    Call = Callable[[Any, Any], Any]

CALLS: dict[str, tuple[Call, Call]] = {
    "abs": (lambda xp, x: xp.abs(xp.negative(x)), lambda np, a: a),
    "tanh": (lambda xp, x: xp.tanh(x), lambda np, a: np.tanh(a)),
    "exp": (lambda xp, x: xp.exp(x), lambda np, a: np.exp(a)),
    "acos": (lambda xp, x: xp.acos(xp.divide(x, 20)), lambda np, a: np.arccos(a / 20)),
    "pow": (lambda xp, x: xp.pow(x, x), lambda np, a: np.power(a, a)),
    "a number": (lambda xp, x: xp.multiply(x, 2.5), lambda np, a: a * np.float32(2.5)),
    "floor_divide": (lambda xp, x: xp.floor_divide(-10, x), lambda np, a: np.floor_divide(np.float32(-10), a)),
    "less": (lambda xp, x: xp.less(x, xp.square(x)), lambda np, a: a < a * a),
    "logical_not": (lambda xp, x: xp.logical_not(xp.greater(x, 4)), lambda np, a: ~(a > 4)),
    "where": (lambda xp, x: xp.where(xp.greater(x, 4), x, xp.negative(x)), lambda np, a: np.where(a > 4, a, -a)),
    "clip": (lambda xp, x: xp.clip(x, 3, 7), lambda np, a: np.clip(a, 3, 7)),
    "maximum": (lambda xp, x: xp.maximum(x, xp.subtract(9, x)), lambda np, a: np.maximum(a, 9 - a)),
    "sum": (lambda xp, x: xp.sum(x), lambda np, a: np.sum(a)),
    "sum over axes": (lambda xp, x: xp.sum(x, axis=(0, 1), keepdims=True), lambda np, a: a.sum((0, 1), keepdims=True)),
    "mean": (lambda xp, x: xp.mean(x, axis=-1), lambda np, a: a.mean(-1)),
    "std": (lambda xp, x: xp.std(x, axis=0, correction=1), lambda np, a: a.std(0, ddof=1)),
    "max": (lambda xp, x: xp.max(x, axis=1, keepdims=True), lambda np, a: a.max(1, keepdims=True)),
    "argmax": (lambda xp, x: xp.argmax(x, axis=1), lambda np, a: a.argmax(1)),
    "all": (lambda xp, x: xp.all(xp.greater(x, 1), axis=0), lambda np, a: (a > 1).all(0)),
    "cumulative_sum": (lambda xp, x: xp.cumulative_sum(x, axis=1), lambda np, a: a.cumsum(1)),
    "matmul": (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), lambda np, a: a @ a.T),
    "tensordot": (lambda xp, x: xp.tensordot(x, x, axes=2), lambda np, a: np.tensordot(a, a)),
    "stack": (lambda xp, x: xp.stack([x, x], axis=1), lambda np, a: np.stack([a, a], 1)),
    "concat": (lambda xp, x: xp.concat([x, x], axis=1), lambda np, a: np.concatenate([a, a], 1)),
    "concat flat": (
        lambda xp, x: xp.concat([x, xp.sum(x, axis=0)], axis=None),
        lambda np, a: np.concatenate([a.ravel(), a.sum(0)]),
    ),
    "reshape": (lambda xp, x: xp.reshape(x, (2, -1)), lambda np, a: a.reshape(2, -1)),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, (1, 0)), lambda np, a: a.T),
    "expand_dims": (lambda xp, x: xp.expand_dims(x, axis=1), lambda np, a: a[:, None]),
    "squeeze": (lambda xp, x: xp.squeeze(xp.sum(x, axis=0, keepdims=True), axis=0), lambda np, a: a.sum(0)),
    "flip": (lambda xp, x: xp.flip(x), lambda np, a: a[::-1, ::-1]),
    "roll": (lambda xp, x: xp.roll(x, 1, axis=0), lambda np, a: np.roll(a, 1, 0)),
    "tile": (lambda xp, x: xp.tile(x, (2, 1)), lambda np, a: np.tile(a, (2, 1))),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (2, 3, 4)), lambda np, a: np.broadcast_to(a, (2, 3, 4))),
    "take": (lambda xp, x: xp.take(x, xp.argmax(x, axis=0), axis=0), lambda np, a: a[a.argmax(0)]),
    "argsort": (
        lambda xp, x: xp.argsort(x, axis=1, descending=True),
        lambda np, a: np.argsort(-a, axis=1, kind="stable"),
    ),
    "sort": (lambda xp, x: xp.sort(xp.negative(x), axis=1), lambda np, a: np.sort(-a, axis=1)),
    "tril": (lambda xp, x: xp.tril(x, k=1), lambda np, a: np.tril(a, 1)),
    "tril of bools": (lambda xp, x: xp.tril(xp.greater(x, 1)), lambda np, a: np.tril(a > 1)),
    "triu of bools": (lambda xp, x: xp.triu(xp.greater(x, 1)), lambda np, a: np.triu(a > 1)),
    "sum of bools": (lambda xp, x: xp.sum(xp.greater(x, 1), axis=0), lambda np, a: (a > 1).sum(0)),
    "prod of bools": (lambda xp, x: xp.prod(xp.greater(x, 1), axis=0), lambda np, a: (a > 1).prod(0)),
    "cumulative_sum of bools": (
        lambda xp, x: xp.cumulative_sum(xp.greater(x, 1), axis=1),
        lambda np, a: (a > 1).cumsum(1),
    ),
    "meshgrid": (
        lambda xp, x: xp.meshgrid(xp.sum(x, axis=0), xp.max(x, axis=1), indexing="ij")[1],
        lambda np, a: np.meshgrid(a.sum(0), a.max(1), indexing="ij")[1],
    ),
    "astype": (lambda xp, x: xp.astype(x, xp.int32), lambda np, a: a.astype("int32")),
    "vector_norm": (lambda xp, x: xp.linalg.vector_norm(x, axis=0), lambda np, a: np.linalg.norm(a, axis=0)),
    "inv": (
        lambda xp, x: xp.linalg.inv(xp.multiply(xp.eye(4, dtype=xp.float32, device=ds.device_of(x)), 2)),
        lambda np, a: np.eye(4, dtype="float32") / 2,
    ),
}
"""Calls of a namespace, each with NumPy's answer."""

MADE: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "asarray": (lambda xp, d: xp.asarray([1.0, 2.0], dtype=xp.float32, device=d), [1, 2]),
    "zeros": (lambda xp, d: xp.zeros((2,), dtype=xp.float32, device=d), [0, 0]),
    "ones": (lambda xp, d: xp.ones(2, dtype=xp.float32, device=d), [1, 1]),
    "full": (lambda xp, d: xp.full((2,), 3, dtype=xp.float32, device=d), [3, 3]),
    "arange": (lambda xp, d: xp.arange(1, 6, 2, dtype=xp.float32, device=d), [1, 3, 5]),
    "linspace": (lambda xp, d: xp.linspace(0, 1, 3, dtype=xp.float32, device=d), [0, 0.5, 1]),
    "eye": (lambda xp, d: xp.eye(2, dtype=xp.float32, device=d), [[1, 0], [0, 1]]),
    "zeros_like": (lambda xp, d: xp.zeros_like(xp.ones(2, dtype=xp.float32), device=d), [0, 0]),
    "full_like": (lambda xp, d: xp.full_like(xp.ones(2, dtype=xp.float32, device=d), 5), [5, 5]),
    "from_dlpack": (lambda xp, d: xp.from_dlpack(xp.ones(2, dtype=xp.float32), device=d), [1, 1]),
}
"""Creation functions with a device, and the values."""


class NamespaceTests(Kit):
    """The array API on every framework."""

    @feature("namespace")
    def test_the_namespace_is_that_of_the_tensor(self, device: Device) -> None:
        """A tensor, a tree of tensors and the current framework have one namespace, the same object each time."""
        x = self.tensor(device)
        xp = ds.namespace(x)
        assert ds.namespace({"a": [x, 1]}) is ds.namespace() is xp
        assert self.adapter.title in repr(xp)
        assert pickle.loads(pickle.dumps(xp)) is xp
        assert copy.deepcopy({"xp": xp.linalg})["xp"] is xp.linalg
        ds.use(None)
        assert ds.namespace(x) is xp
        ds.use(self.backend)  # what runs after the test needs a framework

    @feature("namespace")
    @pytest.mark.parametrize("x", [3, "text", [], {"a": 1.5}], ids=repr)
    def test_a_namespace_needs_a_tensor(self, x: object) -> None:
        """An object without a tensor is refused."""
        with pytest.raises(ds.NotATensorError):
            ds.namespace(x)

    @feature("namespace")
    def test_tensors_of_two_frameworks_have_no_namespace(self) -> None:
        """A tree with tensors of several frameworks is refused, and the error names them."""
        if self.adapter.has_plain_arrays or self.adapter.host_tensors:
            return  # NumPy arrays are tensors of this framework
        with pytest.raises(ds.ArgumentError, match="NumPy") as caught:
            ds.namespace([self.tensor(), numbers()])
        assert self.adapter.title in str(caught.value)
        with pytest.raises(ds.ArgumentError, match="NumPy"):
            ds.namespace(numbers()).zeros_like(self.tensor())

    @feature("namespace")
    @pytest.mark.parametrize("call", CALLS)
    def test_functions_compute_where_their_arguments_are(self, call: str, journey: tuple[Device, Device]) -> None:
        """A function returns NumPy's values, on the device of its argument, with any default device."""
        x, (compute, expected) = self.tensor(journey[0]), CALLS[call]
        if call in ("astype", "take", "inv", "vector_norm") or hasattr(ds.namespace(x), call.partition(" ")[0]):
            with ds.on(journey[1]):
                y = compute(ds.namespace(x), x)
            self._check(y, expected(np, numbers()), journey[0])

    @feature("namespace")
    @pytest.mark.parametrize("call", CALLS)
    def test_the_usual_functions_are_there(self, call: str) -> None:
        """No framework lacks the functions of these tests."""
        compute, expected = CALLS[call]
        self._check(compute(ds.namespace(), self.tensor()), expected(np, numbers()), ds.cpu())

    @feature("namespace")
    @pytest.mark.parametrize("name", ["mean", "std", "var"])
    def test_statistics_of_integers_and_bools_are_not_rounded(self, name: str, device: Device) -> None:
        """`mean`, `std` and `var` of integers and bools are floats, such as an accuracy."""
        xp, a = ds.namespace(), np.asarray([[1, 2], [4, 2]], dtype="int32")
        x = ds.from_numpy(a, device)
        for exact, expected in ((x, a), (xp.equal(x, 2), a == 2)):
            y = getattr(xp, name)(exact, axis=1)
            assert ds.dtype_of(y) in ("float32", "float64")
            assert ds.device_of(y) is device
            assert np.allclose(ds.to_numpy(y), getattr(expected, name)(1), rtol=1e-6)

    @feature("namespace")
    def test_functions_return_the_frameworks_tensors(self, device: Device) -> None:
        """Results are of the same type as other tensors of the framework there, including in lists and tuples."""
        x = self.tensor(device)
        xp = ds.namespace(x)
        for y in (xp.add(x, x), xp.sum(x, axis=0), *xp.unstack(x), *xp.broadcast_arrays(x, xp.sum(x, axis=0))):
            assert self.alike(y, x)
            assert ds.device_of(y) is device

    @feature("namespace")
    @pytest.mark.parametrize("call", MADE)
    def test_creation_takes_a_device(self, call: str, device: Device) -> None:
        """Creation functions take devices in every spelling, and are on the CPU without one."""
        make, expected = MADE[call]
        for spelled in (device, str(device), device.native(self.backend)):
            y = make(ds.namespace(), spelled)
            assert ds.device_of(y) is device
            assert self.same_numbers(y, np.asarray(expected, "float32"))
        assert ds.device_of(make(ds.namespace(), None)) is ds.cpu()

    @feature("namespace")
    def test_creation_follows_the_default_device(self, device: Device) -> None:
        """Inside `on`, creation functions use its device, and a missing device is refused."""
        xp = ds.namespace()
        with ds.on(device):
            assert ds.device_of(xp.ones(2)) is device
        with pytest.raises(ds.DeviceNotFoundError):
            xp.zeros(2, device="gpu:99")

    @feature("namespace")
    @pytest.mark.parametrize("name", ["no_such_function", "linalg.no_such_function", "relu"])
    def test_missing_names_raise(self, name: str) -> None:
        """A missing name raises an error that names it; ``hasattr`` is False, and ``getattr`` takes a default."""
        *inside, last = name.split(".")
        space = getattr(ds.namespace(), inside[0]) if inside else ds.namespace()
        assert not hasattr(space, last)
        assert getattr(space, last, 7) == 7
        with pytest.raises(ds.UnsupportedError, match=name) as caught:
            getattr(space, last)
        assert isinstance(caught.value, AttributeError)
        assert caught.value.hint
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    @feature("namespace")
    def test_the_list_of_names_is_true(self) -> None:
        """``dir`` lists what there is; each name of the standard is there, or raises `UnsupportedError`."""
        xp = ds.namespace()
        extensions = {"linalg": LINALG, "fft": FFT}
        for space, names in [
            (xp, (*FUNCTIONS, *CREATION)),
            *((getattr(xp, name, None), names) for name, names in extensions.items()),
        ]:
            for name in names if space is not None else ():
                assert (name in dir(space)) == hasattr(space, name)
                if name not in dir(space):
                    with pytest.raises(ds.UnsupportedError, match=rf"'([a-z]+\.)?{name}'"):
                        getattr(space, name)
        assert all(callable(getattr(xp, name)) for name in dir(xp) if name in FUNCTIONS)
        assert set(CREATION) < set(dir(xp))

    @feature("namespace")
    def test_dtypes_and_constants(self) -> None:
        """The dtypes are the framework's own, and the constants are Python's."""
        xp = ds.namespace()
        for name in ("float32", "int32", "uint8"):
            assert getattr(xp, name) == self.adapter.dtype(name)
            assert self.adapter.dtype_name(xp.zeros(2, dtype=getattr(xp, name))) == name
        assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (math.pi, math.e, math.inf, None)
        assert math.isnan(xp.nan)
        assert xp.isdtype(xp.float32, "real floating")
        assert not xp.isdtype(xp.int32, ("bool", "real floating"))
        assert xp.result_type(xp.float32, xp.float32) == xp.float32
        assert xp.finfo(xp.float32).bits == 32
        assert xp.iinfo(xp.uint8).max == 255

    @feature("namespace")
    def test_a_namespace_describes_itself(self) -> None:
        """The standard's inspection calls name the devices, dtypes and defaults."""
        info = ds.namespace().__array_namespace_info__()
        assert info.devices() == ds.devices()
        assert info.default_device() is ds.cpu()
        assert info.dtypes(kind="real floating")["float32"] == self.adapter.dtype("float32")
        assert "float32" not in info.dtypes(kind=("bool", "integral"))
        default = self.adapter.dtype(self.adapter.dtype_name(ds.asarray(1.0)))
        assert info.default_dtypes()["real floating"] == default
        assert info.capabilities()["boolean indexing"] is True
        with pytest.raises(ds.ArgumentError):
            info.dtypes(kind="float")

    @feature("namespace", "refuse_mixing")
    def test_functions_refuse_mixed_devices(self, away: tuple[Device, Device]) -> None:
        """A function of tensors on two devices raises, and copies none of them."""
        x, y = self.tensor(away[0]), self.tensor(away[1])
        with pytest.raises((ds.DeviceMismatchError, self.mixing_error())):
            ds.to_numpy(ds.namespace(x).add(x, y))

    @feature("namespace", "gradient")
    def test_gradients_flow_through_functions(self, device: Device) -> None:
        """The functions are differentiable."""
        x = self.tensor(device)
        with self.scope_of(device):
            found = self.gradient(lambda t: ds.namespace(t).sum(ds.namespace(t).multiply(t, t), axis=0), x)
        assert found is not None, "no gradient arrived"
        assert ds.device_of(found) is device
        assert np.allclose(ds.to_numpy(found), 4 * numbers() * (numbers() ** 2).sum(0))

    @feature("namespace")
    @hook("compiled")
    @pytest.mark.parametrize("call", ["tanh", "sum over axes", "matmul", "stack", "reshape", "a number", "mean"])
    def test_functions_work_inside_compilers(self, call: str, device: Device) -> None:
        """A compiled function can ask for the namespace of its argument, and call its functions."""
        compute, expected = CALLS[call]
        for name, (compiled, _) in self.compilers().items():
            fn = compiled(lambda x: compute(ds.namespace(x), x))
            y = self.unless_refused(device, ds.run, fn, self.tensor(device))
            if y is None:
                continue
            assert np.allclose(ds.to_numpy(y), expected(np, numbers()), rtol=1e-5), name
            assert ds.device_of(y) is device

    def _check(self, y: Tensor, expected: Any, device: Device) -> None:
        """Check the values, shape, kind of dtype and device of a result."""
        found = ds.to_numpy(y)
        assert found.shape == np.shape(expected)
        assert found.dtype.kind == expected.dtype.kind
        assert found.dtype.itemsize == expected.dtype.itemsize or found.dtype.kind == "i"
        assert np.allclose(found, expected, rtol=2e-5)
        assert ds.device_of(y) is device

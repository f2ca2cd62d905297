"""Tests of creation on a device: where a new tensor is, and which values it contains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, feature, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

MAKERS: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "asarray": (lambda **kw: ds.asarray([[1, 2], [3, 4]], **kw), [[1, 2], [3, 4]]),
    "asarray_number": (lambda **kw: ds.asarray(3, **kw), 3),
    "from_numpy": (lambda **kw: ds.from_numpy(numbers(), **kw), numbers()),
    "zeros": (lambda **kw: ds.zeros((2, 3), **kw), np.zeros((2, 3))),
    "ones": (lambda **kw: ds.ones((2, 3), **kw), np.ones((2, 3))),
    "full": (lambda **kw: ds.full((2, 3), 7, **kw), np.full((2, 3), 7)),
    "full_float": (lambda **kw: ds.full((), 2.5, **kw), 2.5),
    "arange": (lambda **kw: ds.arange(5, **kw), np.arange(5)),
    "arange_step": (lambda **kw: ds.arange(5, -4, -2, **kw), np.arange(5, -4, -2)),
    "linspace": (lambda **kw: ds.linspace(0, 4, 5, **kw), np.arange(5)),
    "linspace_open": (lambda **kw: ds.linspace(0, 4, 4, endpoint=False, **kw), np.arange(4)),
    "linspace_one": (lambda **kw: ds.linspace(3, 4, 1, **kw), [3]),
    "linspace_none": (lambda **kw: ds.linspace(3, 4, 0, **kw), np.zeros(0)),
    "eye": (lambda **kw: ds.eye(3, **kw), np.eye(3)),
    "eye_above": (lambda **kw: ds.eye(2, 4, k=1, **kw), np.eye(2, 4, 1)),
    "eye_below": (lambda **kw: ds.eye(4, 2, k=-2, **kw), np.eye(4, 2, -2)),
}


class CreationTests(Kit):
    """`asarray`, `zeros`, `ones`, `full`, `empty`, `arange`, `linspace`, `eye`, ``*_like``: device and values."""

    @feature("create")
    @pytest.mark.parametrize("call", MAKERS)
    def test_creation_without_a_device_is_on_the_host(self, call: str) -> None:
        """Without ``device=``, and outside `on`, every framework creates on the CPU."""
        make, expected = MAKERS[call]
        x = make()
        assert self.adapter.is_tensor(type(x))
        assert ds.device_of(x) is ds.cpu()
        assert self.same_numbers(x, expected)

    @feature("create")
    @pytest.mark.parametrize("call", MAKERS)
    def test_creation_is_on_the_requested_device(self, call: str, device: Device) -> None:
        """With ``device=`` the tensor is there, with the same values and the same type as on the host."""
        make, expected = MAKERS[call]
        x = make(device=device)
        assert self.alike(x, make())
        assert ds.device_of(x) is device
        assert self.same_numbers(x, expected)
        assert self.adapter.dtype_name(x) == self.adapter.dtype_name(make())

    @feature("create")
    @pytest.mark.parametrize("call", MAKERS)
    def test_creation_follows_the_scope(self, call: str, other_device: Device) -> None:
        """Inside `on`, creation uses its device; ``device=`` overrides it."""
        make, expected = MAKERS[call]
        with ds.on(other_device):
            x, host = make(), make(device="cpu")
        assert ds.device_of(x) is other_device
        assert ds.device_of(host) is ds.cpu()
        assert self.same_numbers(x, expected)

    @feature("create")
    @pytest.mark.parametrize("shape", [3, (), (0,), (2, 0), [2, 3], np.int64(2)], ids=repr)
    def test_empty_has_the_requested_shape(self, shape: Any, device: Device) -> None:
        """`empty` promises shape, dtype and device."""
        x = ds.empty(shape, dtype="float32", device=device)
        assert self.adapter.shape(x) == np.empty(shape).shape
        assert self.adapter.dtype_name(x) == "float32"
        assert ds.device_of(x) is device

    @feature("create")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_by_name(self, dtype: str, device: Device) -> None:
        """Every creation function takes the array API's dtype names, including 64-bit ones, and returns that dtype."""
        made = {
            "zeros": (ds.zeros(2, dtype=dtype, device=device), [0, 0]),
            "ones": (ds.ones(2, dtype=dtype, device=device), [1, 1]),
            "full": (ds.full(2, 1, dtype=dtype, device=device), [1, 1]),
            "asarray": (ds.asarray([0, 1], dtype=dtype, device=device), [0, 1]),
            "eye": (ds.eye(1, 2, dtype=dtype, device=device), [[1, 0]]),
        }
        if dtype not in ("bool", "complex64", "complex128"):
            made["arange"] = (ds.arange(3, dtype=dtype, device=device), [0, 1, 2])
        if dtype.startswith(("float", "bfloat")):
            made["linspace"] = (ds.linspace(0, 2, 3, dtype=dtype, device=device), [0, 1, 2])
        for call, (x, expected) in made.items():
            assert self.adapter.dtype_name(x) == dtype, call
            assert ds.device_of(x) is device, call
            if dtype == "bfloat16":  # so that it can be read without ml_dtypes
                x = ds.asarray(x, dtype="float32")
            assert np.array_equal(ds.to_numpy(x), np.asarray(expected)), call

    @feature("float16")
    @feature("create")
    @pytest.mark.parametrize("like", ["zeros", "ones", "full", "empty"])
    def test_like_functions_keep_dtype_shape_and_device(self, like: str, device: Device) -> None:
        """A ``*_like`` tensor has its model's shape, dtype, device and framework, unless an argument overrides them."""
        x = self.tensor(device, (2, 3), "int32")
        value = {"full": (7,)}.get(like, ())
        make = getattr(ds, f"{like}_like")
        same, other = make(x, *value), make(x, *value, dtype="float16", device="cpu")
        assert self.adapter.shape(same) == (2, 3)
        assert (self.adapter.dtype_name(same), ds.device_of(same)) == ("int32", device)
        assert (self.adapter.dtype_name(other), ds.device_of(other)) == ("float16", ds.cpu())
        if like != "empty":
            assert self.same_numbers(same, np.full((2, 3), {"zeros": 0, "ones": 1, "full": 7}[like]))

    @feature("create")
    def test_like_functions_ignore_the_scope(self, other_device: Device) -> None:
        """A ``*_like`` tensor is on its model's device, even inside `on`."""
        x = self.tensor()
        with ds.on(other_device):
            assert ds.device_of(ds.zeros_like(x)) is ds.cpu()

    # ------------------------------------------------------------------ lists of tensors
    @feature("create", "several")
    def test_asarray_stacks_a_list_of_tensors_on_their_device(self, device: Device) -> None:
        """Tensors are stacked on their common device, at any nesting, and nothing is copied through the host."""
        a, b = self.tensor(device, (2,)), self.tensor(device, (2,))
        with ds.transfers() as log:
            flat, deep = ds.asarray([a, b]), ds.asarray(((a, b), [b, a]))
        assert log.count == 0
        for x, expected in ((flat, np.stack([numbers((2,))] * 2)), (deep, np.stack([[numbers((2,))] * 2] * 2))):
            assert ds.device_of(x) is device
            assert self.same_numbers(x, expected)
            assert self.adapter.dtype_name(x) == "float32"
        losses = [ds.asarray(float(i), dtype="float32", device=device) for i in range(3)]
        assert self.same_numbers(ds.asarray(losses), [0.0, 1.0, 2.0])
        assert ds.device_of(ds.asarray(losses)) is device
        assert self.adapter.shape(ds.asarray([a])) == (1, 2)
        if self.can_scribble(device):
            self.scribble(a)
            assert self.same_numbers(flat, np.stack([numbers((2,))] * 2)), "in memory of its own"

    @feature("create", "several")
    def test_asarray_takes_numbers_among_tensors(self, device: Device) -> None:
        """Numbers in a list take the dtype of the tensors if it can represent them, and go to the tensors' device."""
        x = ds.asarray(1.5, dtype="float32", device=device)
        for values, expected in (([x, 2], [1.5, 2]), ([0, x, 0.25], [0, 1.5, 0.25]), ([[1, 2], [x, x]], 0)):
            made = ds.asarray(values)
            assert ds.device_of(made) is device
            assert self.adapter.dtype_name(made) == "float32"
            assert self.same_numbers(made, expected or [[1, 2], [1.5, 1.5]])
        assert ds.device_of(ds.asarray([x, np.float32(3)])) is device

    @feature("float16")
    @feature("create", "several")
    def test_asarray_of_tensors_on_different_devices(self, away: tuple[Device, Device]) -> None:
        """Tensors on different devices raise an error that names them; with ``device=`` they are moved there."""
        xs = [self.tensor(there, (2,)) for there in away]
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.asarray(xs)
        assert f"obj[0] is on {away[0]}, obj[1] is on {away[1]}" in caught.value.problem
        for target in away:
            made = ds.asarray(xs, device=target)
            assert ds.device_of(made) is target
            assert self.same_numbers(made, np.stack([numbers((2,))] * 2))
        moved = ds.asarray([xs[0], xs[0]], device=away[1])
        assert ds.device_of(moved) is away[1]
        wide = ds.asarray([xs[0], 1] if not self.adapter.shape(xs[0]) else [xs[0]], dtype="float16", device=away[1])
        assert self.adapter.dtype_name(wide) == "float16"

    @feature("create", "several")
    def test_asarray_refuses_ragged_lists(self, device: Device) -> None:
        """Rows of different shapes, arbitrary objects, and ``copy=False`` raise an error."""
        x, y = self.tensor(device, (2,)), self.tensor(device, (3,))
        for values in ([x, y], [x, 1], [[x, x], [x]], [x, "text"], [x, object()], [[], [x]], [x, None]):
            with pytest.raises(ds.ConversionError):
                ds.asarray(values)
        with pytest.raises(ds.CopyNeededError):
            ds.asarray([x, x], copy=False)

    @feature("create", "float16")
    @pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)], ids=str)
    def test_tensors_without_elements_stay_on_their_device(self, shape: Any, device: Device) -> None:
        """Draws, casts and operators on tensors without elements have results on the device."""
        made = [ds.random.uniform(size=shape, dtype=name, device=device) for name in ("float16", "float32")]
        made += [ds.random.normal(size=shape, dtype="float16", device=device)]
        x = ds.ones(shape, device=device)
        made += [ds.asarray(x, dtype="float16"), ds.run(lambda x: x * x + 1, x), ds.run(lambda x: x[:0], x)]
        for each in made:
            assert ds.device_of(each) is device
        assert self.adapter.shape(made[0]) == shape

    @feature("create", "several", "float16")
    def test_asarray_promotes_mixed_dtypes_by_one_rule(self, device: Device) -> None:
        """Tensors of several dtypes give the wider one of a kind, and the dtype of the higher kind; or ``dtype=``."""
        xs = [self.tensor(device, (2,), "float32"), self.tensor(device, (2,), "int32")]
        for values in (xs, xs[::-1], [xs, xs], [xs, [xs[1], xs[1]]]):
            made = ds.asarray(values)
            assert self.adapter.dtype_name(made) == "float32"
            assert self.same_numbers(made, np.broadcast_to(numbers((2,)), self.adapter.shape(made)))
            assert ds.device_of(made) is device
        assert self.adapter.dtype_name(ds.asarray(xs, dtype="float16")) == "float16"

    @feature("create", "several", "float16")
    def test_asarray_widens_within_one_kind(self, device: Device) -> None:
        """float16 and float32 give float32; int8 and uint8 give int16 where the framework has it."""
        xs = [self.tensor(device, (2,), "float16"), self.tensor(device, (2,), "float32")]
        assert self.adapter.dtype_name(ds.asarray(xs)) == "float32"
        xs = [self.tensor(device, (2,), "int8"), self.tensor(device, (2,), "uint8")]
        try:
            widened = ds.asarray(xs)
        except ds.ConversionError as error:
            if "int16" not in error.problem:
                raise
        else:
            assert self.adapter.dtype_name(widened) == "int16"

    @feature("create", "several", "gradient")
    def test_gradients_flow_through_asarray_of_a_list(self, device: Device) -> None:
        """Gradients flow from the stacked tensor to each tensor of the list, even if the list is moved."""
        for target in (None, "cpu"):

            def stacked(x: Tensor, to: Any = target) -> Tensor:
                return ds.asarray([x, [0.0, 1.0], x], device=to)

            gradient = self.gradient(stacked, self.tensor(device, (2,)))
            assert gradient is not None
            assert self.same_numbers(gradient, 4 * numbers((2,)))

"""Tests of the dtypes of new tensors: `dtype_of`, and `set_default_dtype`, which makes all frameworks agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import DTYPES, feature, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

FLOATS: dict[str, Callable[..., Tensor]] = {
    "empty": lambda **kw: ds.empty(2, **kw),
    "zeros": lambda **kw: ds.zeros((2, 3), **kw),
    "ones": lambda **kw: ds.ones((), **kw),
    "full": lambda **kw: ds.full(2, 1.5, **kw),
    "eye": lambda **kw: ds.eye(2, **kw),
    "linspace": lambda **kw: ds.linspace(0, 1, 3, **kw),
    "arange": lambda **kw: ds.arange(0, 1, 0.5, **kw),
    "asarray": lambda **kw: ds.asarray([1, 2.5], **kw),
    "asarray of a number": lambda **kw: ds.asarray(0.5, **kw),
    "asarray of nothing": lambda **kw: ds.asarray([], **kw),
    "uniform": lambda **kw: ds.random.uniform(size=3, **kw),
    "normal": lambda **kw: ds.random.normal(size=3, **kw),
    "uniform of a generator": lambda **kw: ds.random.Generator(0, **kw, portable=True).uniform(size=3),
}
"""Calls that make floats."""

INTEGERS: dict[str, Callable[..., Tensor]] = {
    "full": lambda **kw: ds.full(2, 3, **kw),
    "arange": lambda **kw: ds.arange(3, **kw),
    "asarray": lambda **kw: ds.asarray([[1, 2], (3, 4)], **kw),
    "asarray of a number": lambda **kw: ds.asarray(7, **kw),
    "randint": lambda **kw: ds.random.randint(9, size=3, **kw),
    "permutation": lambda **kw: ds.random.permutation(5, **kw),
}
"""Calls that make integers."""

NONSENSE: dict[str, Callable[[], object]] = {
    "an integer dtype for floats": lambda: ds.set_default_dtype("int32"),
    "a floating dtype for integers": lambda: ds.set_default_dtype("float32", int="float32"),
    "bool for integers": lambda: ds.set_default_dtype("float32", int="bool"),
    "an unknown name": lambda: ds.set_default_dtype("float31"),
    "a number": lambda: ds.set_default_dtype(32),
    "integers without floats": lambda: ds.set_default_dtype(None, int="int32"),
}


class DefaultDtypeTests(Kit):
    """`dtype_of` and `set_default_dtype`."""

    @pytest.fixture
    def _restore_defaults(self) -> Iterator[None]:
        """Restore the framework's own defaults after the test."""
        yield
        ds.set_default_dtype(None)

    @feature("numpy")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dtype_of_is_the_name_in_the_array_api(self, dtype: str, device: Device) -> None:
        """Each dtype has one name on every framework and device, for tensors of any shape."""
        for shape in ((), (0,), (2, 3)):
            assert ds.dtype_of(ds.zeros(shape, dtype=dtype, device=device)) == dtype

    @pytest.mark.parametrize("value", [1.5, [1.0], "float32", None, np.float32], ids=repr)
    def test_dtype_of_refuses_what_is_not_a_tensor(self, value: Any) -> None:
        """Anything but a tensor raises `NotATensorError`."""
        with pytest.raises(ds.NotATensorError, match="dtype_of"):
            ds.dtype_of(value)

    @feature("create", "float64")
    @pytest.mark.parametrize(("floating", "integer"), [("float32", "int64"), ("float64", "int32")])
    @pytest.mark.usefixtures("_restore_defaults")
    def test_default_dtypes_are_the_same_on_every_framework(self, floating: str, integer: str, device: Device) -> None:
        """With a default, every creation and random function gives that dtype, on the requested device."""
        ds.set_default_dtype(floating, int=integer)
        for expected, calls in ((floating, FLOATS), (integer, INTEGERS)):
            for call, make in calls.items():
                x = make(device=device)
                assert (call, ds.dtype_of(x)) == (call, expected)
                assert ds.device_of(x) is device

    @feature("create", "float16")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_default_dtypes_are_restored(self) -> None:
        """None restores the framework's own defaults, which the setting replaced in devshim's functions only."""

        def made() -> list[str]:
            return [ds.dtype_of(make()) for make in (*FLOATS.values(), *INTEGERS.values())]

        before, native = made(), self.global_state()
        ds.set_default_dtype("float16", int="int8")
        assert set(made()) == {"float16", "int8"}
        assert self.global_state() == native
        ds.set_default_dtype("float32", int=None)
        assert [ds.dtype_of(make()) for make in INTEGERS.values()] == before[len(FLOATS) :]
        ds.set_default_dtype(None)
        assert made() == before

    @feature("create", "float64")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_a_dtype_that_is_given_takes_precedence(self, device: Device) -> None:
        """``dtype=`` overrides the default; tensors and NumPy arrays keep the dtype that they have."""
        x = self.tensor(device, dtype="float32")
        ds.set_default_dtype("float64", int="int32")
        assert ds.dtype_of(ds.ones(2, dtype="float32", device=device)) == "float32"
        assert ds.dtype_of(ds.asarray([1, 2], dtype="int64", device=device)) == "int64"
        assert ds.dtype_of(ds.zeros_like(x)) == "float32"
        assert ds.dtype_of(ds.asarray(x)) == "float32"
        assert ds.dtype_of(ds.asarray(numbers(dtype="float32"), device=device)) == "float32"
        assert ds.dtype_of(ds.from_numpy(numbers(dtype="int8"), device)) == "int8"

    @feature("create", "bool")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_booleans_stay_bool(self, device: Device) -> None:
        """No default applies to booleans."""
        ds.set_default_dtype("float32")
        drawn = ds.random.bernoulli(0.5, 3, device=device)
        for x in (ds.asarray([True, False], device=device), ds.full(2, True, device=device), drawn):
            assert ds.dtype_of(x) == "bool"

    @feature("create", "complex")
    @pytest.mark.parametrize(("floating", "expected"), [("float32", "complex64"), ("float64", "complex128")])
    @pytest.mark.usefixtures("_restore_defaults")
    def test_complex_numbers_follow_the_default_of_floats(self, floating: str, expected: str) -> None:
        """Complex numbers have the precision of the floats."""
        ds.set_default_dtype(floating)
        for x in (ds.asarray([1j]), ds.full(2, 1j), ds.linspace(0, 1j, 3)):  # type: ignore[arg-type]
            assert ds.dtype_of(x) == expected

    @feature("create", "several")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_numbers_among_tensors_follow_the_default(self, device: Device) -> None:
        """A number that no tensor of its list can represent has the default dtype."""
        ds.set_default_dtype("float32", int="int32")
        x = ds.asarray(1, device=device)
        assert ds.dtype_of(ds.asarray([x, 2])) == "int32"
        made = ds.asarray([ds.asarray(x, dtype="float32"), 0.5])
        assert ds.dtype_of(made) == "float32"
        assert self.same_numbers(made, [1, 0.5])

    @feature("create", "float64")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_the_default_dtype_belongs_to_the_process(self) -> None:
        """A thread that starts later, or before the call, sees the setting."""
        ds.set_default_dtype("float64", int="int32")
        assert in_thread(lambda: (ds.dtype_of(ds.ones(1)), ds.dtype_of(ds.arange(2)))) == ("float64", "int32")
        in_thread(lambda: ds.set_default_dtype("float32"))
        assert (ds.dtype_of(ds.ones(1)), ds.dtype_of(ds.arange(2))) == ("float32", "int64")

    @feature("create", "float64")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_a_default_acts_as_a_written_dtype(self) -> None:
        """Integers keep every bit, and one that does not fit has the same outcome as with ``dtype=``."""
        ds.set_default_dtype("float32", int="int64")
        assert ds.to_numpy(ds.asarray([2**40, -1])).tolist() == [2**40, -1]
        ds.set_default_dtype("float32", int="int8")
        assert _outcome(lambda: ds.asarray([300])) == _outcome(lambda: ds.asarray([300], dtype="int8"))
        assert _outcome(lambda: ds.full(1, 300)) == _outcome(lambda: ds.full(1, 300, dtype="int8"))

    @pytest.mark.parametrize("nonsense", NONSENSE)
    @pytest.mark.usefixtures("_restore_defaults")
    def test_set_default_dtype_refuses_other_values(self, nonsense: str) -> None:
        """Anything but a floating and an integer dtype raises `ArgumentError`, and nothing changes."""
        ds.set_default_dtype("float32", int="int8")
        with pytest.raises(ds.ArgumentError) as caught:
            NONSENSE[nonsense]()
        assert "ds.set_default_dtype(" in (caught.value.hint or "")
        assert (ds.dtype_of(ds.ones(1)), ds.dtype_of(ds.arange(2))) == ("float32", "int8")


def _outcome(call: Callable[[], Any]) -> object:
    """Return the values that a call makes, or the type of its error."""
    try:
        return ds.to_numpy(call()).tolist()
    except Exception as error:  # or a warning, which pytest raises
        return type(error)

"""More tests of creation: `asarray` of any value, default dtypes, exact 64-bit values, and invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import bits, feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device

NONSENSE: dict[str, Callable[[], object]] = {
    "negative length": lambda: ds.zeros(-1),
    "negative length in a tuple": lambda: ds.ones((2, -3)),
    "a float as a length": lambda: ds.zeros(2.0),  # type: ignore[arg-type]
    "a bool as a length": lambda: ds.zeros(True),
    "text as a shape": lambda: ds.empty("22"),  # type: ignore[arg-type]
    "no shape": lambda: ds.full(None, 1),  # type: ignore[arg-type]
    "text as a value": lambda: ds.full(2, "1"),  # type: ignore[arg-type]
    "a tensor as a value": lambda: ds.full(2, ds.ones(())),
    "a tensor as a value of full_like": lambda: ds.full_like(ds.ones(2), ds.ones(())),
    "a tensor as a bound": lambda: ds.linspace(0, ds.ones(()), 3),
    "a step of zero": lambda: ds.arange(0, 3, 0),
    "text as a bound": lambda: ds.arange("3"),  # type: ignore[arg-type]
    "a negative number of values": lambda: ds.linspace(0, 1, -1),
    "a float as a number of values": lambda: ds.linspace(0, 1, 2.5),  # type: ignore[arg-type]
    "negative rows": lambda: ds.eye(-2),
    "a diagonal of text": lambda: ds.eye(2, k="1"),  # type: ignore[arg-type]
    "an unknown dtype": lambda: ds.zeros(2, dtype="float7"),
    "a number as a dtype": lambda: ds.zeros(2, dtype=32),
    "a tensor of several elements as a length": lambda: ds.zeros(ds.ones(2)),
    "a range of bools": lambda: ds.arange(3, dtype="bool"),
    "a fraction as the step of integers": lambda: ds.arange(0.0, 4.0, 1.5, dtype="int32"),
}

MAKERS: dict[str, Callable[..., object]] = {
    "full": lambda value, **kw: ds.full(2, value, **kw),
    "asarray": lambda value, **kw: ds.asarray(value, **kw),
    "asarray of a list": lambda value, **kw: ds.asarray([[1], [value]], **kw),
    "full_like": lambda value, dtype, device: ds.full_like(ds.zeros(1, dtype=dtype, device=device), value),
    "like": lambda value, dtype, device: ds.asarray((0, value), like=ds.zeros(1, dtype=dtype, device=device)),
}
UNFIT: dict[str, tuple[complex, str]] = {
    "above": (128, "int8"),
    "below": (-1, "uint8"),
    "far above": (2**40, "int32"),
    "infinity": (float("inf"), "int64"),
    "NaN": (float("nan"), "int32"),
    "complex": (1 + 2j, "float32"),
    "complex for a bool": (1j, "bool"),
}
OF_COMPLEX: dict[str, Callable[[Any], object]] = {
    "a number": lambda x: 1j,
    "an array": lambda x: np.array([2j]),
    "a scalar of NumPy": lambda x: np.complex64(1j),
    "a tensor": lambda x: x,
    "a list of numbers": lambda x: [[1.0], [2j]],
    "a list of scalars": lambda x: (1.0, np.complex64(1j)),
    "a list of arrays": lambda x: [np.zeros(1), np.array([1j])],
    "a list of tensors": lambda x: [x, x],
    "a list of a tensor and a number": lambda x: [ds.zeros((), device=ds.device_of(x)), 1j],
}
"""Values with an imaginary part, given a complex tensor."""


class CreationArgumentTests(Kit):
    """Values, defaults and refusals of creation."""

    @feature("create")
    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_creation_refuses_invalid_arguments(self, nonsense: str) -> None:
        """Invalid arguments raise the same `ArgumentError` on every framework."""
        with pytest.raises(ds.ArgumentError):
            NONSENSE[nonsense]()

    @feature("create")
    def test_default_dtypes_are_the_frameworks(self, device: Device) -> None:
        """Without ``dtype``, floats become a float dtype, ints an int dtype and bools bool, on every device."""
        name = self.adapter.dtype_name
        floats = {name(make(2, device=device)) for make in (ds.zeros, ds.ones, ds.empty)}
        floats |= {name(ds.full(2, 1.5, device=device)), name(ds.eye(2, device=device))}
        floats |= {name(ds.linspace(0, 1, 3, device=device)), name(ds.arange(0.0, 1.0, 0.5, device=device))}
        assert floats <= {"float32", "float64"}
        assert name(ds.arange(3, device=device)) in ("int32", "int64")
        # MXNet's default for any number is a float.
        assert name(ds.full(2, 3, device=device)) in ("int32", "int64", *floats)
        assert name(ds.full(2, True, device=device)) in ("bool", *floats)

    @feature("create", "float64")
    def test_wide_integers_are_exact(self, device: Device) -> None:
        """64-bit integers keep every bit: no value passes through a float or a narrower integer."""
        big = 2**53 + 1
        for x, expected in (
            (ds.full(1, big, dtype="int64", device=device), [big]),
            (ds.asarray([big, -big], dtype="int64", device=device), [big, -big]),
            (ds.arange(2**40, 2**40 + 3, dtype="int64", device=device), [2**40, 2**40 + 1, 2**40 + 2]),
        ):
            assert self.adapter.dtype_name(x) == "int64"
            assert ds.to_numpy(x).tolist() == expected

    @feature("create", "float64")
    def test_wide_floats_are_exact(self, device: Device) -> None:
        """64-bit floats keep every bit."""
        value = 0.1 + 2**-50
        wide: dict[str, Any] = {"dtype": "float64", "device": device}
        for x in (ds.full(1, value, **wide), ds.asarray([value], **wide)):
            assert ds.to_numpy(x).tolist() == [value]
        line = ds.to_numpy(ds.linspace(0, 1, 11, dtype="float64", device=device))
        assert np.abs(line - np.linspace(0, 1, 11)).max() < 1e-15

    @feature("random")
    @feature("create")
    def test_the_frameworks_own_dtypes_are_checked_like_names(self, device: Device) -> None:
        """The framework's own dtype has the same rules as its name: for ranges, values and random numbers."""
        own: dict[str, Any] = {name: self.adapter.dtype(name) for name in ("float32", "int8", "bool")}
        for name, bad in (("int8", ds.ConversionError), ("bool", ds.ArgumentError)):
            with pytest.raises(bad):
                ds.arange(300, dtype=own[name], device=device)
        with pytest.raises(ds.ConversionError):
            ds.full(1, 300, dtype=own["int8"], device=device)
        with pytest.raises(ds.ArgumentError):
            ds.random.uniform(dtype=own["int8"], device=device)
        source = ds.random.Generator(0, device, portable=True)
        for draws in (ds.random, source):
            with ds.on(device):
                assert ds.dtype_of(draws.uniform(size=2, dtype=own["float32"])) == "float32"
                assert ds.dtype_of(draws.randint(9, size=2, dtype=own["int8"])) == "int8"
                assert ds.dtype_of(draws.bernoulli(0.5, size=2, dtype=own["bool"])) == "bool"

    @feature("float16")
    @feature("create")
    def test_dtypes_are_accepted_in_three_forms(self, device: Device) -> None:
        """A dtype can be a name, a NumPy dtype, or the framework's own."""
        own = self.adapter.dtype("float16")
        for dtype in ("float16", np.float16, np.dtype("float16"), own):
            assert self.adapter.dtype_name(ds.zeros(2, dtype=dtype, device=device)) == "float16"

    @feature("create", "bool")
    def test_asarray_reads_python_values(self, device: Device) -> None:
        """`asarray` takes numbers and nested sequences of them; bools stay bools and floats stay floats."""
        name = self.adapter.dtype_name
        default = name(ds.zeros(1))  # MXNet's default for any number
        assert name(ds.asarray([True, False], device=device)) in ("bool", default)
        assert name(ds.asarray(True, device=device)) in ("bool", default)
        assert name(ds.asarray([1, 2.5], device=device)) in ("float32", "float64")
        assert name(ds.asarray((1, 2), device=device)) in ("int32", "int64", default)
        assert self.same_numbers(ds.asarray([[1, 2], (3, 4)], device=device), [[1, 2], [3, 4]])
        assert self.adapter.shape(ds.asarray([], device=device)) == (0,)
        assert self.same_numbers(ds.asarray(range(3), device=device), [0, 1, 2])

    @feature("create")
    def test_asarray_reads_arrays(self, device: Device) -> None:
        """`asarray` of a NumPy array keeps its dtype and bits, and shares no memory with it."""
        a = numbers(dtype="float64") + 0.1
        kept = bits(a)
        x = ds.asarray(a, device=device, copy=True)
        a[...] = -5
        assert bits(ds.to_numpy(x)) == kept
        assert self.adapter.dtype_name(ds.asarray(np.int8(3), device=device)) == "int8"
        assert self.adapter.dtype_name(ds.asarray(numbers(), dtype="int32", device=device)) == "int32"

    @feature("create")
    def test_asarray_of_a_tensor_is_place(self, device: Device) -> None:
        """A tensor keeps its device and dtype, unless an argument overrides them."""
        x = self.tensor(device)
        assert ds.asarray(x) is x
        assert ds.asarray(x, device=device, dtype="float32", copy=False) is x
        copy = ds.asarray(x, copy=True)
        assert copy is not x
        assert ds.device_of(copy) is device
        cast = ds.asarray(x, dtype="int32")
        assert self.adapter.dtype_name(cast) == "int32"
        assert ds.device_of(cast) is device
        assert self.same_numbers(cast, numbers())
        assert ds.device_of(ds.asarray(x, device="cpu")) is ds.cpu()
        with pytest.raises(ds.CopyNeededError):
            ds.asarray(x, dtype="int32", copy=False)

    @feature("create")
    @pytest.mark.parametrize(
        "values", ["text", [[1, 2], [3]], ["a"], {}, object(), [None]], ids=lambda value: repr(value)[:14]
    )
    def test_asarray_refuses_values_that_are_not_numbers(self, values: Any) -> None:
        """A value that cannot be read as numbers raises `ConversionError` on every framework."""
        with pytest.raises(ds.ConversionError):
            ds.asarray(values)

    @feature("create")
    @pytest.mark.parametrize("unfit", UNFIT)
    @pytest.mark.parametrize("call", MAKERS)
    def test_numbers_that_a_dtype_cannot_represent_are_refused(self, call: str, unfit: str, device: Device) -> None:
        """No framework wraps an integer, makes an integer of NaN, or drops an imaginary part silently."""
        value, dtype = UNFIT[unfit]
        with pytest.raises(ds.ConversionError):
            MAKERS[call](value, dtype=dtype, device=device)

    @feature("create")
    @pytest.mark.parametrize("value", [2**63, 2**64 - 1])
    def test_full_keeps_or_refuses_a_wide_integer(self, value: int, device: Device) -> None:
        """Without a dtype, an integer beyond int64 is exact, or refused; in a floating dtype it is rounded."""
        x, refusal = None, ""
        try:
            x = ds.full(2, value, device=device)
        except ds.ConversionError as error:
            refusal = str(error)
        if x is None:
            assert f"{value} does not fit into int" in refusal
        else:
            assert (ds.dtype_of(x), ds.to_numpy(x).tolist()) == ("uint64", [value, value])
        assert self.same_numbers(ds.full(2, value, dtype="float32", device=device), [float(value)] * 2)
        assert self.same_numbers(ds.full(2, Signals.SIGINT, device=device), [2, 2])

    @feature("create", "complex")
    @pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
    @pytest.mark.parametrize("values", OF_COMPLEX)
    def test_no_form_of_complex_values_becomes_real(self, values: str, dtype: str, device: Device) -> None:
        """Complex values in any form are refused for a dtype without imaginary part, also if ``like`` has it."""
        given = OF_COMPLEX[values](ds.from_numpy(np.array([1 + 2j]), device))
        with pytest.raises(ds.ConversionError):
            ds.asarray(given, dtype=dtype, device=device)
        with pytest.raises(ds.ConversionError):
            ds.asarray(given, like=ds.zeros(1, dtype=dtype, device=device))
        if "tensor" not in values or "several" not in self.adapter.gaps:
            assert ds.dtype_of(ds.asarray(given, dtype="complex64", device=device)) == "complex64"

    @feature("create")
    def test_ranges_that_a_dtype_cannot_represent_are_refused(self, device: Device) -> None:
        """The values of a range fit the dtype, or the range is refused."""
        for start, stop, dtype in ((0, 129, "int8"), (-1, 3, "uint8")):
            with pytest.raises(ds.ConversionError):
                ds.arange(start, stop, dtype=dtype, device=device)
        with pytest.raises(ds.ConversionError):
            ds.linspace(0, 200, 3, dtype="int8", device=device)
        assert ds.to_numpy(ds.arange(128, dtype="int8", device=device)).max() == 127
        assert self.same_numbers(ds.asarray([126.9, -0.5], dtype="int8", device=device), [126, 0])

    @feature("create")
    def test_numbers_cannot_be_shared(self) -> None:
        """``copy=False`` raises for Python numbers, because they have no memory to share."""
        with pytest.raises(ds.CopyNeededError):
            ds.asarray([1, 2], copy=False)

    @feature("create")
    @hook("native_zeros")
    def test_the_frameworks_own_creation_follows_the_scope(self, other_device: Device) -> None:
        """Inside `on`, a tensor that the framework creates natively is on the device, too."""
        with ds.on(other_device):
            x = self.native_zeros()
        assert ds.device_of(x) is other_device

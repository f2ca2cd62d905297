"""Tests of portable draws: random numbers that are the same to the bit on every framework and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.behaviours.generators import DRAWS, values
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

KNOWN: dict[str, tuple[Callable[..., Tensor], str, Any]] = {
    "uniform float32": (
        lambda g: g.uniform(size=4),
        "float32",
        [0.011546730995178223, 0.24154919385910034, 0.11142581701278687, 0.5644146203994751],
    ),
    "uniform float64": (
        lambda g: g.uniform(-1, 1, 3, dtype="float64"),
        "float64",
        [-0.9769064914273369, -0.5169016068745638, -0.7771482889701236],
    ),
    "uniform float16": (
        lambda g: g.uniform(-0.3, 1.7, 3, dtype="float16"),
        "float16",
        [-0.27685546875, 0.18310546875, -0.0771484375],
    ),
    "normal float32": (
        lambda g: g.normal(1, 2, 5),
        "float32",
        [1.0161774158477783, 1.3043842315673828, 0.10638049989938736, 0.6171923875808716, 0.5922030210494995],
    ),
    "normal float64": (
        lambda g: g.normal(size=5, dtype="float64"),
        "float64",
        [0.00808869540411736, 0.15219212994898557, -0.44680975147405044, -0.19140380773799878, -0.2038984787005263],
    ),
    "randint": (lambda g: g.randint(-3, 7, 6), "int64", [-3, 0, -2, 6, 5, 1]),
    "randint int32": (lambda g: g.randint(100, size=4, dtype="int32"), "int32", [1, 30, 14, 72]),
    "randint wide": (
        lambda g: g.randint(-(2**52), 2**52, 3),
        "int64",
        [-4399595710767973, -2327917884107496, -3499964744617467],
    ),
    "randint of all integers": (
        lambda g: g.randint(-(2**63), 2**63 - 1, 3),
        "int64",
        [-9010372015652808549, -4767575826652150350, -7167927796976570759],
    ),
    "randint of all 64 bits": (
        lambda g: g.randint(-(2**63), 2**63, 3, dtype="int64"),
        "int64",
        [-9010372015652808549, -4767575826652150350, -7167927796976570759],
    ),
    "randint of the largest integers": (
        lambda g: g.randint(2**63 - 2, 2**63, 4),
        "int64",
        [2**63 - 2, 2**63 - 2, 2**63 - 2, 2**63 - 1],
    ),
    "permutation": (lambda g: g.permutation(6), "int64", [0, 2, 1, 5, 4, 3]),
    "bernoulli": (lambda g: g.bernoulli(0.5, 6), "bool", [True, True, True, False, False, True]),
    "nothing": (lambda g: g.normal(size=(2, 0)), "float32", [[], []]),
    "one": (lambda g: g.uniform(), "float32", 0.011546730995178223),
}
"""The first draw of ``Generator(0, portable=True)``: these numbers are a promise and never change."""


class PortableDrawTests(Kit):
    """``random.Generator(n, portable=True)`` and ``random.seed(n, portable=True)``."""

    @pytest.fixture(autouse=True)
    def _native_afterwards(self) -> Iterator[None]:
        """Let the framework draw again after the test."""
        yield
        ds.random.seed(0)

    @feature("random", "float64")
    @pytest.mark.parametrize(
        "call", [pytest.param(call, marks=feature("float16")) if "float16" in call else call for call in KNOWN]
    )
    def test_portable_draws_are_known(self, call: str, device: Device) -> None:
        """The numbers of a portable generator are fixed: every framework and device gives these, to the bit."""
        make, dtype, expected = KNOWN[call]
        x = make(ds.random.Generator(0, device, portable=True))
        assert self.adapter.is_tensor(type(x))
        assert (ds.dtype_of(x), ds.device_of(x)) == (dtype, device)
        assert ds.to_numpy(x).tolist() == expected

    @feature("random", "float64")
    @pytest.mark.parametrize("end", [2**64 - 1, 2**64])
    def test_portable_unsigned_draws_have_64_bits(self, end: int, device: Device) -> None:
        """uint64 draws include every integer of the dtype; a framework without the dtype refuses it."""
        generator = ds.random.Generator(0, device, portable=True)
        try:
            x = generator.randint(end, size=3, dtype="uint64")
        except ds.ConversionError:
            with pytest.raises(ds.ConversionError):
                ds.zeros(2, dtype="uint64", device=device)
            return
        assert (ds.dtype_of(x), ds.device_of(x)) == ("uint64", device)
        assert ds.to_numpy(x).tolist() == [213000021201967259, 4455796210202625458, 2055444239878205049]
        largest = ds.to_numpy(generator.randint(2**64 - 1, 2**64, (), dtype="uint64"))
        assert int(largest) == 2**64 - 1

    @feature("random", "bfloat16")
    @pytest.mark.parametrize("call", ["uniform", "normal"])
    def test_portable_bfloat16_is_rounded_from_float32(self, call: str, device: Device) -> None:
        """bfloat16 is the float32 draw, rounded to the nearest; draws stay below their bound."""
        one, same = (ds.random.Generator(3, device, portable=True) for _ in range(2))
        x = getattr(one, call)(size=500, dtype="bfloat16")
        assert (ds.dtype_of(x), ds.device_of(x)) == ("bfloat16", device)
        narrow = ds.to_numpy(ds.asarray(x, dtype="float32"))
        wide = ds.to_numpy(getattr(same, call)(size=500))
        assert np.abs(narrow - wide).max() <= np.abs(wide).max() * 2**-8
        assert not (narrow.view("uint32") & 0xFFFF).any()
        assert call == "normal" or narrow.max() < 1

    @feature("random", "bfloat16")
    def test_portable_bfloat16_may_be_subnormal(self, device: Device) -> None:
        """Draws below the smallest normal number are rounded from NumPy's, and are not zeros."""
        x = ds.random.Generator(5, device, portable=True).normal(0, 1e-39, 5, dtype="bfloat16")
        expected = [-1.3775e-39, -9.1835e-40, -6.4285e-40, 2.7551e-40, -3.6734e-40]
        np.testing.assert_allclose(ds.to_numpy(x).astype("float64"), expected, rtol=1e-3)

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    def test_a_portable_seed_governs_the_functions(self, call: str, device: Device) -> None:
        """After a portable seed, `devshim.random` draws as that generator; a plain seed returns to the framework."""
        make, generator = DRAWS[call], ds.random.Generator(6, device, portable=True)
        ds.random.seed(6)
        native = values(make(ds.random, device=device))
        expected = [values(make(generator)) for _ in range(2)]
        ds.random.seed(6, portable=True)
        assert [values(make(ds.random, device=device)) for _ in range(2)] == expected
        ds.random.seed(6, portable=True)
        assert in_thread(lambda: self._drawn_in_thread(make, device)) == expected[0]
        ds.random.seed(6)
        assert values(make(ds.random, device=device)) == native

    def _drawn_in_thread(self, make: Callable[..., Tensor], device: Device) -> tuple[str, bytes]:
        return values(make(ds.random, device=device))

    @feature("random")
    def test_a_portable_seed_has_64_bits(self, device: Device) -> None:
        """A portable seed is that of a generator; the framework's own generators take its lower 32 bits."""
        for n in (2**32 + 7, 2**64 - 1):
            ds.random.seed(n, portable=True)
            found = ds.random.normal(size=3, device=device)
            assert values(found) == values(ds.random.Generator(n, device, portable=True).normal(size=3))
        with pytest.raises(ds.ArgumentError, match="2\\*\\*64"):
            ds.random.seed(2**64, portable=True)

    @feature("random")
    def test_a_portable_seed_restarts_the_framework_too(self, device: Device) -> None:
        """The framework's own generators restart with the same seed, so that its layers repeat, too."""
        drawn = []
        for portable in (False, True):
            ds.random.seed(12, portable=portable)
            drawn.append(values(self.adapter.normal(0, 1, (5,), None, device)))
        assert drawn[0] == drawn[1]

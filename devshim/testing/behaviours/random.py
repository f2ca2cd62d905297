"""Tests of random tensors: drawn on the device, reproducible with one seed, from the named distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import FEATURE_OF, feature

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

DRAWS = ["uniform", "normal"]
FLOATS: list[Any] = [
    "float32",
    *(pytest.param(name, marks=feature(FEATURE_OF[name])) for name in ("float16", "bfloat16", "float64")),
]
NONSENSE: dict[str, Callable[[], object]] = {
    "bounds the wrong way round": lambda: ds.random.uniform(2, 1),
    "a negative deviation": lambda: ds.random.normal(0, -1),
    "a negative length": lambda: ds.random.uniform(size=-1),
    "a bound of text": lambda: ds.random.uniform("0"),  # type: ignore[arg-type]
    "NaN as a bound": lambda: ds.random.uniform(0, float("nan")),
    "a mean too large for a float": lambda: ds.random.normal(10**400, 1),
    "a deviation too large for a float": lambda: ds.random.normal(0, 10**400),
    "a bound too large for a float": lambda: ds.random.uniform(0, 10**400),
    "bounds too far apart": lambda: ds.random.uniform(-1e308, 1e308),
    "bounds too far apart for their dtype": lambda: ds.random.uniform(-3e38, 3e38, dtype="float32"),
    "a negative seed": lambda: ds.random.seed(-1),
    "a seed too large": lambda: ds.random.seed(2**32),
    "a float as a seed": lambda: ds.random.seed(1.5),  # type: ignore[arg-type]
}


def draw(call: str, *args: Any, **kwargs: Any) -> Any:
    """Draw with the function of this name."""
    return getattr(ds.random, call)(*args, **kwargs)


class RandomTests(Kit):
    """`random.uniform`, `random.normal`, `random.seed`."""

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    @pytest.mark.parametrize("size", [None, 3, (), (0,), (2, 3)], ids=repr)
    def test_random_tensors_are_on_the_requested_device(self, call: str, size: Any, device: Device) -> None:
        """A draw has the requested shape and device, and the framework's default float dtype."""
        x = draw(call, size=size, device=device)
        assert ds.device_of(x) is device
        assert self.adapter.shape(x) == np.empty(() if size is None else size).shape
        assert self.adapter.dtype_name(x) == self.adapter.dtype_name(ds.zeros(1))

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    def test_random_tensors_are_on_the_host_by_default(self, call: str) -> None:
        """Without ``device=``, and outside `on`, draws are on the CPU."""
        assert ds.device_of(draw(call, size=3)) is ds.cpu()

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    def test_random_tensors_follow_the_scope(self, call: str, other_device: Device) -> None:
        """Inside `on`, draws are on its device."""
        with ds.on(other_device):
            assert ds.device_of(draw(call, size=3)) is other_device

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    def test_one_seed_repeats_random_tensors(self, call: str, device: Device) -> None:
        """A seed gives the same draws again on the same device.

        Another seed, and the next draw, give different ones.
        """

        def two() -> list[bytes]:
            return [ds.to_numpy(draw(call, size=50, device=device)).tobytes() for _ in range(2)]

        ds.random.seed(11)
        first = two()
        ds.random.seed(np.int64(11))  # type: ignore[arg-type]
        again = two()
        ds.random.seed(12)
        other = two()
        assert first == again
        assert first[0] != first[1]
        assert not set(first) & set(other)

    @feature("random")
    def test_uniform_stays_within_its_bounds(self, device: Device) -> None:
        """Uniform draws fill ``[low, high)``."""
        ds.random.seed(3)
        a = ds.to_numpy(ds.random.uniform(-2, 5, 5000, device=device)).astype("float64")
        assert a.min() >= -2
        assert a.max() < 5
        assert abs(a.mean() - 1.5) < 0.15
        assert abs(a.std() - 7 / 12**0.5) < 0.15

    @feature("random")
    def test_normal_has_the_requested_moments(self, device: Device) -> None:
        """Normal draws have the requested mean and deviation."""
        ds.random.seed(3)
        a = ds.to_numpy(ds.random.normal(4, 2, (50, 100), device=device)).astype("float64")
        assert abs(a.mean() - 4) < 0.15
        assert abs(a.std() - 2) < 0.15

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    @pytest.mark.parametrize(
        "dtype",
        [
            pytest.param("float16", marks=feature("float16")),
            "float32",
            pytest.param("float64", marks=feature("float64")),
        ],
    )
    def test_random_tensors_take_a_dtype(self, call: str, dtype: str, device: Device) -> None:
        """A draw has the requested floating dtype."""
        x = draw(call, size=4, dtype=dtype, device=device)
        assert self.adapter.dtype_name(x) == dtype
        assert ds.device_of(x) is device

    @feature("random")
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_uniform_excludes_its_upper_bound(self, dtype: str, device: Device) -> None:
        """No draw rounds up to ``high``, also between neighbours of the dtype, and where a fast path draws."""
        step = 2.0 ** -{"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
        own = ds.dtype_of(ds.random.uniform(size=2)) == dtype
        for low, high in ((1, 1 + step), (1, 1 + 2 * step), (-2, -2 + 4 * step), (0.5, 1), (0, 7)):
            draws = [ds.random.uniform(low, high, 4096, dtype=dtype, device=device)]
            draws += [ds.random.uniform(low, high, 4096)] if own else []
            for values in map(self._read, draws):
                assert values.min() >= low
                assert values.max() < high
        assert (self._read(ds.random.uniform(3, 3, 8, dtype=dtype, device=device)) == 3).all()

    def _read(self, x: Tensor) -> np.ndarray[Any, Any]:
        """Return float64 numbers; bfloat16 is read without ml_dtypes."""
        x = ds.asarray(x, dtype="float32") if self.adapter.dtype_name(x) == "bfloat16" else x
        return ds.to_numpy(x).astype("float64")

    @feature("random")
    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_random_refuses_invalid_parameters(self, nonsense: str) -> None:
        """Invalid parameters raise `ArgumentError`."""
        with pytest.raises(ds.ArgumentError):
            NONSENSE[nonsense]()

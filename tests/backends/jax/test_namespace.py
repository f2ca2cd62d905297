"""The namespace of JAX: creation in compiled functions, 64 bits of NumPy's arrays, and sharded arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import devshim as ds


@pytest.fixture(autouse=True)
def _cards(three_cards: object) -> None:
    pass


Make = Callable[[Any, Any], Any]
SINGLES = np.float32([1, 2, 3])

MADE: dict[str, tuple[Make, Any]] = {
    "an array": (lambda xp, x: xp.asarray(SINGLES), SINGLES),
    "an array of integers": (lambda xp, x: xp.asarray(np.int32([1, 2, 3]), dtype=xp.float32), SINGLES),
    "an array with a dtype of jax.numpy": (lambda xp, x: xp.asarray(SINGLES, dtype=jnp.int32), np.int32([1, 2, 3])),
    "an array in another byte order": (lambda xp, x: xp.asarray(SINGLES.astype(">f4")), SINGLES),
    "an array of doubles": (lambda xp, x: xp.asarray(np.float64([0.1, 0.2, 0.3])), np.float64([0.1, 0.2, 0.3])),
    "an array of large integers": (lambda xp, x: xp.asarray(np.array([2**40] * 3)), np.array([2**40] * 3)),
    "a NumPy number": (lambda xp, x: xp.asarray(np.float32(2)), np.float32(2)),
    "a list of NumPy numbers": (lambda xp, x: xp.asarray([*SINGLES]), SINGLES),
    "a copy": (lambda xp, x: xp.asarray(x, copy=True), np.zeros(3, "float32")),
    "a copy of another dtype": (lambda xp, x: xp.asarray(x, dtype=xp.int32, copy=True), np.zeros(3, "int32")),
    "an array like x": (lambda xp, x: ds.asarray(SINGLES, like=x), SINGLES),
    "an array like x, of a dtype": (lambda xp, x: ds.asarray(SINGLES, like=x, dtype="int32"), np.int32([1, 2, 3])),
    "fftfreq": (lambda xp, x: xp.fft.fftfreq(3), np.fft.fftfreq(3).astype("float32")),
    "fftfreq of doubles": (lambda xp, x: xp.fft.fftfreq(3, dtype=jnp.float64), np.fft.fftfreq(3)),
    "rfftfreq": (lambda xp, x: xp.fft.rfftfreq(5, d=0.5), np.fft.rfftfreq(5, 0.5).astype("float32")),
    "full": (lambda xp, x: xp.full(3, 2, dtype=jnp.float32), np.full(3, 2, "float32")),
}
"""Calls in compiled functions that create arrays, and the expected values."""


@pytest.mark.parametrize("call", MADE)
def test_compiled_functions_create_on_their_device(call: str) -> None:
    make, expected = MADE[call]
    x = ds.zeros(3, dtype="float32", device="gpu:1")

    def create(x: Any) -> tuple[Any, Any]:
        made = make(ds.namespace(x), x)
        return made, x + made.astype("float32")

    made, added = ds.run(jax.jit(create), x)
    assert ds.device_of(made) is ds.device_of(added) is ds.gpu(1)
    assert made.dtype == expected.dtype
    assert np.array_equal(np.asarray(made), expected)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda xp: xp.asarray(SINGLES, device="gpu:1"), "ds.asarray"),
        (lambda xp: xp.fft.fftfreq(3, device="gpu:1"), "ds.fft.fftfreq"),
    ],
)
def test_a_device_in_a_compiled_function_is_refused(call: Callable[[Any], Any], name: str) -> None:
    """The error names the call that the user wrote."""
    with pytest.raises(ds.TracingError, match=f"{name} cannot work"):
        jax.jit(lambda x: x + call(ds.namespace(x)))(ds.zeros(3, dtype="float32", device="gpu:1"))


LARGE = np.array([2**40, 1])
WIDE: dict[str, tuple[Make, Any]] = {
    "sum": (lambda xp, x: xp.sum(LARGE), 2**40 + 1),
    "add to JAX's": (lambda xp, x: xp.add(x, LARGE), LARGE),
    "concat": (lambda xp, x: xp.concat([LARGE, LARGE]), np.concatenate([LARGE, LARGE])),
    "a number that does not fit": (lambda xp, x: xp.add(x, np.int64(2**40)), [2**40, 2**40]),
    "floats": (lambda xp, x: xp.multiply(np.array([1e300, 0.1]), 1), [1e300, 0.1]),
    "a float that does not fit": (lambda xp, x: xp.add(np.float64(1e300), xp.astype(x, xp.float32)), [1e300, 1e300]),
    "a dtype of jax.numpy": (lambda xp, x: xp.sum(xp.astype(x, xp.float32), dtype=jnp.float64), 0.0),
}
"""Calls whose results have 64 bits, and the values; ``x`` has two zeros."""


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("call", WIDE)
def test_numpy_arguments_keep_64_bits(call: str, compiled: bool) -> None:
    compute, expected = WIDE[call]
    x = ds.zeros(2, dtype="int32", device="gpu:1")
    fn = lambda x: compute(ds.namespace(x), x)  # noqa: E731
    y = (jax.jit(fn) if compiled else fn)(x)
    assert y.dtype.itemsize == 8
    assert np.array_equal(np.asarray(y), expected)


def test_numpy_numbers_take_the_width_of_the_arrays() -> None:
    """As Python numbers do."""
    x = ds.ones(2, dtype="float32", device="gpu:1")
    xp = ds.namespace(x)
    for y in (xp.add(x, np.float64(0.5)), xp.multiply(x, np.int64(3)), xp.sum(x, axis=np.int64(0))):
        assert y.dtype == jnp.float32
        assert ds.device_of(y) is ds.gpu(1)
    assert xp.sum(xp.astype(x, xp.int32), axis=np.int64(0)).dtype == jnp.int32


# ---------------------------------------------------------------------- sharded arrays
def sharded(values: Any) -> Any:
    mesh = Mesh(np.array([ds.gpu(0).native(), ds.gpu(1).native()]), ("x",))
    return jax.device_put(values, NamedSharding(mesh, P("x")))


@pytest.mark.parametrize("default", ["cpu", "gpu:1"])
def test_functions_compute_on_the_parts_of_sharded_arrays(default: str) -> None:
    x, values = sharded(jnp.arange(8.0)), np.arange(8, dtype="float32")
    xp, both = ds.namespace(x), {ds.gpu(0).native(), ds.gpu(1).native()}
    with ds.on(default):
        for found, expected in (
            (xp.sum(x), values.sum()),
            (xp.add(x, x), values * 2),
            (xp.multiply(x, 3), values * 3),
            (xp.reshape(xp.tanh(x), (2, 4)), np.tanh(values).reshape(2, 4)),
            (xp.concat([x, x]), np.concatenate([values, values])),
        ):
            assert found.devices() == both
            assert np.allclose(np.asarray(found), expected)


def test_functions_keep_64_bits_of_sharded_arrays() -> None:
    x = sharded(ds.from_numpy(LARGE))
    assert int(ds.namespace(x).sum(x)) == 2**40 + 1


def test_sharded_arrays_are_not_mixed_with_others() -> None:
    x = sharded(jnp.arange(8.0))
    with pytest.raises(ds.DeviceMismatchError):
        ds.namespace(x).add(x, ds.ones(8, dtype="float32", device="gpu:0"))

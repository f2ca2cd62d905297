"""Tests of the fast paths of `ds.convert` on JAX: what they must not take after any history, and must detect."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devshim_backends._jax import dlpack as interop

import devshim as ds
from devshim.interop import convert
from devshim.testing.values import at_offset

PLAIN = at_offset(np.arange(6, dtype="float32").reshape(2, 3), 0)


@pytest.fixture(autouse=True)
def _fast_paths_are_known(two_cards):
    """Make sure that every fast path is known before the test."""
    for _ in range(2):
        ds.convert(ds.convert(PLAIN, "jax"), "numpy")
    assert len({*convert._FAST_PATHS} & {(np.ndarray, "jax"), (type(jnp.ones(1)), "numpy")}) == 2


def test_writes_to_shared_memory_are_visible_and_views_are_read_only(fast_path_only):
    a = at_offset(PLAIN, 0)
    x = ds.convert(a, "jax", copy=False)
    a[0, 0] = 7
    assert float(x[0, 0]) == 7
    b = ds.convert(x, "numpy", copy=False)
    assert b.ctypes.data == a.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        b[...] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        b.flags.writeable = True


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
@pytest.mark.parametrize("x64", [False, True])
def test_64_bits_stay_64_bits(dtype, x64, fast_path_only):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        a = at_offset(np.array([2**40 + 1, 3]).astype(dtype), 0)
        x = ds.convert(a, "jax", copy=False)
        assert x.dtype == dtype
        assert not x.weak_type
        assert np.array_equal(ds.convert(x, "numpy", copy=False), a)
        assert jax.config.jax_enable_x64 is x64
    finally:
        jax.config.update("jax_enable_x64", before)


def test_a_view_outlives_a_deleted_or_donated_array(fast_path_only):
    x, y = jnp.arange(1000.0) + 1, jnp.arange(1000.0) + 1
    a, b = ds.convert(x, "numpy"), ds.convert(y, "numpy")
    x.delete()
    jax.jit(lambda v: v * 2, donate_argnums=0)(y).block_until_ready()
    gc.collect()
    [jnp.full(1000, -1.0).block_until_ready() for _ in range(3)]
    assert a.tolist() == b.tolist() == list(range(1, 1001))


def test_a_released_view_does_not_prevent_donation():
    """``np.asarray(x)`` would prevent that, because it stores the view in ``x``."""
    x = jnp.arange(1000.0) + 1
    ds.convert(x, "numpy")
    assert x._npy_value is None


@pytest.mark.filterwarnings("ignore:.*donated")
@pytest.mark.parametrize("copy", [None, False])
def test_a_deleted_array_is_refused(copy):
    x = jnp.ones(3)
    x.delete()
    with pytest.raises((ds.ConversionError, ds.CopyNeededError), match="deleted"):
        ds.convert(x, "numpy", copy=copy)


def test_converting_waits_for_pending_work(fast_path_only):
    x = jnp.ones((600, 600))
    y = jax.jit(lambda v: v @ v @ v / 360000)(x)
    assert (ds.convert(y, "numpy") == 1).all()


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float16", "int4"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1, 3), (3,)], ids=str)
def test_odd_dtypes_and_shapes_keep_their_values(dtype, shape):
    if not hasattr(jnp, dtype + ("_" if dtype == "bool" else "")):
        pytest.skip(f"hardware: this JAX has no {dtype}")
    x = jnp.ones(shape, dtype)
    y = ds.convert(x, "numpy")
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert (y == 1).all()


def test_a_transposed_array_keeps_its_values():
    x = jnp.asarray(np.arange(6.0, dtype="f4").reshape(2, 3)).T
    assert np.array_equal(ds.convert(x, "numpy"), np.arange(6.0).reshape(2, 3).T)


def test_converting_is_refused_in_a_compiled_function():
    def inside(v):
        with pytest.raises(ds.TracingError):
            ds.convert(v, "numpy")
        with pytest.raises(ds.TracingError):
            ds.convert(PLAIN, "jax", copy=False)
        return v

    jax.jit(inside)(jnp.ones(3))


def test_sharded_and_simulated_arrays_are_not_viewed():
    x = ds.asarray([1.0, 2.0], device=1)
    assert interop._fast_view(x) is None
    with pytest.raises(ds.CopyNeededError):
        ds.convert(x, "numpy", "cpu", copy=False)
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), "i")
    spread = jax.device_put(jnp.zeros(2), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    with pytest.raises(ds.UnsupportedError):
        ds.convert(spread, "numpy")


def test_an_unfaithful_import_takes_the_slow_path(monkeypatch):
    """If dtype, shape, device or memory differ from the exported array, the slow path has the right answer."""
    true = interop._import_capsule
    elsewhere = jax.devices("cpu")[-1]
    changes = [
        lambda x: x.astype("float16"),
        lambda x: x.reshape(-1),
        lambda x: x + 0,
        lambda x: jax.device_put(x, elsewhere),
    ]
    for change in changes:
        calls = []
        monkeypatch.setattr(
            interop, "_import_capsule", lambda *a, change=change, c=calls: c.append(1) or change(true(*a))
        )
        x = ds.convert(PLAIN, "jax", copy=False)
        assert calls
        assert (x.dtype, x.shape, x.unsafe_buffer_pointer()) == ("float32", (2, 3), PLAIN.ctypes.data)
        assert ds.device_of(x) is ds.cpu()

"""Tests of the text of the error for JAX arrays on several simulated devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import devshim as ds


@pytest.fixture(autouse=True)
def _two(current):
    ds.simulate(2)
    yield
    ds.simulate(2)


def native(gpu):
    return ds.gpu(gpu).native("jax")


def on_gpu(gpu):
    """Return four float32 ones on a GPU."""
    return jax.device_put(jnp.ones(4), native(gpu))


def on_mesh(*devices):
    """Return four float32 ones that are divided over devices of JAX."""
    return jax.device_put(jnp.ones(4), NamedSharding(Mesh(np.array(devices), "d"), PartitionSpec("d")))


def test_the_error_for_mixed_devices_names_both_in_a_gradient():
    """JAX can name one argument only, and repeats its device for the other."""
    x, y = on_gpu(0), on_gpu(1)
    with pytest.raises(ds.DeviceMismatchError, match=r"on gpu:1 \(simulated\) and another argument on gpu:0 \(sim"):
        ds.value_and_grad(lambda x: jnp.sum(x * y))(x)


@pytest.mark.parametrize("differentiated", [False, True])
def test_the_error_for_mixed_devices_names_those_of_a_mesh(differentiated):
    x, y = on_mesh(native(0), native(1)), on_gpu(1)
    call = jax.grad(lambda x: jnp.sum(x * y)) if differentiated else lambda x: x * y
    with pytest.raises(ds.DeviceMismatchError, match=r"on gpu:1 \(simulated\)") as caught:
        call(x)
    assert "on a mesh of gpu:0 and gpu:1 (simulated)" in str(caught.value)
    assert caught.value.hint == "move one of them to the other's devices: jax.device_put(x, y.sharding)"


def test_the_error_for_mixed_devices_names_a_mesh_in_the_words_of_native_names():
    with ds.simulate(2, native_names=True), pytest.raises(ds.DeviceMismatchError) as caught:
        on_mesh(*jax.devices("gpu")) + jax.device_put(jnp.ones(4), jax.devices("cpu")[0])
    first, second = str(caught.value).partition("\n\n")[0].splitlines()
    assert "device ids [0, 1] on platform GPU and argument y of add" in first
    assert second == "the arrays are on a mesh of gpu:0 and gpu:1 (simulated) and on cpu"

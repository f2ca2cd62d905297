"""Tests of a CPU device of JAX that was a simulated GPU, after the last array on the removed GPU has died."""

from __future__ import annotations

import numpy as np
import pytest
from removed_gpus import forgotten_gpu

import devshim as ds

jax = ds.framework("jax")
pytestmark = pytest.mark.usefixtures("two_cards")


def with_default(make):
    """Return a function that calls another one with a default device."""

    def call(native):
        with jax.default_device(native):
            return make()

    return call


MAKERS = {
    "device_put": lambda native: jax.device_put(np.ones(3, "float32"), native),
    "device_put of a list": lambda native: jax.device_put([np.ones(3, "float32"), np.ones(2)], native)[0],
    "operator": with_default(lambda: jax.numpy.zeros(3) + 1),
    "jit": with_default(jax.jit(lambda: jax.numpy.ones(3) * 2)),
}
"""Name -> a function that makes an array on a native device."""


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("in_cycle", [False, True])
@pytest.mark.parametrize("shown", [0, 1])
def test_a_cpu_is_the_host_again_when_the_last_array_on_the_removed_gpu_has_died(shown, in_cycle, make):
    """A new array may then be on the CPU, even if the last array has died in a reference cycle."""
    native = ds.gpu(shown).native()
    with forgotten_gpu(shown, in_cycle, lambda: MAKERS[make](native)):
        for _ in range(3):  # also on JAX's fast path
            x = MAKERS[make](native)
        assert ds.device_of(x) is ds.cpu()
        assert ds.device(native) is ds.cpu()
        assert ds.to_numpy(x + x).shape == (3,)

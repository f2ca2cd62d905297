"""Tests of a logical CPU of TensorFlow that was a simulated GPU, after the last tensor on the removed GPU has died.

They run in a process without models: Keras keeps functions that it traced, and with them variables on simulated GPUs.
"""

from __future__ import annotations

import pytest
from removed_gpus import forgotten_gpu

import devshim as ds

tf = ds.framework("tensorflow")
pytestmark = pytest.mark.usefixtures("two_cards")

MAKERS = {
    "operator": lambda: tf.ones(3) + 1,
    "variable": lambda: tf.Variable([1.0, 2.0, 3.0]).assign_add([1.0, 1.0, 1.0]).read_value(),
    "function": lambda: tf.function(lambda: tf.ones(3) * 2)() + 1,
    "read": lambda: tf.constant(tf.ones(3).numpy()),
}
"""Name -> a function that makes a tensor on the current device."""


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("in_cycle", [False, True])
@pytest.mark.parametrize("shown", [0, 1])
def test_a_cpu_is_the_host_again_when_the_last_tensor_on_the_removed_gpu_has_died(shown, in_cycle, make):
    """A new tensor may then be on the CPU, even if the last tensor has died in a reference cycle."""
    with tf.device(f"CPU:{shown + 1}"), forgotten_gpu(shown, in_cycle, MAKERS[make]):
        x = MAKERS[make]()
        assert ds.device_of(x) is ds.cpu()
        assert ds.to_numpy(x + x).shape == (3,)

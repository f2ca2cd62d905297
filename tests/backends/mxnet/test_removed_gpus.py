"""Tests of a CPU of MXNet that was a simulated GPU, after the last array on the removed GPU has died."""

from __future__ import annotations

import numpy as np
import pytest
from removed_gpus import forgotten_gpu

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("two_cards", "old_calls")


def gradient(native):
    """Return the gradient of an array on a device."""
    a = mx.nd.ones(3, ctx=native)
    a.attach_grad()
    with mx.autograd.record():
        b = (a * a).sum()
    b.backward()
    return a.grad


MAKERS = {
    "array": lambda native: mx.nd.array(np.ones(3), ctx=native),
    "operator": lambda native: mx.nd.zeros(3, ctx=native) + 1,
    "copyto": lambda native: mx.nd.ones(3).copyto(native),
    "gradient": gradient,
}
"""Name -> a function that makes an array on a native device."""


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("in_cycle", [False, True])
@pytest.mark.parametrize("shown", [0, 1])
def test_a_cpu_is_the_host_again_when_the_last_array_on_the_removed_gpu_has_died(shown, in_cycle, make):
    """A new array may then be on the CPU, even if the last array has died in a reference cycle."""
    native = mx.cpu(shown + 1)
    with forgotten_gpu(shown, in_cycle, lambda: MAKERS[make](native)):
        x = MAKERS[make](native)
        assert ds.device_of(x) is ds.cpu()
        assert ds.device(native) is ds.cpu()
        assert ds.to_numpy(x + mx.nd.ones(3)).shape == (3,)  # not refused as an operator with two devices


def test_the_last_simulation_leaves_nothing_installed():
    """After the last simulation, the death of the last array also ends what was installed for it."""
    install = mx.nd.NDArray.__init__
    left = ds.ones(3, device="gpu:0")
    with ds.simulate(0):
        assert mx.nd.NDArray.__init__ is install
        del left
        assert ds.device(mx.cpu(1)) is ds.cpu()
        assert mx.nd.NDArray.__init__ is not install


def test_the_gpus_that_are_shown_keep_their_numbers():
    """The peak, the limit and the faults of GPUs that remain are not reset when a removed GPU is forgotten."""
    left = ds.ones(3, device="gpu:1")
    with ds.simulate(1, memory="1MiB", faults=[ds.Fault("gpu:0", "copy", at=2)]):
        x = ds.ones(1024, device="gpu:0")
        del x
        before = ds.memory("gpu:0")
        ds.place(ds.ones(3), "gpu:0")
        del left
        assert ds.device(mx.cpu(2)) is ds.cpu()
        assert ds.memory("gpu:0") == before
        with pytest.raises(ds.DeviceFailedError):
            ds.place(ds.ones(3), "gpu:0")

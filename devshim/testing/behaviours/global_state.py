"""Tests that no call changes global state: each public call separately, so that a failure names the call."""

from __future__ import annotations

import os
import random
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.behaviours.explain import CALLS, run_calls
from devshim.testing.values import hook

if TYPE_CHECKING:
    from devshim.devices.device import Device


DRAWING = {"bernoulli", "normal", "permutation", "randint", "seed", "uniform"}
"""The calls that use or restart the framework's own generators, which may be NumPy's."""


def python_state() -> object:
    """Return the state of Python and NumPy that a library must not change."""
    numpy_drawn = np.random.get_state(legacy=True)
    drawn = (random.getstate(), numpy_drawn[1].tobytes(), numpy_drawn[2])  # type: ignore[index]
    return dict(os.environ), os.getcwd(), np.geterr(), list(warnings.filters), drawn


class GlobalStateTests(Kit):
    """Global state before and after a call."""

    @pytest.mark.parametrize("call", run_calls(sorted(set(CALLS) - DRAWING - {"set_device"})))
    def test_a_call_does_not_change_global_state(self, call: str, device: Device) -> None:
        """A call changes no environment, working folder, setting or generator of Python, NumPy or the framework."""
        x = self.tensor()
        framework = self.global_state()
        CALLS[call](x, device)  # the first call may make a framework load more of itself, and warn
        before = python_state()
        CALLS[call](x, device)
        assert python_state() == before
        assert self.global_state() == framework

    @hook("global_state")
    def test_a_default_in_another_thread_does_not_reach_this_one(self, device: Device) -> None:
        """`set_device` and `on` in another thread change nothing that the framework shares among threads."""
        before = self.global_state()

        def body() -> None:
            ds.set_device(device)
            assert ds.device_of(ds.zeros(1)) is device

        in_thread(body)
        assert self.global_state() == before

    @hook("global_state")
    def test_an_error_does_not_change_global_state(self, device: Device) -> None:
        """A refused call changes nothing, even inside a scope."""
        before = self.global_state()
        with pytest.raises(ds.DeviceNotFoundError), ds.on(device):
            ds.zeros(2, device="gpu:99")
        with pytest.raises(ds.ConversionError), ds.on(device):
            ds.asarray(["text"])
        assert self.global_state() == before

"""Tests of `timer`: the time of a block, for each device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device


class TimerTests(Kit):
    """`timer` waits for the device at both ends of its block."""

    @feature("place")
    def test_a_timer_measures_the_block(self, device: Device) -> None:
        """`timer` gives the seconds of a block, even after an exception, and can be used again."""
        timer = ds.timer(device)
        assert np.isnan(timer.seconds)
        x = self.tensor(device, (4, 4))
        with timer as entered:
            ds.run(self.matmul, x, x)
            time.sleep(0.02)
        assert entered is timer
        assert type(timer.seconds) is float
        assert 0.005 < timer.seconds < 10
        with pytest.raises(KeyError), timer:
            raise KeyError
        assert 0 <= timer.seconds < 0.02

    @feature("place")
    def test_a_timer_nests(self, device: Device) -> None:
        """An outer block takes at least as long as the block in it."""
        with ds.timer(device) as outer, ds.timer("cpu") as inner:
            time.sleep(0.01)
        assert outer.seconds >= inner.seconds * 0.9 > 0.005

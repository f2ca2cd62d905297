"""Simulated GPUs: logical CPUs, of which ``CPU:0`` stays the host.

TensorFlow partitions its CPU once, when it starts; so room is made for at least eight cards, and the first N are
shown.  N can then change at any time, up to that room.  A logical CPU counts no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from devshim import _refusals
from devshim_backends._tensorflow.devices import PLACES
from devshim_backends._tensorflow.runtime import TensorflowRuntime

ROOM = 8
"""Cards to make room for, at least."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim._cards import Fault


class TensorflowSimulation(TensorflowRuntime):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus and memory is not None:
            raise _refusals.unsupported(self, "simulate_memory")
        if gpus:
            if not self.simulated and (real := self.count("gpu")):
                raise _refusals.real_cards(self, real)
            self._make_room(gpus)
        self.simulated = gpus
        PLACES.clear()  # a logical CPU's name means another device now

    def _make_room(self, gpus: int) -> None:
        (cpu,) = tf.config.list_physical_devices("CPU")
        room = len(tf.config.get_logical_device_configuration(cpu) or (None,)) - 1
        if room >= gpus:
            return
        if self.started():
            have = f"it has started with room for {room}" if room > 0 else "it has already started its devices"
            raise _refusals.simulated_too_late(
                self, f"{have}", f"move ds.simulate(gpus={gpus}) to the top of the program, before the first tensor"
            )
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(max(ROOM, gpus) + 1)]
        tf.config.set_logical_device_configuration(cpu, logical)

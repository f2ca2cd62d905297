"""Simulated GPUs for TensorFlow: its logical CPUs, except ``CPU:0``, which stays the host.

Requirements of this module:

* TensorFlow splits its CPU only once, when it starts. So devshim makes at least eight logical CPUs for GPUs, and shows
  the first N. N can then change at any time, up to the number that was made.
* A logical CPU does not count memory, and TensorFlow silently copies inputs from other devices. The functions in
  `hooks` count and refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf
from tensorflow.python.eager import context

from devshim.errors import messages
from devshim_backends._tensorflow.devices import DEVICE_BY_NAME
from devshim_backends._tensorflow.failures import FullDeviceError
from devshim_backends._tensorflow.internals.locations import TensorflowLocations
from devshim_backends._tensorflow.runtime import TensorflowRuntime
from devshim_backends._tensorflow.simulation import device_rules, hooks
from devshim_backends._tensorflow.simulation.storage import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device
    from devshim.errors import OutOfMemoryError
    from devshim.simulation.memory import Fault

_RESERVED = 8
"""The least number of simulated GPUs for which logical CPUs are reserved."""

_CONFIGURE = context.Context.set_logical_device_configuration


class TensorflowSimulation(TensorflowRuntime, TensorflowLocations):
    """The mixin for simulation."""

    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    physical_gpus: int = 0
    """The number of GPUs before a program hides or divides some with ``tf.config`` (see `native_names`)."""

    _is_installed: bool = False
    """True while the hooks are installed: also for native names while all GPUs are hidden."""
    _request: tuple[int | None, Sequence[Fault]] = (None, ())
    program_policy: Any = None
    """TensorFlow's device policy from before GPUs were simulated."""

    def data_scope(self, device: Device) -> AbstractContextManager[object]:
        scope = self.scope(device)
        return device_rules.DataScope(scope) if self.simulated and not self.tracing() else scope

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        before, now = self._is_installed, bool(gpus) or self.native_names_requested
        if now and not self.simulated and (real := self.count("gpu")):
            raise messages.real_gpus_present(self, real)
        if gpus:
            self._reserve(gpus)
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.simulated, self._is_installed = gpus, now
        self.physical_gpus, self.gpus_hidden, self._request = gpus, False, (memory, faults)
        DEVICE_BY_NAME.clear()  # a logical CPU's name now means another device
        for cached in (context.context().ones_rank_cache(), context.context().zeros_cache()):
            cached.flush()  # shapes and zeros that tapes use again may be on a GPU that is removed now
        if now:
            hooks.start(self)
        elif before:
            hooks.stop()
        self._set_policy(before, now)

    def forget_removed_devices(self) -> None:
        DEVICE_BY_NAME.clear()

    @property
    def operators_follow_tensors(self) -> bool:  # type: ignore[override]  # a constant elsewhere
        return bool(self.simulated) and not self.native_names

    def set_native_names(self, named: bool) -> None:
        from devshim_backends._tensorflow.simulation.native_names import switch

        if named:
            switch.install(self)
        else:
            switch.uninstall()

    def divide(self, limits: Sequence[int | None]) -> None:
        """Simulate a GPU for each of these limits in bytes, of the same physical GPUs, before TensorFlow computes."""
        physical, (memory, faults) = self.physical_gpus, self._request
        self.simulated_or_removed = max(len(limits), 1)
        self.simulate(self.simulated_or_removed, memory, faults)
        self.physical_gpus, self.gpus_hidden = physical, not limits
        for index, limit in enumerate(limits):
            if limit is not None:
                SIMULATED[index].limit = limit if memory is None else min(limit, memory)

    def _set_policy(self, before: bool, now: bool) -> None:
        """Set TensorFlow's device policy for this thread; `hooks` sets it for others at their first operator."""
        chosen = context.context()
        if now and not before:
            self.program_policy = chosen.device_policy
            chosen._device_policy = context.DEVICE_PLACEMENT_EXPLICIT  # this suffices before the start
        elif before and not now:
            chosen._device_policy = self.program_policy
        if self.started():
            device_rules.set_policy(chosen._device_policy)

    def _reserve(self, gpus: int) -> None:
        """Make logical CPUs for at least this many GPUs; raise an error if TensorFlow has started with fewer."""
        (cpu,) = tf.config.list_physical_devices("CPU")
        most = len(tf.config.get_logical_device_configuration(cpu) or (None,)) - 1
        if most >= gpus:
            return
        if self.started():
            problem = (
                f"it has started with logical CPUs for {most} GPUs"
                if most > 0
                else "it has already started its devices"
            )
            raise messages.simulated_too_late(
                self, problem, f"move ds.simulate(gpus={gpus}) to the top of the program, before the first tensor"
            )
        _split_cpu(cpu, max(_RESERVED, gpus))

    def reserve_exactly(self) -> bool:
        """Make no more logical CPUs than there are GPUs, since others in a cluster see all; False after the start."""
        started = self.started()
        if not started:
            [cpu] = tf.config.list_physical_devices("CPU")
            _split_cpu(cpu, self.count("gpu"))
        return not started


def _split_cpu(cpu: Any, gpus: int) -> None:
    """Make the logical CPUs for the host and for this many GPUs, also while `native_names` refuses it to programs."""
    _CONFIGURE(context.context(), cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(gpus + 1)])

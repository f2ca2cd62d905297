"""Simulated GPUs: MXNet's ``cpu(1)`` to ``cpu(N)`` represent ``gpu:0`` to ``gpu:N-1``.

Requirements that this module meets:

* They contain real data in their own memory, copies between them are real copies, and Gluon natively refuses inputs
  from another one. They can be switched on and off at any time, because MXNet does not have to start anything.
* They refuse what a real card refuses (see `hooks`), their memory is counted (see `memory`), and they can run out of
  memory: each error is both MXNet's own and devshim's.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, ClassVar

import mxnet as mx

from devshim.errors import JoinedError, OutOfMemoryError, SimulationError, messages
from devshim.simulation.memory import SimulatedDevices
from devshim_backends._mxnet.devices import HAS_CUDA
from devshim_backends._mxnet.simulation import hooks, storage
from devshim_backends._mxnet.simulation import memory as memory_module
from devshim_backends._mxnet.simulation.internals import parameter_errors, python_operators
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device
    from devshim.simulation.memory import Fault


class FullDeviceError(JoinedError, OutOfMemoryError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error of a full simulated GPU, which replaces MXNet's."""

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        return "cudaMalloc retry failed: out of memory"


class RemovedDeviceError(JoinedError, SimulationError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error for an array on a simulated GPU that was removed, which is also MXNet's."""

    _real_text = "CUDA: an illegal memory access was encountered"


class MxnetSimulatedDevices(SimulatedDevices):
    """The simulated GPUs of MXNet."""

    removed_error = RemovedDeviceError

    def count_freed(self) -> None:
        memory_module.release_unused()


SIMULATED = MxnetSimulatedDevices(FullDeviceError)
_LOCK = Lock()


class MxnetSimulation(MxnetTensors):
    """The mixin for simulation."""

    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if (gpus or self.native_names_requested) and HAS_CUDA and not self.simulated and (real := self.count("gpu")):
            raise messages.real_gpus_present(self, real)
        with _LOCK:
            if gpus or self.native_names_requested:
                storage.check()
                self.simulated_devices = SIMULATED
            SIMULATED.begin(gpus, None)  # existing arrays already count, and are not refused
            self.simulated = gpus
            self._label_devices()
            SIMULATED.begin(gpus, memory, faults)

    def forget_removed_devices(self) -> None:
        with _LOCK:
            self._label_devices()

    def _label_devices(self) -> None:
        """Count ``cpu(1)`` and the following CPUs of MXNet, `simulated_or_removed` in number, as GPUs."""
        self._devices = {}
        if self.is_simulating:
            hooks.install(self)
            parameter_errors.install(self)
            python_operators.install(self)
        memory_module.begin(SIMULATED, self.simulated, self.simulated_or_removed)
        if not self.is_simulating:
            hooks.uninstall()
            parameter_errors.uninstall()
            python_operators.uninstall()

    def set_native_names(self, named: bool) -> None:
        from devshim_backends._mxnet.simulation.native_names import switch

        with _LOCK:
            if named:
                switch.install(self)
            else:
                switch.uninstall()

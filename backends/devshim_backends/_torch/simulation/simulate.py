"""The adapter's switch for simulated GPUs; their implementation is the rest of this package, loaded on demand.

Requirements of this module:

* Nothing is loaded, registered or patched in PyTorch before the first simulated GPU is requested.
* While GPUs are simulated, ``gpu:i`` is ``torch.device("sim", i)`` in both directions, and with native names
  ``torch.device("cuda", i)``; afterwards it is ``cuda:i``, or the type that this build has.
* A compiled function contains the devices of its compilation, so compiled code is discarded at every switch. Only a
  compilation that loads this adapter discards nothing: the GPUs that it switches on are the first of the process, and
  dynamo still uses the cache of the function that it compiles.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim_backends._torch.devices import set_gpu_type
from devshim_backends._torch.real_gpus import real_gpu_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.simulation.memory import Fault


class TorchSimulation(Backend):
    """Mixin for simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        is_shown = gpus or self.native_names_requested
        if not is_shown and self.simulated_devices is None:
            return
        from devshim_backends._torch.simulation.internals import late_copies, stream_order, switch
        from devshim_backends._torch.simulation.memory import SIMULATED

        late_copies.finish()
        stream_order.forget()
        switch.set_gpus(gpus, memory, named=self.native_names_requested)
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.simulated = gpus
        set_gpu_type(("cuda" if self.native_names else "sim") if is_shown else real_gpu_type())
        _discard_compiled_code()

    def set_native_names(self, named: bool) -> None:
        from devshim_backends._torch.simulation.native_names import switch

        _discard_compiled_code()  # first, because with CUDA the compiler would import its code generator for that
        switch.set_native_names(named)


def _discard_compiled_code() -> None:
    compiler: Any = sys.modules.get("torch._dynamo")
    if compiler is not None and torch._guards.CompileContext.current_compile_id() is None:  # in this thread
        compiler.reset()

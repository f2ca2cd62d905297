"""The JAX adapter's class, which combines the mixins of the other modules."""

from __future__ import annotations

from typing import final

from devshim.devices.device import CPU, Device
from devshim_backends._jax import real_gpus
from devshim_backends._jax.collectives import JaxCollectives
from devshim_backends._jax.containers import JaxContainers
from devshim_backends._jax.gradients import JaxGradients
from devshim_backends._jax.models.models import JaxModels
from devshim_backends._jax.namespace import JaxNamespace
from devshim_backends._jax.ranks import JaxRanks
from devshim_backends._jax.simulation.simulate import JaxSimulation
from devshim_backends._jax.snippets import SNIPPETS
from devshim_backends._jax.transfers.implicit import JaxTransferHooks

__all__ = ["JaxBackend"]


@final
class JaxBackend(
    JaxGradients,
    JaxTransferHooks,
    JaxModels,
    JaxRanks,
    JaxSimulation,
    JaxCollectives,
    JaxContainers,
    JaxNamespace,
):
    """The adapter for JAX 0.7.2 and newer."""

    name = "jax"
    title = "JAX"
    snippets = SNIPPETS
    immutable = True
    jit_is_single_device = True
    narrows = True

    def native_text(self, device: Device) -> str:
        name = self._gpu_name() if device.kind == "gpu" else device.kind
        return 'jax.devices("cpu")[0]' if device is CPU else f'jax.devices("{name}")[{device.index}]'

    def snippet(self, call: str) -> str | None:
        line = self.snippets.get(call)
        return None if line is None else line.replace('"gpu"', f'"{self._gpu_name()}"')

    def _gpu_name(self) -> str:
        """Return JAX's name of its GPUs, or of those that the simulated GPUs imitate."""
        return real_gpus.jax_name(self.simulated_like if self.simulated else real_gpus.platform())

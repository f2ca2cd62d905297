"""Random operators on a `DTensor`: each rank draws its own part of the numbers.

For that, PyTorch sets the offset in the state of CUDA's generator. The generator of a simulated GPU has the CPU's
state, which has no offset, so each offset has a seed that is computed from the state.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from devshim.simulation.late_patches import LatePatches
from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.generators import RealGenerator


class _PhiloxState:  # PyTorch's name
    """Replacement for PyTorch's view of a state; the offset counts from the state that it is created with."""

    def __init__(self, state: Any) -> None:
        self._begin = self.state = state.to("cpu")
        self._offset = 0

    @property
    def offset(self) -> Any:
        """The offset, as a tensor."""
        return torch.tensor([self._offset], device="cpu")

    @offset.setter
    def offset(self, offset: Any) -> None:
        self._offset = int(offset)
        if not self._offset:
            self.state = self._begin
            return
        words = bytes(self._begin.tolist()) + self._offset.to_bytes(8, "little")
        seed = int.from_bytes(hashlib.blake2b(words, digest_size=4).digest(), "little")
        self.state = RealGenerator(device="cpu").manual_seed(seed).get_state()


_LATE = LatePatches(
    "torch.distributed.tensor._random",  # PyTorch imports it with `DTensor`
    "_PhiloxState",
    lambda patches, module: patches.replace(module, "_PhiloxState", _PhiloxState),
)


def install(patches: Patches) -> None:
    """Replace the class, or let the import of its module do so."""
    _LATE.install()


def uninstall() -> None:
    """Restore the class."""
    _LATE.undo()

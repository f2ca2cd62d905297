"""What of a card's values TensorFlow reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim._hidden import reads_told
from devshim.backend import Backend
from devshim_backends._tensorflow.places import EAGER

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from devshim.device import Device


class TensorflowHidden(Backend):
    """The room of hidden transfers: those of eager tensors' methods; what operators copy is their policy's to say."""

    def watch(self, report: Callable[[Device, Device, str], None]) -> AbstractContextManager[object]:
        return reads_told(EAGER, self._where, report)

    def _where(self, x: Any) -> Device | None:
        return self.device_of(x)

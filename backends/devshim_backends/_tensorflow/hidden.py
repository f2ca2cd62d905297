"""What of a card's values TensorFlow reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend
from devshim_backends._tensorflow.places import EAGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device


class TensorflowHidden(Backend):
    """The room of hidden transfers: those of eager tensors' methods; what operators copy is their policy's to say."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        with reads_told(EAGER, self._where, report), meetings_told(EAGER, self._where, report):
            yield

    def _where(self, x: Any) -> Device | None:
        return self.device_of(x)

"""What of a card's values TensorFlow reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from devshim._hidden import meetings_told, reads_told
from devshim_backends._tensorflow.counting import LOCAL
from devshim_backends._tensorflow.guarding import operators_told
from devshim_backends._tensorflow.places import EAGER, TensorflowPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device

_MORE = (("_numpy", "NumPy"),)
"""What all reads go by: pickling, and TensorFlow's own, too."""


class TensorflowHidden(TensorflowPlaces):
    """The room of hidden transfers: those of eager tensors' methods, and of operators."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        reads = reads_told(EAGER, self._where, report, _MORE, buffers=True)
        real = self.count("gpu") and not self.simulated
        operators = operators_told(self, report) if real else nullcontext()
        with reads, meetings_told(EAGER, self._where, report), operators:
            yield

    def _where(self, x: Any) -> Device | None:
        return None if LOCAL.counting else self.device_of(x)  # who counts a card's memory looks where it is

"""What of a card's values PyTorch reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend
from devshim_backends._torch.guarding import waits_told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device


class TorchHidden(Backend):
    """The room of hidden transfers: those of tensors' methods, and of operators that wait for a card."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        reads, meetings = (told(torch.Tensor, self._where, report) for told in (reads_told, meetings_told))
        with reads, meetings, waits_told(self._where, report):
            yield

    def _where(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) or self.compiling() else self.device_of(x)

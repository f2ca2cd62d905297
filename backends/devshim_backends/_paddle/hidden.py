"""What of a card's values PaddlePaddle reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import paddle

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device

_MORE = tuple((name, f"{name}()") for name in ("nonzero", "masked_select", "unique"))
"""What a card is waited for in: a number that the result's shape depends on."""


class PaddleHidden(Backend):
    """The room of hidden transfers: those of tensors' methods; what other operators mend inside is not seen."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        reads = reads_told(paddle.Tensor, self._where, report, _MORE)
        with reads, meetings_told(paddle.Tensor, self._where, report, self._carried):
            yield

    def _carried(self, x: Any) -> Device | None:
        """Where an operand is that real cards let pass, copied or read as it is; simulated ones refuse it."""
        mixes = not self.simulated and isinstance(x, paddle.Tensor) and x.ndim
        return self._where(x) if mixes else None

    def _where(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) or self.compiling() else self.device_of(x)

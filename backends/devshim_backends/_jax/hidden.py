"""What of a card's values JAX reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax._src.array import ArrayImpl

from devshim._hidden import reads_told
from devshim.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from devshim.device import Device


class JaxHidden(Backend):
    """The room of hidden transfers: those of arrays' methods; JAX mixes no committed arrays by itself."""

    def watch(self, report: Callable[[Device, Device, str], None]) -> AbstractContextManager[object]:
        return reads_told(ArrayImpl, self._where, report)

    def _where(self, x: Any) -> Device | None:
        return self.device_of(x) if len(x.sharding.device_set) == 1 else None

"""What of a card's values JAX reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jax._src.array import ArrayImpl

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device


class JaxHidden(Backend):
    """The room of hidden transfers: those of arrays' methods; JAX mixes no committed arrays by itself."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        meetings = meetings_told(ArrayImpl, self._where, report, self._carried, indices=False)
        with reads_told(ArrayImpl, self._where, report), meetings:
            yield

    def _carried(self, x: Any) -> Device | None:
        """Where an array is that JAX takes for committed nowhere, and moves to where it is wanted."""
        return self._where(x) if type(x) is ArrayImpl and not x._committed and x.ndim else None

    def _where(self, x: Any) -> Device | None:
        return self.device_of(x) if len(x.sharding.device_set) == 1 else None

"""What of a card's values MXNet reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend
from devshim.device import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device

_MORE = (("asnumpy", "asnumpy()"), ("asscalar", "asscalar()"), ("nonzero", "nonzero()"))
_ARRAYS = (mx.nd.NDArray, mx.np.ndarray)


class MxnetHidden(Backend):
    """The room of hidden transfers: those of arrays' methods; what other operators mend inside is not seen."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        with ExitStack() as stack:
            for cls in _ARRAYS:
                stack.enter_context(reads_told(cls, self._where, report, _MORE))
                stack.enter_context(meetings_told(cls, self._where, report, self._carried))
            yield

    def _carried(self, x: Any) -> Device | None:
        """Where an operand is that two real cards let pass; simulated ones refuse it, and MXNet refuses the host's."""
        mixes = not self.simulated and isinstance(x, _ARRAYS) and x.ndim
        found = self._where(x) if mixes else None
        return None if found is CPU else found

    def _where(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) else self.device_of(x)

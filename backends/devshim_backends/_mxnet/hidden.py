"""What of a card's values MXNet reads into Python or NumPy without saying that it copies."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.device import Device

_MORE = (("asnumpy", "asnumpy()"), ("asscalar", "asscalar()"))


class MxnetHidden(Backend):
    """The room of hidden transfers: those of arrays' methods; what operators mend inside is not seen."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        with ExitStack() as stack:
            for cls in (mx.nd.NDArray, mx.np.ndarray):
                stack.enter_context(reads_told(cls, self._where, report, _MORE))
                stack.enter_context(meetings_told(cls, self._where, report))
            yield

    def _where(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) else self.device_of(x)

"""The control process of a cluster, which runs on its first machine: the launcher watches whether it answers.

Ray itself waits a minute for it, in which its calls do not return, and then ends the launcher without an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from devshim.errors import WorldError
from devshim.world import reaching

__all__ = ["ControlProcess"]

_INTERVAL = 2.0
"""Seconds between two checks."""
_AGAIN = 5.0
"""Seconds for which a control process that does not answer is asked again: Ray can restart one."""
_MOMENT = 0.2


class ControlProcess:
    """A control process, and the thread that watches it.

    Args:
        address: Its host and port.
        on_lost: Called once by the thread when it no longer answers.
    """

    def __init__(self, address: str, on_lost: Callable[[], None]) -> None:
        self._address, self._on_lost = address, on_lost
        self._reason = ""

    @property
    def is_lost(self) -> bool:
        """True if it no longer answers, as far as is known."""
        return bool(self._reason)

    def watch(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._watch, name="devshim-control", daemon=True).start()

    def require(self) -> None:
        """Raise the error of a control process that has ended; wait some seconds for one that may answer again."""
        self._reason = self._reason or self._why_lost()
        if self._reason:
            raise self.error()

    def error(self) -> WorldError:
        """Return the error of a control process that has ended."""
        msg = f"the cluster at {self._address} has ended, or its first machine is unreachable: {self._reason}"
        return WorldError(msg, "start the cluster again, and then the job; `devshim cluster status` lists the hosts")

    def _watch(self) -> None:
        while not (reason := self._why_lost()):
            time.sleep(_INTERVAL)
        self._reason = reason
        self._on_lost()

    def _why_lost(self) -> str:
        """Return why it does not answer, several times; empty if it does."""
        until = time.monotonic() + _AGAIN
        while True:
            is_last = time.monotonic() > until
            reason = reaching.why_silent(self._address)
            if is_last or not reason:
                return reason
            time.sleep(_MOMENT)

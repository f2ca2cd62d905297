"""The contract for implicit transfers: what the guard needs of an adapter, to report copies that no line asks for.

An adapter implements this in ``transfers/implicit.py``. A backend without it reports nothing, which is a gap of the
feature ``guard``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device

__all__ = ["TransferHookBackend"]


class TransferHookBackend:
    """The mixin of `Backend` for reporting implicit transfers."""

    def report_implicit_transfers(
        self, report: Callable[[Device | None, Device, str], None]
    ) -> AbstractContextManager[object]:
        """Return a context that calls ``report(source, target, what)`` for each implicit transfer of the framework.

        It covers every thread. If ``report`` raises, the copy is not made. devshim's own copies may be reported, too.
        The source is None if it is a GPU and the framework does not say which one.
        """
        return nullcontext()

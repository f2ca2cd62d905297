"""The place of static programs: the host, if an executor gets a simulated GPU.

The plug-in has no kernels, so an operator in a program computes on copies in host memory. One that writes to its
argument, such as an optimizer's, writes to the copy, which is then dropped (3.3): a program would never train. So an
executor runs its programs on the host, with their parameters.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from paddle.base import framework
from paddle.base.executor import Executor

from devshim_backends._paddle.devices import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["wrap_methods"]

_default_place: Callable[[], Any] = getattr(
    framework, "_current_expected_place_", framework._current_expected_place
)  # the second has no answer in programs of 3.3


def wrap_methods() -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """Yield the class of executors, the name of its method, and the replacement."""
    yield Executor, "__init__", _on_host(vars(Executor)["__init__"])


def _on_host(init: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of an executor that takes the host for a simulated GPU."""

    @wraps(init)
    def construct(self: Any, place: Any = None) -> None:
        given = _default_place() if place is None else framework._get_paddle_place(place)
        init(self, core.CPUPlace() if isinstance(given, core.CustomPlace) else place)

    return construct

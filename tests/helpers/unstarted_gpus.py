"""GPUs that are counted and cannot start: what the tests of several frameworks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.devices import startup
from devshim.registry import start_failures

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

__all__ = ["calls_on_second_gpu", "fail_on_second_gpu"]


def fail_on_second_gpu(monkeypatch: pytest.MonkeyPatch, backend: Any, error: Callable[[], Exception]) -> None:
    """Make each method of an adapter raise for ``gpu:1``, as if that GPU could not start; forget known reasons."""

    def failing(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if any(each is ds.gpu(1) for each in args):
                raise error()
            return own(self, *args, **kwargs)

        return call

    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    for name in ("copy_to", "zeros", "memory", "describe", "synchronize", "empty_cache"):
        monkeypatch.setattr(type(backend), name, failing(getattr(type(backend), name)))


def calls_on_second_gpu(x: Any) -> tuple[Callable[[], Any], ...]:
    """Return the public calls that use ``gpu:1``, one for each of those methods."""
    return (
        lambda: ds.place(x, "gpu:1"),
        lambda: ds.zeros(3, device="gpu:1"),
        lambda: ds.memory("gpu:1"),
        lambda: ds.describe("gpu:1"),
        lambda: ds.synchronize("gpu:1"),
        lambda: ds.empty_cache("gpu:1"),
    )

"""Claims about the GPUs that a process uses; each runs in a new process, and asks the driver."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds
from devshim.certify import driver
from devshim.certify.claims import Claims, Setting, expect
from devshim.certify.fresh import fresh

__all__ = ["CLAIMS"]

CLAIMS = Claims("contexts")

_OWN = ("torch",)
"""The frameworks that make a context at the first use of a GPU; TensorFlow and JAX start every visible GPU."""


def _only(at: Setting, found: Any, card: int) -> None:
    expect(found == [card], f"this process has a context on the cards {found}, not on {card} alone")


@CLAIMS.add("Many small tensors for the last GPU make a context only on that GPU.", cards=2, real=True, only=_OWN)
def many(at: Setting) -> None:
    """Place a list as the first action of a process."""
    _only(at, fresh(_many, at), at.last.index)


def _many(at: Setting) -> Any:
    ds.place([ds.from_numpy(np.ones(1024, "float32")) for _ in range(1000)], at.last)
    return driver.contexts()


@CLAIMS.add("Single calls on the last GPU make a context only on that GPU.", cards=2, real=True, only=_OWN)
def single(at: Setting) -> None:
    """Make the calls that take a device."""
    _only(at, fresh(_single, at), at.last.index)


def _single(at: Setting) -> Any:
    x = ds.place(ds.ones(9), at.last)
    ds.describe(at.last)
    ds.memory(at.last)
    ds.to_numpy(ds.copy(x, at.last))
    ds.run(lambda a, b: a + b, x, x)
    ds.random.uniform(size=3, device=at.last)
    with ds.on(at.last):
        ds.zeros(3)
    ds.synchronize(at.last)
    return driver.contexts()


@CLAIMS.add("`ds.synchronize()` makes no context on a GPU that is not used.", cards=2, real=True, only=_OWN)
def waiting(at: Setting) -> None:
    """Wait for all GPUs after the first was used."""
    _only(at, fresh(_waiting, at), 0)


def _waiting(at: Setting) -> Any:
    ds.ones(3, device=at.first)
    ds.synchronize()
    ds.empty_cache()
    return driver.contexts()


@CLAIMS.add("`shrink_batch` makes no context on a GPU that is not used.", cards=2, real=True, only=_OWN)
def shrinking(at: Setting) -> None:
    """Fill the first GPU."""
    _only(at, fresh(_shrinking, at), 0)


def _shrinking(at: Setting) -> Any:
    ds.shrink_batch(lambda n: ds.empty((n, 1 << 30), dtype="uint8", device=at.first), 4096)
    return driver.contexts()

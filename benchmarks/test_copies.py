"""Real copies into new memory, small and large: the overhead of devshim must be negligible."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from benchmarks.session import Rival, Session

SIZES = {"4 B": (1, 1.3, 1), "1 MiB": (1 << 18, 1.05, 3), "64 MiB": (1 << 24, 1.01, 3)}
"""How many numbers, the largest allowed ratio, and how many times the usual number of turns.

A large copy's time depends on the pages that the system has available, and to distinguish 1.00 from 1.01 takes more
turns.
"""


@pytest.mark.parametrize("size", SIZES)
def test_copy(benchmark: Any, session: Session, size: str) -> None:
    """The framework's own copy on the same device; the benchmark waits for it if it is asynchronous."""
    count, target, more = SIZES[size]
    native, wait = session.native.copy, session.native.wait
    names = {"x": ds.ones(count, dtype="float32")}
    scoped = f"with {session.native.scope}: {native}" if session.native.scope else native + wait
    session.versus(
        benchmark,
        "copies",
        f"copy of {size}",
        f"ds.copy(x, d){wait}",
        [Rival(scoped, scoped, target)],
        names,
        rounds=session.rounds * more,
    )

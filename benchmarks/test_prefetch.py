"""A slow loader: a plain loop waits for each batch and then computes; `ds.prefetch` does both at the same time.

The loader takes as long for a batch as the program works on it, so that twice the speed is the most that is possible.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import devshim as ds
from benchmarks.session import Rival, Session

SECONDS = 0.02
"""The time for loading one batch, and for working on one."""
BATCHES = 30
ROUNDS = 5
TARGET = 1 / 1.8


def test_slow_loader(benchmark: Any, session: Session) -> None:
    """Loading and working take 20 ms each, so a plain loop takes 40 ms for each batch."""

    def loader() -> Iterator[Any]:
        for i in range(BATCHES):
            time.sleep(SECONDS)
            yield {"x": np.full((64, 64), i, "float32"), "number": i}

    def work(batches: Iterable[Any]) -> None:
        for batch in batches:
            assert ds.device_of(batch["x"]) is ds.device(session.d)
            time.sleep(SECONDS)

    def plain() -> Iterator[Any]:
        for batch in loader():
            yield {**batch, "x": ds.from_numpy(batch["x"], session.d)}

    session.versus(
        benchmark,
        "prefetch",
        f"{BATCHES} batches, {SECONDS * 1e3:.0f} ms to load and {SECONDS * 1e3:.0f} ms to use",
        ("ds.prefetch(loader, d)", lambda: work(ds.prefetch(loader(), session.d))),
        [Rival("a plain loop", lambda: work(plain()), target=TARGET)],
        {},
        rounds=min(ROUNDS, session.rounds),
    )

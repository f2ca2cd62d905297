"""Several devices, compared with the framework's own code; each of the two parts has 1 MiB, both on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import devshim as ds
from benchmarks.native_parts import PARTS
from benchmarks.session import Rival, Session

PART = 1 << 18
TARGET = 1.1
OURS = {
    "split": "ready(ds.split(x, [d, d]))",
    "gather": "ready([ds.gather([a, b], d)])",
    "broadcast": "ready(ds.broadcast(x, [d, d]))",
    "all_reduce": "ready(ds.all_reduce_([a, b]))",
}


def names_of(session: Session) -> dict[str, Any]:
    """Return what the statements use; with zeros, sums in place stay the same."""
    names: dict[str, Any] = {"x": ds.zeros(2 * PART, dtype="float32"), "PART": PART}
    names |= {"a": ds.zeros(PART, dtype="float32"), "b": ds.zeros(PART, dtype="float32")}
    wait = PARTS[session.record.environment].ready
    exec(f"def ready(tensors):\n    for t in tensors: {wait or 'pass'}\n    return tensors", names)
    return names


@pytest.mark.parametrize("case", OURS)
def test_parts(benchmark: Any, session: Session, case: str) -> None:
    """Both sides wait for their results."""
    native = getattr(PARTS[session.record.environment], case)
    waiting = {"gather": f"ready([{native}])", "all_reduce": native.replace("; ", "\n") + "\nready([a, b])"}
    label = {"all_reduce": "all_reduce_"}.get(case, case)
    rivals = [Rival(native, waiting.get(case, f"ready({native})"), TARGET)]
    session.versus(benchmark, "parts", f"{label}, 1 MiB a part", OURS[case], rivals, names_of(session))


def by_threads(fns: list[Callable[[Any], Any]], inputs: list[Any]) -> list[Any]:
    """Call functions at the same time, as a user writes it without devshim."""
    results: list[Any] = [None] * len(fns)

    def work(i: int) -> None:
        results[i] = fns[i](inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(fns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_parallel(benchmark: Any, session: Session) -> None:
    """Two threads that each multiply their part."""
    names = {**names_of(session), "by_threads": by_threads, "fn": lambda x: x * 2.0}
    rivals = [Rival("threads by hand", "ready(by_threads([fn, fn], [a, b]))", TARGET)]
    ours = "ready(ds.parallel([fn, fn], [a, b]))"
    session.versus(benchmark, "parts", "parallel, 1 MiB a part", ours, rivals, names)

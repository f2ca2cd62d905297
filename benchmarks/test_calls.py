"""The calls of every program that makes and reads tensors, for tensors of 16 numbers and of 1 and 64 MiB.

Where the framework has a call with the same result, it is compared with that; `devshim.run` with calling the function.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.paired import interleaved, ratios, spread
from benchmarks.record import Row
from benchmarks.session import Rival, Session

SMALL, MIB = (4, 4), (512, 512)
CALLS = {
    "ones": "ds.ones(shape)",
    "full": "ds.full(shape, 2.0)",
    "asarray of two numbers": "ds.asarray([1.0, 2.0])",
    "from_numpy": "ds.from_numpy(a)",
    "to_numpy": "to_numpy(x)",
    "random.normal": "ds.random.normal(size=shape)",
    "random.uniform": "ds.random.uniform(size=shape)",
}
TARGET, TARGET_MIB = 1.5, 1.2
READ_64_MIB = 1.05
ON = 1.2
"""Microseconds that `devshim.on` may take where the framework's scope takes so little that a ratio allows less."""
RUN = 1.5
"""Microseconds that `devshim.run` may add to the call."""


def names_of(shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what the statements use."""
    return {"shape": shape, "a": np.ones(shape, "float32"), "x": ds.ones(shape, dtype="float32"), "np": np}


@pytest.mark.parametrize("size", ["16 numbers", "1 MiB"])
@pytest.mark.parametrize("case", CALLS)
def test_call(benchmark: Any, session: Session, case: str, size: str) -> None:
    """New memory in each call, so that a large tensor takes as long to make as its memory takes."""
    if size == "1 MiB" and case.startswith("asarray"):
        pytest.skip("a list of a million numbers measures the list")
    native, wait = session.native.calls[case], "" if case == "to_numpy" else session.native.wait
    target, shape = (TARGET, SMALL) if size == "16 numbers" else (TARGET_MIB, MIB)
    rivals = [Rival(native, f"({native}){wait}", target)]
    session.versus(benchmark, "calls", f"{case}, {size}", f"{CALLS[case]}{wait}", rivals, names_of(shape))


@pytest.mark.parametrize("case", ["from_numpy", "to_numpy"])
def test_large_array(benchmark: Any, session: Session, case: str) -> None:
    """The copying itself decides."""
    native, wait = session.native.calls[case], "" if case == "to_numpy" else session.native.wait
    rivals = [Rival(native, f"({native}){wait}", READ_64_MIB)]
    names = names_of((4096, 4096))
    session.versus(benchmark, "calls", f"{case}, 64 MiB", f"{CALLS[case]}{wait}", rivals, names)


def test_on(benchmark: Any, session: Session) -> None:
    """The framework's own scope, or `ON` if that allows more; NumPy has no scope."""
    scope = session.native.device_scope
    ways = {"": "with ds.on('cpu'): pass"} | ({scope: f"{scope}: pass"} if scope else {})
    times = interleaved(benchmark, ways, session.names, session.rounds)
    ours = spread([seconds * 1e6 for seconds in times[""]])
    allows_less = scope and TARGET * median(times[scope]) * 1e6 < ON
    row = Row("calls", "on", ways[""], scope, target=ON if allows_less or not scope else None, unit="us")
    session.add(row, ours, rounds=session.rounds)
    if scope:
        target = None if allows_less else TARGET
        session.add(Row("calls", "on", ways[""], scope, target=target), ratios(times[""], times[scope]))


def test_run(benchmark: Any, session: Session) -> None:
    """Measure what `run` adds to a call, in microseconds: an operator takes from one to fifty."""
    names = {**session.names, **names_of(SMALL), "fn": lambda x: x}
    times = interleaved(benchmark, {"": "ds.run(fn, x)", "fn(x)": "fn(x)"}, names, session.rounds)
    added = spread([(ours - other) * 1e6 for ours, other in zip(times[""], times["fn(x)"], strict=True)])
    row = Row("calls", "run", "ds.run(fn, x)", "fn(x)", target=RUN, unit="us")
    session.add(row, added, rounds=session.rounds)

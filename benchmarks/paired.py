"""Timing of two ways to do one thing, in turns in one process: A B B A, so that a busy machine slows both equally.

Only the ratios of neighbouring turns are compared, never two times that were measured separately: on a shared machine,
absolute times double from one minute to the next while such ratios stay stable. The order changes in each turn: a copy
of 64 MiB returns its pages to the system, and the next copy takes them from there. With A B A B, a copy compared with
the same copy had a ratio of 1.02 in every third process, and the interval did not contain 1.

Each round runs at another depth of the stack. CPython keeps the frames of calls in blocks of 16 KiB. A call at the end
of a block allocates the next one from the system, and frees it on return: 7 us instead of 0.04. At one depth, which
calls are there is luck: the same loop on JAX had ratios from 0.85 to 1.5. See
https://github.com/python/cpython/issues/142183, which later versions of Python avoid.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from timeit import Timer
from typing import Any

BATCH = 0.0006
"""Seconds that one turn of a quick statement takes: much longer than the clock takes, shorter than a busy phase."""

FRAMES, STEP = 144, 89
"""A block of the stack has room for about this many frames of `deeper`. The two numbers have
the golden ratio, so the depths of any number of rounds are spread evenly."""


@dataclass(frozen=True)
class Spread:
    """The median of some ratios, and its precision.

    Args:
        median: Half of the ratios are below.
        quartiles: A quarter is below the first, a quarter above the second.
        interval: The median's 95% confidence interval, from the ranks of the ratios: no distribution is assumed.
    """

    median: float
    quartiles: tuple[float, float]
    interval: tuple[float, float]


def spread(values: Sequence[float]) -> Spread:
    """Return the median of numbers with its spread."""
    ordered = sorted(values)
    n = len(ordered)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if n > 1 else [ordered[0]] * 3
    return Spread(statistics.median(ordered), (quartiles[0], quartiles[2]), (ordered[low], ordered[n - 1 - low]))


def ratios(ours: Sequence[float], others: Sequence[float]) -> Spread:
    """Return the spread of our times divided by the other's times, turn by turn."""
    return spread([a / b for a, b in zip(ours, others, strict=True)])


def batch_of(timer: Timer) -> int:
    """Return how often a statement runs in one turn; finding that out also warms it up."""
    timer.timeit(1)
    number = 1
    while (took := timer.timeit(number)) < BATCH:
        number = max(number * 2, min(number * 100, math.ceil(number * BATCH / max(took, 1e-9))))
    return number


def deeper(frames: int, call: Callable[[], float]) -> float:
    """Return the result of a call that is made below a number of further frames."""
    return deeper(frames - 1, call) if frames else call()


def interleaved(
    benchmark: Any, ways: Mapping[str, str | Callable[[], object]], names: Mapping[str, Any], rounds: int
) -> dict[str, list[float]]:
    """Time statements in turns; the first one is timed by pytest-benchmark itself, the others in its setup.

    They run before or after the first one's turn.

    Args:
        benchmark: pytest-benchmark's fixture.
        ways: Python statements, or functions without arguments, by the names that they have in the results.
        names: The names that the statements can use.
        rounds: How many turns each gets.

    Returns:
        The seconds per call in each turn, by name. As in `timeit`, the garbage collector is off meanwhile.
    """
    timers = {way: Timer(statement, globals=dict(names)) for way, statement in ways.items()}
    batches = {way: batch_of(timer) for way, timer in timers.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}

    def turn(way: str) -> None:
        frames = len(times[way]) * STEP % FRAMES
        times[way].append(deeper(frames, lambda: timers[way].timeit(batches[way])) / batches[way])

    first, *others = ways
    benchmark.extra_info["calls per round"] = batches[first]
    started = 0

    def between() -> None:
        """Finish the last round if the others come after the first, and start the next one if they come before it."""
        nonlocal started
        if started and started % 2 == 0:
            for way in reversed(others):
                turn(way)
        started += 1
        if started % 2 == 1 and started <= rounds:
            for way in others:
                turn(way)

    benchmark.pedantic(turn, args=(first,), setup=between, rounds=rounds)
    between()
    return times

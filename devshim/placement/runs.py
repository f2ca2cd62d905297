"""Divide a list of parts into runs of consecutive ones, one for each device; the fullest gets as little as possible.

A device's weight says how the devices share the bytes: with budgets it is the budget, and without all have the same.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from devshim.placement.parts import Part, Single, nbytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UNLIMITED", "Runs", "divide", "largest_share", "load"]

UNLIMITED = 2**62
Runs: TypeAlias = list[list[Part | Single]]


def divide(parts: list[Part | Single], caps: list[int], limited: bool) -> Runs | None:
    """Return runs of parts, one per device, so that the fullest is as empty as possible; None if they do not fit.

    Args:
        parts: The parts, in the order in which they run.
        caps: The most bytes of each device.
        limited: True if the caps are budgets.
    """
    sizes = [0, *accumulate([part[2] if type(part) is tuple else nbytes_of(part) for part in parts])]
    best = _fill(sizes, caps)
    if best is None:
        return None
    weights = _weights(caps, limited)
    if limited and UNLIMITED in caps:
        if _fill(sizes, weights) is None:
            return _cut(parts, best)
        caps = weights
    low, high = 0.0, 1.0 if limited else float(max(caps))
    for _ in range(128):
        middle = (low + high) / 2
        tried = _fill(sizes, [min(cap, int(w * middle)) for cap, w in zip(caps, weights, strict=True)])
        if tried is None:
            low = middle
        else:
            best, high = tried, middle
    return _cut(parts, best)


def load(runs: Runs, caps: list[int], limited: bool) -> tuple[int, float]:
    """Return a number of a plan that is less if the plan is better.

    It is the bytes on devices without a budget, if others have one, and then the load of the fullest device.
    """
    sizes = [sum(map(nbytes_of, run)) for run in runs]
    weights = _weights(caps, limited)
    elsewhere = sum(size for size, weight in zip(sizes, weights, strict=True) if not weight)
    loads = (size / weight for size, weight in zip(sizes, weights, strict=True) if weight)
    return elsewhere, max(loads, default=0.0)


def largest_share(caps: list[int], total: int, limited: bool) -> float:
    """Return the bytes above which a block should be cut: what the device that takes most gets, and a tenth of it.

    A cut inside a block can copy activations more often, which a slightly better balance is not worth.
    """
    weights = _weights(caps, limited)
    tolerated = 1.1 * total / max(1, sum(weights))
    return max(min(cap, weight * tolerated) for cap, weight in zip(caps, weights, strict=True))


def _weights(caps: list[int], limited: bool) -> list[int]:
    """Return how the devices share the bytes; a device without a budget takes only what the others cannot.

    Without budgets, the devices' free memory is a limit, and does not say how to share.
    """
    return [0 if cap == UNLIMITED else cap for cap in caps] if limited else [1] * len(caps)


def _cut(parts: list[Part | Single], ends: Sequence[int]) -> Runs:
    return [parts[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


def _fill(sizes: list[int], caps: list[int]) -> list[int] | None:
    """Return where each device's run ends if each takes all that fits, in order; None if something is left over.

    Args:
        sizes: The bytes before each part, and those of all parts.
        caps: The most bytes of each device.
    """
    ends, at = [], 0
    for cap in caps:
        at = bisect_right(sizes, sizes[at] + cap) - 1
        ends.append(at)
    return ends if at == len(sizes) - 1 else None

"""Sums over ranks: by the framework's engine where it is correct, and otherwise by the portable engine."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from devshim.devices.device import CPU
from devshim.devices.dtypes import FLOATS
from devshim.errors import RankFailedError, RankLateError
from devshim.transfers import observers, observing
from devshim.trees.key_paths import brackets
from devshim.world import trees
from devshim.world.buckets import Buckets, Source
from devshim.world.habits import Habit, Sum, can_have_tail, has_agreed, write_tail
from devshim.world.nans import has_nan, reduce_marked
from devshim.world.native import HAS_NAN, LACKS, RIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.collectives.all_reduce import Group
    from devshim.contract.backend import Backend, Tensor
    from devshim.contract.ranks import Place
    from devshim.world.native import Native
    from devshim.world.portable import Portable
    from devshim.world.steps import Step, Steps

    Op = Literal["sum", "mean", "max", "min"]

__all__ = ["Sums", "record"]

_SHOWN = 4
"""The number of tensors of a call that are described in full."""


class Sums:
    """The sums of one rank.

    Args:
        place: The place of the rank.
        steps: Its collectives.
        native: The framework's engine.
        portable: Returns the portable one, and connects it at the first call.
    """

    def __init__(self, place: Place, steps: Steps, native: Native, portable: Callable[[], Portable]) -> None:
        self._place, self._steps, self._native, self._portable = place, steps, native, portable
        self._buckets = Buckets()
        self._habit = Habit()

    def reduce(self, groups: list[Group], op: Op, count: int) -> None:
        """Replace the results of groups with the results of all ranks."""
        start = time.perf_counter()
        found = [(Source(group.backend, group.results[0], brackets(group.cell)), group) for group in groups]
        found.sort(key=lambda each: each[0].where)  # dicts of two ranks may differ in their order
        sources, groups = [source for source, _ in found], [group for _, group in found]
        kinds = sorted({source.kind for source in sources})
        is_native = self._native.start_any(groups[0].backend)
        if not is_native:
            self._portable()  # connecting does not count towards the time of a step
        with self._steps.step(_describe(op, sources)) as step:
            if is_native:
                states = self._list_states(groups, sources, kinds, op)
                totals, devices = self._by_native(step, sources, states, op, count)
            else:
                totals = self._by_peers(step, sources, kinds, op)
                devices = sum(self._portable().swap(step, count, "devices")) if op == "mean" else count
        if op == "mean":
            for total in totals.values():
                np.divide(total, devices, out=total)
        tensors = [(source.backend, source.x) for source in sources]
        size = self._place.size
        record(tensors, 2 * (size - 1) / size, start, f"all_reduce, {op}", size)
        used = dict.fromkeys(kinds, 0)
        for group, source in zip(groups, sources, strict=True):
            first = used[source.kind]
            used[source.kind] += source.size
            total = totals[source.kind]
            if not isinstance(total, np.ndarray):  # the engine's own buffer, for this tensor only
                group.results[:] = [total for _ in group.xs]
                continue
            total = total[first : first + source.size].reshape(source.shape)
            group.results[:] = [_result(group.backend, total, x) for x in group.xs]

    def agree_without(self, step: Step, portable: Portable | None) -> None:
        """Compare a step other than a sum with the other ranks, which may be in a sum, or expect one.

        Args:
            step: The step.
            portable: The portable engine, if it is connected: it knows which of several ranks is missing.

        Raises:
            RanksDisagreeError: A rank does something else in this step.
            RankLateError: A rank has not made this call in time.
            RankFailedError: A rank has ended.
        """
        names = portable if self._place.size > 2 else None  # with two ranks, the engine's errors name the other
        if names is not None:
            names.announce(step)
        try:
            if self._habit.next is not None:
                self._sum_if_expected(step, [])
            self._habit.did(None)
            self._native.compare(step, [], 0)
        except (RankFailedError, RankLateError) as error:
            if names is None or (found := names.named(step, error)) is error:
                raise
            raise found from error

    def _by_native(
        self, step: Step, sources: list[Source], states: dict[str, int], op: Op, count: int
    ) -> tuple[dict[str, Any], int]:
        """Return the sums by dtype, by the engine where all ranks can use it, and the devices of all ranks."""
        is_small, expected = can_have_tail(sources, op) and not any(states.values()), self._habit.next
        if expected is not None:
            is_expected = is_small and (step.what, count) == (expected.what, expected.devices[0])
            total = self._sum_if_expected(step, sources if is_expected else [])
            if total is not None:
                return {expected.kind: total}, expected.devices[1]
        found, devices = self._native.compare(step, list(states.values()), count)
        if is_small and not any(found):
            only = Sum(step.what, sources[0].kind, sum(source.size for source in sources), (count, devices))
            self._habit.did(only)
            total = self._with_tail(step, sources, only, only)
            if has_agreed(total[only.size :], step.number):
                return {only.kind: total[: only.size]}, devices
            self._habit.broke(only)
            self._native.compare(step, list(states.values()), count)  # raises: a rank is in another step
        self._habit.did(None)
        totals = {}
        for kind, state in zip(states, found, strict=True):
            here = [each for each in sources if each.kind == kind]
            if state == HAS_NAN:
                totals[kind] = self._with_nan(step, here, op)
            elif state == RIGHT:
                totals[kind] = self._by_engine(step, here, op, count)
        return {**totals, **self._by_peers(step, sources, [kind for kind in states if kind not in totals], op)}, devices

    def _sum_if_expected(self, step: Step, sources: list[Source]) -> Any:
        """Return the sum that all ranks expect; None if one of them does something else, such as this rank.

        The next expectation is recorded first, because the other ranks record it even if this call is interrupted.
        """
        before, expected = self._habit.last, self._habit.next
        assert expected is not None
        self._habit.did(expected)
        total = self._with_tail(step, sources, expected, before)
        if sources and has_agreed(total[expected.size :], step.number):
            return total[: expected.size]
        self._habit.broke(before)
        return None

    def _with_tail(self, step: Step, sources: list[Source], made: Sum, before: Sum | None) -> np.ndarray[Any, Any]:
        """Return a sum and its tail. If this rank cannot read its tensors, it takes part without values, and raises.

        The other ranks wait for it in this sum. They see in the tail that it does not agree.
        """
        try:
            total = self._buckets.with_tail(sources, made.kind, made.size, self._place.size)
        except BaseException:
            if sources:
                self._with_tail(step, [], made, before)
                self._habit.broke(before)
            raise
        if sources:
            write_tail(total[made.size :], self._place.rank, step.number)
        try:
            self._native.reduce(step, [total], "sum")
        except BaseException:
            self._buckets.forget()
            raise
        return total

    def _by_peers(self, step: Step, sources: list[Source], kinds: list[str], op: Op) -> dict[str, Any]:
        """Return the sums of some dtypes by the portable engine."""
        left = {kind: self._buckets.filled(sources, kind) for kind in kinds}
        return dict(zip(left, self._portable().reduce(step, list(left.values()), op), strict=True)) if left else {}

    def _by_engine(self, step: Step, sources: list[Source], op: Op, count: int) -> Any:
        """Return the sum of tensors of one dtype by the framework's engine: a flat array, or a tensor if it is one."""
        only = sources[0] if len(sources) == count == 1 else None
        if only is not None and op != "mean" and self._native.takes(only.backend, only.x):
            return self._native.reduce_whole(step, only.x, op)
        own = only.own_memory() if only is not None and op != "mean" and self._native.in_place else None
        if own is not None:
            return self._in_place(step, sources[0], own, op)
        values, parts = self._buckets.in_parts(sources, sources[0].kind, self._native.part_bytes)
        try:
            self._native.reduce(step, parts, op)
        except BaseException:
            self._buckets.forget()
            raise
        return values

    def _with_nan(self, step: Step, sources: list[Source], op: Any) -> np.ndarray[Any, Any]:
        """Return the maximum or minimum of tensors of one dtype, in which some rank has NaN."""
        values, parts = self._buckets.in_parts(sources, sources[0].kind, self._native.part_bytes)
        try:
            reduce_marked(lambda each, op: self._native.reduce(step, each, op), values, parts, op)
        except BaseException:
            self._buckets.forget()
            raise
        return values

    def _in_place(self, step: Step, source: Source, own: np.ndarray[Any, Any], op: Op) -> Any:
        """Replace the values of a tensor on the host in its own memory, and return it; an error restores them.

        A copy of 64 MiB takes a sixth of the time of a sum. This function needs one copy instead of two.
        """
        saved, parts = self._buckets.saved(own, source.kind, self._native.part_bytes)
        given = 0

        def counted() -> Iterator[np.ndarray[Any, Any]]:
            nonlocal given
            for part in parts:
                given += part.size
                yield part

        try:
            self._native.reduce(step, counted(), op)
        except BaseException:
            own[:given] = saved[:given]
            self._buckets.forget()
            raise
        return source.x

    def _list_states(self, groups: list[Group], sources: list[Source], kinds: list[str], op: str) -> dict[str, int]:
        """Return, for each dtype, what the framework's engine can do with the tensors of this rank."""
        adding = "sum" if op == "mean" else op
        states = dict.fromkeys(kinds, RIGHT)
        for group, source in zip(groups, sources, strict=True):
            kind = source.kind
            if self._native.lacks(group.backend, kind, adding):
                states[kind] = LACKS
            elif states[kind] == RIGHT and adding != "sum" and kind in FLOATS and self._native.loses_nan:
                states[kind] = HAS_NAN if has_nan(source.values()) else RIGHT
        return states


def record(tensors: list[tuple[Backend, Tensor]], times: float, start: float, call: str, ranks: int) -> None:
    """Record an exchange in the open ledgers; this rank has sent its tensors ``times`` times."""
    if observing.ACTIVE is not None:
        nbytes = sum(backend.nbytes(x) for backend, x in tensors)
        observers.record_exchange(tensors, round(nbytes * times), start, call, ranks)


def _result(backend: Backend, total: np.ndarray, x: Tensor) -> Tensor:
    """Return the values for a tensor, on its device; in the memory of ``total`` if they are then copied into ``x``."""
    device = backend.device_of(x)
    shares = backend.supports_inplace(x) and trees.can_share(backend, total, device)
    return trees.tensor_of(backend, total, device, copy=not shares, recorded=device is not CPU)


def _describe(op: str, sources: list[Source]) -> str:
    """Return what the ranks compare: the operation, and the dtype, shape and key path of each tensor."""
    each = [f"{source.kind} {source.shape}{source.where and f' at {source.where}'}" for source in sources]
    more = f" and {len(each) - _SHOWN} more ({zlib.crc32(repr(each).encode()):08x})" if len(each) > _SHOWN else ""
    return f"all_reduce, {op} of {', '.join(each[:_SHOWN])}{more}"

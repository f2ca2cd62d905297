"""Tests of batch sizes: shrinking, growing, and the errors that count."""

from __future__ import annotations

import builtins
import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.runtime import batch_size


@pytest.mark.parametrize(("limit", "start", "fits"), [(100, 64, 64), (10, 64, 8), (1, 64, 1), (5, 7, 3), (1, 1, 1)])
def test_shrink_batch(limit: int, start: int, fits: int) -> None:
    tried = []

    def step(size: int) -> str:
        tried.append(size)
        if size > limit:
            raise MemoryError
        return f"ran {size}"

    assert ds.shrink_batch(step, start) == (f"ran {fits}", fits)
    assert tried == [start // 2**i for i in range(len(tried))]


def test_shrink_batch_on_a_full_card(cards: object) -> None:
    with ds.simulate(1, memory=8 * 1024):
        found, size = ds.shrink_batch(lambda size: ds.zeros(size, device="gpu").shape, 4096)
        assert (found, size) == ((1024,), 1024)
        assert ds.memory("gpu").used == 0


def test_shrink_batch_knows_the_frameworks_own_error(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfPaper(RuntimeError):
        pass

    monkeypatch.setattr(type(fake), "is_out_of_memory", lambda self, error: isinstance(error, OutOfPaper))

    def step(size: int) -> int:
        if size > 2:
            raise OutOfPaper
        return size

    assert ds.shrink_batch(step, 8) == (2, 2)
    assert fake.emptied == [ds.gpu(0), ds.gpu(1)] * 2, "the cache is emptied before each new try"


def test_shrink_batch_may_be_the_first_call(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework that is imported, but not yet used by devshim, still recognizes its own error."""

    class OutOfPaper(RuntimeError):
        pass

    monkeypatch.setattr(type(fake), "is_out_of_memory", lambda self, error: isinstance(error, OutOfPaper))
    del registry.LOADED["fakeframe"]

    def step(size: int) -> int:
        if size > 2:
            raise OutOfPaper
        return size

    assert ds.shrink_batch(step, 8) == (2, 2)


def test_shrink_batch_raises_its_own_error_where_an_adapter_does_not_load(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del registry.LOADED["fakeframe"]
    with monkeypatch.context() as broken:
        broken.delattr("fakeframe_devshim.Backend")
        with pytest.raises(ValueError, match="mine"):
            ds.shrink_batch(lambda size: int("mine"), 8)
    registry.load("fakeframe")


def test_the_failed_trys_tensors_are_gone_before_the_next() -> None:
    alive: list[Any] = []

    def step(size: int) -> int:
        gc.collect()
        assert not [ref for ref in alive if ref() is not None]
        big = np.zeros(size)
        alive.append(weakref.ref(big))
        if size > 1:
            raise MemoryError
        return size

    assert ds.shrink_batch(step, 8) == (1, 1)


def test_shrink_batch_gives_up_at_one() -> None:
    def never(size: int) -> None:
        raise MemoryError("no")

    with pytest.raises(ds.OutOfMemoryError, match="not even a batch of 1") as caught:
        ds.shrink_batch(never, 5)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_shrink_batch_lets_other_errors_through() -> None:
    for error in (ValueError("mine"), KeyboardInterrupt()):

        def step(size: int, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            ds.shrink_batch(step, 8)


@pytest.mark.parametrize("start", [0, -1, 1.0, "8", None, True, np.array([8])])
def test_shrink_batch_arguments(start: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="start is"):
        ds.shrink_batch(lambda size: size, start)


def test_a_function_is_forgotten_when_it_is_gone() -> None:
    def step(size: int) -> int:
        return size

    before = len(batch_size._REMEMBERED)
    ds.shrink_batch(step, 8, grow=True)
    assert len(batch_size._REMEMBERED) == before + 1
    del step
    gc.collect()
    assert len(batch_size._REMEMBERED) == before


def test_each_objects_method_has_its_own_size() -> None:
    class Trainer:
        def __init__(self, free: int) -> None:
            self.free = free

        def step(self, size: int) -> int:
            if size > self.free:
                raise MemoryError
            return size

    small, large = Trainer(4), Trainer(100)
    assert [ds.shrink_batch(small.step, 8, grow=True)[1] for _ in range(2)] == [4, 4]
    assert [ds.shrink_batch(large.step, 8, grow=True)[1] for _ in range(3)] == [8, 16, 32]
    assert ds.shrink_batch(large.step, 2, grow=True) == (2, 2), "another start begins anew"
    assert ds.shrink_batch(large.step, 2, grow=True, limit=3) == (3, 3)


def test_no_larger_size_is_tried_for_longer_and_longer() -> None:
    tried: list[int] = []

    def step(size: int) -> int:
        tried.append(size)
        if size > 4:
            raise MemoryError
        return size

    for _ in range(200):
        ds.shrink_batch(step, 4, grow=True)
    failures = [i for i, size in enumerate(tried) if size == 8]
    successes = [later - earlier - 2 for earlier, later in pairwise(failures)]
    assert successes == [1, 2, 4, 8, 16, 32, 64]


def test_growing_does_not_hide_other_errors() -> None:
    def step(size: int) -> int:
        if size > 4:
            raise KeyError(size)
        return size

    assert ds.shrink_batch(step, 4, grow=True) == (4, 4)
    with pytest.raises(KeyError):
        ds.shrink_batch(step, 4, grow=True)


class _Unreferable:
    __slots__ = ()

    def __call__(self, size: int) -> int:
        return size


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"grow": 1}, "grow is 1"),
        ({"limit": 9}, "grow is False"),
        ({"grow": True, "limit": 4}, "limit is 4"),
        ({"grow": True, "limit": 8.5}, "limit is 8.5"),
    ],
)
def test_arguments_of_growing(kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(ds.ArgumentError, match=text):
        ds.shrink_batch(lambda size: size, 8, **kwargs)


def test_a_callable_that_cannot_be_remembered_is_refused() -> None:
    with pytest.raises(ds.ArgumentError, match="weak reference"):
        ds.shrink_batch(_Unreferable(), 8, grow=True)
    assert ds.shrink_batch(_Unreferable(), 8) == (8, 8)


# ---------------------------------------------------------------------- errors that wrap others
class Backport(Exception):
    """A group of errors as packages for Python 3.10 define it."""

    def __init__(self, message: str, errors: list[Exception]) -> None:
        super().__init__(message)
        self.exceptions = tuple(errors)


Group: Any = getattr(builtins, "ExceptionGroup", Backport)


def _chained(outer: BaseException, cause: BaseException | None = None, context: BaseException | None = None) -> Any:
    outer.__context__ = context
    if cause is not None:
        outer.__cause__ = cause
    return outer


FULL = MemoryError("full")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FULL, True),
        (_chained(ValueError("a"), cause=FULL), True),
        (_chained(ValueError("a"), context=FULL), True),
        (_chained(ValueError("a"), cause=_chained(KeyError("b"), context=_chained(OSError("c"), cause=FULL))), True),
        (_chained(ValueError("a"), cause=KeyError("b"), context=FULL), False),
        (Group("several", [ValueError("a"), Group("inner", [FULL])]), True),
        (Backport("several", [ValueError("a"), FULL]), True),
        (Group("several", [ValueError("a"), OSError("b")]), False),
        (KeyboardInterrupt(), False),
        (RuntimeError("worker 3: torch.OutOfMemoryError: CUDA out of memory."), True),
    ],
    ids=repr,
)
def test_errors_that_led_to_an_error_count(error: BaseException, expected: bool) -> None:
    assert ds.is_out_of_memory(error) is expected


def test_an_error_that_wraps_itself() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not ds.is_out_of_memory(first)


def test_an_error_that_hides_what_led_to_it() -> None:
    with pytest.raises(ValueError, match="a") as caught:  # noqa: PT012, the chain is what is tested
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("a") from None
    assert isinstance(caught.value.__context__, MemoryError)
    assert not ds.is_out_of_memory(caught.value)


@pytest.mark.parametrize("error", [MemoryError, "CUDA out of memory", None], ids=repr)
def test_only_an_exception_can_be_asked_about(error: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="error is"):
        ds.is_out_of_memory(error)


def test_an_error_that_is_being_handled_already_does_not_count() -> None:
    """Python makes it the context of each error raised meanwhile, but it led to none of them."""
    tried = []

    def step(size: int) -> int:
        tried.append(size)
        return {}[size]

    try:
        raise MemoryError("an earlier fault")
    except MemoryError:
        with pytest.raises(KeyError):
            ds.shrink_batch(step, 8)
    assert tried == [8]

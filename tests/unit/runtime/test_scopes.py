"""Tests of default devices: `on`, `set_device`, `run`, and whether tensors are on one device."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.runtime import scopes
from devshim.testing.base import in_thread

G0, G1 = ds.gpu(0), ds.gpu(1)


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


def default() -> ds.Device:
    return ds.device_of(ds.zeros(1))


def test_nested_and_restored() -> None:
    assert default() is ds.cpu()
    with ds.on("gpu:1") as device:
        assert device is default() is G1
        with ds.on(0), ds.on("cpu"):
            assert default() is ds.cpu()
        assert default() is G1
        assert in_thread(default) is ds.cpu()
    assert default() is ds.cpu()


def test_restored_whatever_happens() -> None:
    with pytest.raises(ZeroDivisionError), ds.on(1):
        raise ZeroDivisionError
    assert default() is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError), ds.on("gpu:7"):
        raise AssertionError("entered")
    with pytest.raises(ds.DeviceSpecError):
        ds.on("gup")
    assert default() is ds.cpu()


def test_one_object_again_and_inside_itself() -> None:
    scope = ds.on(1)
    for _ in range(2):
        with scope, ds.on(0), scope:
            assert default() is G1
        assert default() is ds.cpu()


def test_one_object_shared_by_threads_that_overlap() -> None:
    scope, entered, left = ds.on(1), threading.Event(), threading.Event()
    seen: list[ds.Device] = []

    def first() -> None:
        with scope:
            assert entered.wait(10)
        seen.append(default())
        left.set()

    def second() -> None:
        with scope:
            entered.set()
            assert left.wait(10)
            seen.append(default())
        seen.append(default())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [ds.cpu(), G1, ds.cpu()]


def test_tasks_keep_their_own() -> None:
    async def task(device: ds.Device, mine: asyncio.Event, other: asyncio.Event) -> ds.Device:
        with ds.on(device):
            mine.set()
            await other.wait()
            return default()

    async def main() -> list[ds.Device]:
        one, two = asyncio.Event(), asyncio.Event()
        found = await asyncio.gather(task(G0, one, two), task(G1, two, one))
        return [*found, default()]

    assert asyncio.run(main()) == [G0, G1, ds.cpu()]


def test_what_creation_follows_and_what_not() -> None:
    there = ds.zeros(1, device=0)
    with ds.on(1):
        assert ds.device_of(ds.random.uniform(size=2)) is G1
        assert ds.device_of(ds.from_numpy(np.zeros(1))) is G1
        assert ds.device_of(ds.asarray([1])) is G1
        assert ds.device_of(ds.zeros_like(there)) is G0
        assert ds.device_of(ds.asarray(there)) is G0
        assert ds.device_of(ds.zeros(1, device="cpu")) is ds.cpu()


def alone(fn: Callable[[], Any]) -> Any:
    """Run in a thread: `set_device` lasts as long as its thread."""
    return in_thread(lambda: contextvars.copy_context().run(fn))


def test_set_device_lasts_to_the_end_of_its_thread_or_block() -> None:
    def program() -> list[ds.Device]:
        seen = []
        ds.set_device(1)
        seen.append(default())
        with ds.on(0):
            ds.set_device("cpu")
            seen.append(default())
        seen.append(default())
        ds.set_device("cpu")
        return [*seen, default()]

    assert alone(program) == [G1, ds.cpu(), G1, ds.cpu()]
    assert default() is ds.cpu()


def test_set_device_refuses_what_is_not_there() -> None:
    def program() -> ds.Device:
        ds.set_device(1)
        with pytest.raises(ds.DeviceNotFoundError):
            ds.set_device(5)
        return default()

    assert alone(program) is G1


def test_native_scopes_do_not_pile_up(fake: Any) -> None:
    """`set_device` leaves the scope it entered before; one made inside a block ends with the block."""

    def program() -> int:
        with ds.using("fakeframe"):
            for _ in range(50):
                ds.set_device(1)
                with ds.on(0):
                    ds.set_device(1)
                    ds.set_device(0)
        return len(scopes._native.open)

    assert alone(program) == 1


def test_a_task_does_not_touch_the_threads_native_scope(fake: Any) -> None:
    """Another task of the same thread may run at every await."""

    def program() -> tuple[int, int]:
        async def task() -> int:
            ds.set_device(0)
            with ds.on(1):
                await asyncio.sleep(0)
            return len(fake.scopes)

        with ds.using("fakeframe"):
            ds.set_device(1)
            return asyncio.run(task()), len(scopes._native.open)

    assert alone(program) == (1, 1)


def test_run_computes_and_creates_where_the_arguments_are() -> None:
    x = ds.ones(3, device=1)
    y = ds.run(lambda x, scale: x * ds.full(3, 2.0) + scale, x, scale=1)
    assert ds.device_of(y) is G1
    assert ds.to_numpy(y).tolist() == [3, 3, 3]
    assert default() is ds.cpu()
    assert ds.run(lambda: default()) is ds.cpu()
    assert ds.run(lambda fn: fn, fn=3) == 3
    with pytest.raises(ZeroDivisionError):
        ds.run(lambda x: 1 / 0, x)
    assert default() is ds.cpu()


def test_run_enters_the_frameworks_own_scope(fake: Any) -> None:
    x = fake.to_device(np.zeros(1), G1)
    assert ds.run(lambda tree: tree["x"], {"x": x}) is x
    assert fake.scopes == [G1]


def test_run_refuses_first() -> None:
    called = []
    with pytest.raises(ds.DeviceMismatchError) as caught:
        ds.run(lambda *a, **k: called.append(1), ds.zeros(1), [ds.zeros(1, device=1)], y={"k": ds.zeros(1, device=1)})
    assert not called
    assert "args[0] is on cpu, args[1][0] is on gpu:1, y['k'] is on gpu:1" in caught.value.problem
    assert caught.value.hint == "args = ds.place(args, 'gpu:1')"


def test_same_device() -> None:
    x, y = ds.zeros(1), ds.zeros(1, device=1)
    assert ds.same_device()
    assert ds.same_device(x, [x, 3], "s")
    assert not ds.same_device(x, {"y": y})
    assert ds.require_same_device(x=x, n=3) is ds.cpu()
    assert ds.require_same_device(n=3) is None


# ---------------------------------------------------------------------- a device as a scope
def test_a_device_is_a_scope_and_stays_a_value() -> None:
    with G1 as entered, ds.gpu(1):
        assert entered is G1
        assert default() is G1
        with pytest.raises(ZeroDivisionError), G0, G1, ds.cpu():
            raise ZeroDivisionError
        assert default() is G1
        assert hash(G1) == hash(ds.gpu(1))
        assert not hasattr(G1, "__dict__")
    assert default() is ds.cpu()


def test_a_device_that_does_not_exist_is_no_scope() -> None:
    with G1:
        with pytest.raises(ds.DeviceNotFoundError, match="gpu:7"), ds.gpu(7):
            raise AssertionError("entered")
        assert default() is G1


def test_an_exit_stack_and_set_device() -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        for device in (G0, G1, G0, G1):
            stack.enter_context(device)
            assert default() is device
        ds.set_device("cpu")
        assert default() is ds.cpu()
    assert default() is ds.cpu()
    with G1:
        ds.set_device(G0)
        assert default() is G0
    assert default() is ds.cpu()


def test_a_generator_in_a_device_that_is_closed_late() -> None:
    """As for `on`, a scope that another one outlives restores what was there before its own beginning."""

    def steps() -> Any:
        with G1:
            yield default()

    running = steps()
    assert next(running) is G1
    running.close()
    assert default() is ds.cpu()


def test_a_device_is_a_scope_before_a_framework_is_loaded(python: Callable[..., str]) -> None:
    assert (
        python("""
        import devshim as ds
        ds.use("numpy")
        ds.simulate(2)
        with ds.gpu(1):
            print(ds.device_of(ds.zeros(2)), end="")
    """)
        == "gpu:1"
    )

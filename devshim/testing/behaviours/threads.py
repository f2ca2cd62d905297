"""Tests of threads and asyncio tasks: each has its own default device and framework, and all can run concurrently."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import devshim as ds
from devshim.registry import current
from devshim.testing.base import Kit, in_thread
from devshim.testing.behaviours.scopes import default
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device


class ThreadTests(Kit):
    """Threads and tasks do not affect each other."""

    @feature("create")
    def test_a_scope_applies_to_its_own_thread(self, other_device: Device) -> None:
        """A thread started inside `on` starts with the CPU, and its own scope does not affect its parent."""

        def body() -> list[Device]:
            before = default()
            with ds.on(other_device):
                pass
            ds.set_device(other_device)
            return [before, default()]

        with ds.on(other_device):
            assert in_thread(body)[0] is ds.cpu()
        assert in_thread(body) == [ds.cpu(), other_device]
        assert default() is ds.cpu()

    @feature("create")
    def test_one_device_is_a_scope_in_several_threads(self, away: tuple[Device, Device]) -> None:
        """Threads that are inside ``with device:`` of the same device at the same time do not affect each other."""
        meet = threading.Barrier(2, timeout=30)
        first, second = away

        def body(turn: int) -> list[Device]:
            found = []
            for _ in range(5):
                with first:
                    meet.wait()
                    if turn:
                        with second, first, second:
                            found.append(default())
                            meet.wait()
                    else:
                        meet.wait()
                        found.append(default())
                    meet.wait()
                found.append(default())
            return found

        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(body, [0, 1]))
        assert runs == [[first, ds.cpu()] * 5, [second, ds.cpu()] * 5]

    @feature("create")
    def test_one_device_is_a_scope_in_several_tasks(self, away: tuple[Device, Device]) -> None:
        """Tasks that are inside ``with device:`` of the same device each have their own default."""
        first, second = away

        async def body(device: Device) -> list[Device]:
            found = []
            for _ in range(3):
                with first:
                    await asyncio.sleep(0)
                    with device:
                        await asyncio.sleep(0)
                        found.append(default())
                    await asyncio.sleep(0)
                    found.append(default())
            return [*found, default()]

        async def both() -> list[list[Device]]:
            return list(await asyncio.gather(body(first), body(second)))

        assert asyncio.run(both()) == [[first, first] * 3 + [ds.cpu()], [second, first] * 3 + [ds.cpu()]]
        assert default() is ds.cpu()

    @feature("create")
    @hook("native_zeros")
    def test_the_native_scope_applies_to_its_own_thread(self, other_device: Device) -> None:
        """A scope or `set_device` in one thread does not change where the framework creates in another."""
        before = in_thread(lambda: ds.device_of(self.native_zeros()))
        with ds.on(other_device):
            assert in_thread(lambda: ds.device_of(self.native_zeros())) is before
            in_thread(lambda: ds.set_device("cpu"))
            assert ds.device_of(self.native_zeros()) is other_device

    @feature("create")
    def test_two_threads_at_once(self, away: tuple[Device, Device]) -> None:
        """Two threads that are inside different scopes at the same time each create on their own device."""
        meet = threading.Barrier(2, timeout=30)

        def body(device: Device) -> list[Device]:
            found = []
            for _ in range(5):
                with ds.on(device):
                    meet.wait()
                    found.append(default())
                    meet.wait()
            return found

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(body, away)
        assert first == [away[0]] * 5
        assert second == [away[1]] * 5

    @feature("create")
    def test_two_tasks_at_once(self, away: tuple[Device, Device]) -> None:
        """Two tasks of one thread that alternate inside different scopes each create on their own device."""

        async def body(device: Device) -> list[Device]:
            found = []
            with ds.on(device):
                for _ in range(4):
                    await asyncio.sleep(0)
                    found.append(default())
            return [*found, default()]

        async def both() -> list[list[Device]]:
            return await asyncio.gather(*(body(device) for device in away))

        first, second = asyncio.run(both())
        assert first == [*[away[0]] * 4, ds.cpu()]
        assert second == [*[away[1]] * 4, ds.cpu()]

    @feature("create")
    def test_set_device_applies_to_its_own_task(self, other_device: Device) -> None:
        """`set_device` in a task does not affect the task that started it, or a sibling."""

        async def body(device: Device | None) -> Device:
            if device is not None:
                ds.set_device(device)
            await asyncio.sleep(0)
            return default()

        async def both() -> list[Device]:
            found = await asyncio.gather(body(other_device), body(None))
            return [*found, default()]

        assert asyncio.run(both()) == [other_device, ds.cpu(), ds.cpu()]

    def test_using_applies_to_its_own_thread(self) -> None:
        """`using` in one thread or task does not change the framework of the others."""
        name = self.backend

        async def task(chosen: str) -> str:
            with ds.using(chosen):
                await asyncio.sleep(0)
                return current.current().name

        async def both() -> list[str]:
            return list(await asyncio.gather(task("numpy"), task(name)))

        with ds.using("numpy"):
            assert in_thread(lambda: current.current().name) == name
        assert asyncio.run(both()) == ["numpy", name]

    @feature("place")
    def test_many_threads_place_at_once(self, journey: tuple[Device, Device]) -> None:
        """Eight threads that place, copy and read at the same time all get their own values."""

        def body(i: int) -> bool:
            a = numbers() + i
            x = ds.from_numpy(a, journey[0])
            ok = True
            for _ in range(5):
                y = ds.copy(ds.place(x, journey[1]), journey[0])
                ok = ok and ds.device_of(y) is journey[0] and self.same_numbers(y, a)
            return ok

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(body, range(16)))

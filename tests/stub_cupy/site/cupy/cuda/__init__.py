"""Devices, streams and events, like CuPy's."""

from __future__ import annotations

import threading
from typing import Any

from cupy import _machine
from cupy.cuda import memory as memory
from cupy.cuda import runtime as runtime


class Device:
    def __init__(self, device: int | Device | None = None) -> None:
        self.id = _machine.current() if device is None else int(device)
        self._before = threading.local()

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        self._before.__dict__.setdefault("stack", []).append(runtime.getDevice())
        if runtime.getDevice() != self.id:
            runtime.setDevice(self.id)
        return self

    def __exit__(self, *failure: object) -> None:
        before = self._before.stack.pop()
        if runtime.getDevice() != before:
            runtime.setDevice(before)

    def use(self) -> None:
        runtime.setDevice(self.id)

    def synchronize(self) -> None:
        before = runtime.getDevice()
        runtime.setDevice(self.id)
        _machine.wait_for_gpu(self.id)
        runtime.setDevice(before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream:
    def __init__(self, null: bool = False, non_blocking: bool = False, *, _work: Any = None) -> None:
        self._work = _work or _machine.new_stream()
        self.ptr = id(self._work)

    def __enter__(self) -> Stream:
        self._before = _machine.choose_stream(self._work, self._work.gpu)
        return self

    def __exit__(self, *failure: object) -> None:
        _machine.choose_stream(self._before, self._work.gpu)

    def wait_event(self, event: Event) -> None:
        self._work.submit(event.synchronize)

    def synchronize(self) -> None:
        _machine.calls["streamSynchronize"] += 1
        self._work.run_work()


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self._gpu = _machine.current()
        self._work, self._at = None, 0

    def record(self, stream: Stream | None = None) -> None:
        self._work = _machine.stream() if stream is None else stream._work
        if self._work.gpu != self._gpu:
            raise runtime.CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        self._at = self._work.submitted

    def synchronize(self) -> None:
        if self._work is not None:
            self._work.run_work(self._at)


def get_current_stream() -> Stream:
    return Stream(_work=_machine.stream())

"""Claims about default devices, computing, threads and waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import devshim as ds
from devshim.certify import driver
from devshim.certify.claims import Claims, Setting, expect, require_refusal

__all__ = ["CLAIMS"]

CLAIMS = Claims("scopes")


@CLAIMS.add("`on` sets the default device for creation, nests, and restores it, even after an error.")
def default(at: Setting) -> None:
    """Create tensors inside and outside scopes."""
    with ds.on(at.last):
        expect(ds.device_of(ds.ones(2)) is at.last, "inside of on(last) a tensor is elsewhere")
        with ds.on("cpu"):
            expect(ds.device_of(ds.ones(2)) is ds.cpu(), "inside of on('cpu') a tensor is elsewhere")
        require_refusal(ZeroDivisionError, _fails)
        expect(ds.device_of(ds.ones(2)) is at.last, "an inner scope was not restored")
    expect(ds.device_of(ds.ones(2)) is ds.cpu(), "the default was not restored")


def _fails() -> None:
    with ds.on("cpu"):
        raise ZeroDivisionError


@CLAIMS.add("`run` computes where its arguments are, and refuses arguments on different devices by name.")
def running(at: Setting) -> None:
    """Multiply matrices on the last GPU, and mix in a tensor on the CPU."""
    x, host = ds.ones((4, 4), device=at.last), ds.ones((4, 4))
    y = ds.run(lambda a, b: a @ b, x, x)
    expect(ds.device_of(y) is at.last, f"the product is on {ds.device_of(y)}")
    found = ds.to_numpy(y).tolist()
    expect(found == [[4] * 4] * 4, f"the product of two 4 by 4 matrices of ones is {found}")
    text = require_refusal(ds.DeviceMismatchError, lambda: ds.run(lambda a, b: a @ b, x, host))
    expect("cpu" in text and str(at.last) in text, f"the error names no devices: {text}")
    text = require_refusal(ds.DeviceMismatchError, lambda: ds.require_same_device(first=x, second=host))
    expect("first" in text and "second" in text, f"the error names no arguments: {text}")


@CLAIMS.add("Eight threads on all GPUs each get their own default device and their own values.")
def threads(at: Setting) -> None:
    """Create, copy, compute and read in several threads at the same time."""

    def work(number: int) -> str:
        device = ds.gpu(number % at.gpus)
        for turn in range(5 if at.simulated else 50):
            with ds.using(at.backend), ds.on(device):
                x = ds.full((64,), number + turn, dtype="float32")
                y = ds.run(lambda a, b: a + b, ds.copy(x, device), x)
            found = ds.to_numpy(y)
            if ds.device_of(y) is not device or found.min() != found.max() or found[0] != 2 * (number + turn):
                return f"thread {number}: {found[:3]} on {ds.device_of(y)}, not {2 * (number + turn)} on {device}"
        return ""

    with ThreadPoolExecutor(8) as pool:
        wrong = [text for text in pool.map(work, range(8)) if text]
    expect(not wrong, "; ".join(wrong))


@CLAIMS.add(
    "No call changes the current GPU, even if the call fails.",
    cards=2,
    real=True,
    only=("torch", "paddle", "mxnet", "cupy"),
)
def current(at: Setting) -> str:
    """Ask the CUDA runtime for the thread's current GPU after each call; JAX's own calls change it."""
    ds.to_numpy(ds.ones(3, device=at.first))
    found = driver.current()
    x = ds.ones(1 << 10, device=at.last)
    calls: dict[str, Any] = {
        "ones": lambda: ds.ones(3, device=at.last),
        "place": lambda: ds.place(ds.ones(1 << 20), at.last),
        "place of a list": lambda: ds.place([ds.ones(64) for _ in range(99)], at.last),
        "copy": lambda: ds.copy(x, at.last),
        "to_numpy": lambda: ds.to_numpy(x),
        "run": lambda: ds.run(lambda t: t + 1, x),
        "random": lambda: ds.random.uniform(size=4, device=at.last),
        "memory": lambda: ds.memory(at.last),
        "describe": lambda: ds.describe(at.last),
        "synchronize": ds.synchronize,
        "a failing zeros": lambda: require_refusal(ds.DeviceNotFoundError, lambda: ds.zeros(1, device="gpu:99")),
    }
    for name, call in calls.items():
        call()
        now = driver.current()
        expect(now == found, f"{name}: GPU {now} is current, it was {found}")
    return f"card {found}"


@CLAIMS.add("`synchronize` waits for one GPU and for all, and needs no GPU to be in use.")
def waiting(at: Setting) -> None:
    """Wait for every device."""
    for device in (None, "cpu", at.first, at.last):
        ds.synchronize(device)

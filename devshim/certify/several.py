"""Claims about several devices; on a machine with one GPU, they use that GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds
from devshim.certify import driver
from devshim.certify.claims import Claims, Setting, differences, expect, require_refusal
from devshim.cli.chapters.networks import network_api

__all__ = ["CLAIMS"]

CLAIMS = Claims("several")


@CLAIMS.add("`split` over all GPUs and `gather` are inverse, for rows that do not divide.")
def split(at: Setting) -> None:
    """Split float32 and int32 rows, and gather them on the CPU and on a GPU."""
    cards = [ds.cpu(), *ds.try_all_gpus()]
    for dtype in ("float32", "int32"):
        array = np.arange(3 * (2 * len(cards) + 1), dtype=dtype).reshape(-1, 3)
        parts = ds.split(ds.from_numpy(array), cards)
        expect([ds.device_of(part) for part in parts] == cards, f"{dtype}: a part is elsewhere")
        sizes = [part.shape[0] for part in parts]
        expect(max(sizes) - min(sizes) <= 1, f"{dtype}: the parts have {sizes} rows")
        for device in (ds.cpu(), at.last):
            gathered = ds.gather(parts, device)
            expect(ds.device_of(gathered) is device, f"{dtype}: gathered on {ds.device_of(gathered)}, not on {device}")
            wrong = differences(ds.to_numpy(gathered), array)
            expect(not wrong, f"{dtype}, gathered on {device}: {wrong}")


@CLAIMS.add("`all_reduce_` gives every GPU the sum, mean, maximum and minimum, in float32, int32 and float64.", cards=2)
def reduce(at: Setting) -> None:
    """Reduce trees of tensors whose values are the numbers of their GPUs."""
    numbers = range(1, at.gpus + 1)
    wanted = {"sum": sum(numbers), "mean": sum(numbers) / at.gpus, "max": at.gpus, "min": 1}
    for dtype in ("float32", "int32", "float64"):
        for op, value in wanted.items():
            if op == "mean" and dtype == "int32":
                continue
            trees = [{"w": ds.full(1000, i + 1, dtype=dtype, device=i)} for i in range(at.gpus)]
            ds.all_reduce_(trees, op)  # type: ignore[arg-type]
            for i, tree in enumerate(trees):
                found = ds.to_numpy(tree["w"])
                expect(ds.device_of(tree["w"]) is ds.gpu(i), f"{op} of {dtype}: on {ds.device_of(tree['w'])}")
                expect(
                    found.min() == found.max() == value, f"{op} of {dtype}: {found.min()} to {found.max()}, not {value}"
                )


@CLAIMS.add("`broadcast`, `replicate` and `parallel` use all GPUs at the same time, and give the CPU's answers.")
def replicas(at: Setting) -> None:
    """Run replicas of a model on the parts of a batch."""
    cards = ds.try_all_gpus()
    rows = ds.asarray([[i + j / 4 for j in range(3)] for i in range(4 * at.gpus)], dtype="float32")
    wanted = ds.to_numpy(network_api().forward(network_api().net(), rows))
    forward = network_api().forward
    work = zip(ds.replicate(network_api().net(), cards), ds.split(rows, cards), strict=True)
    parts = ds.parallel([lambda one: forward(*one)] * len(cards), work)
    expect([ds.device_of(part) for part in parts] == cards, "an answer is on another GPU")
    found = ds.to_numpy(ds.gather(parts, "cpu"))
    apart = abs(found - wanted).max()
    expect(bool(apart <= 1e-2 * abs(wanted).max()), f"the answers are {apart} off, beside {abs(wanted).max()} at most")
    sent = ds.broadcast({"x": ds.arange(3)}, cards)
    expect([ds.device_of(each["x"]) for each in sent] == cards, "a copy of a broadcast is elsewhere")


@CLAIMS.add("`parallel` raises the first failure and names its GPU.", cards=2)
def failing(at: Setting) -> None:
    """Raise an error on the last GPU."""

    def work(x: Any) -> Any:
        if ds.device_of(x) is at.last:
            raise RuntimeError("on purpose")
        return x

    parts = ds.split(ds.ones((at.gpus, 2)), ds.try_all_gpus())
    error = _error_of(lambda: ds.parallel([work] * at.gpus, parts))
    text = " ".join([str(error), *getattr(error, "__notes__", ())])
    expect("on purpose" in text and str(at.last) in text, f"the error says: {text}")


def _error_of(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@CLAIMS.add(
    "`parallel` makes each part's GPU current in its thread, and changes no other thread's current GPU.",
    cards=2,
    real=True,
    only=("torch",),
)
def current(at: Setting) -> None:
    """Ask the CUDA runtime in each thread."""
    before = driver.current()
    found = ds.parallel([lambda x: driver.current()] * at.gpus, ds.split(ds.ones((at.gpus, 2)), ds.try_all_gpus()))
    expect(found == list(range(at.gpus)), f"the current GPUs were {found}")
    expect(driver.current() == before, f"card {driver.current()} is current afterwards, it was {before}")


@CLAIMS.add("From one GPU to another the values are right, in one tensor and in many.", cards=2)
def between(at: Setting) -> None:
    """Copy a tensor that is still being computed, and a list of small tensors."""
    for size in (1 << 10, 1 << (16 if at.simulated else 24)):
        x = ds.run(lambda t: t + 5, ds.zeros(size, dtype="float32", device=at.first))
        for blocking in (False, True):
            y = ds.place(x, at.last, non_blocking=blocking)
            ds.synchronize(at.last)
            found = ds.to_numpy(y)
            expect(found.min() == found.max() == 5, f"{size} numbers: {found.min()} to {found.max()}, not 5")
    many = [ds.full(64, i, dtype="float32", device=at.first) for i in range(100)]
    moved = ds.place(many, at.last)
    wrong = differences([int(ds.to_numpy(x)[0]) for x in moved], range(100))
    expect(not wrong, f"many small tensors, the first number of each: {wrong}")


@CLAIMS.add("A list with tensors on different GPUs is refused with their names.", cards=2)
def mixed(at: Setting) -> None:
    """Compare two GPUs."""
    x, y = ds.ones(2, device=at.first), ds.ones(2, device=at.last)
    text = require_refusal(ds.DeviceMismatchError, lambda: ds.require_same_device(x=x, y=y))
    expect(str(at.first) in text and str(at.last) in text, f"the error says: {text}")

"""Claims about what happens before a framework has started its devices; each runs in a new process."""

from __future__ import annotations

import os
from typing import Any

import devshim as ds
from devshim.certify import driver
from devshim.certify.claims import Claims, Setting, expect, require_refusal
from devshim.certify.fresh import fresh

__all__ = ["CLAIMS"]

CLAIMS = Claims("start")

_NO_CONTEXT: tuple[object, ...] = (None, [])


@CLAIMS.add("Counting GPUs makes no context, and the count is the same after the framework has started.")
def counting(at: Setting) -> str:
    """Make every query that does not start devices, then start them."""
    before, contexts, after = fresh(_counting, at)
    expect(before == after == at.gpus, f"{before} before the start, {after} after it, {at.gpus} in another process")
    expect(contexts in _NO_CONTEXT, f"counting made contexts on the cards {contexts}")
    return f"{before} GPUs"


def _counting(at: Setting) -> Any:
    count = ds.device_count()
    expect(len(ds.devices("gpu")) == count, "devices() and device_count() differ")
    expect(ds.try_gpu() is ds.require("gpu:0"), "try_gpu() and require('gpu:0') differ")
    contexts = driver.contexts()
    ds.to_numpy(ds.ones(3, device=at.last))
    return count, contexts, ds.device_count()


@CLAIMS.add("`describe` says the same before and after the framework has started.")
def describing(at: Setting) -> str:
    """Compare name, memory and UUID."""
    before, after = fresh(_describing, at)
    expect(before == after, f"before the start {before}, after it {after}")
    name, total, _ = before
    return f"{name}, {total} bytes"  # a report has no UUID: it is the serial number of a card


def _describing(at: Setting) -> Any:
    def describe() -> list[Any]:
        found = ds.describe(at.last)
        return [found.name, found.total_memory, found.uuid]

    before = describe()
    ds.to_numpy(ds.ones(3, device=at.last))
    return before, describe()


@CLAIMS.add("`set_visible_devices([last])` makes the last GPU `gpu:0`, and the only one.")
def visible(at: Setting) -> None:
    """Show one of all GPUs after counting them; TensorFlow starts CUDA when it counts, which is too early."""
    wanted = fresh(_last_uuid, at)
    count, shown, where = fresh(_visible, at)
    expect((count, where) == (1, "gpu:0"), f"{count} GPUs are visible, and a tensor of gpu:0 is on {where}")
    expect(at.simulated or (wanted and wanted == shown), f"gpu:0 is the card {shown}, not {wanted}")


def _visible(at: Setting) -> Any:
    if at.backend != "tensorflow":
        expect(ds.device_count() == at.gpus, "another count than before")
    ds.set_visible_devices([at.last.index])
    x = ds.ones(3, device="gpu:0")
    return ds.device_count(), _uuid(0), str(ds.device_of(x))


def _last_uuid(at: Setting) -> str | None:
    ds.to_numpy(ds.ones(3, device=at.last))
    return _uuid(at.last.index)


def _uuid(index: int) -> str | None:
    """Return a GPU's UUID; TensorFlow's description has none, and it numbers the GPUs as CUDA does."""
    return ds.describe(index).uuid or driver.uuid(index)


@CLAIMS.add("`set_visible_devices` after the start is refused.")
def too_late(at: Setting) -> None:
    """Call `set_visible_devices` after the framework has started."""
    fresh(_too_late, at)


def _too_late(at: Setting) -> None:
    ds.to_numpy(ds.ones(3, device=at.first))
    require_refusal(ds.AlreadyStartedError, lambda: ds.set_visible_devices([0]))


@CLAIMS.add("With `CUDA_VISIBLE_DEVICES` empty there are no GPUs, and the error names the variable.", real=True)
def hidden(at: Setting) -> None:
    """Hide all GPUs from a new process."""
    count, text = fresh(_hidden, at, CUDA_VISIBLE_DEVICES="")
    expect(count == 0, f"{count} GPUs are counted")
    expect("CUDA_VISIBLE_DEVICES" in text, f"the error says: {text}")


def _hidden(at: Setting) -> Any:
    return ds.device_count(), require_refusal(ds.DeviceNotFoundError, lambda: ds.require("gpu:0"))


@CLAIMS.add("With `CUDA_VISIBLE_DEVICES` set to the UUID of the last card, that card is `gpu:0`.", real=True)
def by_uuid(at: Setting) -> None:
    """Show one GPU by its UUID."""
    uuid = fresh(_last_uuid, at)
    expect(uuid, "neither describe() nor the driver knows a UUID")
    count, shown = fresh(_by_uuid, at, CUDA_VISIBLE_DEVICES=str(uuid))
    expect((count, shown) == (1, uuid), f"{count} GPUs, and gpu:0 is {shown}")


def _by_uuid(at: Setting) -> Any:
    ds.to_numpy(ds.ones(3, device="gpu:0"))
    return ds.device_count(), _uuid(0)


@CLAIMS.add(
    "`memory_policy('grow')` is taken after counting, and the first tensor takes under 3 GiB of a card.", real=True
)
def growing(at: Setting) -> str:
    """Compare the GPU's free memory before and after the first tensor, as the driver reports it."""
    taken = fresh(_growing, at)
    expect(taken is not None, "the driver does not say how much memory is free")
    expect(taken < 3 << 30, f"it takes {taken / 2**30:.1f} GiB")
    return f"{taken / 2**20:.0f} MiB"


def _growing(at: Setting) -> int | None:
    from devshim.devices import nvml

    ds.device_count()
    ds.memory_policy("grow")
    before = nvml.card_at(at.last.index)
    x = ds.ones(3, device=at.last)
    ds.synchronize(at.last)
    after = nvml.card_at(at.last.index)
    del x
    if before is None or after is None or before.free_memory is None or after.free_memory is None:
        return None
    return before.free_memory - after.free_memory


@CLAIMS.add(
    "After counting, a forked process may use the GPU: place a tensor there and read it.", only=("torch", "numpy")
)
def forking(at: Setting) -> None:
    """Count, fork, and compute in the child."""
    code = fresh(_forking, at)
    expect(code == 0, f"the child ended with {code}")


def _forking(at: Setting) -> int:
    ds.device_count()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = int(ds.to_numpy(ds.place(ds.ones(3), at.first)).sum() != 3)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@CLAIMS.add("A seed that is set before the start gives the same numbers in two processes.")
def seeding(at: Setting) -> None:
    """Draw in two new processes."""
    expect(fresh(_seeding, at) == fresh(_seeding, at), "the numbers differ")


def _seeding(at: Setting) -> Any:
    ds.random.seed(7)
    return ds.to_numpy(ds.random.normal(size=5, device=at.last)).tolist()

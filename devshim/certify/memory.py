"""Claims about memory: reported figures, full GPUs, and memory that is returned."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, Skip, expect, require_refusal

__all__ = ["CLAIMS"]

CLAIMS = Claims("memory")


@CLAIMS.add("`memory` gives figures that fit the card, and `used` counts what a tensor takes.")
def figures(at: Setting) -> str:
    """Compare with `describe` and with the driver."""
    gc.collect()  # tensors in reference cycles of earlier claims would be freed in between
    found, card = ds.memory(at.first), ds.describe(at.first)
    total, used, free = found.total, found.used, found.free
    expect(total is None or used is None or used <= total, f"{used} of {total} bytes are in use")
    expect(total is None or free is None or free <= total, f"{free} of {total} bytes are free")
    expect(total is None or card.total_memory in (None, total), f"memory {total}, describe {card.total_memory}")
    if not at.simulated:
        _as_the_driver_says(at, found)
    if used is None:
        return "the framework does not say what is in use"
    x = ds.ones(1 << 20, dtype="float32", device=at.first)
    ds.synchronize(at.first)
    grown = (ds.memory(at.first).used or 0) - used
    expect(4 << 20 <= grown < 8 << 20, f"a tensor of 4 MiB took {grown} bytes")
    del x
    return f"{total} bytes"


def _as_the_driver_says(at: Setting, found: ds.MemoryInfo) -> None:
    from devshim.devices import nvml

    card = nvml.card_at(at.first.index)
    if card is None or card.total_memory is None or found.total is None:
        return
    share = found.total / card.total_memory
    expect(0.9 < share <= 1.001, f"total is {share:.2f} of what the driver says")
    if found.free is not None and card.free_memory is not None:
        more = found.free - card.free_memory
        expect(more < found.total / 10, f"{more / 2**30:.1f} GiB more are reported as free than the driver reports")


@CLAIMS.add("More than a card holds is ds.OutOfMemoryError, and `shrink_batch` finds what fits.")
def too_large(at: Setting) -> str:
    """Allocate twice the GPU's memory."""
    total = _total(at)
    require_refusal(ds.OutOfMemoryError, lambda: ds.zeros(total // 2, dtype="float32", device=at.first))
    block = max(total // 64, 1)
    x, size = ds.shrink_batch(lambda n: ds.zeros((n, block), dtype="uint8", device=at.first), 256)
    expect(1 <= size <= 64, f"{size} of 64 parts of the card fitted")
    del x
    _release_memory(at)
    return f"{size} of 64 parts fitted"


@CLAIMS.add("On a full card `place` and `from_numpy` raise ds.OutOfMemoryError, and a tree stays where it was.")
def full(at: Setting) -> None:
    """Fill the first GPU, and place more tensors there."""
    hog = _fill(at)
    array = np.ones(max(_total(at) // 256, 1 << 20), "float32")  # four times the smallest block of the filling
    tree = {"small": ds.ones(3), "large": ds.from_numpy(array)}
    require_refusal(ds.OutOfMemoryError, lambda: ds.place(tree["large"], at.first))
    require_refusal(ds.OutOfMemoryError, lambda: ds.from_numpy(array, at.first))
    require_refusal(ds.OutOfMemoryError, lambda: ds.place(tree, at.first))
    expect(ds.placement_of(tree).devices == {ds.cpu()}, "a part of the tree has moved")
    hog.clear()
    _release_memory(at)
    expect(ds.device_of(ds.place(tree, at.first)["large"]) is at.first, "the GPU cannot be used afterwards")


@CLAIMS.add("After an error of a full card the memory in use is what it was, to the byte.")
def memory_released(at: Setting) -> str:
    """Compare `used` before filling the GPU and after."""
    _release_memory(at)
    before = ds.memory(at.first).used
    if before is None:
        msg = "the framework does not say what is in use"
        raise Skip(msg)
    hog = _fill(at)
    hog.clear()
    _release_memory(at)
    after = ds.memory(at.first).used
    expect(after == before, f"{before} bytes before, {after} after")
    return f"{before} bytes"


def _total(at: Setting) -> int:
    total = ds.memory(at.first).total or ds.describe(at.first).total_memory
    if total is None:
        msg = "the framework does not say how much memory the card has"
        raise Skip(msg)
    return total


def _fill(at: Setting) -> list[Any]:
    """Fill the first GPU with large blocks, then with small ones."""
    hog: list[Any] = []
    for parts in (16, 256):
        block = _total(at) // parts
        try:
            while len(hog) < 1000:
                hog.append(ds.zeros(block, dtype="uint8", device=at.first))
                ds.synchronize(at.first)
        except ds.OutOfMemoryError:
            continue
    return hog


def _release_memory(at: Setting) -> None:
    gc.collect()
    ds.synchronize(at.first)
    if "empty_cache" not in _gaps():
        ds.empty_cache(at.first)


def _gaps() -> list[str]:
    from devshim.registry import current

    return list(current.current().gaps)

"""A checkpoint that ranks of one framework write, and other numbers of ranks of another one read, equal to the bit.

``python rank_checkpoints.py --write NAME FOLDER RANKS`` starts RANKS processes of the framework, which save.
``python rank_checkpoints.py --read NAME FOLDER`` loads it with 1, 3 and 7 ranks, which are threads, and without.
The exit status is 1 if a bit differs. `nox -s rank_checkpoints` writes with PyTorch and reads with every framework.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import devshim as ds

ROWS, COLUMNS = 23, 3
DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
"""The dtypes that all frameworks have."""
SIZES = (1, 3, 7)


def arrays() -> dict[str, np.ndarray]:
    """Return an array of random bytes for each dtype."""
    random = np.random.default_rng(17)
    found = {}
    for name in DTYPES:
        dtype = np.dtype(name)
        raw = random.integers(0, 2 if name == "bool" else 256, (ROWS, COLUMNS * dtype.itemsize), dtype="uint8")
        found[name] = raw.view(dtype)
    return found


def save(name: str, folder: str) -> int:
    """Save in one rank: rows of every dtype, whole tensors, one without axes, numbers and text."""
    ds.use(name)
    world = ds.world()
    rows = world.part(ROWS)
    whole = {dtype: ds.from_numpy(a) for dtype, a in arrays().items()}
    parts = {dtype: ds.Rows(ds.from_numpy(np.ascontiguousarray(a[rows]))) for dtype, a in arrays().items()}
    scalar = ds.from_numpy(arrays()["int64"][0, 0:1].reshape(()))
    ds.save({"rows": parts, "whole": whole, "scalar": scalar, "step": 7, "words": "a"}, folder, world=world)
    return world.size


def differences(name: str, folder: str) -> list[str]:
    """Return what differs after a load with each number of ranks."""
    from devshim.testing.thread_ranks import on_ranks

    ds.use(name)
    wrong = []
    for size in SIZES:
        found = on_ranks(size, lambda world: ds.load(folder, world=world), timeout=60)
        errors = [each for each in found if isinstance(each, BaseException)]
        if errors:
            raise errors[0]
        for dtype, a in arrays().items():
            parts = [ds.to_numpy(each["rows"][dtype].part) for each in found]
            wrong += [f"rows of {dtype} with {size} ranks"] * (not same(np.concatenate(parts), a))
            for each in found:
                wrong += [f"{dtype} with {size} ranks"] * (not same(ds.to_numpy(each["whole"][dtype]), a))
        wrong += [f"other leaves with {size} ranks"] * (not all(same_rest(each) for each in found))
    alone: Any = ds.load(folder)
    for dtype, a in arrays().items():
        wrong += [f"rows of {dtype} without ranks"] * (not same(ds.to_numpy(alone["rows"][dtype]), a))
    return wrong + ["other leaves without ranks"] * (not same_rest(alone))


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Return True if two arrays have the same dtype, shape and bits."""
    return (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


def same_rest(tree: Any) -> bool:
    """Return True if the leaves that are not arrays of rows are as they were saved."""
    scalar = ds.to_numpy(tree["scalar"])
    return (tree["step"], tree["words"]) == (7, "a") and same(scalar, arrays()["int64"][0, 0:1].reshape(()))


def main(way: str, name: str, folder: str, ranks: str = "4") -> int:
    """Write or read."""
    if way == "--write":
        return int(ds.launch(save, name, folder, ranks_per_host=int(ranks), timeout=120) != [int(ranks)] * int(ranks))
    wrong = differences(name, folder)
    print(f"{name}: {', '.join(wrong) or f'equal to the bit with {SIZES} ranks and without'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A program that saves and loads tensors of PyTorch: ``python -m benchmarks.files devshim|safetensors FILE MIB``.

It prints for both the seconds, and the growth of the largest resident size of the process in bytes; and for safetensors
also the time of a save that waits for the disk, as devshim's does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TENSORS = 16


def resident(name: str) -> int:
    """Return a size of this process in bytes: ``VmHWM`` is the largest resident size so far, ``VmRSS`` today's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measured(call: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds of a call, and the memory that it takes beyond what is in use before."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
    before, begun = resident("VmRSS"), time.perf_counter()
    kept = call()
    seconds, growth = time.perf_counter() - begun, resident("VmHWM") - before
    del kept
    return {"seconds": seconds, "growth": float(growth)}


def flushed(tree: dict[str, Any], file: str) -> None:
    """Save with `safetensors.torch` beside a file, wait for the disk, and replace the file."""
    from safetensors import torch as safetensors

    safetensors.save_file(tree, f"{file}.new")
    handle = os.open(f"{file}.new", os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    os.replace(f"{file}.new", file)


def main(library: str, file: str, mebibytes: int) -> None:
    """Save and load once each, and print the results as JSON."""
    import torch
    from safetensors import torch as safetensors

    import devshim as ds

    torch.set_num_threads(1)
    ds.use("torch")
    tree = {f"layer{i}": torch.ones(mebibytes * (1 << 18) // TENSORS) for i in range(TENSORS)}
    small = {"x": torch.ones(4)}
    if library == "devshim":
        ds.save(small, file)  # the first call imports the rest
        ds.load(file)
        results = {"save": measured(lambda: ds.save(tree, file))}
        del tree
        results["load"] = measured(lambda: ds.load(file))
    else:
        safetensors.save_file(small, file)
        safetensors.load_file(file)
        results = {"save": measured(lambda: safetensors.save_file(tree, file))}
        results["save and flush"] = measured(lambda: flushed(tree, file))
        del tree
        results["load"] = measured(lambda: {name: x.clone() for name, x in safetensors.load_file(file).items()})
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

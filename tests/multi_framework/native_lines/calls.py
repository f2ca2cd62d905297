"""The calls whose native lines are published, and the program that records those of one framework."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import devshim as ds

SUBJECTS: dict[str, tuple[str, ...]] = {
    "Devices": (
        "ds.device_count()",
        "ds.devices()",
        "ds.try_gpu(1)",
        "ds.try_all_gpus()",
        'ds.describe("gpu:1")',
        'ds.memory("gpu:1")',
        'ds.synchronize("gpu:1")',
        'ds.empty_cache("gpu:1")',
        'ds.set_device("gpu:1")',
    ),
    "New tensors": (
        'ds.zeros((2, 3), device="gpu:1")',
        'ds.ones((2, 3), dtype="float32", device="gpu:1")',
        'ds.full((2, 3), 7.0, device="gpu:1")',
        'ds.arange(3, device="gpu:1")',
        'ds.asarray([1.0, 2.0], device="gpu:1")',
        'ds.from_numpy(a, "gpu:1")',
        "ds.random.seed(1)",
        'ds.random.uniform(0, 1, (2, 3), device="gpu:1")',
        'ds.random.normal(0, 1, (2, 3), device="gpu:1")',
    ),
    "Tensors": (
        "ds.device_of(x)",
        'ds.place(x, "gpu:1")',
        'ds.copy(x, "gpu:1")',
        "ds.to_numpy(x)",
    ),
    "Several GPUs": (
        'ds.split(x, ["gpu:0", "gpu:1"])',
        'ds.gather(parts, "gpu:1")',
        'ds.broadcast(x, ["gpu:0", "gpu:1"])',
        "ds.all_reduce_(parts)",
    ),
    "Files": (
        'ds.save({"x": x}, "weights.safetensors")',
        'ds.load("weights.safetensors", "gpu:1")',
    ),
}
"""Subject -> lines of devshim; ``x`` is a tensor on the CPU, ``a`` a NumPy array, and ``parts`` are on two GPUs."""


def record(framework: str) -> dict[str, Any]:
    """Return the native lines of all calls on a framework with two simulated GPUs."""
    ds.use(framework)
    with tempfile.TemporaryDirectory() as folder, ds.simulate(gpus=2):
        found = {line: _lines(line, Path(folder)) for lines in SUBJECTS.values() for line in lines}
    info = ds.backends()[framework]
    return {"title": info.title, "version": info.version, "lines": found}


def _lines(line: str, folder: Path) -> list[str]:
    names = {
        "ds": ds,
        "a": np.ones((2, 3), "float32"),
        "x": ds.ones((2, 3), dtype="float32"),
        "parts": [ds.ones((2, 3), dtype="float32", device=f"gpu:{i}") for i in range(2)],
    }
    path = str(folder / "weights.safetensors")
    ds.save({"x": names["x"]}, path)
    with ds.on("cpu"), ds.explain() as lines:
        eval(line.replace("weights.safetensors", path), names)
    return [each.replace(path, "weights.safetensors") for each in dict.fromkeys(lines)]


if __name__ == "__main__":
    print("@@" + json.dumps(record(sys.argv[1])))

"""Tests of how the values of a checkpoint are read: besides the tensors, the process needs almost no memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import devshim as ds
from devshim.checkpoints import file

MIB = 1 << 20
LOAD = """
import json, sys
import devshim as ds

def size(name):
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

ds.use("numpy")
ds.load(sys.argv[1])
before = size("VmRSS")
back = ds.load(sys.argv[2])
print(json.dumps([size("VmHWM") - before, float(sum(x[-1] for x in back.values()))]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the memory of a process from /proc")
def test_a_load_needs_the_tensors_and_little_more(tmp_path: Path) -> None:
    ds.save({"x": np.ones(4)}, tmp_path / "small")
    ds.save({str(i): np.full(4 * MIB, i, "u1") for i in range(16)}, tmp_path / "large")
    command = [sys.executable, "-c", LOAD, str(tmp_path / "small"), str(tmp_path / "large")]
    growth, total = json.loads(subprocess.check_output(command, text=True))
    assert total == sum(range(16))
    assert 32 * MIB < growth < 68 * MIB  # 64 of them are the tensors


@pytest.mark.parametrize("missing", [1, 3000])
def test_a_file_that_becomes_shorter_meanwhile(missing: int, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    ds.save({"x": np.arange(1000, dtype="f4")}, path)
    with file.open_file(path) as opened:
        os.truncate(path, os.path.getsize(path) - missing)
        with pytest.raises(ds.CheckpointError, match="the file has become shorter"):
            opened.read("x", "float32", (1000,), None)


def test_a_file_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    ds.save({"x": np.zeros(1000)}, path)
    with file.open_file(path) as opened:
        ds.save({"x": np.ones(1000)}, path)
        assert not opened.read("x", "float64", (1000,), None).any()
    assert ds.load(path)["x"].all()

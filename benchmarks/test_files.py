"""Saving and loading on PyTorch, compared with `safetensors.torch`, each turn in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paired import ratios, spread
from benchmarks.record import Row
from benchmarks.session import Session

MIB = 256
"""The size of the file; 1 GiB on a machine with a disk to itself."""
ROUNDS = 5
TARGET, PEAK = 1.05, 1.1


def test_files(benchmark: Any, session: Session, tmp_path: Path) -> None:
    """Devshim also checks sums, waits for the disk, and replaces a file as a whole; `safetensors.torch` does not."""
    if session.backend != "torch":
        pytest.skip("measured on PyTorch")
    root, file = Path(__file__).resolve().parents[1], tmp_path / "tensors.safetensors"
    found: dict[str, list[dict[str, dict[str, float]]]] = {"devshim": [], "safetensors": []}

    def turn() -> None:
        for library, results in found.items():
            command = [sys.executable, "-m", "benchmarks.files", library, str(file), str(MIB)]
            results.append(json.loads(subprocess.check_output(command, cwd=root, text=True)))

    benchmark.pedantic(turn, rounds=min(ROUNDS, session.rounds))
    for call, other, native in (
        ("save", "save", "save_file(tree, file)"),
        ("save", "save and flush", "save_file(tree, new), os.fsync, os.replace"),
        ("load", "load", "load_file(file), each tensor cloned"),
    ):
        ours = [each[call]["seconds"] for each in found["devshim"]]
        theirs = [each[other]["seconds"] for each in found["safetensors"]]
        row = Row("files", f"{other} {MIB} MiB", f"ds.{call}", f"safetensors.torch.{native}", target=TARGET)
        session.add(row, ratios(ours, theirs), rounds=len(ours))
    for call in ("save", "load"):
        grown = [each[call]["growth"] / (MIB << 20) for each in found["devshim"]]
        row = Row("files", f"{call} {MIB} MiB, peak memory", f"ds.{call}", target=PEAK, unit="of the file")
        session.add(row, spread(grown), rounds=len(grown))

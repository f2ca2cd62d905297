"""`devshim certify` and `devshim doctor` on cards that do not exist: the claims that need no kernel's values."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from devshim.certify.report import Report

if TYPE_CHECKING:
    from pathlib import Path


def command(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FAKE_CUDA_GPUS": "2", **settings}
    return subprocess.run(
        [sys.executable, "-m", "devshim", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )


def certified(folder: Path, only: str) -> dict[str, str]:
    file = folder / "found.json"
    done = command("certify", "--backend", "torch", "--quick", "--only", only, "--json", str(file))
    report = Report.from_json(file.read_text(encoding="utf-8"))
    assert not report.simulated
    assert report.cards == ["Fake card"] * 2
    assert done.returncode == int(report.failed), done.stdout + done.stderr
    return {result.name: f"{result.status} {result.note}" for result in report.frameworks[0].results}


def test_claims_about_the_start_and_contexts_are_true(tmp_path):
    found = certified(tmp_path, "[sc][to][an]*.[a-z]*")
    assert {"start.counting", "start.by_uuid", "start.forking", "contexts.many", "contexts.waiting"} <= set(found)
    assert not {name: told for name, told in found.items() if not told.startswith("PASS")}


def test_claims_about_memory_are_true(tmp_path):
    found = certified(tmp_path, "memory.*")
    assert len(found) == 4
    assert not {name: told for name, told in found.items() if not told.startswith("PASS")}


def test_rates_are_measured(tmp_path):
    found = certified(tmp_path, "rates.[npb]*")
    assert {"rates.no_op", "rates.pinned", "rates.pageable", "rates.between"} <= set(found)
    assert all(told.startswith("RATE") for told in found.values()), found


def test_the_doctor_copies_to_each_card():
    done = command("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A number was copied to each GPU and back" in done.stdout


def test_the_doctor_says_which_cards_fail():
    done = command("doctor", FAKE_CUDA_MEMORY="10000")
    assert done.returncode == 1
    for card in ("gpu:0", "gpu:1"):
        assert f"PyTorch counts {card}, and a copy of one number there fails: {card} has no room" in done.stdout

"""Programs written for real cards, each run by `devshim run --gpus 2`, with the output that they have there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "native" / "torch"
OPTIONS = {"memory": ["--memory", "1MiB"]}


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_program_for_real_cards_runs_as_it_is(path: Path) -> None:
    words = ["run", "--gpus", "2", *OPTIONS.get(path.stem, []), str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "devshim", *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == path.with_suffix(".txt").read_text(encoding="utf-8")


def test_the_same_program_finds_no_card_without_native_names() -> None:
    code = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    done = subprocess.run(
        [sys.executable, "-m", "devshim", "run", "--gpus", "2", "--no-native-names", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == "False 0\n"

"""Programs that are written for real GPUs, run by `devshim run`: the names are PyTorch's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from native_scripts import check_statements, check_traces, run, scripts


@pytest.mark.parametrize("script", scripts("torch"), ids=lambda path: path.stem)
def test_the_program_prints_what_it_prints_on_real_gpus(script: Path) -> None:
    run(script, *(("--memory", "1MiB") if script.stem == "memory" else ()))


def test_the_same_program_finds_no_gpu_without_native_names() -> None:
    code = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    command = [sys.executable, "-m", "devshim", "run", "--gpus", "2", "--no-native-names", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "False 0\n"


@pytest.mark.parametrize("names", [(), ("native",)], ids=["sim", "native names"])
def test_simulated_gpus_leave_nothing_behind(names: tuple[str, ...]) -> None:
    check_traces(*names)


def test_statements_give_what_they_give_on_a_real_card() -> None:
    check_statements("torch")

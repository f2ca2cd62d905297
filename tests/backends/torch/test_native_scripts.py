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


TRAINING = """
import tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda())
    net(torch.ones(1, 2, device="cuda")).sum().backward()
    group = dist.new_group(backend="gloo")
    host = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), process_group=group)
    for _ in range(3):
        host(torch.ones(1, 2)).sum().backward()
    print(host.logger._get_ddp_logging_data().ints_map["avg_forward_compute_time"] > 0)
    dist.destroy_process_group()
"""


def test_a_model_over_processes_says_only_that_gloo_runs_it() -> None:
    """C++ prints its warnings to stderr; it has timers for the steps of a model on the CPU and on CUDA."""
    command = [sys.executable, "-m", "devshim", "run", "--gpus", "1", "-c", TRAINING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "arning" in line] == [
        "<string>:4: UserWarning: simulated GPUs: gloo runs the collectives of the backend nccl"
    ]
    assert done.stdout == "True\n", "a model on the host still has times"


@pytest.mark.parametrize("names", [(), ("native",)], ids=["sim", "native names"])
def test_simulated_gpus_leave_nothing_behind(names: tuple[str, ...]) -> None:
    check_traces(*names)


def test_statements_give_what_they_give_on_a_real_card() -> None:
    check_statements("torch")

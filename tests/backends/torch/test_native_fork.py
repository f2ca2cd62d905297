"""Tests of forked processes with PyTorch's own names: CUDA refuses them once their parent has used it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

START = """
import os, pickle, torch
from torch.utils.data import DataLoader
import devshim as ds

def forked(function):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            found = function()
        except BaseException as error:
            found = type(error).__name__, isinstance(error, (RuntimeError, ds.SimulationError)), str(error)
        os.write(write, pickle.dumps(found))
        os._exit(0)
    os.wait()
    return pickle.loads(os.read(read, 1 << 16))

def text(function):
    _, known, found = forked(function)
    assert known
    return found.splitlines()[0]

class Rows:
    def __init__(self, device):
        self.device = device

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=self.device)

REFUSED = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
REFUSED += "start method"
ds.use("torch")
"""


def run(code: str, **environment: str) -> None:
    """Run code after `START` in a new process."""
    command = [sys.executable, "-W", "ignore", "-c", START + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]


USES = {
    "a tensor": "x = torch.ones(2, device='cuda:1')",
    "a tensor that is gone": "torch.ones(2, device='cuda:1')",
    "is_available": "torch.cuda.is_available()",
    "set_device": "torch.cuda.set_device(1)",
    "a property": "torch.cuda.get_device_name()",
    "a reset of the peak memory": "torch.ones(2, device='cuda'); torch.cuda.reset_peak_memory_stats()",
}


@pytest.mark.parametrize("use", USES)
def test_a_child_of_a_process_that_used_a_card_is_refused(use: str) -> None:
    run(f"""
with ds.simulate(2, native_names=True):
    assert forked(lambda: torch.ones(2, device="cuda").tolist()) == [1.0, 1.0]
    {USES[use]}
    for function in (
        lambda: torch.ones(2, device="cuda"),
        lambda: torch.ones(2).to("cuda:1"),
        lambda: torch.nn.Linear(2, 2).cuda(),
        lambda: torch.cuda.set_device(1),
        lambda: torch.cuda.current_device(),
        lambda: torch.cuda.synchronize(),
        lambda: ds.ones(2, device="gpu:1"),
    ):
        assert text(function) == REFUSED
    assert "spawn" in forked(lambda: torch.ones(2, device="cuda"))[2].partition("Hint: ")[2]
    assert torch.ones(2, device="cuda").tolist() == [1.0, 1.0]
assert forked(lambda: (torch.cuda.device_count(), torch.cuda.is_available())) == (0, False)
""")


def test_a_child_sees_the_cards_and_uses_the_host() -> None:
    run("""
with ds.simulate(2, native_names=True):
    x = torch.ones(2, device="cuda:1")
    cuda = torch.cuda
    assert forked(lambda: (cuda.device_count(), cuda.is_available(), str(x.device))) == (2, True, "cuda:1")
    assert forked(lambda: (cuda.is_initialized(), cuda._is_in_bad_fork())) == (False, True)
    assert forked(lambda: torch.manual_seed(1) and (torch.ones(2) + 1).tolist()) == [2.0, 2.0]
    assert forked(lambda: (cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.seed())) == (None, None, None)
    for function in (lambda: x + 1, lambda: x.cpu(), lambda: x[0], lambda: x.fill_(2)):
        assert text(function) == "CUDA error: initialization error"
    assert not cuda._is_in_bad_fork()
    assert x.tolist() == [1.0, 1.0]
""")


def test_workers_of_a_loader_that_use_only_the_host_work() -> None:
    run("""
with ds.simulate(2, native_names=True):
    torch.ones(2, device="cuda")
    loader = DataLoader(Rows("cpu"), batch_size=2, num_workers=2, pin_memory=True)
    assert [batch.cuda().tolist() for batch in loader] == [[[0.0] * 2, [1.0] * 2], [[2.0] * 2, [3.0] * 2]]
    try:
        list(DataLoader(Rows("cuda"), batch_size=2, num_workers=1, timeout=30))
    except ds.SimulationError as error:
        assert REFUSED in str(error)
    else:
        raise AssertionError("the worker used a card")
""")


def test_a_count_that_asks_nvml_uses_no_card() -> None:
    run(
        """
with ds.simulate(2, native_names=True):
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    assert forked(lambda: torch.ones(2, device="cuda").tolist()) == [1.0, 1.0]
""",
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
    )


def test_without_native_names_a_child_uses_its_copy() -> None:
    run("""
with ds.simulate(2):
    x = torch.ones(2, device="sim:1")
    assert forked(lambda: ((x + 1).tolist(), torch.ones(2, device="sim").tolist())) == ([2.0, 2.0], [1.0, 1.0])
""")


def test_a_child_may_simulate_again() -> None:
    run("""
def again():
    ds.simulate(0)
    with ds.simulate(1, native_names=True):
        return torch.ones(2, device="cuda").tolist(), torch.cuda.device_count()

with ds.simulate(2, native_names=True):
    torch.ones(2, device="cuda")
    assert forked(again) == ([1.0, 1.0], 1)
""")

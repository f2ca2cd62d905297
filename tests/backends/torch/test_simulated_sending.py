"""Tests of tensors sent to another process: a loader and its workers send copies, and other calls are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from concurrent.futures import ProcessPoolExecutor

import devshim as ds
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

ds.use("torch")
GPU = sys.argv[1]
ds.simulate(2, native_names=GPU.startswith("cuda"))

def text(function):
    try:
        function()
    except ds.UnsupportedError as error:
        return str(error)
    raise AssertionError("nothing was refused")

def double(x):
    return x * 2

def send(queue, pipe):
    x = torch.ones(2, device=GPU)
    pipe.send(text(lambda: pipe.send(x)))
    queue.put({"x": [x]})
    queue.put(5)

class Rows(list):
    def __getitem__(self, index):
        return torch.full((2,), float(index), device=GPU)

class Kept:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.x

def get(queue):
    return queue.get(timeout=60)

"""
REFUSED = "a simulated GPU's tensor cannot be shared with another process"


def run(folder: Path, code: str, *words: str) -> None:
    """Run code after `START` as the main part of a program, which other processes can import."""
    program = folder / "program.py"
    lines = "\n".join("    " + line for line in code.strip().splitlines())
    program.write_text(f"{START}REFUSED = {REFUSED!r}\nif __name__ == '__main__':\n{lines}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    command = [sys.executable, "-W", "ignore", str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_workers_of_a_loader_send_copies(tmp_path: Path) -> None:
    """The program ``tests/native/torch/worker_batches.py`` has native names, and workers that start with ``spawn``."""
    code = """
loader = DataLoader(Rows(range(3)), batch_size=2, num_workers=1, multiprocessing_context="fork", timeout=60)
batches = list(loader)
assert [(str(each.device), each.tolist()) for each in batches] == [(GPU, [[0, 0], [1, 1]]), (GPU, [[2, 2]])]
"""
    run(tmp_path, code, "sim:1")


@pytest.mark.parametrize(("gpu", "method"), [("sim:1", "fork"), ("cuda:1", "spawn")])
def test_a_queue_or_a_pipe_refuses_a_tensor(tmp_path: Path, gpu: str, method: str) -> None:
    """The thread that writes to a queue has no caller, so the receiver gets the error."""
    code = """
context = mp.get_context(sys.argv[2])
queue, (receiver, sender) = context.Queue(), context.Pipe()
child = context.Process(target=send, args=(queue, sender))
child.start()
assert REFUSED in receiver.recv()
error = text(lambda: get(queue))
assert REFUSED in error and f'queue.put(x.cpu()); queue.get().to("{GPU}")' in error
assert get(queue) == 5
child.join()
with ProcessPoolExecutor(1, mp_context=context) as pool:
    assert REFUSED in text(lambda: pool.submit(double, torch.ones(2, device=GPU)).result(60))
    assert pool.submit(double, 2).result(60) == 4
"""
    run(tmp_path, code, gpu, method)


def test_a_loader_sends_copies_to_its_workers(tmp_path: Path) -> None:
    """The program ``tests/native/torch/worker_batches.py`` has native names, and tensors that share memory."""
    code = """
x = torch.arange(4.0, device=GPU)
loader = DataLoader(Kept([x, x[1:3]]), batch_size=None, num_workers=2, multiprocessing_context="spawn", timeout=60)
for turn in range(2):
    ((whole, part),) = loader
    assert (str(whole.device), whole.tolist(), part.tolist()) == (GPU, x.tolist(), x[1:3].tolist())
    x += 1
assert REFUSED in text(lambda: mp.reductions.reduce_tensor(x))
"""
    run(tmp_path, code, "sim:1")


def test_a_worker_that_simulates_fewer_gpus_says_so(tmp_path: Path) -> None:
    code = """
from devshim_backends._torch.simulation.internals.sent_tensors import _rebuild

try:
    _rebuild(torch.Tensor, torch.ones(1), 2, (1,), (1,), False)
except ds.SimulationError as error:
    assert "simulates 2 GPUs received a tensor of simulated GPU 2" in str(error)
else:
    raise AssertionError("nothing was refused")
"""
    run(tmp_path, code, "sim:1")


def test_a_forked_worker_that_sends_its_parents_tensor_ends_in_an_error(tmp_path: Path) -> None:
    code = """
loader = DataLoader(Kept(torch.ones(2, device=GPU)), batch_size=None, num_workers=1, timeout=60)
try:
    list(loader)
except ds.SimulationError as error:
    assert "CUDA error: initialization error" in str(error)
else:
    raise AssertionError("the worker read the memory of a card")
"""
    run(tmp_path, code, "cuda:1")

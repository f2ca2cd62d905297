"""Modules and functions that the statements of ``torch.txt`` use."""

from __future__ import annotations

import copy  # noqa: F401  # the statements use it, as they do pickle and NumPy
import gc
import io
import pickle  # noqa: F401
import warnings

import numpy as np  # noqa: F401
import torch

warnings.simplefilter("ignore")
torch.cuda.init()


def measure(make):
    """Return the bytes that a GPU's memory grows by while the result is kept."""
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    kept = make()
    grown = torch.cuda.memory_allocated() - before
    del kept
    return grown


def timed():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.ones(1000, device="cuda").sum()
    end.record()
    torch.cuda.synchronize()
    return type(start.elapsed_time(end)).__name__, start.elapsed_time(end) >= 0


def autocasted(kind, dtype):
    x = torch.ones(2, 2, device="cuda")
    words = {} if dtype is None else {"dtype": dtype}
    with torch.autocast(kind, **words):
        product = x @ x
        loss = torch.nn.functional.mse_loss(product, product)
        softmax = torch.nn.functional.softmax(product, 0)
        return product.dtype, (x + x).dtype, softmax.dtype, loss.dtype, x.sum().dtype, product.exp().dtype


def seeded(seed):
    seed(3)
    first = torch.rand(4, device="cuda")
    seed(3)
    return torch.equal(first, torch.rand(4, device="cuda"))


def saved(x, **words):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **words)


def graded():
    x = torch.ones(2, device="cuda", requires_grad=True)
    (x * x).sum().backward()
    return x.grad


def graded_parameter():
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    parameter.sum().backward()
    return parameter


def adam(**words):
    parameter = graded_parameter()
    optimizer = torch.optim.Adam([parameter], **words)
    optimizer.step()
    return {name: str(value.device) for name, value in optimizer.state[parameter].items()}


def default(device):
    torch.set_default_device(device)
    try:
        return torch.ones(2).device, torch.nn.Linear(2, 2).weight.device, torch.get_default_device()
    finally:
        torch.set_default_device(None)


def under_device():
    with torch.device("cuda"):
        return torch.ones(2).device, torch.tensor([1]).device, torch.nn.Linear(2, 2).weight.device


def with_device():
    with torch.cuda.device(0):
        return torch.cuda.current_device(), torch.ones(1, device="cuda").device


def full():
    """Ask for nine tenths of a GPU of which the process may use a half, and return how the error begins."""
    try:
        return torch.empty(int(torch.cuda.mem_get_info()[1] * 0.9), dtype=torch.uint8, device="cuda").shape
    except torch.cuda.OutOfMemoryError as error:
        return str(error).partition(".")[0]


def on_stream():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return torch.cuda.current_stream() == stream


def captured():
    graph = torch.cuda.CUDAGraph()
    x = torch.ones(2, device="cuda")
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    return y

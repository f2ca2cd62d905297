"""A program that looks for traces of simulated GPUs in PyTorch: `python FILE`, or `python FILE native`.

It compares every attribute of every loaded module of PyTorch and of its classes, by identity, and the state of the
process, before GPUs are simulated for the first time and after each way to switch them off. What stays is listed in
`KEPT` and in docs/frameworks/torch.md.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch.nn.parallel.comm
from torch import nn

import devshim as ds

KEPT = {"torch._C._accelerator_getAccelerator", "torch._C._get_accelerator", "torch.UntypedStorage.__new__"}
"""Without the first two, C++ would report an accelerator that no longer exists; without the third, a question for a
storage there would end the process."""
CACHES = (
    *("__slotnames__", "__abstractmethods__", "_abc_impl", "__warningregistry__"),  # Python's own
    *("dynamic_classes", "generation_values", "COMPILE_COUNTER"),  # of dynamo, which every switch resets
)
PLAIN = (int, float, str, bool, bytes, type(None))


def attributes() -> dict[str, Any]:
    """Return every attribute of the loaded modules of PyTorch and of the classes in them, by its name."""
    found: dict[str, Any] = {}
    classes: dict[type, str] = {torch._C.TensorBase: "TensorBase", torch._C._ImperativeEngine: "Engine"}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and module is not None:
            for key, value in dict(vars(module)).items():
                if key in CACHES or isinstance(value, torch._ops._OpNamespace):  # which are found on first use
                    continue
                found[f"{name}.{key}"] = value
                if isinstance(value, type) and value.__module__.partition(".")[0] == "torch":
                    classes.setdefault(value, f"{name}.{key}")
    for owner, name in classes.items():
        found |= {f"{name}.{key}": value for key, value in dict(vars(owner)).items() if key not in CACHES}
    return found


def state() -> dict[str, Any]:
    """Return the state of the process that a program can see."""
    on, c, accelerator = torch.is_autocast_enabled, torch._C, torch.accelerator
    return {
        "default": (torch.get_default_device(), torch.get_default_dtype(), torch.get_rng_state().numel()),
        "modes": (c._len_torch_function_stack(), c._len_torch_dispatch_stack(), on("cpu"), on("cuda")),
        "grad": (torch.is_grad_enabled(), c._is_multithreading_enabled(), torch.is_inference_mode_enabled()),
        "cuda": (torch.cuda.is_available(), torch.cuda.device_count(), torch.version.cuda),
        "accelerator": (accelerator.current_accelerator(), c._get_accelerator(), accelerator.is_available()),
        "choices": (torch.get_float32_matmul_precision(), torch.get_num_threads()),
        "loaders": len(torch.serialization._package_registry),
        "threads": threading.enumerate(),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.gettrace(), sys.getprofile()),
        "imports": (list(sys.meta_path), list(sys.path_hooks), list(sys.path), __import__),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "names": ("torch.sim" in sys.modules, repr(torch.device("cuda:1")), repr(torch.ones(1))),
    }


def train(device: Any) -> None:
    """Use what most programs use, on a device."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
        net(torch.ones(2, 3, device=device)).float().sum().backward()
    optimizer.step()
    nn.LSTM(3, 2).to(device)(torch.ones(1, 1, 3, device=device))
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    torch.load(file)
    repr(net[0].weight)


def use_cuda() -> None:
    """Use PyTorch's own names for GPUs, and leave open what a program may leave open."""
    torch.cuda.set_device(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.Event(enable_timing=True).record()
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    torch.set_default_device("cuda")
    torch.autocast("cuda").__enter__()


def simulate_once(way: str, native: bool) -> None:
    """Simulate GPUs, use them, and switch them off."""
    if way == "call":
        ds.simulate(2, native_names=native)
        train("cuda:1" if native else ds.gpu(1).native("torch"))
        ds.simulate(0)
        return
    if way == "hidden":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        with ds.simulate(2, native_names=True):
            train("cpu")
            torch.set_default_device("cuda")
        del os.environ["CUDA_VISIBLE_DEVICES"]
        return
    with suppress(KeyError), ds.simulate(2, native_names=native):
        if way == "nested":
            with ds.simulate(3, native_names=not native):
                train(ds.gpu(2).native("torch"))
        train("cuda:1" if native else ds.gpu(1).native("torch"))
        if native:
            use_cuda()
        if way == "error":
            raise KeyError


def main(native: bool) -> None:
    """Compare PyTorch before and after; raise if anything but `KEPT` differs."""
    ds.use("torch")
    train(ds.cpu().native())  # fills PyTorch's own caches
    before, first = attributes(), state()
    for way in ("with", "nested", "error", "call", "hidden"):
        simulate_once(way, native)
        after = attributes()
        changed = {key for key, value in before.items() if key not in after or after[key] is not value}
        changed = {key for key in changed if not isinstance(before[key], PLAIN) or before[key] != after.get(key)}
        owners = {key.rpartition(".")[0] for key in before}
        added = {key for key in after.keys() - before.keys() if key.rpartition(".")[0] in owners}
        added = {key for key in added if type(after[key]) is not type(sys)}  # a module that was imported meanwhile
        differences = sorted({key.replace("torch.storage.Unt", "torch.Unt") for key in changed | added} - KEPT)
        assert not differences, (way, differences)
        now = state()
        assert now == first, (way, [(first[key], now[key]) for key in first if now[key] != first[key]])
    print(len(before), "attributes")


if __name__ == "__main__":
    main(sys.argv[1:] == ["native"])

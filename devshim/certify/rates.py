"""Measured rates: the best of several rounds, each until the GPU has finished, and those of the native call."""

from __future__ import annotations

import time
from functools import partial
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Rate, Setting, Skip
from devshim.devices.device import CPU

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CLAIMS"]

CLAIMS = Claims("rates")


def _best_time(
    call: Callable[..., object], at: Setting, number: int = 1, make: Callable[[], object] | None = None
) -> float:
    """Return the shortest time of one call in seconds; simulated GPUs get only one round.

    With ``make``, each call gets its own argument, which is made before the time is taken: JAX keeps what it has
    read of an array on the host, so only the first read is a copy.
    """
    rounds, number = (1, 1) if at.simulated else (2 if at.quick else 5, number)

    def prepare() -> Callable[[], object]:
        return call if make is None else partial(call, make())

    prepare()()
    found = []
    for _ in range(rounds):
        calls = [prepare() for _ in range(number)]
        ds.synchronize()
        began = time.perf_counter()
        for each in calls:
            each()
        ds.synchronize()
        found.append((time.perf_counter() - began) / number)
    return min(found)


def _numbers(at: Setting) -> int:
    """Return the number of float32 values in 1 GiB, or fewer for a quick or simulated run."""
    return 1 << (16 if at.simulated else 25 if at.quick else 28)


def _host_tensor(count: int) -> Any:
    return ds.from_numpy(np.ones(count, "float32"))


def _native_move(x: Any, device: ds.Device) -> Any:
    """Move a tensor with the framework's own call."""
    name, native = _name(), device.native()
    if name == "torch":
        return x.to(native)
    if name == "jax":
        return ds.framework().device_put(x, native)
    if name == "paddle":
        return x._copy_to(native, True)
    if name == "mxnet":
        return x.copyto(native)
    if name == "tensorflow":
        with ds.framework().device(native):
            return ds.framework().identity(x)
    if name == "cupy":
        if device is CPU:
            return ds.framework().asnumpy(x)
        with native:
            return ds.framework().asarray(x)
    return x.copy()


def _to_host(x: Any) -> Any:
    return ds.place(x, "cpu")


def _native_to_host(x: Any) -> Any:
    return _native_move(x, ds.cpu())


def _name() -> str:
    from devshim.registry import current

    return str(current.current().name)


def _measure_both(
    ours: Callable[..., object],
    native: Callable[..., object],
    at: Setting,
    number: int,
    make: Callable[[], object] | None = None,
) -> Rate:
    return Rate(_best_time(ours, at, number, make), "s", _best_time(native, at, number, make))


def _measure_speed(
    ours: Callable[..., object],
    native: Callable[..., object],
    nbytes: int,
    at: Setting,
    make: Callable[[], object] | None = None,
) -> Rate:
    gigabytes = nbytes / 1e9
    return Rate(gigabytes / _best_time(ours, at, 1, make), "GB/s", gigabytes / _best_time(native, at, 1, make), nbytes)


def _measure_alone(ours: Callable[[], object], nbytes: int, at: Setting) -> Rate:
    return Rate(nbytes / 1e9 / _best_time(ours, at), "GB/s", nbytes=nbytes)


@CLAIMS.add("`place` of a tensor that is there")
def no_op(at: Setting) -> Rate:
    """Place a tensor that needs no copy."""
    x = ds.place(_host_tensor(1024), at.first)
    return _measure_both(lambda: ds.place(x, at.first), lambda: _native_move(x, at.first), at, 2000)


@CLAIMS.add("`device_of`")
def device_of(at: Setting) -> Rate:
    """Ask where a tensor is."""
    x = ds.place(_host_tensor(1024), at.first)
    return Rate(_best_time(lambda: ds.device_of(x), at, 2000), "s")


@CLAIMS.add("`place` of 4 KiB to the card")
def small_in(at: Setting) -> Rate:
    """Move one small tensor."""
    x = _host_tensor(1024)
    return _measure_both(lambda: ds.place(x, at.first), lambda: _native_move(x, at.first), at, 500)


@CLAIMS.add("`place` of 4 KiB to the host")
def small_out(at: Setting) -> Rate:
    """Move one small tensor."""
    x = ds.place(_host_tensor(1024), at.first)
    return _measure_both(_to_host, _native_to_host, at, 500, lambda: ds.copy(x, at.first))


@CLAIMS.add("`copy` of 4 KiB on the card")
def small_copy(at: Setting) -> Rate:
    """Copy one small tensor."""
    x = ds.place(_host_tensor(1024), at.first)
    return Rate(_best_time(lambda: ds.copy(x, at.first), at, 500), "s")


@CLAIMS.add("`run(add)`")
def run(at: Setting) -> Rate:
    """Add two small tensors on their device."""
    x = ds.place(_host_tensor(1024), at.first)
    return _measure_both(lambda: ds.run(add, x, x), lambda: add(x, x), at, 500)


@CLAIMS.add("1,000 tensors of 4 KiB to the card, beside a loop")
def many_in(at: Setting) -> Rate:
    """Move a list in one call."""
    xs = [_host_tensor(1024) for _ in range(20 if at.simulated else 1000)]
    return _measure_both(lambda: ds.place(xs, at.first), lambda: [_native_move(x, at.first) for x in xs], at, 1)


@CLAIMS.add("1,000 tensors of 4 KiB to the host, beside a loop")
def many_out(at: Setting) -> Rate:
    """Move a list in one call."""
    xs = ds.place([_host_tensor(1024) for _ in range(20 if at.simulated else 1000)], at.first)
    return _measure_both(_to_host, lambda ys: [_native_to_host(y) for y in ys], at, 1, lambda: ds.copy(xs, at.first))


@CLAIMS.add("A large tensor in pageable memory to the card")
def pageable(at: Setting) -> Rate:
    """Move one large tensor."""
    x = _host_tensor(_numbers(at))
    return _measure_speed(lambda: ds.place(x, at.first), lambda: _native_move(x, at.first), 4 * _numbers(at), at)


@CLAIMS.add("A large NumPy array to the card by `from_numpy`")
def from_numpy(at: Setting) -> Rate:
    """Copy one large array."""
    array = np.ones(_numbers(at), "float32")
    return _measure_alone(lambda: ds.from_numpy(array, at.first), array.nbytes, at)


@CLAIMS.add("A large tensor in pinned memory to the card", only=("torch",))
def pinned(at: Setting) -> Rate:
    """Move one large tensor that PyTorch has pinned; its own copy shows the limit of the machine."""
    x = _host_tensor(_numbers(at))
    x = x if at.simulated else x.pin_memory()
    return _measure_speed(lambda: ds.place(x, at.first), lambda: _native_move(x, at.first), x.nbytes, at)


@CLAIMS.add("A large tensor on the card to the host")
def out(at: Setting) -> Rate:
    """Move one large tensor."""
    x = ds.place(_host_tensor(_numbers(at)), at.first)
    return _measure_speed(_to_host, _native_to_host, 4 * _numbers(at), at, lambda: ds.copy(x, at.first))


@CLAIMS.add("A large tensor on the card to NumPy by `to_numpy`")
def to_numpy(at: Setting) -> Rate:
    """Read one large tensor."""
    x = ds.place(_host_tensor(_numbers(at)), at.first)
    return _measure_alone(lambda: ds.to_numpy(x), 4 * _numbers(at), at)


@CLAIMS.add("`copy` of a large tensor on the card")
def on_card(at: Setting) -> Rate:
    """Copy one large tensor."""
    x = ds.place(_host_tensor(_numbers(at)), at.first)
    return _measure_alone(lambda: ds.copy(x, at.first), 4 * _numbers(at), at)


@CLAIMS.add("A large tensor from card to card", cards=2)
def between(at: Setting) -> Rate:
    """Move one large tensor from the first GPU to the last."""
    x = ds.place(_host_tensor(_numbers(at)), at.first)
    return _measure_speed(lambda: ds.place(x, at.last), lambda: _native_move(x, at.last), 4 * _numbers(at), at)


@CLAIMS.add("`all_reduce_` of 50 tensors of 4 MiB over all cards (NCCL where the framework has it)", cards=2)
def all_reduce(at: Setting) -> Rate:
    """Reduce one tree per GPU."""
    count = 16 if at.simulated else 1 << 20
    trees = [[ds.ones(count, dtype="float32", device=i) for _ in range(50)] for i in range(at.gpus)]
    return Rate(_best_time(lambda: ds.all_reduce_(trees, "max"), at), "s")


@CLAIMS.add("A MetricLog of 1,000 values, beside as many `float(x)`")
def metrics(at: Setting) -> Rate:
    """Append and flush."""
    x = ds.ones((), dtype="float32", device=at.first)
    count = 20 if at.simulated else 1000

    def logged(xs: list[Any]) -> None:
        log = ds.MetricLog(at.first, 2 * count)
        for each in xs:
            log.append(each)
        log.flush()

    return _measure_both(
        logged, lambda xs: [float(each) for each in xs], at, 1, lambda: [ds.copy(x, at.first) for _ in range(count)]
    )


@CLAIMS.add("A large tensor on the card saved to a file")
def save(at: Setting) -> Rate:
    """Save one safetensors file in the folder for temporary files."""
    return _file(at, saves=True)


@CLAIMS.add("A large tensor loaded from a file to the card")
def load(at: Setting) -> Rate:
    """Load one safetensors file from the folder for temporary files; it is in the system's cache."""
    return _file(at, saves=False)


def _file(at: Setting, saves: bool) -> Rate:
    nbytes = 4 * _numbers(at)
    with TemporaryDirectory(prefix="devshim-certify-") as folder:
        path, tree = Path(folder) / "large.safetensors", {"x": ds.place(_host_tensor(_numbers(at)), at.first)}
        try:
            ds.save(tree, path)
        except OSError as error:
            msg = f"the file cannot be written: {error.strerror}"
            raise Skip(msg) from error
        call = (lambda: ds.save(tree, path)) if saves else (lambda: ds.load(path, at.first))
        return _measure_alone(call, nbytes, at)

"""A user's program: strict type checkers accept it, and know the type of each result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict, assert_type

import numpy as np

import devshim as ds

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass
class Batch:
    x: Array
    y: Array


class Weights(TypedDict):
    w: Array
    b: Array


class Model:
    def __call__(self, x: Array) -> Array:
        return x


def to_device(batch: Batch, device: ds.Device) -> Batch:
    return ds.place(batch, device)


def elsewhere(weights: Weights, device: str) -> Weights:
    return ds.copy(weights, device)


def on_each(batch: Batch, devices: list[ds.Device]) -> list[Batch]:
    assert_type(ds.broadcast(batch, devices), list[Batch])
    return ds.split(batch, devices, uneven="drop")


def together(parts: list[Batch]) -> Batch:
    return ds.gather(parts, "cpu")


def replicas(model: Model) -> list[Model]:
    return ds.replicate(model, ["gpu:0", "gpu:1"])


def reduced(tensors: list[Array]) -> list[Array]:
    return ds.all_reduce_(tensors, "mean")


def loaded(model: Model, path: Path) -> Model:
    ds.save(model, path)
    ds.save(model, path, world=ds.world())
    anything = ds.load(path)
    assert_type(anything, Any)
    assert_type(ds.load(path, "gpu:1"), Any)
    assert_type(ds.load(path, None, [model]), list[Model])
    return ds.load(path, ds.placement_of(model), into=model)


def added(x: Array, y: Array, *, twice: bool) -> Array:
    return x + y + y if twice else x + y


def run(x: Array) -> Array:
    return ds.run(added, x, x, twice=True)


def all_at_once(models: list[Model], inputs: list[Array]) -> list[Array]:
    return ds.parallel(models, inputs)


def train(batch_size: int) -> float:
    return 1.0 / batch_size


def host(x: Array) -> np.ndarray[Any, Any]:
    return ds.to_numpy(x)


def main() -> None:
    ds.use("numpy")
    ds.simulate(gpus=2, memory="4GiB", faults=ds.Fault("gpu:1", "allocation", at=3))
    assert_type(ds.device("cuda:1"), ds.Device)
    assert_type(ds.shrink_batch(train, 64), tuple[float, int])
    assert_type(ds.shrink_batch(train, 64, grow=True, limit=512), tuple[float, int])
    assert_type(ds.local_gpu(), ds.Device)
    assert_type(ds.leaves([train]), dict[str, Any])
    assert_type(ds.assign([1.0], {}), list[float])
    for each in ds.prefetch([{"x": 1}], "cpu", depth=3):
        assert_type(each, dict[str, int])
    with ds.timer("cpu") as timer:
        pass
    assert_type(timer.seconds, float)
    with ds.gpu(1) as entered:
        assert_type(entered, ds.Device)
    assert_type(ds.is_out_of_memory(MemoryError()), bool)
    assert_type(ds.framework("torch"), ModuleType)
    assert_type(ds.zeros((2, 3)), Any)
    assert_type(ds.random.normal(size=3, device=ds.gpu(1)), Any)
    assert_type(ds.arange(3, like=ds.zeros(2)), Any)
    generator = ds.random.Generator(0, "gpu:1", portable=True)
    assert_type(generator.normal(0, 0.01, (784, 10)), Any)
    assert_type(generator.get_state(), dict[str, int])
    ds.random.seed(0, portable=True)
    assert_type(ds.device_of(ds.zeros(2)), ds.Device)
    assert_type(ds.dtype_of(ds.zeros(2)), str)
    ds.set_default_dtype("float32", int="int64")
    assert_type(ds.devices(), list[ds.Device])
    assert_type(ds.describe(0).simulated, bool)
    assert_type(ds.memory("cpu").free, int | None)
    assert_type(ds.backends()["numpy"].version, str | None)
    assert_type(ds.require_same_device(x=1), ds.Device | None)
    assert_type(ds.gpu(1).native(), Any)
    assert_type(ds.namespace(ds.zeros(2)), Any)
    assert_type(ds.value_and_grad(train)(64), tuple[Any, Any])
    assert_type(ds.data_parallel(train, ["gpu:0", "gpu:1"], op="sum")(1, 2), Any)
    assert_type(ds.stop_gradient({"w": Array(3)}), dict[str, Array])
    assert_type(ds.__version__, str)
    with ds.on("gpu:1") as device, ds.using("my_framework"), ds.guard("error", device_to_host="allow"):
        assert_type(device, ds.Device)
    with ds.transfers() as log, ds.explain() as lines:
        assert_type(ds.convert(ds.zeros(2), "jax", "gpu:0", copy=True), Any)
    assert_type(log.records, list[ds.Transfer])
    assert_type(lines, list[str])
    losses = ds.MetricLog("gpu:0", capacity=100)
    losses.append(0.5)
    assert_type(losses.flush(), np.ndarray[Any, Any])
    budgets = {"gpu:0": "4GiB", "gpu:1": "2GiB"}
    assert_type(ds.Placement.balanced([1], ["gpu:0", "gpu:1"], budgets), ds.Placement)
    try:
        ds.memory_policy("grow")
    except ds.DevshimError as error:
        assert_type(error.hint, str | None)

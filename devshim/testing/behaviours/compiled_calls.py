"""Every public function as a function to compile: one line each, from which `CompiledApiTests` makes its tests.

A new function in ``devshim.__all__`` must be added here, otherwise a test fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import devshim as ds

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.devices.device import Device

    Compiled = Callable[[Any], Any]


@dataclass
class Around:
    """The surroundings of a function to compile: a device, objects made outside, and a place for its side effects."""

    backend: str
    device: Device
    gpus: int
    path: Path
    stored: Path
    array: Any
    model: Any = None
    optimizer: Any = None
    log: Any = field(default_factory=ds.MetricLog)
    kept: list[Any] = field(default_factory=list)
    generator: Any = None

    def __post_init__(self) -> None:
        self.generator = ds.random.Generator(0, self.device, portable=True)


def _do(call: Callable[[Around], object]) -> Callable[[Around], Compiled]:
    """Return a function that makes a call unrelated to its argument, and doubles its argument."""

    def make(around: Around) -> Compiled:
        def double(x: Any) -> Any:
            call(around)
            return x + x

        return double

    return make


def _if(question: Callable[[Around, Any], bool]) -> Callable[[Around], Compiled]:
    """Return a function that doubles its argument if a question has the right answer."""
    return lambda around: lambda x: x + x if question(around, x) else x


def _in(scope: Callable[[Around], Any]) -> Callable[[Around], Compiled]:
    """Return a function that doubles its argument inside a context."""

    def make(around: Around) -> Compiled:
        def double(x: Any) -> Any:
            with scope(around):
                return x + x

        return double

    return make


def _log(around: Around) -> Compiled:
    def double(x: Any) -> Any:
        around.log.append(x[1][1])
        return x + x

    return double


def _flush(around: Around) -> Compiled:
    def double(x: Any) -> Any:
        around.log.append(x[1][1])
        around.kept.append(around.log.flush())
        return x + x

    return double


def _numpy(around: Around) -> Compiled:
    def double(x: Any) -> Any:
        around.kept.append(ds.to_numpy(x + x))
        return x + x

    return double


def _save(around: Around) -> Compiled:
    def double(x: Any) -> Any:
        ds.save({"x": x}, around.path)
        return x + x

    return double


def _sets(around: Around) -> Compiled:
    def double(x: Any) -> Any:
        ds.set_device(around.device)
        return x + x

    return double


ANSWERS: dict[str, Callable[[Around], Compiled]] = {
    "Device as a scope": _in(lambda a: a.device),
    "all_reduce_": lambda a: lambda x: ds.all_reduce_([x + 0, x + 0])[0],
    "asarray": lambda a: lambda x: ds.asarray(x + x, device=a.device),
    "broadcast": lambda a: lambda x: ds.broadcast(x + x, [a.device, a.device])[1],
    "convert": lambda a: lambda x: ds.convert(x + x, a.backend, a.device),
    "copy": lambda a: lambda x: ds.copy(x + x, a.device),
    "data_parallel": lambda a: lambda x: ds.data_parallel(lambda p, t: p * t, [a.device])(x, x),
    "device_of": _if(lambda a, x: ds.device_of(x) is a.device),
    "dtype_of": _if(lambda a, x: ds.dtype_of(x) == "float32"),
    "gather": lambda a: lambda x: ds.gather([x, x], a.device),
    "namespace": lambda a: lambda x: ds.namespace(x).add(x, x),
    "on": _in(lambda a: ds.on(a.device)),
    "parallel": lambda a: lambda x: ds.parallel([lambda t: t + t, lambda t: t], [x, x])[0],
    "place": lambda a: lambda x: ds.place(x + x, a.device),
    "placement_of": _if(lambda a, x: ds.placement_of({"x": x})["x"] is a.device),
    "require_same_device": _if(lambda a, x: ds.require_same_device(x=x) is a.device),
    "run": lambda a: lambda x: ds.run(lambda t: t + t, x),
    "same_device": _if(lambda a, x: ds.same_device(x, x)),
    "shrink_batch": lambda a: lambda x: ds.shrink_batch(lambda n: x[:n] + x[:n], 2)[0],
    "split": lambda a: lambda x: ds.split(x + x, [a.device, a.device])[1],
    "stop_gradient": lambda a: lambda x: ds.stop_gradient(x + x),
    "value_and_grad": lambda a: lambda x: ds.value_and_grad(lambda t: (t * t)[0, 0])(x)[1],
}
"""Calls that compute a result from a tensor."""

MADE: dict[str, Callable[[Around, Any], Any]] = {
    "arange": lambda a, x: ds.arange(4, dtype="float32", device=a.device),
    "asarray of numbers": lambda a, x: ds.asarray([1.0, 2.0], dtype="float32", device=a.device),
    "empty": lambda a, x: ds.empty((3, 4), dtype="float32", device=a.device),
    "empty_like": lambda a, x: ds.empty_like(x),
    "eye": lambda a, x: ds.eye(3, 4, dtype="float32", device=a.device),
    "from_numpy": lambda a, x: ds.from_numpy(a.array, a.device),
    "full": lambda a, x: ds.full((3, 4), 2.0, dtype="float32", device=a.device),
    "full_like": lambda a, x: ds.full_like(x, 2.0),
    "linspace": lambda a, x: ds.linspace(0, 1, 5, dtype="float32", device=a.device),
    "load": lambda a, x: ds.load(a.stored, a.device)["x"],
    "full like": lambda a, x: ds.full((2, 2), 2.0, like=x),
    "asarray like": lambda a, x: ds.asarray([1, 2], like=x),
    "ones": lambda a, x: ds.ones((3, 4), dtype="float32", device=a.device),
    "ones_like": lambda a, x: ds.ones_like(x),
    "zeros": lambda a, x: ds.zeros((3, 4), dtype="float32", device=a.device),
    "zeros_like": lambda a, x: ds.zeros_like(x),
}
"""Calls that create a tensor on a device."""

MADE_ON_A_DEVICE = frozenset(call for call in MADE if not call.endswith("like"))
"""The calls of `MADE` that are given a device instead of a tensor."""

DRAWN: dict[str, Callable[[Around, Any], Any]] = {
    "random.normal": lambda a, x: ds.random.normal(size=(3, 4), dtype="float32", device=a.device),
    "random.bernoulli": lambda a, x: ds.random.bernoulli(0.5, (30, 40), device=a.device),
    "random.permutation": lambda a, x: ds.random.permutation(50, device=a.device),
    "random.Generator.normal": lambda a, x: a.generator.normal(size=(3, 4)),
    "random.randint": lambda a, x: ds.random.randint(2**40, size=(3, 4), dtype="int64", device=a.device),
    "random.uniform": lambda a, x: ds.random.uniform(size=(3, 4), dtype="float32", device=a.device),
}
"""Calls that draw random numbers, which must be different each time the function runs."""

FACTS: dict[str, Callable[[Around], Compiled]] = {
    "backends": _if(lambda a, x: a.backend in ds.backends()),
    "cpu": _if(lambda a, x: ds.cpu() is not a.device or a.device.kind == "cpu"),
    "describe": _if(lambda a, x: ds.describe(a.device).device is a.device),
    "device": _if(lambda a, x: ds.device(str(a.device)) is a.device),
    "device_count": _if(lambda a, x: ds.device_count("gpu") == a.gpus),
    "devices": _if(lambda a, x: len(ds.devices()) == a.gpus + 1),
    "framework": _if(lambda a, x: ds.framework().__name__ == a.backend),
    "gpu": _if(lambda a, x: ds.gpu(a.gpus).index == a.gpus),
    "local_gpu": _if(lambda a, x: ds.local_gpu() is ds.try_gpu()),
    "require": _if(lambda a, x: ds.require(a.device) is a.device),
    "try_all_gpus": _if(lambda a, x: len(ds.try_all_gpus()) == max(1, a.gpus)),
    "using": _in(lambda a: ds.using(a.backend)),
    "try_gpu": _if(lambda a, x: ds.try_gpu(a.device.index) is a.device),
}
"""Queries whose answer does not change while a program runs."""

EFFECTS: dict[str, tuple[Callable[[Around], Compiled], Callable[[Around], Any]]] = {
    "MetricLog.append": (_log, lambda a: list(a.log.flush())),
    "MetricLog.flush": (_flush, lambda a: [float(x) for each in a.kept for x in each]),
    "save": (_save, lambda a: ds.to_numpy(ds.load(a.path)["x"]).tolist() if a.path.exists() else None),
    "to_numpy": (_numpy, lambda a: [each.tolist() for each in a.kept]),
}
"""Calls with a side effect each time the function runs, and how to observe it."""

PROCESS: dict[str, Callable[[Around], Compiled]] = {
    "assign": lambda a: lambda x: ds.assign([x + 0], {"0": x})[0],
    "empty_cache": _do(lambda a: ds.empty_cache()),
    "explain": _in(lambda a: ds.explain()),
    "guard": _in(lambda a: ds.guard("log")),
    "is_out_of_memory": _do(lambda a: ds.is_out_of_memory(MemoryError())),
    "leaves": lambda a: lambda x: ds.leaves([x + x])["0"],
    "memory": _do(lambda a: ds.memory(a.device)),
    "memory_policy": _do(lambda a: ds.memory_policy("grow")),
    "prefetch": _do(lambda a: list(ds.prefetch([a.array], a.device))),
    "timer": _in(lambda a: ds.timer(a.device)),
    "world": _do(lambda a: ds.world()),
    "random.Generator": _do(lambda a: ds.random.Generator(0, portable=True)),
    "random.seed": _do(lambda a: ds.random.seed(1)),
    "set_default_dtype": _do(lambda a: ds.set_default_dtype(None)),
    "set_device": _sets,
    "set_visible_devices": _do(lambda a: ds.set_visible_devices([0])),
    "simulate": _do(lambda a: ds.simulate(gpus=1)),
    "synchronize": _do(lambda a: ds.synchronize(a.device)),
    "transfers": _in(lambda a: ds.transfers()),
    "use": _do(lambda a: ds.use(a.backend)),
}
"""Calls about the process or thread at the moment of the call, which differs from the moment of compiling."""

MODELS: dict[str, Callable[[Around], Compiled]] = {
    "place a model": _do(lambda a: ds.place(a.model, a.device)),
    "place a model and its optimizer": _do(lambda a: ds.place([a.model, a.optimizer], a.device)),
    "copy a model": _do(lambda a: a.kept.append(ds.copy(a.model, a.device))),
    "replicate": _do(lambda a: a.kept.extend(ds.replicate(a.model, [a.device]))),
    "save a model": _do(lambda a: ds.save(a.model, a.path)),
}
"""Calls on models made outside the function."""

CALLS = {*ANSWERS, *MADE, *DRAWN, *FACTS, *EFFECTS, *PROCESS, *MODELS}
"""The names of all calls; the part before the first space or dot is the public name."""

VALUES = frozenset(
    {"BackendInfo", "DeviceInfo", "Fault", "MemoryInfo", "Placement", "Rows", "Transfer", "TransferLog", "World"}
)
"""Public classes of plain values, which call no framework."""

OUTSIDE = frozenset({"launch"})
"""Public functions that start processes: they belong outside a compiled function."""

NEEDS = {
    **dict.fromkeys(("MetricLog.append", "MetricLog.flush", "all_reduce_", "gather", "split"), "several"),
    "data_parallel": "data_parallel",
    **dict.fromkeys(("copy a model", "place a model", "place a model and its optimizer", "replicate"), "models"),
    **dict.fromkeys(("load", "save", "save a model"), "checkpoints"),
    "guard": "guard",
    "memory_policy": "memory_policy",
    "namespace": "namespace",
    "set_visible_devices": "visible_devices",
    "simulate": "simulate",
    "value_and_grad": "value_and_grad",
}
"""The feature that a call needs, if an adapter may declare a gap in it."""

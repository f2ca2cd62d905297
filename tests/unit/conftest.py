"""Fixtures of the unit tests: a clean state, new interpreters, and a fictitious framework."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from devshim_backends._numpy.backend import NumpyBackend
from hypothesis import HealthCheck, settings

import devshim as ds
from devshim.contract.backend import Gap
from devshim.contract.fast_paths import FastPaths
from devshim.devices.device import CPU, Device
from devshim.devices.info import DeviceInfo, MemoryInfo
from devshim.registry import current, default_devices, discovery, registry, simulation_request

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # on a busy machine, slow examples are not failures

VARIABLES = (
    "DEVSHIM_BACKEND",
    "DEVSHIM_DEVICE",
    "DEVSHIM_SIMULATE_GPUS",
    "DEVSHIM_SIMULATE_MEMORY",
    "DEVSHIM_SIMULATE_LIKE",
    "DEVSHIM_SIMULATE_ASYNC_COPIES",
    "DEVSHIM_PROGRESS",
    "DEVSHIM_SIMULATE_NATIVE_NAMES",
    "CUDA_VISIBLE_DEVICES",
)


@pytest.fixture(autouse=True)
def _as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start every test with NumPy selected and nothing simulated, and restore that afterwards."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    ds.use("numpy")
    ds.simulate(0)  # pytest kept the last test's tensors alive until its fixtures ended: now they are not in use
    simulation_request.asked = None
    yield
    ds.simulate(0)
    simulation_request.asked = None
    for backend in registry.loaded_backends():
        backend.simulation_refused = None
    current._only = None
    default_devices.DEFAULT.set(None)
    ds.use(None)


@pytest.fixture
def cards() -> list[Device]:
    """Return the host and two simulated NumPy GPUs."""
    ds.simulate(2)
    return ds.devices()


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a program in a new interpreter and returns its output.

    Given folders are first on its path; keyword arguments are environment variables.
    """
    here = [str(Path(ds.__file__).parents[1]), str(Path(sys.modules["devshim_backends"].__path__[0]).parent)]

    def runs(code: str, *folders: object, flags: tuple[str, ...] = (), fails: bool = False, **variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        path = [*map(str, folders), *dict.fromkeys(here), environment.get("PYTHONPATH", "")]
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}
        command = [sys.executable, *flags, "-c", textwrap.dedent(code)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return runs


@pytest.fixture
def package(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a package (or, for a name that ends in .py, a module) and returns its folder."""

    def writes(name: str, source: str) -> Path:
        folder = tmp_path / "fakes"
        file = folder / name if name.endswith(".py") else folder / name / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        return folder

    return writes


@pytest.fixture
def distribution(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes the metadata of an installed distribution with entry points."""

    def writes(name: str, points: str) -> Path:
        folder = tmp_path / "fakes"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[devshim.backends]\n{points}\n", encoding="utf-8")
        return folder

    return writes


class Array(np.ndarray):
    """A tensor of the fictitious framework: a NumPy array with a device."""

    card: Device = CPU

    def __array_finalize__(self, origin: object) -> None:
        self.card = getattr(origin, "card", CPU)


Array.__module__ = "fakeframe"


class NativeDevice:
    """The fictitious framework's own device object."""

    def __init__(self, number: int) -> None:
        self.number = number


NativeDevice.__module__ = "fakeframe"


class FakeBackend(NumpyBackend):
    """An adapter with two GPUs that look real to devshim, and with switches for possible failures."""

    name = "fakeframe"
    has_plain_arrays = False
    title = "Fakeframe"
    gaps: ClassVar = {"memory_policy": Gap("upstream", "it takes no advice")}
    snippets: ClassVar = {"place": "{x}.go({device})"}
    fast_paths = FastPaths()

    def __init__(self) -> None:
        self.real = 2
        self.has_started = False
        self.shown: list[list[int]] = []
        self.policies: list[object] = []
        self.copies = 0
        self.fail_at: int | None = None
        self.failure: BaseException = MemoryError("full")
        self.lands_on: Device | None = None
        self.refuses_simulation: Exception | None = None
        self.scopes: list[Device] = []
        self.emptied: list[Device] = []

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, Array)

    def kinds(self) -> tuple[str, ...]:
        return ("gpu",)

    def count(self, kind: str) -> int:
        return {"cpu": 1, "gpu": self.simulated or self.real}.get(kind, 0)

    def why_unavailable(self, kind: str) -> str:
        return "it is made up"

    def to_native(self, device: Device) -> NativeDevice:
        return NativeDevice(-1 if device is CPU else device.index)

    def from_native(self, native: object) -> Device | None:
        if type(native) is not NativeDevice:
            return None
        return CPU if native.number == -1 else Device("gpu", native.number)

    def describe(self, device: Device) -> DeviceInfo:
        return DeviceInfo(device, name="made up", backend=self.name)

    def memory(self, device: Device) -> MemoryInfo:
        return MemoryInfo(total=100, used=90, free=10)

    def device_of(self, x: Array) -> Device:
        return x.card

    def copy_to(self, x: Array, device: Device, non_blocking: bool = False) -> Array:
        self.copies += 1
        if self.copies == self.fail_at:
            raise self.failure
        return self.to_device(np.array(x), self.lands_on or device)

    def to_device(self, array: np.ndarray, device: Device) -> Array:
        made = array.view(Array)
        made.card = device
        return made

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Array:
        return self.to_device(array.copy() if copy else array, device)

    def from_dlpack(self, source: Any) -> Array:
        return self.to_device(super().from_dlpack(source), CPU)

    def scope(self, device: Device) -> Any:
        self.scopes.append(device)
        return nullcontext()

    def started(self) -> bool:
        return self.has_started

    def set_visible(self, indices: Any) -> None:
        if self.failure.__class__ is ValueError:
            raise self.failure
        self.shown.append(None if indices is None else list(indices))

    def empty_cache(self, device: Device) -> None:
        self.emptied.append(device)

    def memory_policy(self, policy: Any) -> None:
        self.policies.append(policy)

    def simulate(self, gpus: int, memory: int | None, faults: Any = ()) -> None:
        if self.refuses_simulation is not None:
            raise self.refuses_simulation
        self.simulated = gpus

    def native_text(self, device: Device) -> str:
        return repr(str(device))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    """Yield the fictitious framework, imported, registered by its own distribution, and loaded."""
    module, adapter = ModuleType("fakeframe"), ModuleType("fakeframe_devshim")
    adapter.Backend = FakeBackend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fakeframe", module)
    monkeypatch.setitem(sys.modules, "fakeframe_devshim", adapter)
    point = SimpleNamespace(name="fakeframe", value="fakeframe_devshim:Backend", dist=None)
    monkeypatch.setattr(discovery, "_entry_points", {"fakeframe": [point]})
    yield registry.load("fakeframe")  # type: ignore[misc]
    del registry.LOADED["fakeframe"]
    for cls in [cls for cls in registry.TENSORS if cls.__module__ == "fakeframe"]:
        del registry.TENSORS[cls]
        registry.HOST_FLAGS.pop(cls, None)


@pytest.fixture
def device_object() -> type:
    """Return the class of the fictitious framework's own device objects."""
    return NativeDevice

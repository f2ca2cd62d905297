"""Tests of the first calls in a process; each runs in a new interpreter.

Counting devices starts none of them, the environment selects the framework, and a call that must come before the
framework's start is refused after it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from devshim.testing.base import Kit
from devshim.testing.ports import free_port
from devshim.testing.values import feature

PRELUDE = """
import devshim as ds
from devshim.registry import discovery, registry
name = {name!r}
def expect(error, fn, *args):
    try:
        fn(*args)
    except error as caught:
        return caught
    raise AssertionError(f"{{fn}} did not raise {{error.__name__}}")
"""


FIRST_CALL = """
import sys
from importlib import import_module
from devshim.registry import import_hooks
import_hooks.prepare_import(name)
import_module(name)
before = set(sys.modules)
ds.use(name)
ds.zeros(1)
loaded = sorted(set(sys.modules) - before)
own = {root for root, backend in registry.ROOTS.items() if backend == name} | {name}
adapter = type(registry.load(name)).__module__.partition(".")[0]
known = {"devshim", adapter, *own, *sys.stdlib_module_names}
if adapter != "devshim_backends":
    known.add("numpy")  # the defaults of the contract are built on it, and `devshim new-backend` imports it
assert not [each for each in loaded if each.partition(".")[0] not in known], loaded
others = ("asyncio", "devshim.checkpoints", "devshim.cli", "devshim.interop", "devshim.testing", "devshim.world.")
assert not [each for each in loaded if each.startswith(others)], loaded
assert len([each for each in loaded if each.partition(".")[0] in own]) < 20, loaded
"""

SUM_OF_RANKS = """
import os
import numpy as np
from devshim.world.launchers import find_place
ds.use(name)
ds.simulate(gpus=2)  # before the engine starts, as a program does
place = find_place(os.environ)
engine = registry.load(name).start_ranks(place)
x = ds.place(ds.from_numpy(np.arange(5, dtype="float32") + place.rank), "gpu:1")
total = engine.reduce_flat(x, "sum")
assert ds.device_of(total) is ds.gpu(1)
assert ds.to_numpy(total).tolist() == [1, 3, 5, 7, 9]
assert engine.max_ints([place.rank, -place.rank]) == [1, 0]
engine.close()
engine.close()
"""


class SubprocessKit(Kit):
    """Tests that need a new process.

    Attributes:
        patience: The seconds that a new process may take.
    """

    patience: ClassVar[float] = 120

    def fresh(self, code: str, **environ: str) -> None:
        """Run code in a new process, with ``name`` the backend's name; assert that it ends without an error."""
        ours = ("DEVSHIM_", "PYTEST_", "CUDA_VISIBLE_DEVICES")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE.format(name=self.backend) + code],
            env=kept | environ,
            capture_output=True,
            text=True,
            timeout=self.patience,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def without_gpus(self, code: str, **environ: str) -> None:
        """Run code in a new process that sees no real GPU: simulated GPUs cannot be used together with real ones."""
        self.fresh(code, CUDA_VISIBLE_DEVICES="", **environ)

    @pytest.mark.fresh
    def test_the_first_call_imports_only_what_it_needs(self) -> None:
        """After the framework's own import: no other package, few modules of the framework, and no other feature."""
        self.fresh(FIRST_CALL)

    @pytest.mark.fresh
    @feature("create")
    def test_a_thread_may_make_the_first_call_and_end(self) -> None:
        """The framework is imported by a thread. Afterwards it works as usual in the main thread, and in others."""
        self.fresh("""
import threading

import numpy as np


def use(fn, *arguments):
    thread = threading.Thread(target=fn, args=arguments)
    thread.start()
    thread.join()


def compute():
    assert ds.to_numpy(ds.from_numpy(np.ones(2, "float32")) + ds.asarray([1.0, 2.0])).tolist() == [2.0, 3.0]
    computed.append(threading.current_thread())


computed = []
ds.use(name)
use(ds.zeros, 3)
compute()
use(compute)
assert len(set(computed)) == 2
""")

    @pytest.mark.fresh
    @feature("ranks")
    def test_two_ranks_sum_by_the_frameworks_engine(self) -> None:
        """Two processes add tensors on simulated GPUs by the framework's own collectives, and end without an error."""
        port = str(free_port())
        common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with ThreadPoolExecutor() as pool:
            ranks = [
                pool.submit(self.without_gpus, SUM_OF_RANKS, **common, RANK=rank, LOCAL_RANK=rank) for rank in "01"
            ]
            for each in ranks:
                each.result()

    @pytest.mark.fresh
    @feature("count")
    def test_counting_does_not_start_the_framework(self) -> None:
        """Counting, querying and describing the host start no device and import no other framework."""
        self.fresh("""
import sys
assert not {"numpy", *discovery.BUILTIN} & set(sys.modules), "import devshim imports a framework"
ds.use(name)
assert name == "numpy" or name not in sys.modules, "use imports the framework"
assert ds.device_count() >= 0
ds.devices(), ds.try_gpu(), ds.try_all_gpus(), ds.device_count("tpu")
assert registry.load(name).started() is False, "counting started the devices"
others = [other for other in discovery.imported_names() if other not in (name, "numpy")]
mine = __import__(name)
assert others == [] or name == "tensorflow", others  # Keras imports JAX or PyTorch where it is told to
""")

    @pytest.mark.fresh
    def test_the_environment_variable_chooses_the_backend(self) -> None:
        """``DEVSHIM_BACKEND`` is the current framework if no other was chosen."""
        self.fresh("assert ds.framework().__name__ == name", DEVSHIM_BACKEND=self.backend)

    @pytest.mark.fresh
    @feature("visible_devices")
    def test_set_visible_devices_before_the_start(self) -> None:
        """`set_visible_devices` sets which GPUs the framework will see.

        It refuses missing ones, and calls that come too late.
        """
        self.fresh("""
import os
ds.use(name)
expect(ds.ArgumentError, ds.set_visible_devices, [0, 0])
expect(ds.ArgumentError, ds.set_visible_devices, [-1])
expect(ds.ArgumentError, ds.set_visible_devices, "all")
assert "gpu:99" in str(expect(ds.DeviceNotFoundError, ds.set_visible_devices, [99]))
assert "CUDA_VISIBLE_DEVICES" not in os.environ
ds.set_visible_devices([])
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
assert ds.device_count() == 0
ds.zeros(2)
if registry.load(name).started():
    late = expect(ds.AlreadyStartedError, ds.set_visible_devices, [])
    assert registry.load(name).title in late.problem
""")

    @pytest.mark.fresh
    @feature("simulate", "simulate_memory")
    def test_set_visible_devices_before_the_first_gpu_tensor(self) -> None:
        """`set_visible_devices` renumbers simulated GPUs, can undo that, and refuses once one of them was used."""
        self.without_gpus("""
ds.use(name)
ds.simulate(3)
for shown in ([2], [0, 1], None, [1]):
    ds.set_visible_devices(shown)
    assert ds.device_count() == (3 if shown is None else len(shown)), shown
    ds.set_visible_devices(None)
    assert ds.device_count() == 3
ds.zeros(2)  # the host's
ds.set_visible_devices([2])
x = ds.ones(3, device="gpu:0")
for late in ([], [0], None):
    error = expect(ds.AlreadyStartedError, ds.set_visible_devices, late)
    assert registry.load(name).title in error.problem and str(late) in error.problem, error.problem
del error
assert ds.device_count() == 1 and ds.to_numpy(x + 1).tolist() == [2, 2, 2]
ds.simulate(2)
del x
expect(ds.AlreadyStartedError, ds.set_visible_devices, [0])
""")

    @pytest.mark.fresh
    @feature("native_names", "visible_devices")
    def test_set_visible_devices_with_native_names(self) -> None:
        """With native names, `set_visible_devices` selects among the GPUs that the variable shows, and sets it."""
        self.without_gpus("""
import os
from devshim.registry.simulation_request import uuid
ds.use(name)
os.environ["CUDA_VISIBLE_DEVICES"] = given = f"{uuid(2)},{uuid(0)}"
ds.simulate(3, native_names=True)
for shown, value in (([0], uuid(2)), ([1], uuid(0)), ([], "-1"), ([1, 0], f"{uuid(0)},{uuid(2)}")):
    ds.set_visible_devices(shown)
    assert (ds.device_count(), os.environ["CUDA_VISIBLE_DEVICES"]) == (len(shown), value), shown
    ds.set_visible_devices(None)
    assert (ds.device_count(), os.environ["CUDA_VISIBLE_DEVICES"]) == (2, given), shown
ds.set_visible_devices([1])
x = ds.ones(3, device="gpu:0")
assert str(ds.device_of(x + 1)) == "gpu:0"
expect(ds.DeviceNotFoundError, ds.require, "gpu:1")
""")

    @pytest.mark.fresh
    @feature("memory_policy")
    def test_memory_policy_before_the_start(self) -> None:
        """`memory_policy` is accepted before the first tensor; it is refused afterwards, and for an invalid policy."""
        self.fresh("""
ds.use(name)
for nonsense in ("shrink", 0, -0.5, 1.5, True, None):
    expect(ds.ArgumentError, ds.memory_policy, nonsense)
ds.memory_policy("grow")
try:
    ds.memory_policy(0.5)
except ds.UnsupportedError as error:
    assert error.hint and "fraction" in error.problem
ds.zeros(2)
backend = registry.load(name)
if "grow" in backend.policies_after_start:
    ds.memory_policy("grow")
elif backend.started():
    assert backend.title in expect(ds.AlreadyStartedError, ds.memory_policy, "grow").problem
""")

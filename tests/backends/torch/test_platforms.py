"""Tests of GPUs that are not CUDA's: Apple's (MPS), Intel's (XPU) and unknown plug-ins, with stubs of PyTorch's calls.

`ds.simulate(1, like="mps")` is tested by the kit.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from devshim_backends._torch import devices as devices_module
from devshim_backends._torch import real_gpus
from programs import run_program

import devshim as ds
from devshim.devices import parsing, startup
from devshim.registry import start_failures

pytestmark = pytest.mark.skipif(torch.version.cuda is not None, reason="for builds without CUDA")


@pytest.fixture
def machine(backend, monkeypatch):
    """Forget what is known about GPUs, before and after a test that changes them."""
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    parsing.forget_platforms()
    real_gpus.mps_works.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        yield patch
    devices_module.set_gpu_type(real_gpus.real_gpu_type())
    real_gpus.mps_works.cache_clear()
    parsing.forget_platforms()


@pytest.fixture
def mac(machine):
    """Pretend that this is a Mac: PyTorch lists an MPS device, which works."""
    machine.setattr(torch.backends.mps, "is_built", lambda: True)
    machine.setattr(torch.mps, "device_count", lambda: 1)
    machine.setattr(devices_module, "mps_works", lambda: True)
    machine.setattr(torch.backends.mps, "get_name", lambda: "Apple M3 Max", raising=False)
    machine.setattr(torch.mps, "recommended_max_memory", lambda: 2**34)
    machine.setattr(torch.mps, "current_allocated_memory", lambda: 2**20)
    machine.setattr(torch.mps, "driver_allocated_memory", lambda: 2**21)
    return machine


@pytest.fixture
def intel(machine):
    """Pretend that this machine has two Intel GPUs."""
    machine.setattr(torch.xpu, "_is_compiled", lambda: True)
    machine.setattr(torch.xpu, "device_count", lambda: 2)
    properties = SimpleNamespace(name="Intel Arc A770", total_memory=2**34, has_fp64=False)
    machine.setattr(torch.xpu, "get_device_properties", lambda index: properties)
    return machine


# ---------------------------------------------------------------- Apple
def test_the_gpu_of_a_mac_is_gpu(mac):
    assert ds.device_count() == ds.device_count("mps") == ds.device_count("metal") == 1
    assert ds.try_gpu() is ds.gpu()
    assert ds.devices() == [ds.cpu(), ds.gpu()]
    assert ds.gpu().native() == torch.device("mps", 0)
    assert ds.device(torch.device("mps")) is ds.device(torch.device("mps", 0)) is ds.gpu()


@pytest.mark.parametrize("name", ["gpu", "mps", "MPS:0", "metal", 0, (8, 0), torch.device("mps")], ids=str)
def test_every_name_of_a_macs_gpu_is_accepted(mac, name):
    assert ds.require(name) is ds.gpu()


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "rocm", "xpu", (2, 0), torch.device("cuda", 0)], ids=str)
def test_names_of_other_gpus_are_refused_on_a_mac(mac, name):
    for call in (lambda: ds.require(name), lambda: ds.place(torch.ones(2), name), lambda: ds.zeros(2, device=name)):
        with pytest.raises(ds.DeviceNotFoundError, match="the GPU of PyTorch is an Apple GPU") as caught:
            call()
        assert "gpu:0" in caught.value.hint
    assert ds.device(name) is ds.gpu()


def test_a_mac_has_no_gpus_of_other_platforms(mac):
    assert ds.device_count("cuda") == ds.device_count("xpu") == 0
    assert ds.devices("cuda") == []
    with pytest.raises(ds.DeviceNotFoundError, match="1 gpu device: a Mac has one GPU"):
        ds.require("gpu:1")


def test_the_gpu_of_a_mac_is_described(mac):
    info = ds.describe("gpu")
    assert (info.name, info.total_memory, info.platform, info.simulated) == ("Apple M3 Max", 2**34, "mps", False)
    assert ds.memory("mps").used == 2**20
    assert ds.describe("cpu").platform == "cpu"


def test_calls_on_a_mac_reach_torch_mps(mac):
    calls = []
    for name in ("synchronize", "empty_cache", "set_per_process_memory_fraction"):
        mac.setattr(torch.mps, name, lambda *args, name=name: calls.append((name, *args)))
    ds.synchronize("mps")
    ds.empty_cache()
    ds.memory_policy(0.5)
    assert calls == [("synchronize",), ("empty_cache",), ("set_per_process_memory_fraction", 0.5)]


def test_lines_for_a_mac(mac, backend):
    with ds.explain(file=None) as lines:
        ds.device_count()
        ds.try_gpu()
    assert lines == ["torch.mps.device_count()", 'torch.device("mps" if torch.backends.mps.is_available() else "cpu")']
    assert backend.native_text(ds.gpu()) == '"mps"'


def test_an_mps_device_that_does_not_work_is_not_counted(machine):
    """Hosted macOS runners list this device. Here PyTorch itself refuses to use it, as it is not built for it."""
    machine.setattr(torch.backends.mps, "is_built", lambda: True)
    machine.setattr(torch.mps, "device_count", lambda: 1)
    assert ds.device_count() == 0
    assert ds.try_gpu() is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError, match=r"0 gpu devices: the MPS device is listed, but using it fails \("):
        ds.place(torch.ones(2), "mps")


def test_an_mps_device_is_tried_out_once(machine):
    tried = []
    machine.setattr(torch.backends.mps, "is_built", lambda: True)
    machine.setattr(torch.mps, "device_count", lambda: 1)
    machine.setattr(torch, "ones", lambda *shape, device, own=torch.ones: tried.append(device) or own(*shape))
    assert ds.device_count() == ds.device_count() == 1
    assert tried == ["mps"]


# ---------------------------------------------------------------- Intel
def test_intel_gpus_are_gpus(intel, backend):
    assert ds.device_count() == ds.device_count("xpu") == 2
    assert ds.device_count("cuda") == 0
    assert ds.require("xpu:1") is ds.gpu(1)
    assert ds.gpu(1).native() == torch.device("xpu", 1)
    assert backend.native_text(ds.gpu(1)) == '"xpu:1"'
    with ds.explain(file=None) as lines:
        ds.device_count()
    assert lines == ["torch.xpu.device_count()"]
    with pytest.raises(ds.DeviceNotFoundError, match="the GPU of PyTorch is an XPU"):
        ds.require("cuda:1")


def test_an_intel_gpu_without_float64_is_described(intel):
    info = ds.describe("xpu:1")
    assert (info.name, info.platform) == ("Intel Arc A770", "xpu")
    assert "float32" in info.dtypes
    assert not {"float64", "complex128"} & set(info.dtypes)


def test_an_intel_gpu_is_the_current_one_in_on(intel):
    entered = []

    class Selected:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            entered.append(self.index)

        def __exit__(self, *failure):
            pass

    intel.setattr(torch.xpu, "device", Selected)
    with ds.on("xpu:1"):
        assert torch.get_default_device() == torch.device("xpu", 1)
    assert entered == [1]


# ---------------------------------------------------------------- ROCm and plug-ins
def test_amd_gpus_are_named_cuda(machine, backend):
    machine.setattr(torch.version, "hip", "6.4")
    machine.setattr(torch.cuda, "device_count", lambda: 1)
    assert ds.require("rocm") is ds.require("cuda:0") is ds.gpu()
    assert backend.platform("gpu") == "rocm"
    assert backend.native_text(ds.gpu()) == '"cuda:0"'
    with pytest.raises(ds.DeviceNotFoundError, match="an AMD GPU"):
        ds.require("mps")


def test_an_unknown_plug_in_is_the_gpu(tmp_path):
    run_program(
        """
import types, torch, devshim as ds
torch.utils.rename_privateuse1_backend("musa")
torch._register_device_module("musa", types.SimpleNamespace(device_count=lambda: 3, is_available=lambda: True))
ds.use("torch")
assert ds.device_count() == 3
assert ds.gpu(1).native() == torch.device("musa", 1)
assert ds.device(torch.device("musa", 2)) is ds.gpu(2)
try:
    ds.require("cuda:1")
except ds.DeviceNotFoundError as error:
    assert "a GPU of the platform musa" in error.problem
else:
    raise AssertionError("a GPU of another platform")
""",
        tmp_path,
    )


# ---------------------------------------------------------------- a simulated Mac
@pytest.fixture
def simulated_mac(backend):
    with ds.simulate(1, like="mps"):
        yield ds.gpu().native()


WIDE = {
    "zeros": lambda gpu: torch.zeros(2, dtype=torch.float64, device=gpu),
    "tensor": lambda gpu: torch.tensor([1.5], dtype=torch.float64, device=gpu),
    "as_tensor": lambda gpu: torch.as_tensor([1.5], dtype=torch.float64).to(gpu),
    "double": lambda gpu: torch.ones(2, device=gpu).double(),
    "to": lambda gpu: torch.ones(2, device=gpu).to(torch.float64),
    "type": lambda gpu: torch.ones(2, device=gpu).type(torch.float64),
    "sum": lambda gpu: torch.ones(2, device=gpu).sum(dtype=torch.float64),
    "new_zeros": lambda gpu: torch.ones(2, device=gpu).new_zeros(2, dtype=torch.float64),
    "randn": lambda gpu: torch.randn(2, dtype=torch.float64, device=gpu),
    "linspace": lambda gpu: torch.linspace(0, 1, 3, dtype=torch.float64, device=gpu),
    "default": lambda gpu: _with_default(torch.float64, lambda: torch.zeros(2, device=gpu)),
    "a module": lambda gpu: torch.nn.Linear(2, 2).double().to(gpu),
    "a module there": lambda gpu: torch.nn.Linear(2, 2, device=gpu).double(),
    "a module made there": lambda gpu: torch.nn.Linear(2, 2, device=gpu, dtype=torch.float64),
    "complex128": lambda gpu: torch.zeros(2, dtype=torch.complex128, device=gpu),
    "placing a module": lambda gpu: ds.place(torch.nn.Linear(2, 2).double(), "gpu"),
}


def _with_default(dtype, make):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return make()
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("call", WIDE)
def test_a_simulated_mac_refuses_float64_with_the_error_of_mps(simulated_mac, call):
    words = (
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32"
    )
    words = "Trying to convert ComplexDouble to the MPS backend" if call == "complex128" else words
    with pytest.raises(TypeError, match=words):
        WIDE[call](simulated_mac)


def test_a_model_with_one_float64_parameter_is_not_moved(simulated_mac):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    with pytest.raises(ds.ConversionError, match=r"at the leaf 1\.weight"):
        ds.place(model, "mps")
    assert ds.placement_of(model).devices == {ds.cpu()}
    ds.place(model.float(), "mps")
    assert ds.placement_of(model).devices == {ds.gpu()}


def test_host_scalars_may_be_float64(simulated_mac):
    """Also on MPS, a number on the host takes part in an operator, whose result is float32."""
    x = torch.ones(2, device=simulated_mac) * torch.tensor(2.0, dtype=torch.float64)
    assert x.dtype is torch.float32
    assert x.tolist() == [2, 2]


def test_lines_for_a_simulated_mac(simulated_mac):
    with ds.explain(file=None) as lines:
        ds.place(torch.ones(2), "mps")
        ds.synchronize("mps")
    assert lines == ['x.to("mps")', "torch.mps.synchronize()"]
    with ds.simulate(2, like="xpu"), ds.explain(file=None) as lines:
        ds.place(torch.ones(2), "xpu:1")
    assert lines == ['x.to("xpu:1")']


def test_a_compiled_function_refuses_float64(simulated_mac):
    fn = torch.compile(lambda x: ds.place(x, "mps"), backend="eager", fullgraph=True)
    assert ds.device_of(fn(torch.ones(2))) is ds.gpu()
    with pytest.raises(ds.ConversionError, match="the MPS framework doesn't support float64"):
        fn(torch.ones(2, dtype=torch.float64))

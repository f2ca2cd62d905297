"""Tests of GPUs that are not CUDA's: Apple's (METAL) and Intel's (oneapi), with stubs of JAX's plug-ins.

`ds.simulate(1, like="mps")` is tested by the kit.
"""

from __future__ import annotations

import jax
import pytest
from devshim_backends._jax import devices as devices_module
from devshim_backends._jax import real_gpus

import devshim as ds
from devshim.devices import parsing, startup


class Native:
    """A device of a plug-in, as far as devshim looks at it."""

    device_kind, client, id = "Metal", None, 0

    def __init__(self, platform):
        self.platform = platform

    def memory_stats(self):
        raise RuntimeError("UNIMPLEMENTED: MemoryStats")


def machine(monkeypatch, plugin, name, count, works=True):
    """Pretend that a plug-in is installed, which starts devices of a name."""
    natives = [Native(name) for _ in range(count)]
    own = devices_module.local_devices
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(real_gpus, "gpu_plugin", lambda: plugin)
    monkeypatch.setattr(devices_module, "local_devices", lambda asked: natives if asked == name else own(asked))
    if works:
        monkeypatch.setattr(devices_module, "_works", lambda native: True)
    parsing.forget_platforms()
    return natives


@pytest.fixture
def mac(backend, monkeypatch):
    yield machine(monkeypatch, "jax_plugins.metal_plugin", "METAL", 1)
    parsing.forget_platforms()


def test_the_gpu_of_a_mac_is_gpu(backend, mac):
    assert ds.device_count() == ds.device_count("mps") == ds.device_count("METAL") == 1
    assert ds.device_count("cuda") == ds.device_count("xpu") == 0
    assert ds.require("metal") is ds.require("mps") is ds.try_gpu() is ds.gpu()
    assert ds.gpu().native() is mac[0]
    assert backend.native_text(ds.gpu()) == 'jax.devices("METAL")[0]'
    with ds.explain(file=None) as lines:
        ds.device_count()
    assert lines == ['len(jax.local_devices(backend="METAL"))']


@pytest.mark.parametrize("name", ["cuda:0", "rocm", "xpu", (2, 0)], ids=str)
def test_names_of_other_gpus_are_refused_on_a_mac(mac, name):
    for call in (lambda: ds.require(name), lambda: ds.place(jax.numpy.ones(2), name), lambda: ds.ones(2, device=name)):
        with pytest.raises(ds.DeviceNotFoundError, match=r"the GPU of JAX is an Apple GPU \(platform metal\)"):
            call()


def test_the_gpu_of_a_mac_is_described(mac):
    info = ds.describe("mps")
    assert (info.name, info.platform, info.total_memory) == ("Metal", "metal", None)
    assert "float32" in info.dtypes
    assert ds.memory("mps").total is None


def test_a_metal_device_that_does_not_work_is_not_counted(backend, monkeypatch):
    """JAX itself refuses to put an array on the stub."""
    machine(monkeypatch, "jax_plugins.metal_plugin", "METAL", 1, works=False)
    assert ds.device_count() == 0
    assert ds.try_gpu() is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError, match=r"has 0 gpu devices: the device .* is listed, but using it fails"):
        ds.require("gpu")


@pytest.mark.parametrize(
    ("plugin", "name"),
    [("jax_plugins.oneapi", "oneapi"), ("jax_plugins.intel_extension_for_openxla", "xpu")],
)
def test_intel_gpus_are_gpus(backend, monkeypatch, plugin, name):
    natives = machine(monkeypatch, plugin, name, 2)
    assert ds.device_count() == ds.device_count("xpu") == 2
    assert ds.require("xpu:1").native() is natives[1]
    assert ds.describe("gpu:1").platform == name
    assert backend.native_text(ds.gpu(1)) == f'jax.devices("{name}")[1]'
    with pytest.raises(ds.DeviceNotFoundError, match=f"platform {name}"):
        ds.require("cuda:1")
    with pytest.raises(ds.DeviceNotFoundError, match=f"its plugin {plugin} starts no more"):
        ds.require("gpu:2")


@pytest.mark.parametrize(
    ("plugins", "platform"),
    [
        (["jax_plugins.metal_plugin"], "metal"),
        (["jax_plugins.metal_plugin", "jax_plugins.xla_cuda12"], "cuda"),
        (["jax_plugins.xla_rocm7"], "rocm"),
        (["jax_plugins.intel_extension_for_openxla"], "xpu"),
        ([], "cuda"),
    ],
)
def test_the_plugin_reports_the_platform(monkeypatch, plugins, platform):
    monkeypatch.setattr(real_gpus, "_plugins", lambda: plugins)
    monkeypatch.setattr(real_gpus, "_exists", lambda name: name in plugins)
    real_gpus.gpu_plugin.cache_clear()
    try:
        assert real_gpus.platform() == platform
    finally:
        real_gpus.gpu_plugin.cache_clear()

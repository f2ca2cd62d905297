"""Tests of GPUs that are not CUDA's: XPUs, and the GPUs of plug-ins, with stubs of Paddle's functions.

`ds.simulate(1, like="mps")` is tested by the kit.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import devshim as ds
from devshim.devices import parsing

paddle = pytest.importorskip("paddle")

from devshim_backends._paddle import devices as devices_module  # noqa: E402


@pytest.fixture
def core(backend, monkeypatch):
    """Return Paddle's core with functions that can be replaced."""
    if backend.simulated or devices_module._has_cuda():
        pytest.skip("for builds without CUDA, and without simulated GPUs")
    own = devices_module.core
    monkeypatch.setattr(devices_module, "_PLACES", {})
    changed = SimpleNamespace(**{name: getattr(own, name) for name in dir(own) if not name.startswith("__")})
    monkeypatch.setattr(devices_module, "core", changed)
    parsing.forget_platforms()
    yield changed
    parsing.forget_platforms()


def test_the_devices_of_an_xpu_build_are_gpus(backend, core):
    core.is_compiled_with_xpu = lambda: True
    core.get_xpu_device_count = lambda: 2
    core.XPUPlace = lambda index: ("XPUPlace", index)
    assert ds.device_count() == ds.device_count("xpu") == 2
    assert ds.require("xpu:1") is ds.gpu(1)
    assert ds.gpu(1).native() == ("XPUPlace", 1)
    assert backend.native_text(ds.gpu(1)) == "paddle.XPUPlace(1)"
    assert ds.describe("gpu:1").platform == "xpu"
    with pytest.raises(ds.DeviceNotFoundError, match="the GPU of PaddlePaddle is an XPU"):
        ds.require("cuda:1")
    with pytest.raises(ds.DeviceNotFoundError, match="its XPU driver shows no more"):
        ds.require("gpu:2")


@pytest.mark.parametrize(
    ("name", "platform", "accepted", "refused"),
    [
        ("iluvatar_gpu", "iluvatar_gpu", "gpu:1", "cuda:1"),
        ("mps", "mps", "metal:1", "cuda:1"),
        ("intel_gpu", "xpu", "xpu:1", "mps"),
    ],
)
def test_the_gpus_of_a_plug_in_are_gpus(backend, core, name, platform, accepted, refused):
    core.get_all_custom_device_type = lambda: [name]
    core.get_custom_device_count = lambda asked: 2 if asked == name else 0
    core.CustomPlace = lambda asked, index: (asked, index)
    assert ds.device_count() == 2
    assert ds.require(accepted) is ds.gpu(1)
    assert ds.gpu(1).native() == (name, 1)
    assert backend.native_text(ds.gpu(1)) == f'paddle.CustomPlace("{name}", 1)'
    assert ds.describe("gpu").platform == platform
    with pytest.raises(ds.DeviceNotFoundError, match=f"platform {platform}"):
        ds.require(refused)


@pytest.mark.parametrize("name", ["npu", "mlu"])
def test_other_kinds_of_a_plug_in_keep_their_names(backend, core, name):
    core.get_all_custom_device_type = lambda: [name]
    core.get_custom_device_count = lambda asked: 1
    assert ds.device_count() == 0
    assert ds.device_count(name) == 1
    assert ds.devices() == [ds.cpu(), ds.Device(name)]
    assert ds.describe(name).platform == name

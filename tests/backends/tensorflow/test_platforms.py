"""Tests of GPUs that are not CUDA's: Apple's (Metal) and Intel's (XPU), with stubs of TensorFlow's physical devices.

`ds.simulate(1, like="mps")` is tested by the kit.
"""

from __future__ import annotations

import sys

import pytest
import tensorflow as tf
from devshim_backends._tensorflow import devices

import devshim as ds
from devshim.devices import parsing, startup


def machine(monkeypatch, device_type, count):
    """Pretend that TensorFlow lists devices of a type, which a plug-in added."""
    added = [tf.config.PhysicalDevice(f"/physical_device:{device_type}:{i}", device_type) for i in range(count)]
    known = [*tf.config.list_physical_devices("CPU"), *added]

    def listed(kind=None):
        return [each for each in known if kind in (None, each.device_type)]

    monkeypatch.setattr(tf.config, "list_physical_devices", listed)
    monkeypatch.setattr(tf.config, "get_visible_devices", listed)
    monkeypatch.setattr(devices, "has_started_with_host_alone", lambda: False)  # TensorFlow would have started these
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda card: None)
    details = {"device_name": "METAL" if device_type == "GPU" else "XPU"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda card: details)
    parsing.forget_platforms()
    return added


@pytest.fixture
def mac(backend, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(devices, "use_gpu", lambda: None)
    monkeypatch.setattr(startup, "_REASONS", {})
    devices.metal_works.cache_clear()
    yield machine(monkeypatch, "GPU", 1)
    devices.metal_works.cache_clear()
    parsing.forget_platforms()


def fail():
    message = "the device is lost.\nmore"
    raise tf.errors.InternalError(None, None, message)


@pytest.fixture
def intel(backend, monkeypatch):
    yield machine(monkeypatch, "XPU", 2)
    parsing.forget_platforms()


@pytest.mark.skipif(tf.test.is_built_with_gpu_support(), reason="for builds without CUDA")
def test_the_gpu_of_a_mac_is_gpu(backend, mac):
    assert ds.device_count() == ds.device_count("mps") == ds.device_count("metal") == 1
    assert ds.device_count("cuda") == ds.device_count("xpu") == 0
    assert ds.require("metal") is ds.require("mps") is ds.try_gpu() is ds.gpu()
    assert ds.gpu().native() == "/GPU:0"
    assert ds.device(mac[0]) is ds.gpu()
    info = ds.describe("mps")
    assert (info.name, info.platform) == ("METAL", "metal")
    for call in (lambda: ds.require("cuda"), lambda: ds.place(tf.ones(2), "cuda:0")):
        with pytest.raises(ds.DeviceNotFoundError, match=r"the GPU of TensorFlow is an Apple GPU \(platform metal\)"):
            call()
    with pytest.raises(ds.DeviceNotFoundError, match="1 gpu device: TensorFlow's plug-in lists 1"):
        ds.require("gpu:1")


@pytest.mark.skipif(tf.test.is_built_with_gpu_support(), reason="for builds without CUDA")
def test_a_gpu_of_a_mac_that_is_listed_and_fails_is_none(backend, mac, monkeypatch):
    tf.zeros(1)  # starts TensorFlow
    monkeypatch.setattr(devices, "use_gpu", fail)
    assert ds.device_count() == ds.device_count("metal") == 0
    assert ds.try_gpu() is ds.cpu()
    assert ds.devices() == [ds.cpu()]
    for call in (lambda: ds.require("gpu"), lambda: ds.zeros(2, device="gpu"), lambda: ds.place(tf.ones(2), "gpu")):
        with pytest.raises(ds.DeviceNotFoundError, match=r"is listed, but using it fails \(the device is lost\)"):
            call()


@pytest.mark.skipif(tf.test.is_built_with_gpu_support(), reason="for builds without CUDA")
def test_the_first_use_of_a_failing_gpu_of_a_mac_says_so(backend, mac, monkeypatch):
    monkeypatch.setattr(type(backend), "started", lambda self: False)
    monkeypatch.setattr(devices, "use_gpu", fail)
    assert ds.device_count() == 1  # counting starts nothing
    zeros = type(backend).zeros

    def on_the_gpu(self, shape, dtype, device):
        return zeros(self, shape, dtype, device) if device is ds.cpu() else fail()

    monkeypatch.setattr(type(backend), "zeros", on_the_gpu)
    with pytest.raises(ds.DeviceNotFoundError, match="the Metal device is listed, but using it fails"):
        ds.zeros(2, device="gpu")
    assert ds.device_count() == 0


@pytest.mark.skipif(tf.test.is_built_with_gpu_support(), reason="for builds without CUDA")
def test_a_result_on_the_host_is_a_failure(backend):
    with pytest.raises(RuntimeError, match="CPU:0 instead"):
        devices.use_gpu()


def test_intel_gpus_are_gpus(backend, intel):
    assert ds.device_count() == ds.device_count("xpu") == 2
    assert ds.devices() == [ds.cpu(), ds.gpu(0), ds.gpu(1)]
    assert ds.require("XPU:1") is ds.device(intel[1]) is ds.device("/device:XPU:1") is ds.gpu(1)
    assert ds.gpu(1).native() == "/XPU:1"
    assert backend.native_text(ds.gpu(1)) == '"/XPU:1"'
    assert (ds.describe("gpu:1").name, ds.describe("gpu:1").platform) == ("XPU", "xpu")
    assert backend.memory(ds.gpu(1)).used is None
    with ds.explain(file=None) as lines:
        ds.device_count()
    assert lines == ['len(tf.config.get_visible_devices("XPU"))']
    with pytest.raises(ds.DeviceNotFoundError, match="the GPU of TensorFlow is an XPU"):
        ds.require("cuda:1")


def test_memory_grows_on_intel_gpus(intel, monkeypatch):
    grown = []
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda card, on: grown.append((card.name, on)))
    monkeypatch.setattr("devshim_backends._tensorflow.runtime.TensorflowRuntime.started", lambda self: False)
    ds.memory_policy("grow")
    assert grown == [("/physical_device:XPU:0", True), ("/physical_device:XPU:1", True)]

"""Tests of devices: counting, naming, describing and requiring them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.devices.device import KINDS
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

CPU_SPELLINGS = ("cpu", "CPU:0", "cpu:3", "/CPU:0", "/device:CPU:0", "cpu(0)", "Place(cpu)", (1, 0), ds.cpu())
GPU_SPELLINGS = (
    *("gpu:{0}", "GPU:{0}", "cuda:{0}", "/GPU:{0}", "/device:GPU:{0}", "gpu({0})", "Place(gpu:{0})"),
    "/job:localhost/replica:0/task:0/device:GPU:{0}",
)
NO_SPELLINGS: tuple[Any, ...] = (
    *("", " ", "gpu:", "gpu:-1", "gpu:1.5", "gpu 1", "cuda:one", "gpu:01", "gpu[1]", "__import__('os').getcwd()"),
    *("x" * 10_000, "gpu:" + "9" * 10_000, None, 1.5, True, -1, b"gpu", object(), ["gpu"], (2,), (99, 0)),
)


class DeviceTests(Kit):
    """`device_count`, `devices`, `describe`, `try_gpu`, `require`, and every spelling of a device."""

    @feature("count")
    def test_devices_lists_the_host_then_the_gpus(self) -> None:
        """`devices` lists each device once, the host first, and as many of each kind as `device_count` returns."""
        found = ds.devices()
        assert found[0] is ds.cpu()
        assert found == sorted(set(found))
        for kind in ("cpu", *self.adapter.kinds()):
            assert (
                ds.devices(kind)
                == [d for d in found if d.kind == kind]
                == [ds.Device(kind, i) for i in range(ds.device_count(kind))]
            )

    @feature("count")
    @pytest.mark.parametrize("kind", KINDS)
    def test_device_count_of_an_absent_kind_is_zero(self, kind: str) -> None:
        """`device_count` returns an int for every known kind, and never raises for one."""
        count = ds.device_count(kind)
        assert type(count) is int
        assert count >= 0
        assert kind != "cpu" or count == 1

    @feature("count")
    def test_device_count_accepts_aliases(self) -> None:
        """``cuda`` and ``rocm`` are ``gpu``; an unknown kind raises."""
        assert ds.device_count("cuda") == ds.device_count("ROCM") == ds.device_count()
        with pytest.raises(ds.DeviceSpecError):
            ds.device_count("gpus")

    @feature("count")
    def test_each_device_is_described(self, device: Device) -> None:
        """`describe` gives the device, its model, framework, platform and dtypes, and whether it is simulated."""
        info = ds.describe(device)
        assert info.device is device
        assert info.backend == self.backend
        assert info.name
        assert info.total_memory is None or (type(info.total_memory) is int and info.total_memory > 0)
        simulated = device.kind != "cpu" and self.adapter.simulated > 0
        assert info.simulated is simulated
        if device.kind == "cpu" or simulated:
            assert info.platform == ("cpu" if device.kind == "cpu" else "cuda")
        assert {"bool", "int32", "float32"} <= set(info.dtypes)
        assert ("simulated" in info.name.lower()) is simulated

    @feature("count")
    def test_try_gpu_falls_back_to_the_host(self) -> None:
        """`try_gpu` returns the GPU if there is one, otherwise the host; `try_all_gpus` is never empty."""
        count = ds.device_count()
        assert [ds.try_gpu(i) for i in range(count)] == ds.devices("gpu")
        assert ds.try_gpu(count) is ds.cpu()
        assert ds.try_gpu(99) is ds.cpu()
        assert ds.try_all_gpus() == (ds.devices("gpu") or [ds.cpu()])

    @feature("count")
    def test_require_returns_what_exists(self, device: Device) -> None:
        """`require` returns the `Device` of an existing device, in any spelling."""
        assert ds.require(str(device).upper()) is device

    @feature("missing_device")
    def test_require_reports_how_many_devices_exist_and_why(self, missing_device: Device) -> None:
        """The error names the device, the framework, the count, a reason, and what to type next."""
        with pytest.raises(ds.DeviceNotFoundError) as caught:
            ds.require(missing_device)
        count = ds.device_count()
        have = f"{count} gpu device{'' if count == 1 else 's'}"
        asked = f"{missing_device} was asked for, and {self.adapter.title} has {have}: "
        assert re.fullmatch(re.escape(asked) + r"\S.{8,}", caught.value.problem)
        assert "ds.try_gpu(" in str(caught.value.hint)

    @feature("place")
    @pytest.mark.parametrize("spelling", CPU_SPELLINGS, ids=str)
    def test_every_spelling_of_the_host(self, spelling: object) -> None:
        """Every spelling of the host is accepted wherever a device is."""
        x = self.tensor()
        assert ds.place(x, spelling) is x
        assert ds.device_of(ds.zeros(2, device=spelling)) is ds.cpu()

    @feature("place")
    @pytest.mark.parametrize("spelling", [*GPU_SPELLINGS, int, "pair"], ids=str)
    def test_every_spelling_of_a_gpu(self, spelling: Any, other_device: Device) -> None:
        """A GPU is accepted by each of its names, by its number, and by its DLPack pair."""
        index = other_device.index
        name = index if spelling is int else (2, index) if spelling == "pair" else spelling.format(index)
        assert ds.device(name) is other_device
        assert ds.device_of(ds.place(self.tensor(), name)) is other_device
        assert ds.device_of(ds.zeros(2, device=name)) is other_device

    @feature("place")
    @pytest.mark.parametrize("name", ["mps", "MPS:0", "metal", "xpu:{0}", "oneapi"])
    def test_the_name_of_another_platform_is_refused(self, name: str, other_device: Device) -> None:
        """On CUDA's GPUs, calls refuse the names of Apple's and Intel's, and say which platform the GPU has."""
        named = name.format(other_device.index)
        assert ds.device(named) is ds.gpu(other_device.index if ":{" in name else 0)
        assert ds.device_count(named.partition(":")[0]) == 0
        x = self.tensor()
        calls = (
            lambda: ds.require(named),
            lambda: ds.place(x, named),
            lambda: ds.place({"x": x}, named),
            lambda: ds.zeros(2, device=named),
            lambda: ds.on(named),
            lambda: ds.memory(named),
        )
        for call in calls:
            with pytest.raises(ds.DeviceNotFoundError, match="platform cuda"):
                call()

    @feature("place")
    def test_the_frameworks_own_object_names_the_device(self, device: Device) -> None:
        """`Device.native` and `device` are inverse functions, and `place` takes the framework's object."""
        native = device.native(self.backend)
        assert native == device.native()
        assert ds.device(native) is device
        assert ds.device_of(ds.place(self.tensor(), native)) is device

    @feature("place")
    @pytest.mark.parametrize("nonsense", NO_SPELLINGS, ids=lambda value: repr(value)[:20])
    def test_invalid_device_names_are_refused(self, nonsense: object) -> None:
        """Any other value raises `DeviceSpecError` at the call, and is never evaluated."""
        x = self.tensor()
        for call in (lambda: ds.place(x, nonsense), lambda: ds.on(nonsense), lambda: ds.require(nonsense)):
            with pytest.raises(ds.DeviceSpecError):
                call()

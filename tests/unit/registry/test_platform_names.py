"""Tests of names of platforms, such as ``mps``, and of the code that reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import devshim as ds
from devshim.devices import platforms

ROOT = Path(ds.__file__).parent
PURE = {
    "placement/placement.py",  # a Placement is a value, as a Device is
    "monitoring/ledger.py",  # filters of a log
    "registry/argument_hints.py",
    "registry/environment_values.py",  # the check of DEVSHIM_DEVICE for `devshim doctor`
}
"""The files that read a device without a call that uses it: the name of a platform is not refused there."""


def test_every_call_that_uses_a_device_checks_the_name_of_its_platform() -> None:
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"parsing\.device\(", path.read_text(encoding="utf-8"))
    }
    assert readers == PURE


@pytest.mark.parametrize("name", ["cuda", "rocm", "hip", "mps", "metal", "xpu", "oneapi"])
def test_every_name_of_a_platform_names_gpu(name: str) -> None:
    assert ds.device(name) is ds.device(f"{name}:0") is ds.Device(name.upper()) is ds.gpu()


@pytest.mark.parametrize("name", ["tpu", "npu", "hpu", "mlu"])
def test_other_kinds_keep_their_names(name: str) -> None:
    assert str(ds.device(name)) == f"{name}:0"


def test_names_are_of_one_family() -> None:
    assert platforms.family("metal") == platforms.family("mps") == "mps"
    assert platforms.family("rocm") == platforms.family("cuda") == "cuda"
    assert platforms.family("oneapi") == platforms.family("xpu") == "xpu"
    assert platforms.family("iluvatar_gpu") == "iluvatar_gpu"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mps", "mps"),
        ("/device:METAL:0", "metal"),
        ("Place(xpu:1)", "xpu"),
        ("gpu:1", None),
        ("cpu", None),
        ("1", None),
    ],
)
def test_the_platform_in_a_text(text: str, name: str | None) -> None:
    assert platforms.name_in(text) == name


def test_a_name_is_accepted_again_when_the_gpus_change() -> None:
    ds.use("numpy")
    with ds.simulate(1), pytest.raises(ds.DeviceNotFoundError, match="platform cuda"):
        ds.require("mps")
    with pytest.raises(ds.DeviceNotFoundError, match="has 0 gpu devices"):
        ds.require("mps")
    with ds.simulate(1):
        assert ds.require("cuda") is ds.gpu()


def test_the_environment_may_name_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use("numpy")
    with ds.simulate(2):
        monkeypatch.setenv("DEVSHIM_DEVICE", "cuda:1")
        assert ds.device_of(ds.zeros(2)) is ds.gpu(1)
        monkeypatch.setenv("DEVSHIM_DEVICE", "mps")
        with pytest.raises(ds.DeviceNotFoundError, match="DEVSHIM_DEVICE is 'mps', but a device of the platform mps"):
            ds.zeros(2)


def test_placements_and_devices_are_values() -> None:
    """They can be made on any machine, so the name of a platform is read without a question."""
    ds.use("numpy")
    with ds.simulate(1):
        assert ds.Placement({"a": "mps"})["a"] is ds.device("mps") is ds.gpu()

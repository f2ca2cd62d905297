"""Tests of counting what CUDA will show when NVML does not know: slices of GPUs (MIG), and machines without NVML."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.devices import cuda as cuda_module
from devshim.devices import nvml
from devshim.runtime import visible_devices


class Machine:
    """The list of NVML, and the answer of CUDA in a separate process; None if its library does not exist."""

    def __init__(self, cards: int, cuda: str | None) -> None:
        self.cards, self.cuda, self.asked, self.in_slices = cards, cuda, 0, False


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(0, None)

    def library(name: str, mode: int = 0) -> Any:
        if found.cuda is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace()

    def run(command: list[str], **kwargs: Any) -> Any:
        found.asked += 1
        assert "cuInit" in command[-1]
        return SimpleNamespace(stdout=found.cuda)

    def cards() -> list[nvml.Card]:
        return [nvml.Card(i, "H100", f"GPU-{i}", 1, 1, in_slices=found.in_slices) for i in range(found.cards)]

    monkeypatch.setattr(nvml, "cards", cards)
    monkeypatch.setattr(nvml, "why_no_cards", lambda: "NVML does not answer")
    monkeypatch.setattr(cuda_module.ctypes, "CDLL", library)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    monkeypatch.setattr(visible_devices, "_before", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "x")  # so that the test restores it
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    cuda_module._ask.cache_clear()
    return found


@pytest.mark.parametrize(
    ("cards", "cuda", "value", "count"),
    [
        (0, None, None, 0),
        (0, "2\n", None, 2),
        (0, "1\n", "1", 1),
        (0, "", None, 0),  # cuInit failed
        (0, "2\n", "", 0),
        (0, "2\n", "-1", 0),
        (4, "9\n", None, 4),
        (4, "9\n", "1,2", 2),
        (4, "9\n", "GPU-3", 1),
        (4, "1\n", "MIG-x", 1),
        (4, "1\n", "MIG-x,MIG-y", 1),  # of several slices CUDA shows one
        (4, None, "MIG-x", 1),
        (4, "", "MIG-x", 1),
        (0, None, "MIG-x", 1),
    ],
)
def test_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, cards: int, cuda: str | None, value: str | None, count: int
) -> None:
    machine.cards, machine.cuda = cards, cuda
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert [cuda_module.count() for _ in range(3)] == [count] * 3
    assert machine.asked == (cuda is not None and value not in ("", "-1") and (not cards or "MIG" in str(value)))


@pytest.mark.parametrize(
    ("cuda", "value", "count"),
    [
        ("1\n", None, 1),
        ("1\n", "2", 1),
        (None, None, 1),
        (None, "2,3", 1),
        (None, "", 0),
        (None, "9", 0),
        ("0\n", None, 0),
    ],
)
def test_cards_in_mig_mode_are_as_many_as_cuda_shows(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, cuda: str | None, value: str | None, count: int
) -> None:
    """NVML counts the GPUs; CUDA shows a process one slice of one, or nothing if no slice was made."""
    machine.cards, machine.cuda, machine.in_slices = 4, cuda, True
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert cuda_module.count() == count


def test_of_cards_in_mig_mode_those_that_cuda_shows_can_be_chosen(machine: Machine) -> None:
    machine.cards, machine.cuda, machine.in_slices = 4, "1\n", True
    with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:1, and 1 is visible: a GPU is in MIG mode"):
        ds.set_visible_devices([1])
    ds.set_visible_devices([0])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_the_program_that_asks_runs() -> None:
    """Here it runs without a driver, so it fails and prints nothing."""
    cuda_module._ask.cache_clear()
    assert cuda_module._ask(None, None) is None or cuda_module.count() >= 0
    compile(cuda_module._PROGRAM, "program", "exec")


def test_visible_devices_are_counted_without_nvml(machine: Machine) -> None:
    machine.cuda = "2\n"
    with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:2, and 2 are visible"):
        ds.set_visible_devices([2])
    ds.set_visible_devices([1])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_visible_devices_are_too_late_once_anybody_has_started_cuda(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy, numba or a framework's own list of devices: CUDA has then read the variable, and never reads it again."""
    machine.cards = 2
    monkeypatch.setattr(nvml, "cuda_started", lambda: True)
    with pytest.raises(ds.AlreadyStartedError, match="CUDA is initialized in this process") as caught:
        ds.set_visible_devices([1])
    assert "top of the program" in str(caught.value.hint)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(("known", "active", "found"), [(0, 1, True), (0, 0, False), (3, 1, False)])
def test_the_driver_says_which_card_is_used(
    known: int, active: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is queried only if it is loaded; before it has started, it names no GPU (3)."""

    def state(card: Any, flags: Any, answer: Any) -> int:
        answer._obj.value = active
        return 0

    driver = SimpleNamespace(cuDeviceGet=lambda card, index: known, cuDevicePrimaryCtxGetState=state)
    asked: list[tuple[str, int]] = []

    def library(name: str, mode: int = 0) -> Any:
        asked.append((name, mode & os.RTLD_NOLOAD))
        return driver

    monkeypatch.setattr(cuda_module.ctypes, "CDLL", library)
    assert cuda_module.has_context(1) is found
    assert asked == [("libcuda.so.1", os.RTLD_NOLOAD)]


def test_no_driver_that_is_loaded_has_no_card_in_use(machine: Machine) -> None:
    assert cuda_module.has_context(0) is False

"""Tests of the NVIDIA driver's answers, with a simulated driver."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.devices import nvml


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_Uninitialized(NVMLError):
    pass


class Driver(ModuleType):
    """A fake nvidia-ml-py with two GPUs."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.count = 2
        self.starts = 0
        self.open = False
        self.absent: Exception | None = None
        self.no_memory: set[int] = set()
        self.in_slices: set[int] = set()
        self.text: Any = str

    def nvmlInit(self) -> None:
        if self.absent is not None:
            raise self.absent
        self.starts += 1
        self.open = True

    def nvmlDeviceGetCount(self) -> int:
        if not self.open:
            raise NVMLError_Uninitialized
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return self.text(f"Card {handle}")

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        return self.text(f"GPU-{handle}")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        if handle in self.no_memory:
            raise NVMLError("Not Supported")
        return SimpleNamespace(total=80 * 2**30, free=79 * 2**30)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if not self.in_slices:
            raise NVMLError("Not Supported")
        return [int(handle in self.in_slices), 0]

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self.text("570.1")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_nvml_is_started_once(driver: Driver) -> None:
    """Starting it takes milliseconds on a real driver, and more if no other process uses the GPUs."""
    for _ in range(3):
        assert len(nvml.cards()) == 2
        assert nvml.driver_version() == "570.1"
    assert driver.starts == 1


def test_nvml_is_started_again_after_another_library_has_shut_it_down(driver: Driver) -> None:
    assert len(nvml.cards()) == 2
    driver.open = False
    assert len(nvml.cards()) == 2
    assert driver.starts == 2


def test_a_driver_that_comes_later_is_found(driver: Driver) -> None:
    driver.absent = NVMLError("Unknown")
    assert nvml.cards() == []
    driver.absent = None
    assert len(nvml.cards()) == 2


def test_cards_in_mig_mode(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA shows a slice, for which NVML's data about the GPU is wrong."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(driver, "nvmlDeviceGetName", lambda handle: "H100")
    assert [card.in_slices for card in nvml.cards()] == [False, False]
    assert nvml.card_at(1) is not None
    driver.in_slices = {1}
    assert [card.in_slices for card in nvml.cards()] == [False, True]
    assert nvml.card_at(1) is None
    assert "MIG mode, where CUDA shows one slice to a process" in nvml.why_no_more(1)


@pytest.mark.parametrize("text", [str, str.encode])
def test_cards(driver: Driver, text: Any) -> None:
    """nvidia-ml-py before 11.515 returned text as bytes."""
    driver.text = text
    assert nvml.cards()[1] == nvml.Card(1, "Card 1", "GPU-1", 80 * 2**30, 79 * 2**30)
    driver.nvmlDeviceGetCudaComputeCapability = lambda handle: [9, handle]
    assert [card.capability for card in nvml.cards()] == [(9, 0), (9, 1)]
    assert nvml.driver_version() == "570.1"
    assert nvml.why_no_cards() == "the driver shows 2"


def test_a_card_that_does_not_report_its_memory_is_listed(driver: Driver) -> None:
    driver.no_memory = {0}
    assert [card.total_memory for card in nvml.cards()] == [None, 80 * 2**30]


def test_no_card(driver: Driver) -> None:
    driver.count = 0
    assert nvml.cards() == []
    assert "shows no GPU" in nvml.why_no_cards()


@pytest.mark.parametrize(
    ("error", "reported"),
    [(NVMLError_LibraryNotFound(), "no NVIDIA driver is installed"), (NVMLError("Unknown"), "Unknown")],
)
def test_no_driver(driver: Driver, error: Exception, reported: str) -> None:
    driver.absent = error
    assert nvml.cards() == []
    assert nvml.driver_version() is None
    assert reported in nvml.why_no_cards()


def test_no_nvidia_ml_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.cards() == []
    assert "nvidia-ml-py cannot be imported" in nvml.why_no_cards()


def test_the_cards_are_what_set_visible_devices_chooses_among(
    driver: Driver, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "x")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    ds.set_visible_devices([1])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    ds.set_visible_devices([0])  # renumbered: the only one left
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:1, and 1 is visible"):
        ds.set_visible_devices([1])


H200S = [nvml.Card(i, "H200", f"GPU-{i}{i}aa-bb", 2**37, 2**36) for i in range(3)]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return the environment with three identical GPUs, none of them hidden."""
    monkeypatch.setattr(nvml, "cards", lambda: H200S)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2, 0", [2, 0]),
        ("0,-1,1", [0]),
        ("1,7,0", [1]),
        ("1,,0", [1]),
        ("1,1", []),  # as PyTorch and the driver read it: one named twice hides all
        ("GPU-1,GPU-11aa", []),
        ("1a,+2", [1, 2]),
        ("GPU-22,GPU-00aa-bb", [2, 0]),
        ("GPU-", []),  # could be any GPU
        ("H200", []),
        ("MIG-GPU-00aa-bb/0/0", []),  # a slice of a GPU
    ],
)
def test_what_is_visible_is_what_cuda_reads(three: pytest.MonkeyPatch, value: str | None, visible: list[int]) -> None:
    if value is not None:
        three.setenv("CUDA_VISIBLE_DEVICES", value)
    assert [card.index for card in nvml.visible_cards()] == visible
    assert [nvml.card_at(i) for i in range(4)] == [*(H200S[i] for i in visible), *[None] * (4 - len(visible))]


def test_unlike_cards_are_known_only_in_the_drivers_order(three: pytest.MonkeyPatch) -> None:
    """CUDA puts the fastest first by default."""
    unlike = [*H200S, nvml.Card(3, "T4", "GPU-33", 1, 1)]
    three.setattr(nvml, "cards", lambda: unlike)
    assert nvml.card_at(0) is None
    three.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-00")
    assert nvml.card_at(1) is None
    three.setenv("CUDA_VISIBLE_DEVICES", "GPU-33,GPU-00")  # a UUID identifies each, in any order
    assert [nvml.card_at(0), nvml.card_at(1)] == [unlike[3], unlike[0]]
    three.delenv("CUDA_VISIBLE_DEVICES")
    three.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert nvml.card_at(3) is unlike[3]


@pytest.mark.parametrize(
    ("value", "count", "reported"),
    [
        ("1", 1, "CUDA_VISIBLE_DEVICES='1' hides 2 of 3 GPUs"),
        ("", 0, "CUDA_VISIBLE_DEVICES='' hides 3 of 3 GPUs"),
        ("0,1,2", 3, "the driver shows no more"),
        ("MIG-a,MIG-b,MIG-c", 3, "the driver shows no more"),
        (None, 3, "the driver shows no more"),
        (None, 0, "it is the driver's own words"),
        ("0,1,2", 0, "it is the driver's own words"),
    ],
)
def test_why_there_are_no_more(three: pytest.MonkeyPatch, value: str | None, count: int, reported: str) -> None:
    three.setattr(nvml, "why_no_cards", lambda: "it is the driver's own words")
    if value is not None:
        three.setenv("CUDA_VISIBLE_DEVICES", value)
    assert nvml.why_no_more(count) == reported


def test_whether_cuda_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's library is searched only among loaded libraries."""
    asked: list[tuple[str, int]] = []
    answers = iter([3, 0, 100])

    def library(name: str, mode: int) -> SimpleNamespace:
        asked.append((name, mode))
        return SimpleNamespace(cuDeviceGetCount=lambda count: next(answers))

    monkeypatch.setattr(nvml.ctypes, "CDLL", library)
    assert [nvml.cuda_started() for _ in range(3)] == [False, True, True]
    assert all(name == "libcuda.so.1" and mode & nvml.os.RTLD_NOLOAD for name, mode in asked)
    monkeypatch.undo()
    if not nvml.cards():
        assert not nvml.cuda_started()

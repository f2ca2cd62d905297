"""Tests of the doctor: what hides GPUs, what is broken, and the verdict."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.cli import _machine, _touch, doctor
from devshim.cli._ask import Answer
from devshim.cli._machine import Machine
from devshim.cli.doctor import copies, verdict
from devshim.devices import nvml
from devshim.devices.nvml import Card

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Invoke, Run

CARDS = tuple(Card(i, "H200", f"GPU-{i}{i}aa-bb", 2**37, 2**37) for i in range(2))
MACHINE = Machine("570.86", "", CARDS)
BARE = Machine(None, "no NVIDIA driver is installed", ())
NUMPY = Answer(ds.BackendInfo("numpy", "NumPy", "2.4.6", imported=False))
TORCH = Answer(ds.BackendInfo("torch", "PyTorch", "2.13.0+cpu", imported=False), why="a CPU-only build")
SEEING = Answer(
    ds.BackendInfo("jax", "JAX", "0.10.2", imported=False), devices=[{"device": "cpu"}, {"device": "gpu:0"}]
)


@pytest.mark.parametrize(
    ("value", "effect"),
    [
        ("", "hides all 2"),
        ("-1", "hides all 2"),
        ("7", "hides all 2"),
        ("0", "hides 1"),
        ("1,-1,0", "hides 0"),
        ("1,0", "hides none"),
        ("GPU-11", "hides 0"),
        ("MIG-GPU-11aa/0/0", "shows only these MIG slices"),
    ],
)
def test_what_cuda_visible_devices_does_is_said(monkeypatch: pytest.MonkeyPatch, value: str, effect: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert ("CUDA_VISIBLE_DEVICES", value, effect) in list(MACHINE.variables())


UNLIKE = Machine("570.86", "", (Card(0, "T400", "GPU-00aa", 2**31, 2**31), *CARDS[1:]))


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "PCI_BUS_ID"])
@pytest.mark.parametrize(("value", "by_bus"), [("0", "hides 1"), ("1,0", "hides none"), ("GPU-11", "hides 0")])
def test_unlike_cards_are_numbered_by_cuda(
    monkeypatch: pytest.MonkeyPatch, value: str, by_bus: str, order: str | None
) -> None:
    """The driver numbers GPUs by bus, and CUDA numbers the fastest 0: by default "0" is the H200, which is GPU 1."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    if order is not None:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    rows = {name: effect for name, _, effect in UNLIKE.variables()}
    by_speed = order != "PCI_BUS_ID"
    if by_speed and value != "GPU-11":
        assert rows["CUDA_VISIBLE_DEVICES"].endswith("of 2 cards, by CUDA's numbers: the fastest card is 0")
    else:
        assert rows["CUDA_VISIBLE_DEVICES"] == by_bus
    assert ("CUDA_DEVICE_ORDER" in rows) is (order is not None)
    notes = " ".join(doctor._notes(UNLIKE, []))
    assert ("Set CUDA_DEVICE_ORDER=PCI_BUS_ID" in notes) is by_speed
    assert "CUDA_DEVICE_ORDER" not in " ".join(doctor._notes(MACHINE, []))


@pytest.mark.parametrize(
    ("machine", "answers", "words"),
    [
        (BARE, [NUMPY, TORCH], "because of the machine: no NVIDIA driver is installed"),
        (Machine("570.86", "", ()), [TORCH], "driver 570.86 shows no card"),
        (MACHINE, [NUMPY], "only NumPy is installed"),
        (MACHINE, [NUMPY, TORCH], "install a build with GPU support"),
        (MACHINE, [TORCH, SEEING], "These frameworks see GPUs: JAX (1)"),
        (BARE, [SEEING], "These frameworks see GPUs: JAX (1)"),
    ],
)
def test_the_verdict_names_the_cause(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, answers: list[Answer], words: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reported = " ".join(verdict(machine, answers))
    assert words in reported
    assert ("devshim run --gpus 2" in reported) is (SEEING not in answers), "it ends with what to do next"


def test_hidden_cards_are_the_first_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "because CUDA_VISIBLE_DEVICES hides all of them: unset it" in " ".join(verdict(MACHINE, [TORCH]))


def test_without_the_package_that_asks_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'pynvml'")

    monkeypatch.setattr(nvml, "driver_version", absent)
    assert "nvidia-ml-py" in _machine.look().why


def test_the_doctor_prints_plain_text_into_a_pipe(run: Run) -> None:
    done = run("doctor", CUDA_VISIBLE_DEVICES="-1", DEVSHIM_SIMULATE_GPUS="2")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    for words in ("Python", "NVIDIA driver", "CUDA_VISIBLE_DEVICES", "DEVSHIM_SIMULATE_GPUS", "NumPy"):
        assert words in done.stdout
    assert "NumPy computes only on the CPU" in done.stdout, "doctor looks for real GPUs"


def test_a_broken_framework_fails_it(run: Run, fake: Callable[[str, str], dict[str, str]]) -> None:
    done = run("doctor", **fake("torch", "raise RuntimeError('half installed')"))
    assert done.returncode == 1
    assert "PyTorch is broken: RuntimeError: half installed" in done.stdout


def test_variables_without_effect_and_with_nonsense_are_listed(run: Run) -> None:
    done = run(
        "doctor",
        DEVSHIM_SIMULATE_GPU="2",
        DEVSHIM_SIMULATE_MEMORY="junk",
        DEVSHIM_BACKEND="tensorfow",
        COLUMNS="200",
    )
    assert "broken" not in done.stdout
    assert "DEVSHIM_SIMULATE_GPU has no effect: did you mean DEVSHIM_SIMULATE_GPUS?" in done.stdout
    assert "'junk': WRONG, DEVSHIM_SIMULATE_MEMORY is 'junk'" in done.stdout
    assert "'tensorfow': WRONG, no backend is called 'tensorfow'" in done.stdout
    done = run("doctor", DEVSHIM_SIMULATE_GPUS="two", COLUMNS="200")
    assert "'two': WRONG, DEVSHIM_SIMULATE_GPUS is 'two', and it must be 0 to 1024" in done.stdout
    assert "broken" not in done.stdout


SIMULATED = {"DEVSHIM_SIMULATE_GPUS": "2", "CUDA_VISIBLE_DEVICES": ""}


def test_a_copy_of_one_number_shows_what_is_broken(fake: Callable[[str, str], dict[str, str]]) -> None:
    environment = {**os.environ, **SIMULATED}
    assert _touch.touch("numpy", "gpu:1", environment) is None
    assert "gpu:7" in (_touch.touch("numpy", "gpu:7", environment) or "")
    dies = fake("sitecustomize", "import devshim, os\ndevshim.place = lambda *words: os.abort()\n")
    assert _touch.touch("numpy", "gpu:1", {**environment, **dies}) == "the process was killed by SIGABRT"


def test_a_number_that_comes_back_as_another_is_broken(fake: Callable[[str, str], dict[str, str]]) -> None:
    wrong = fake("sitecustomize", "import devshim\ndevshim.place = lambda x, device: x * 0\n")
    problem = _touch.touch("numpy", "gpu:0", {**os.environ, **SIMULATED, **wrong})
    assert problem == "it came back as 0.0 instead of 3.0"


def test_a_copy_without_an_end_is_given_up(
    fake: Callable[[str, str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = fake("sitecustomize", "import devshim, time\ndevshim.place = lambda *words: time.sleep(60)\n")
    monkeypatch.setattr(_touch, "PATIENCE", 3)
    assert _touch.touch("numpy", "gpu:0", {**os.environ, **SIMULATED, **hangs}) == "it did not end within 3 seconds"


def test_cards_that_fail_at_the_first_copy_fail_the_doctor(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "look", lambda: MACHINE)
    monkeypatch.setattr(doctor, "ask", lambda infos, simulate: [SEEING])
    asked = []
    monkeypatch.setattr(_touch, "touch", lambda name, device: asked.append((name, device)) or "no kernel image")
    found = invoke("doctor")
    assert asked == [("jax", "gpu:0")], "the CPU is not asked"
    assert found.exit_code == 1
    assert "JAX counts gpu:0, but copying a number to it fails: no kernel image" in found.stdout
    monkeypatch.setattr(_touch, "touch", lambda name, device: None)
    found = invoke("doctor")
    assert found.exit_code == 0
    assert "Each framework copied a number to each GPU and back" in found.stdout


def test_without_gpus_nothing_is_said_of_copies() -> None:
    assert list(copies([NUMPY, TORCH], [])) == []


def test_frameworks_that_take_whole_cards_are_named_where_others_see_the_cards() -> None:
    torch = Answer(TORCH.info, devices=[{"device": "cpu"}, {"device": "gpu:0"}])
    (note,) = [note for note in doctor._notes(MACHINE, [SEEING, torch]) if "memory_policy" in note]
    assert note.startswith("JAX takes most of the memory")
    assert 'ds.memory_policy("grow") before the first tensor' in note
    for alone in ([SEEING], [SEEING, TORCH], [torch]):
        assert not [note for note in doctor._notes(MACHINE, alone) if "memory_policy" in note]


def test_the_platform_of_gpus_is_shown() -> None:
    info = ds.backends()["numpy"]
    cards = [{"device": f"gpu:{i}", "platform": "rocm"} for i in range(2)]
    grid = doctor._describe_frameworks([Answer(info, devices=[{"device": "cpu", "platform": "cpu"}, *cards])])
    assert grid.rows[0][2] == "2 (rocm)"
    assert doctor._describe_frameworks([Answer(info)]).rows[0][2] == "0"

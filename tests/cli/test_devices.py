"""Tests of the table of devices, and of broken frameworks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.cli import _ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Invoke, Run

    Fake = Callable[[str, str], dict[str, str]]


def test_the_host_is_listed(run: Run) -> None:
    done = run("devices", "--backend", "np")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    head, numpy = done.stdout.splitlines()[:2]
    assert head.split("  ")[0] == "Framework"
    assert numpy.startswith(f"NumPy {ds.backends()['numpy'].version}  cpu")
    assert "GiB" in numpy
    assert "No GPU was found" in done.stdout
    assert "Platform" not in head


def test_simulated_cards_are_listed_and_marked(run: Run) -> None:
    done = run("devices", "--backend", "numpy", DEVSHIM_SIMULATE_GPUS="2", DEVSHIM_SIMULATE_MEMORY="4GiB")
    assert done.returncode == 0
    cards = [line for line in done.stdout.splitlines() if "  gpu:" in line]
    assert len(cards) == 2
    assert all(line.endswith("simulated") and "4.0 GiB" in line for line in cards)
    assert "2 of these devices are simulated" in done.stdout


def test_memory_in_use_is_shown(run: Run) -> None:
    done = run("devices", "--backend", "numpy", DEVSHIM_SIMULATE_GPUS="1", DEVSHIM_SIMULATE_MEMORY="4GiB")
    head, host, card = done.stdout.splitlines()[:3]
    assert head.index("Memory") < head.index("Used") < head.index("Compute")
    assert card[head.index("Used") :].startswith("0 B")
    assert host[head.index("Used")].isdigit()


def test_the_platform_of_gpus_is_shown(run: Run) -> None:
    settings = {"DEVSHIM_SIMULATE_GPUS": "1", "DEVSHIM_SIMULATE_LIKE": "mps"}
    head, host, card = run("devices", "--backend", "numpy", **settings).stdout.splitlines()[:3]
    assert card[head.index("Platform") :].startswith("mps ")
    assert host[head.index("Platform")] == " "
    (numpy,) = json.loads(run("devices", "--json", "--backend", "numpy", **settings).stdout)
    assert [each["platform"] for each in numpy["devices"]] == ["cpu", "mps"]


def test_devices_as_json(run: Run) -> None:
    done = run("devices", "--json", "--backend", "numpy", DEVSHIM_SIMULATE_GPUS="2", DEVSHIM_SIMULATE_MEMORY="4GiB")
    assert done.returncode == 0
    (numpy,) = json.loads(done.stdout)
    assert (numpy["framework"], numpy["version"]) == ("numpy", ds.backends()["numpy"].version)
    host, *cards = numpy["devices"]
    assert host["device"] == "cpu"
    assert 0 < host["used"] < host["memory"]
    assert [card["device"] for card in cards] == ["gpu:0", "gpu:1"]
    assert all((card["memory"], card["used"], card["simulated"]) == (2**32, 0, True) for card in cards)


def test_a_broken_framework_is_in_the_json(run: Run, fake: Fake) -> None:
    done = run("devices", "--json", **fake("torch", "raise OSError('no library')"))
    assert done.returncode == 1
    found = {each["framework"]: each for each in json.loads(done.stdout)}
    assert "no library" in found["torch"]["broken"]
    assert found["torch"]["devices"] == []
    assert found["numpy"]["broken"] is None


def test_memory_in_use_on_a_real_card_is_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.cli import _probe
    from devshim.devices import nvml

    monkeypatch.setattr(ds, "describe", lambda device: ds.DeviceInfo(device, name="A card", backend="torch"))
    monkeypatch.setattr(nvml, "card_at", lambda index: nvml.Card(index, "A card", "GPU-0", 1000, 400))
    assert _probe.used(ds.gpu(0)) == 600
    monkeypatch.setattr(nvml, "card_at", lambda index: nvml.Card(index, "A card", "GPU-0", None, None))
    assert _probe.used(ds.gpu(0)) is None
    monkeypatch.setattr(nvml, "card_at", lambda index: None)
    assert _probe.used(ds.gpu(0)) is None


def test_a_missing_framework_is_said(invoke: Invoke) -> None:
    result = invoke("devices", "--backend", "nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("devshim: no backend is called 'nonsense'")


BROKEN = {
    "raise OSError('libcudart.so.12: cannot open')": "OSError: libcudart.so.12: cannot open",
    "import os; os.write(1, b'{noise'); raise OSError('not here')": "OSError: not here",
    "import os; os.abort()": "was killed by SIGABRT",
    "import os; os._exit(3)": "ended with exit status 3",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_framework_is_shown_beside_the_others(run: Run, fake: Fake, source: str) -> None:
    done = run("devices", **fake("torch", source))
    assert done.returncode == 1
    torch = next(line for line in done.stdout.splitlines() if line.startswith("PyTorch"))
    assert torch.endswith("broken")
    output = next(line for line in done.stdout.splitlines() if line.startswith("PyTorch is broken: "))
    assert BROKEN[source] in output
    assert "NumPy" in done.stdout


def test_a_framework_that_hangs_is_given_up(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", fake("torch", "import time; time.sleep(60)")["PYTHONPATH"])
    monkeypatch.setattr(_ask, "PATIENCE", 1)
    info = ds.BackendInfo("torch", "PyTorch", None, imported=False)
    assert _ask.ask([info])[0].broken == "it did not answer within 1 seconds"


def test_nonsense_in_the_environment_is_no_frameworks_fault(run: Run) -> None:
    done = run("devices", "--backend", "numpy", DEVSHIM_SIMULATE_GPUS="two")
    assert done.returncode == 1
    assert "DEVSHIM_SIMULATE_GPUS is 'two', and it must be 0 to 1024" in done.stderr
    assert "set DEVSHIM_SIMULATE_GPUS=2" in done.stderr
    assert "broken" not in done.stdout + done.stderr
    done = run("devices", "--backend", "numpy", DEVSHIM_SIMULATE_GPUS="2", DEVSHIM_SIMULATE_MEMORY="junk")
    assert done.returncode == 1
    assert "DEVSHIM_SIMULATE_MEMORY is 'junk'" in done.stderr
    done = run("devices", "--backend", "numpy", DEVSHIM_SIMULATE_GPU="2")
    assert done.returncode == 0
    assert "DEVSHIM_SIMULATE_GPU has no effect: did you mean DEVSHIM_SIMULATE_GPUS?" in done.stderr

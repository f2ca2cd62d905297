"""Tests of `devshim certify` as a user runs it: results, crashes, exit codes, the file for a report."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.certify import runs
from devshim.certify.catalogue import claims_for
from devshim.certify.claims import Result, Setting
from devshim.certify.fresh import fresh
from devshim.certify.report import Report
from devshim.cli import certify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Invoke, Run

    Fake = Callable[[str, str], dict[str, str]]

NUMPY = ("certify", "--simulate", "--backend", "numpy")


def statuses(path: Path) -> dict[str, str]:
    (framework,) = Report.from_json(path.read_text(encoding="utf-8")).frameworks
    return {result.name: result.status for result in framework.results}


@pytest.mark.slow
def test_every_claim_is_checked_once_and_is_true_or_skipped_for_a_reason(run: Run, tmp_path: Path) -> None:
    done = run(*NUMPY, "--json", "found.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (framework,) = Report.from_json((tmp_path / "found.json").read_text(encoding="utf-8")).frameworks
    claims = claims_for(Setting("numpy", 2, simulated=True))
    assert [result.name for result in framework.results] == [claim.name for claim in claims]
    count = Counter(result.status for result in framework.results)
    assert count["FAIL"] == count["RATE"] == 0
    assert count["PASS"] >= 35
    skipped = {result.name for result in framework.results if result.status == "SKIP"}
    assert skipped == {claim.name for claim in claims if claim.real or claim.name.startswith("rates.")}
    assert all(result.note for result in framework.results if result.status == "SKIP")
    assert "certified no GPU" in done.stdout
    assert f"NumPy: {count['PASS']} pass, 0 fail" in done.stdout


def test_without_a_card_it_says_why_and_what_to_type(run: Run, tmp_path: Path) -> None:
    done = run("certify", "--json", "found.json", CUDA_VISIBLE_DEVICES="", DEVSHIM_SIMULATE_GPUS="2")
    assert done.returncode == 2, "simulated GPUs of the environment are no cards"
    assert done.stdout == ""
    assert done.stderr.startswith("devshim: There is no GPU to certify. ")
    assert "devshim certify --simulate" in done.stderr
    assert not (tmp_path / "found.json").exists()


def test_a_false_claim_fails_with_what_was_seen(run: Run, fake: Fake, tmp_path: Path) -> None:
    broken = fake("sitecustomize", "import devshim\ndevshim.gather = lambda parts, device: parts[0]\n")
    done = run(*NUMPY, "--only", "several.[sm]*", "--json", "found.json", **broken)
    assert done.returncode == 1
    assert statuses(tmp_path / "found.json") == {"several.split": "FAIL", "several.mixed": "PASS"}
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert "float32: gathered on gpu:1" not in line
    assert "float32, gathered on cpu: the shape is (3, 3), not (7, 3)" in line
    assert "several.py:" in line
    assert "attach it to your report" in done.stdout


def test_a_framework_that_ends_the_process_loses_no_result(run: Run, fake: Fake, tmp_path: Path) -> None:
    broken = fake("sitecustomize", "import devshim, os\ndevshim.broadcast = lambda *words: os.abort()\n")
    done = run(*NUMPY, "--only", "several.*", "--json", "found.json", **broken)
    assert done.returncode == 1
    found = statuses(tmp_path / "found.json")
    names = [claim.name for claim in claims_for(Setting("numpy", 2, only="several.*"))]
    assert list(found) == names, "each claim has one result, those after the crash included"
    assert [name for name in names if found[name] == "FAIL"] == ["several.replicas"]
    assert "was killed by SIGABRT" in done.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [("raise OSError('half installed')", "half installed"), ("import os; os._exit(3)", "ended with exit status 3")],
)
def test_a_framework_that_does_not_start_is_a_failure(run: Run, fake: Fake, source: str, words: str) -> None:
    done = run("certify", "--simulate", "--backend", "torch", **fake("torch", source))
    assert done.returncode == 1
    assert "The framework starts." in done.stdout
    assert words in done.stdout


def test_a_process_that_ends_badly_after_the_last_claim_is_a_failure(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import atexit, os, sys\nif '_worker' in ' '.join(sys.orig_argv): atexit.register(lambda: os._exit(4))\n"
    monkeypatch.setenv("PYTHONPATH", fake("sitecustomize", source)["PYTHONPATH"])
    *found, last = runs.results(Setting("numpy", 2, simulated=True, only="tensors.naming"))
    assert [(result.name, result.status) for result in found] == [("tensors.naming", "PASS")]
    assert (last.name, last.status) == ("process", "FAIL")
    assert "ended with exit status 4" in last.note


@pytest.mark.slow
def test_a_claim_without_an_end_is_given_up(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import devshim, time\ndevshim.same_device = None\ndevshim.require = lambda *words: time.sleep(60)\n"
    monkeypatch.setenv("PYTHONPATH", fake("sitecustomize", source)["PYTHONPATH"])
    monkeypatch.setattr(runs, "PATIENCE", 12)
    found = {each.name: each for each in runs.results(Setting("numpy", 2, simulated=True, only="tensors.[mn]*"))}
    assert found["tensors.naming"].status == "PASS"
    assert found["tensors.missing"].status == "FAIL"
    assert "within 12 seconds" in found["tensors.missing"].note


def test_an_interrupt_leaves_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = runs.subprocess.Popen
    monkeypatch.setattr(runs.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    results = runs.results(Setting("numpy", 2, simulated=True))
    next(results)
    results.close()
    assert len(started) == 1
    assert started[0].returncode is not None


def test_the_report_is_written_after_each_claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(at: Setting) -> Iterator[Result]:
        yield Result("tensors.naming", "Names are names.", "PASS", "")
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify.main("numpy", "*", quick=False, simulate=True, file=tmp_path / "found.json")
    assert statuses(tmp_path / "found.json") == {"tensors.naming": "PASS"}


def test_a_file_that_cannot_be_written_is_said(run: Run) -> None:
    done = run(*NUMPY, "--only", "tensors.naming", "--json", "/proc/found.json")
    assert done.returncode == 1
    assert "/proc/found.json cannot be written" in done.stderr


def test_a_missing_framework_is_said(invoke: Invoke) -> None:
    result = invoke("certify", "--backend", "nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("devshim: no backend is called 'nonsense'")


def test_the_file_holds_what_a_report_needs(run: Run, tmp_path: Path) -> None:
    run(*NUMPY, "--quick", "--only", "tensors.naming", "--json", "found.json")
    text = (tmp_path / "found.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert (found["simulated"], found["quick"], found["devshim"]) == (True, True, ds.__version__)
    assert {"driver", "cards", "python", "system", "date"} < set(found)
    assert Report.from_json(text).to_json() == text


def test_a_new_process_hands_back_values_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.certify import start
    from devshim.certify.claims import Broken

    for name, value in runs.environment(simulated=True).items():
        monkeypatch.setenv(name, value)
    at = Setting("numpy", 2, simulated=True)
    assert fresh(start._counting, at) == [2, None, 2] or fresh(start._counting, at)[1] == []
    with pytest.raises(Broken, match="in a new process: DeviceNotFoundError"):
        fresh(start._too_late, Setting("numpy", 2, simulated=True), DEVSHIM_SIMULATE_GPUS="0")

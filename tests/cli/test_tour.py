"""Tests of the tour on NumPy with two simulated GPUs: it passes, and each of its steps can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.cli.chapters import devices, models
from devshim.registry import current
from devshim.registry import discovery as frameworks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Invoke, Run
    from devshim.cli.steps import Outcome

STEPS = [*devices.CHAPTER, *models.CHAPTER]
NAMES = [step.name for step in STEPS]


def recorded(invoke: Invoke, *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the record of a tour on NumPy."""
    result = invoke("tour", "--backend", "numpy", "--json", "-", *words)
    return result.exit_code, json.loads(result.stdout)


def test_every_step_holds(invoke: Invoke) -> None:
    code, reported = recorded(invoke)
    assert code == 0
    assert (reported["cards"], reported["simulated"], reported["note"]) == (2, True, None)
    assert {step["name"]: step["holds"] for step in reported["steps"]} == dict.fromkeys(NAMES, True)


def test_piped_output_is_plain_and_says_simulated(run: Run) -> None:
    done = run("tour", "--backend", "numpy")
    assert done.returncode == 0
    assert done.stdout.isascii(), "neither colours nor drawn lines belong into a pipe"
    assert "\x1b" not in done.stdout
    assert "2 simulated GPUs" in done.stdout
    assert "on gpu:1 (simulated)" in done.stdout
    assert all(f"{i}. {step.title}\n" in done.stdout for i, step in enumerate(STEPS, 1))
    assert done.stderr == ""


def test_the_lines_shown_are_those_that_run(invoke: Invoke) -> None:
    _, reported = recorded(invoke)
    shown = {step["name"]: step["code"] for step in reported["steps"]}
    assert shown["copy"] == ['Z = ds.place(X, "gpu:1")']
    assert shown["hosted"] == ["ds.require_same_device(x=x, X=X)"]
    assert shown["train"][2:4] == [
        "for device in visited:",
        "    net, optimizer = ds.place([net, optimizer], device)",
    ]
    assert all(shown.values())
    native = {step["name"]: step["native"] for step in reported["steps"]}
    assert native["start"] == ["np.array([1.0, 2.0, 3.0])"]
    assert native["copy"] == ["np.asarray(x)"], "the check after the step is no part of it"


@pytest.mark.parametrize(
    ("gpus", "left"),
    [("0", {"create", "copy", "hosted", "mixed", "share"}), ("1", {"create", "copy", "mixed", "share"})],
)
def test_without_enough_cards_steps_are_left_out_and_say_so(invoke: Invoke, gpus: str, left: set[str]) -> None:
    code, reported = recorded(invoke, "--gpus", gpus)
    assert code == 0, "what could not be shown has not failed"
    assert {step["name"] for step in reported["steps"] if step["holds"] is None} == left
    assert all(step["holds"] for step in reported["steps"] if step["name"] not in left)
    reasons = [step["result"] for step in reported["steps"] if step["holds"] is None]
    why = "NumPy computes only on the CPU" if gpus == "0" else "devshim simulates 1"
    assert all(reason.startswith("needs a ") and reason.endswith(why) for reason in reasons)


def test_the_environment_sets_the_number_of_cards(run: Run) -> None:
    done = run("tour", "--backend", "numpy", "--json", "-", DEVSHIM_SIMULATE_GPUS="3")
    assert json.loads(done.stdout)["cards"] == 3


# --------------------------------------------------------------------------------- every step can fail


def _everywhere(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a creation function that ignores ``device=``."""
    return lambda *args, device=None, **kwargs: function(*args, **kwargs)


def _astray(x: Any, device: Any, copy: Any = None, _real: Any = ds.place) -> Any:
    """Place a tree incorrectly: change what it moves."""
    moved = _real(x, device)
    return [_more(each) for each in moved] if isinstance(moved, list) else moved


def _more(tree: Any) -> Any:
    return {key: _more(x) for key, x in tree.items()} if isinstance(tree, dict) else tree + tree


def _mixing(function: Callable[..., Any], *args: Any) -> Any:
    """Run without any check, as a framework without a check would."""
    host = [ds.to_numpy(x) for x in args]
    return ds.from_numpy(function(*host))


DEFECTS: dict[str, tuple[str, Any]] = {
    "count": ("device_count", lambda kind="gpu": 3),
    "name": ("device", lambda spec: ds.gpu(int(str(spec)[-1] == "1") * 2)),
    "take": ("try_gpu", lambda i=0: ds.gpu(i)),
    "start": ("asarray", lambda values, device="gpu:0", _real=ds.asarray: _real(values, device=device)),
    "store": ("ones", _everywhere(ds.ones)),
    "create": ("random.uniform", _everywhere(ds.random.uniform)),
    "copy": ("place", lambda x, device, copy=None: x),
    "compute": ("run", _mixing),
    "identity": ("place", lambda x, device, copy=None, _real=ds.place: _real(x, device, copy=True)),
    "demand": ("place", lambda x, device, copy=None, _real=ds.place: _real(x, device)),
    "hosted": ("require_same_device", lambda **tensors: None),
    "mixed": ("run", _mixing),
    "missing": ("zeros", _everywhere(ds.zeros)),
    "back": ("to_numpy", lambda x: x),
    "model": ("place", lambda x, device, copy=None: x),
    "train": ("place", _astray),
    "share": ("Placement.balanced", lambda net, devices, _real=ds.Placement: _real(default=devices[0])),
    "replicas": ("split", lambda tree, devices: [ds.copy(tree, device) for device in devices]),
    "checkpoint": ("load", lambda path, device, into: ds.place(into, device)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_defect_is_found_by_its_step(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, wrong = DEFECTS[name]
    monkeypatch.setattr(f"devshim.{function}", wrong)
    code, reported = recorded(invoke)
    assert code == 1
    assert name in [step["name"] for step in reported["steps"] if step["holds"] is False]


def test_a_step_that_does_not_hold_is_shown_and_the_tour_goes_on(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Outcome:
        """Fail."""
        raise ValueError("the framework said no")

    wrong = replace(devices.CHAPTER[0], code=broken)
    monkeypatch.setattr(devices, "CHAPTER", [wrong, *devices.CHAPTER[1:]])
    result = invoke("tour", "--backend", "numpy")
    assert result.exit_code == 1
    assert "ValueError: the framework said no" in result.stdout
    assert f"18 of 19 steps passed on NumPy {ds.backends()['numpy'].version}" in result.stdout
    assert "1 FAILED: Count the GPUs" in result.stdout


# --------------------------------------------------------------------------------- choosing, and refusals


def _installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(frameworks, "installed_names", lambda: list(names))
    monkeypatch.setattr(current, "_only", None)


def test_with_numpy_alone_it_needs_no_option(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, "numpy")
    result = invoke("tour")
    assert result.exit_code == 0
    assert "2 simulated GPUs" in result.stdout


def test_among_several_frameworks_one_must_be_chosen(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, "torch", "jax", "numpy")
    result = invoke("tour")
    assert result.exit_code == 1
    assert "none is selected: torch, jax" in result.stderr
    assert "devshim tour --backend torch" in result.stderr


def test_a_framework_that_cannot_simulate_runs_on_what_is_there(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(gpus: int) -> None:
        raise ds.UnsupportedError("NumPy does not support this: the reason declared", "wait")

    monkeypatch.setattr("devshim.simulate", declared)
    code, reported = recorded(invoke, "--gpus", "2")
    assert code == 0
    assert reported["cards"] == 0
    assert {"needs a second GPU: the reason declared", "needs a GPU: the reason declared"} == {
        step["result"] for step in reported["steps"] if step["holds"] is None
    }


def test_what_a_framework_lacks_is_said(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devshim.cli.chapters.networks._NETWORKS", {})
    code, reported = recorded(invoke)
    assert code == 0
    left = {step["name"]: step["result"] for step in reported["steps"] if step["holds"] is None}
    assert sorted(left) == sorted(step.name for step in models.CHAPTER)
    assert set(left.values()) == {"left out: the tour has no network for numpy"}
    assert "14 of 19 steps passed" in (text := invoke("tour", "--backend", "numpy").stdout)
    assert ", 5 left out" in text


@pytest.mark.parametrize("name", ["torch", "nonsense"])
def test_a_missing_framework_is_one_clean_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(frameworks, "is_installed", lambda name: name == "numpy")
    result = invoke("tour", "--backend", name)
    assert result.exit_code == 1
    assert result.stdout == ""
    problem, hint = result.stderr.splitlines()
    assert problem.startswith("devshim: ")
    assert hint.startswith("Hint: ")


def test_the_record_is_written_where_asked(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "numpy.json"
    result = invoke("tour", "--backend", "numpy", "--json", path)
    assert result.exit_code == 0
    assert "19 of 19 steps passed" in result.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["backend"] == "numpy"


def test_a_record_that_cannot_be_written_is_an_error(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("tour", "--backend", "numpy", "--json", tmp_path)
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_a_missing_folder_is_refused_before_the_tour_runs(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devshim.cli.tour.run_step", None)
    for words in (("tour", "--backend", "numpy"), ("certify", "--simulate")):
        result = invoke(*words, "--json", tmp_path / "missing" / "x.json")
        assert result.exit_code == 1
        assert f"the folder '{tmp_path / 'missing'}' does not exist" in result.stderr
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("gpus", ["3", "9"])
def test_every_step_holds_on_more_gpus_than_the_network_has_layers(invoke: Invoke, gpus: str) -> None:
    code, reported = recorded(invoke, "--gpus", gpus)
    assert code == 0
    assert reported["cards"] == int(gpus)
    assert {step["name"]: step["holds"] for step in reported["steps"]} == dict.fromkeys(NAMES, True)

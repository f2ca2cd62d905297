"""The support table is made from declarations and results, and a check fails when they no longer agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devshim.contract.backend import FEATURES, Gap
from devshim.registry import discovery, registry
from devshim.testing import table


def run(backend: str = "numpy", devices: str = "CPU", **features: dict[str, int]) -> dict[str, Any]:
    """Return one result, as the plugin writes it."""
    return {"backend": backend, "version": "1", "devices": devices, "features": features}


def cells(page: str, feature: str) -> list[str]:
    """Return the cells of a feature's row."""
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {FEATURES[feature]} |")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_every_feature_has_a_row_and_every_version_a_column() -> None:
    page = table.page([run("torch"), run("mxnet"), {**run("mxnet"), "version": "2"}])
    assert "PyTorch 1 | MXNet 1 | MXNet 2" in page
    assert all(len(cells(page, feature)) == 3 for feature in FEATURES)


def test_a_cell_says_what_was_found() -> None:
    record = [run(place={"passed": 3}, copy={"passed": 1}), run(devices="2 simulated GPUs", place={"passed": 1})]
    page = table.page([*record, run("torch", copy={"passed": 5, "failed": 2})])
    assert cells(page, "place") == ["", "not tested"]
    assert cells(page, "copy") == ["on the CPU", "**fails** (2)"]
    assert "| CPU, 2 simulated GPUs | CPU |" in page


def test_a_gap_carries_its_reason() -> None:
    page = table.page([run("numpy"), run("torch")])
    assert cells(page, "gradient")[0] == "never [^1]"
    assert "[^1]: NumPy: NumPy has no automatic differentiation." in page


def test_what_is_left_out_stands_beside_the_yes() -> None:
    page = table.page([run("mxnet", models={"passed": 1}, guard={"failed": 1})])
    (cell,) = cells(page, "models")
    footnote = cell.removeprefix("on the CPU ")
    assert f"{footnote}: MXNet: every optimizer that MXNet registers is supported" in page
    assert cells(page, "guard") == ["**fails** (1)"]


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_limits_are_of_features_that_are_there(name: str) -> None:
    assert set(registry.limits(name)) <= set(FEATURES) - set(registry.gaps(name))


def test_a_gap_that_fails_is_not_hidden() -> None:
    assert cells(table.page([run(gradient={"failed": 1})]), "gradient") == ["**fails** (1)"]


def test_the_later_of_two_runs_counts() -> None:
    older, newer = run(place={"failed": 1}), run(place={"passed": 1})
    assert table.merge([[older], [newer]]) == [newer]


def test_the_counts_of_several_processes_are_added() -> None:
    kit, keras = run(place={"passed": 2}, copy={"gap": 1}), run(place={"passed": 1, "failed": 1}, models={"passed": 4})
    other = run(devices="2 simulated GPUs", place={"passed": 5})
    together = run(place={"passed": 3, "failed": 1}, copy={"gap": 1}, models={"passed": 4})
    assert table.add([[kit], [keras, other]]) == [together, other]
    assert kit == run(place={"passed": 2}, copy={"gap": 1})


@pytest.fixture
def written(tmp_path: Path) -> list[str]:
    """Return a record and its page, with results of every framework."""
    results = tmp_path / "results.json"
    results.write_text(json.dumps([run(name, place={"passed": 1}) for name in discovery.BUILTIN]))
    kept = [str(tmp_path / "support.json"), str(tmp_path / "support.md")]
    assert table.main(["--write", *kept, str(results)]) == 0
    return kept


def test_what_was_just_written_is_up_to_date(written: list[str]) -> None:
    assert table.main(["--check", *written]) == 0


def test_a_page_touched_by_hand_is_noticed(written: list[str]) -> None:
    page = Path(written[1])
    page.write_text(page.read_text().replace("never", "NEVER"))
    assert table.main(["--check", *written]) == 1


def test_a_new_declaration_is_noticed(written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = registry.gaps
    monkeypatch.setattr(registry, "gaps", lambda name: {**gaps(name), "place": Gap("planned", "it is being repaired")})
    assert table.main(["--check", *written]) == 1


def test_a_gap_that_is_no_more_is_noticed(written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(written[0])
    record = json.loads(kept.read_text())
    record[0]["features"]["place"]["gap"] = 1
    kept.write_text(json.dumps(record))
    assert table.main(["--check", *written]) == 1
    assert "no longer declares the gap 'place'" in capsys.readouterr().err


def test_a_framework_without_results_is_noticed(written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(written[0])
    kept.write_text(json.dumps([run for run in json.loads(kept.read_text()) if run["backend"] != "jax"]))
    assert table.main(["--check", *written]) == 1
    assert "no results of jax" in capsys.readouterr().err


def test_it_prints_the_page(written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert table.main([written[0]]) == 0
    assert capsys.readouterr().out == Path(written[1]).read_text()
    assert table.main([]) == 2

"""Tests of the benchmark page: it is made from its record and states correctly what is met; times are never judged."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "benchmarks").is_dir())
DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture
def record() -> Any:
    from benchmarks.record import Record, Row

    facts = {
        "date": "2030-01-02",
        "machine": "a machine",
        "python": "3.11.0",
        "load": 0.1,
        "versions": {"torch": "2.0"},
    }
    rows = [
        Row("place", "fast", "ds.place(x, d)", "x.to(n)", 0.5, 0.85, interval=(0.4, 0.6), quartiles=(0.45, 0.55)),
        Row("place", "slow", "ds.place(x, d)", "x.to(n)", 0.9, 0.85, interval=(0.88, 0.95)),
        Row("place", "noisy", "ds.place(x, d)", "x.to(n)", 0.8, 0.85, interval=(0.7, 0.9)),
        Row("place", "alone", "ds.place(x, 'cpu')", value=0.25, unit="us"),
        Row("place", "beside", "ds.place(x, d)", "ivy: ivy.to_device(x)", 0.01, 1.0, peer=True),
        Row("cards", "large", "ds.place(x, g)", "[x.to(n) for x in xs]", target=1.1, note="needs a card"),
    ]
    series = {name: [(10, 100.0), (1000, 120.0)] for name in ("there already", "copied", "there already, memory")}
    return Record("torch", facts, rows, {"keras": "ImportError: not here"}, series)


def test_what_is_met(record: Any) -> None:
    assert [row.met for row in record.rows] == ["yes", "no", "unclear", "", "yes", "not measured"]


def test_a_record_is_read_as_it_was_written(record: Any, tmp_path: Path) -> None:
    from benchmarks.record import read, write

    write([record, record], tmp_path / "found.json")
    assert read(tmp_path / "found.json") == [record]


def test_the_overview_marks_each_target(record: Any) -> None:
    from benchmarks.record import Record, Row
    from benchmarks.report import overview

    other = Record("jax", record.facts, [Row("place", "fast", "", value=3, target=2, unit="transfers")])
    lines = overview([record, other]).splitlines()
    assert lines[-7:] == [
        "| case | torch | jax |",
        "| --- | --- | --- |",
        "| fast | ✓ 0.5 of 0.85 | ✗ 3 of 2 transfers |",
        "| slow | ✗ 0.9 of 0.85 |  |",
        "| noisy | ? 0.8 of 0.85 |  |",
        "| beside, beside other libraries | ✓ 0.01 of 1 |  |",
        "| large | not measured |  |",
    ]


@pytest.mark.slow
def test_the_page_is_made_of_results(record: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.record import write
    from benchmarks.report import main

    write([record], tmp_path / "torch.json")
    assert main(["--docs", str(tmp_path), str(tmp_path / "torch.json")]) == 0
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "Of 5 targets 2 are met, 1 unclear, 1 missed, and 1 not measured." in text
    assert "| torch | slow | `ds.place(x, d)` | `x.to(n)` | at most 0.85 | 0.9 | **no** |" in text
    assert "keras on torch: ImportError: not here" in text
    assert "torch 2.0" in text
    for picture in re.findall(r"\((benchmarks-\w+\.svg)\)", text):
        assert (tmp_path / picture).read_text(encoding="utf-8").startswith("<?xml")
    reported = capsys.readouterr().out
    assert "0.5 (0.45 to 0.55)" in reported
    assert "[x.to(n) for x in xs]" in reported
    assert main(["--docs", str(tmp_path), "--check"]) == 0
    (tmp_path / "benchmarks.md").write_text(text.replace("0.9", "0.5"), encoding="utf-8")
    assert main(["--docs", str(tmp_path), "--check"]) == 1


def test_the_page_in_the_docs_is_made_of_its_record() -> None:
    from benchmarks.report import main

    assert main(["--docs", str(DOCS), "--check"]) == 0
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    table = text.partition("## All targets")[2].partition("\n## ")[0].partition("| --- |")[2]
    counts = [sum(map(table.count, marks)) for marks in (("✓ ", "? ", "✗ ", "not measured"), ("✓ ",), ("✗ ",))]
    assert f"Of {counts[0]} targets {counts[1]} are met" in text
    assert f" {counts[2]} missed" in text
    assert all((DOCS / picture).is_file() for picture in re.findall(r"\((benchmarks-\w+\.svg)\)", text))


def test_each_missed_target_of_the_docs_is_explained() -> None:
    from benchmarks.explained import PARAGRAPHS, paragraphs, unexplained
    from benchmarks.record import read
    from benchmarks.report import PROFILES

    profiles = PROFILES.read_text(encoding="utf-8")
    assert [*PARAGRAPHS] == [title for title in paragraphs(profiles) if title in PARAGRAPHS]
    assert unexplained(read(DOCS / "benchmarks.json"), profiles) == []


def test_a_missed_target_without_an_explanation_is_found(record: Any) -> None:
    from benchmarks.explained import title_of, unexplained
    from benchmarks.record import Record, Row

    assert unexplained([record], "") == ["torch: slow: no paragraph None", "torch: large: no paragraph None"]
    rows = [Row("calls", case, "", value=3.0, target=2.0) for case in ("on", "ones, 1 MiB", "copy of 4 B")]
    assert [title_of(row) for row in rows] == ["`on`", "Making and reading tensors", "A copy of 4 bytes"]
    profiles = (
        "# Why\n\n- **`on`.** On JAX.\n- **Making and reading tensors.**\n  - **JAX** too.\n- **A copy of 4 bytes**"
    )
    assert unexplained([Record("jax", {}, rows)], profiles) == [
        "jax: copy of 4 B: 'A copy of 4 bytes' does not speak of JAX"
    ]
    assert unexplained([Record("mxnet1", {}, rows[:1])], profiles.replace("On JAX", "On every framework")) == []


def test_ratios_are_of_neighbours() -> None:
    from benchmarks.paired import ratios, spread

    assert ratios([1, 2, 30], [2, 4, 60]).median == 0.5  # a busy phase slows both
    found = spread([1.0] * 30 + [9.0] * 11)
    assert (found.median, found.interval, found.quartiles) == (1.0, (1.0, 1.0), (1.0, 9.0))


@pytest.mark.parametrize("rounds", [1, 4, 5])
def test_statements_are_timed_by_turns_and_who_goes_first_changes(rounds: int) -> None:
    from types import SimpleNamespace

    from benchmarks.paired import interleaved

    order: list[str] = []

    def pedantic(target: Any, args: tuple[Any, ...], setup: Any, rounds: int) -> None:
        order.clear()  # drop the warm-up
        for _ in range(rounds):
            assert setup() is None
            target(*args)

    benchmark = SimpleNamespace(extra_info={}, pedantic=pedantic)
    ways = {name: f"reported({name!r})" for name in ("ours", "native", "peer")}
    times = interleaved(benchmark, ways, {"reported": lambda name: order[-1:] == [name] or order.append(name)}, rounds)
    once, again = ["native", "peer", "ours"], ["ours", "peer", "native"]
    expected = [name for i in range(rounds) for name in (again if i % 2 else once)]
    assert order == [name for name, before in zip(expected, ["", *expected], strict=False) if name != before]
    assert {name: len(each) for name, each in times.items()} == dict.fromkeys(ways, rounds)


def test_all_statements_of_a_round_run_at_one_depth_of_the_stack_and_each_round_at_another() -> None:
    from types import SimpleNamespace

    from benchmarks.paired import FRAMES, interleaved

    depths: dict[str, list[int]] = {"ours": [], "native": []}

    def report(name: str) -> None:
        frame, depth = sys._getframe(), 0
        while frame := frame.f_back:  # type: ignore[assignment]
            depth += 1
        depths[name].append(depth)

    def pedantic(target: Any, args: tuple[Any, ...], setup: Any, rounds: int) -> None:
        for each in depths.values():
            each.clear()  # drop the warm-up
        for _ in range(rounds):
            setup()
            target(*args)

    benchmark = SimpleNamespace(extra_info={}, pedantic=pedantic)
    ways = {name: f"report({name!r}); time.sleep(0.001)" for name in depths}
    interleaved(benchmark, ways, {"report": report, "time": time}, 9)
    found = {name: [depth - each[0] for depth in each] for name, each in depths.items()}
    assert found["ours"] == found["native"]
    visited = sorted(frames % FRAMES for frames in found["ours"])
    gaps = [b - a for a, b in zip(visited, [*visited[1:], visited[0] + FRAMES], strict=True)]
    assert max(gaps) < 1.5 * FRAMES / 9, found

"""Tests of the display of `devshim launch`, from made-up events: no rank is started."""

from __future__ import annotations

import pytest

from devshim.cli._launch_view import JobView

HOSTS = ["a", "a", "b"]
DEVICES = ["GPU 0", "GPU 1", "2 simulated GPUs"]


def started() -> JobView:
    view = JobView()
    view.receive("started", HOSTS, 0, DEVICES)
    return view


def test_each_change_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    view = started()
    for step in range(1, 4):  # a step is not a change
        view.receive("state", 0, "runs", step, "barrier", "train.py:3 in job")
    view.receive("output", 2, "b", "stdout", ["one", "two"])
    view.receive("output", 1, "a", "stderr", ["bad"])
    view.receive("state", 2, "silent", 3, None, "")
    view.receive("state", 2, "runs", 3, None, "")
    view.receive("end", 0, 0, 12, True)
    view.receive("end", 2, -9, 1, True)
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "devshim: 3 ranks started: 2 on a, 1 on b",
        "[2 b] one",
        "[2 b] two",
        "devshim: rank 2 on b does not answer",
        "devshim: rank 2 on b answers again",
        "devshim: rank 0 on a has returned after 12 steps",
        "devshim: rank 2 on b was killed by SIGKILL at step 1",
    ]
    assert said.err == "[1 a] bad\n"


def test_the_table_has_a_row_for_each_rank() -> None:
    view = started()
    view.receive("state", 0, "runs", 7, "all_reduce, sum of float32 (10,)", "train.py:3 in job")
    view.receive("state", 1, "silent", 6, None, "train.py:9 in step")
    view.receive("end", 2, 3, 5, True)
    grid = view.grid()
    assert [column.name for column in grid.columns] == ["rank", "host", "device", "step", "state", "where"]
    assert grid.rows == [
        ("0", "a", "GPU 0", "7", "runs", "all_reduce, sum of float32 (10,)"),
        ("1", "a", "GPU 1", "6", "silent", "train.py:9 in step"),
        ("2", "b", "2 simulated GPUs", "5", "failed", "ended with exit status 3"),
    ]
    assert grid.title.startswith("3 ranks, ")


def test_a_small_terminal_shows_the_ranks_that_need_attention() -> None:
    view = JobView()
    view.receive("started", ["a"] * 100, 0, ["cpu"] * 100)
    for rank in range(100):
        view.receive("state", rank, "runs", 50, None, "")
    view.receive("state", 70, "silent", 50, None, "")
    view.receive("state", 90, "runs", 40, None, "")
    view.receive("end", 10, 0, 60, True)
    grid = view.grid(3)
    assert [row[0] for row in grid.rows if row is not None] == ["0", "70", "90"]
    assert grid.title.endswith("97 ranks are not shown")


def last(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_the_last_paragraph_says_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    view = started()
    for rank in range(3):
        view.receive("end", rank, 0, 12, True)
    view.finish()
    said = last(capsys)
    assert said.startswith("devshim: the job is done: 3 ranks ended with exit status 0 after ")
    assert said.endswith(" s and 12 steps.")
    view.receive("started", HOSTS, 1, DEVICES)
    view.receive("end", 1, 3, 2, True)
    view.receive("steps", {0: 3, 1: 1, 2: 3})
    view.fail("rank 1 on a ended with exit status 3", "look")
    said = last(capsys)
    assert ", at start 2: rank 1 on a ended with exit status 3. The ranks had reached 2 to 3 steps." in said
    assert said.endswith("All ranks have been ended.")
    JobView().fail("Ray did not start", "look at its output")
    assert last(capsys).endswith("Hint: look at its output")
    view.interrupt("Ctrl-C")
    assert last(capsys).startswith("devshim: Ctrl-C ended the job after ")


def test_a_terminal_shows_a_table_and_what_the_ranks_print(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    view = JobView()
    with view.shown() as is_live:
        view.receive("started", HOSTS, 0, DEVICES)
        view.receive("output", 2, "b", "stdout", ["\x1b[31mred\x1b[0m and \x1b[5A\x07\x08a bell"])
        view.receive("state", 1, "silent", 6, None, "train.py:9 in step")
    said = capsys.readouterr().out
    assert is_live
    assert "\x1b[31mred\x1b[0m and a bell" in said
    assert "\x1b[5A" not in said.partition("a bell")[0]
    assert "2 simulated GPUs" in said
    assert "train.py:9 in step" in said

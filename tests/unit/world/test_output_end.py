"""Tests of the end of a rank's output: what explains its end stays, whatever else it prints."""

from __future__ import annotations

import pytest

from devshim.world import causes
from devshim.world.causes import Ended
from devshim.world.output_end import OutputEnd

HOSTS = ("a", "b")
FRAMES = ['  File "/job/train.py", line 31, in main', '  File "/job/train.py", line 12, in step']


def end_of(*lines: str) -> str:
    """Return the end of an output of these lines."""
    found = OutputEnd()
    for line in lines:
        found.add(line)
    return str(found)


def problem_of(tail: str) -> str:
    """Return the sentence for a rank that ended with status 1 after this output."""
    return causes.failure([Ended(1, 1, tail, "train.py:99 in elsewhere")], HOSTS).problem


def raised(error: str) -> list[str]:
    """Return the lines of a traceback."""
    return ["Traceback (most recent call last):", *FRAMES, error]


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 12, in step
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/job/train.py", line 7, in load
    | ValueError: one
    +---------------- 2 ----------------
    | TypeError: two
    +------------------------------------
"""
NOISE = [f"cleaning up worker {number} of the data loader" for number in range(1000)]


@pytest.mark.parametrize(
    "output",
    [
        raised("ValueError: a bad batch"),
        [*NOISE, *raised("ValueError: a bad batch"), *NOISE],
        [*raised("ValueError: a bad batch"), *(f"row {number} of the batch" for number in range(3000))],
        [*raised("OSError: the first one"), *NOISE, *raised("ValueError: a bad batch"), *NOISE],
        [*raised("ValueError: a bad batch"), "x" * 8192, "x" * 8192],
    ],
    ids=["short", "noise", "long-message", "two", "long-line"],
)
def test_the_error_and_its_line_are_named(output: list[str]) -> None:
    expected = "rank 1 on b ended with exit status 1: ValueError: a bad batch, at train.py:12 in step"
    assert problem_of(end_of(*output)) == expected


def test_a_long_line_of_an_error_is_cut() -> None:
    problem = problem_of(end_of(*raised("ValueError: " + "x" * 8000), "x" * 8000))
    assert "exit status 1: ValueError: xxx" in problem
    assert problem.endswith("xxx..., at train.py:12 in step")
    assert len(problem) < 1200


def test_a_deep_traceback_keeps_its_innermost_lines() -> None:
    calls = [f'  File "/job/model.py", line {number}, in call_{number}' for number in range(2000)]
    tail = end_of("Traceback (most recent call last):", *calls, "ValueError: deep", *NOISE)
    assert problem_of(tail).endswith("ValueError: deep, at model.py:1999 in call_1999")
    assert len(tail) < 30000


def test_an_error_that_only_wraps_another_keeps_it() -> None:
    wrapper = ["", "The above exception was the direct cause:", "", "Traceback (most recent call last):"]
    lines = [*raised("KeyError: 'in a handler'"), *wrapper, '  File "/usr/lib/call.py", line 3, in call']
    problem = problem_of(end_of(*lines, "SystemError: <call> returned a result with an exception set", *NOISE))
    assert "KeyError: 'in a handler'" in problem


def test_the_parts_of_a_group_stay() -> None:
    tail = end_of(*GROUP.splitlines(), *NOISE)
    assert "ExceptionGroup: several" in problem_of(tail)
    assert causes._last_errors(tail) == ["ValueError: one", "TypeError: two"]


def test_a_crash_keeps_the_line_of_its_thread() -> None:
    others = [f'  File "/job/loader.py", line {number} in wait' for number in range(400)]
    lines = ["Fatal Python error: Segmentation fault", "", "Current thread 0x01 (most recent call first):"]
    lines += ['  File "/job/train.py", line 12 in step', "", "Thread 0x02 (most recent call first):", *others]
    error = causes.failure([Ended(1, -11, end_of(*lines, "", "Extension modules: " + "numpy.core, " * 800))], HOSTS)
    assert error.problem == "rank 1 on b was killed by SIGSEGV, at train.py:12 in step"


def test_what_fits_is_as_printed() -> None:
    lines = [*raised("OSError: handled"), "goes on", *raised("ValueError: a bad batch"), "ends"]
    assert end_of(*lines) == "\n".join(lines) + "\n"
    assert len(end_of(*NOISE)) == 6000

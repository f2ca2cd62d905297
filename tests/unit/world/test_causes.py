"""Tests of the first cause of a failed job, from made-up reports: no process is started."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

import devshim as ds
from devshim.world import causes
from devshim.world.causes import Ended, Report
from devshim.world.late_ranks import find_late, find_stuck

HOSTS = ["a", "a", "b"]
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 40, in <module>
    main()
  File "/home/me/train.py", line 32, in job
    raise ValueError("a bad batch")
ValueError: a bad batch
"""
PEER = TRACEBACK.replace("ValueError: a bad batch", "RuntimeError: Connection closed by peer [127.0.0.1]:4242")
CRASH = """Fatal Python error: Segmentation fault

Thread 0x00007fa4 (most recent call first):
  File "/home/me/loader.py", line 5 in fetch

Current thread 0x00007fa4927ceb80 (most recent call first):
  File "/usr/lib/site-packages/torch/nn.py", line 519 in string_at
  File "/home/me/train.py", line 16 in job
  File "/home/me/train.py", line 90 in <module>

Extension modules: a, b
"""
SUM = "all_reduce, sum of float32 (10,)"


def test_an_error_of_a_program_is_named_with_its_innermost_line() -> None:
    error = causes.failure([Ended(2, 1, TRACEBACK)], HOSTS)
    assert isinstance(error, ds.RankFailedError)
    assert (error.rank, error.host, error.status, error.tail) == (2, "b", 1, TRACEBACK)
    assert error.problem == "rank 2 on b ended with exit status 1: ValueError: a bad batch, at train.py:32 in job"


@pytest.mark.parametrize(
    ("files", "line"),
    [(("/home/me/train.py", "<string>"), "train.py:7 in f"), (("<string>", re.__file__), "<string>:7 in f")],
)
def test_a_line_with_a_file_comes_before_one_without(files: tuple[str, str], line: str) -> None:
    frames = "".join(f'  File "{file}", line 7, in f\n' for file in files)
    tail = f"Traceback (most recent call last):\n{frames}ValueError: a bad batch\n"
    assert causes.failure([Ended(2, 1, tail)], HOSTS).problem.endswith(f"a bad batch, at {line}")


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/home/me/train.py", line 40, in <module>
  |     main()
  |   File "/home/me/train.py", line 32, in job
  |     raise ExceptionGroup("several", [a, b])
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/me/data.py", line 3, in read
    | ValueError: a bad batch
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------
"""


def test_an_exception_group_is_named_with_its_innermost_line() -> None:
    problem = causes.failure([Ended(2, 1, f"a warning\n{GROUP}")], HOSTS).problem
    where = "at train.py:32 in job"
    assert problem == f"rank 2 on b ended with exit status 1: ExceptionGroup: several (2 sub-exceptions), {where}"


def test_a_group_that_the_program_has_handled_is_no_cause() -> None:
    chained = f"{GROUP}\nThe above exception was the direct cause of the following exception:\n\n{TRACEBACK}"
    for tail in (f"{GROUP}a line of a log\n{TRACEBACK}", chained):
        problem = causes.failure([Ended(2, 1, tail)], HOSTS).problem
        assert problem == "rank 2 on b ended with exit status 1: ValueError: a bad batch, at train.py:32 in job"


def group_of(*errors: str) -> str:
    head, _, rest = GROUP.partition("  +-+")
    line = rest.partition("\n")[0]
    return head + f"  +-+{line}\n" + "".join(f"    | {error}\n    +{'-' * 36}\n" for error in errors)


def test_a_group_of_what_peers_report_is_not_the_first_cause() -> None:
    peers = Ended(0, 1, group_of("ConnectionError: Connection closed by peer", "devshim.RankFailedError: rank 1 ended"))
    assert causes.is_of_peers([peers])
    assert "ValueError: a bad batch" in causes.failure([peers, Ended(1, 1, TRACEBACK)], HOSTS).problem
    own = Ended(0, 1, group_of("ConnectionError: Connection closed by peer", "TypeError: of this rank"))
    assert not causes.is_of_peers([own])


OF_TRACKER = (
    "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1"
    " leaked shared_memory objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be'\n"
)


@pytest.mark.parametrize(
    ("status", "tail", "more"),
    [
        (1, "loading\nthe data are missing\n\n", "; the last line of its output is: the data are missing"),
        (1, f"no data\n{OF_TRACKER}", "; the last line of its output is: no data"),
        (1, OF_TRACKER, ""),
        (2, "train.py: error: no --steps\n", "; the last line of its output is: train.py: error: no --steps"),
        (1, "", ""),
        (3, "a warning\n", ""),
    ],
)
def test_the_reason_of_an_exit_without_traceback_is_the_last_line(status: int, tail: str, more: str) -> None:
    for last, where in (("", "at train.py:9 in exit"), ("train.py:7 in step", "and was last at train.py:7 in step")):
        expected = f"rank 1 on a ended with exit status {status}, {where}{more}"
        ended = Ended(1, status, tail, last, "" if last else "train.py:9 in exit")
        assert causes.failure([ended], HOSTS).problem == expected


@pytest.mark.parametrize(
    "end",
    [
        "SystemError: <cyfunction wait at 0x7f> returned a result with an exception set\n",
        "devshim.RankFailedError: step 5 (barrier) failed on rank 2 on b: a bad batch\n",
    ],
)
def test_an_error_of_a_signal_handler_in_a_call_is_named(end: str) -> None:
    whole = f"{TRACEBACK}\nThe above exception was the direct cause of the following exception:\n\n{TRACEBACK}"
    tail = end.join(whole.rsplit("ValueError: a bad batch\n", 1))
    error = causes.failure([Ended(2, 1, tail)], HOSTS)
    assert error.problem == "rank 2 on b ended with exit status 1: ValueError: a bad batch, at train.py:32 in job"


def test_a_signal_is_named() -> None:
    error = causes.failure([Ended(1, -9, "", "train.py:7 in step")], HOSTS)
    assert error.problem == "rank 1 on a was killed by SIGKILL, and was last at train.py:7 in step"


def test_a_keyboard_interrupt_has_the_line_of_its_traceback() -> None:
    tail = TRACEBACK.replace("ValueError: a bad batch", "KeyboardInterrupt")
    problem = causes.failure([Ended(1, -2, tail, "train.py:7 in step")], HOSTS).problem
    assert problem == "rank 1 on a was killed by SIGINT: KeyboardInterrupt, at train.py:32 in job"


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (1, "KeyboardInterrupt", -2),
        (130, "KeyboardInterrupt", -2),
        (-2, "KeyboardInterrupt", -2),
        (3, "KeyboardInterrupt", 3),
        (1, "ValueError: a bad batch", 1),
    ],
)
def test_each_keyboard_interrupt_has_one_exit_status(status: int, error: str, expected: int) -> None:
    assert causes.exit_status(status, TRACEBACK.replace("ValueError: a bad batch", error)) == expected


def test_a_crash_has_the_innermost_line_of_the_thread_that_crashed() -> None:
    assert causes.failure([Ended(0, -11, CRASH)], HOSTS).problem == (
        "rank 0 on a was killed by SIGSEGV, at train.py:16 in job"
    )


def test_the_first_cause_comes_before_what_peers_say() -> None:
    peers = [Ended(0, 1, PEER), Ended(1, -6, "")]
    assert causes.failure([*peers, Ended(2, 1, TRACEBACK)], HOSTS).rank == 2  # type: ignore[attr-defined]
    assert causes.failure([*peers, Ended(2, -9)], HOSTS).rank == 2  # type: ignore[attr-defined]
    assert causes.failure([*peers, Ended(2, 3)], HOSTS).rank == 2  # type: ignore[attr-defined]


def test_an_aborted_rank_may_have_ended_because_of_another() -> None:
    aborted = [Ended(1, -signal.SIGABRT, ""), Ended(2, 1, PEER)]
    assert causes.is_of_peers(aborted)
    assert not causes.is_of_peers([*aborted, Ended(0, -signal.SIGSEGV)])
    assert causes.failure(aborted, HOSTS).problem == "rank 1 on a was killed by SIGABRT"
    assert isinstance(causes.failure([*aborted, Ended(0, None)], HOSTS), ds.HostLostError)


def test_a_rank_that_has_returned_is_the_cause_of_what_peers_say() -> None:
    error = causes.failure([Ended(1, 1, PEER), Ended(0, 1, PEER)], HOSTS, [2])
    assert isinstance(error, ds.RankLateError)
    assert (error.waiting, error.late) == ((0, 1), (2,))
    said = "Connection closed by peer [127.0.0.1]:4242"
    where = "rank 1 on a was at train.py:32 in job"
    assert error.problem == f"rank 2 on b has returned, and others have not: {said}; {where}"
    assert error.where == "train.py:32 in job"
    cut_off = causes.failure([Ended(1, 1, PEER), Ended(0, 1, PEER)], HOSTS, [2], {2})
    assert cut_off.problem.startswith("rank 2 on b has ended with exit status 0, and others have not: ")
    assert isinstance(causes.failure([Ended(0, 1, TRACEBACK)], HOSTS, [2]), ds.RankFailedError)


def test_a_lost_host_comes_first() -> None:
    error = causes.failure([Ended(0, 1, TRACEBACK), Ended(2, None)], HOSTS)
    assert isinstance(error, ds.HostLostError)
    assert (error.host, error.ranks) == ("b", (2,))
    assert error.problem == "rank 2 on b was lost with its host, or the host is unreachable"
    both = causes.failure([Ended(1, None)], HOSTS)
    assert both.problem == "rank 0 on a, rank 1 on a were lost with their host, or the host is unreachable"


def test_ranks_that_disagree_are_reported_in_their_own_words() -> None:
    tail = "Traceback (most recent call last):\ndevshim.RanksDisagreeError: the ranks do not agree: rank 0 sums\n"
    error = causes.failure([Ended(1, 1, PEER), Ended(0, 1, tail)], HOSTS)
    assert isinstance(error, ds.RanksDisagreeError)
    assert error.problem == "the ranks do not agree: rank 0 sums"


def late(reports: dict[int, Report], gone: tuple[int, ...] = ()) -> Any:
    return find_late(reports, gone, HOSTS, 5)


WAITING = {0: Report(0, 3, SUM, 5.2), 1: Report(0, 3, SUM, 5.1)}


def test_a_rank_that_has_not_come_is_named_with_its_line() -> None:
    error = late({**WAITING, 2: Report(0, 2, None, 0, "train.py:32 in job")})
    assert error.problem == (
        f"step 3 ({SUM}) has waited 5 s on rank 0 on a, rank 1 on a: "
        "rank 2 on b has not made this call, and is at train.py:32 in job"
    )
    assert (error.waiting, error.late, error.where) == ((0, 1), (2,), "train.py:32 in job")
    assert isinstance(error, TimeoutError)


def test_what_peers_say_of_a_save_is_not_the_cause() -> None:
    tail = (
        "Traceback (most recent call last):\n{}\ndevshim.CheckpointError: ds.save failed on rank 2 on b: OSError: full"
    )
    peers = [causes.Ended(rank, 1, tail) for rank in (0, 1)]
    own = causes.Ended(2, 1, "Traceback (most recent call last):\nOSError: full")
    assert causes.is_of_peers(peers)
    assert not causes.is_of_peers([*peers, own])
    assert causes.failure([*peers, own], HOSTS).problem == "rank 2 on b ended with exit status 1: OSError: full"


def test_a_rank_whose_process_outlives_its_program_is_named() -> None:
    error = late({**WAITING, 2: Report(0, 2, None, 0, ends=True)})
    assert error.problem.endswith(": the program of rank 2 on b has ended, but its process has not")
    assert error.late == (2,)


@pytest.mark.parametrize(
    ("error", "tail", "expected"),
    [
        ("ValueError", TRACEBACK, True),
        ("ValueError", TRACEBACK + "an exit function prints this\n", True),
        ("ValueError", TRACEBACK.replace("ValueError", "job.f.<locals>.ValueError"), True),
        ("KeyboardInterrupt", TRACEBACK.replace("ValueError: a bad batch", "KeyboardInterrupt"), True),
        ("ExceptionGroup", GROUP, True),
        ("RuntimeError", TRACEBACK + PEER, True),
        ("ValueError", TRACEBACK + PEER, False),  # handled by pytest, and another one logged
        ("Error", TRACEBACK, False),
        ("", TRACEBACK, False),
        ("ValueError", "a line of a log\n", False),
    ],
)
def test_an_error_has_ended_a_program_if_its_traceback_is_the_last(error: str, tail: str, expected: bool) -> None:
    assert causes.has_raised(error, tail) is expected
    assert bool(causes.find_ending({0: Report(ends=True, raised=error, tail=tail)})) is expected
    assert not causes.find_ending({0: Report(raised=error, tail=tail)})


def test_a_rank_that_does_not_answer_is_named() -> None:
    for reports in (WAITING, {**WAITING, 2: Report(6, 3, SUM, 0.1)}):
        error = late(dict(reports))
        assert error.problem.endswith("rank 2 on b does not answer")
        assert error.hint == "see what the ranks printed last; or allow more time: timeout=..."
        assert error.late == (2,)


def test_a_rank_that_has_returned_is_named() -> None:
    error = late(WAITING, (2,))
    assert error.problem.endswith("rank 2 on b has returned")
    assert error.hint == causes.ONE_ORDER
    waiting = {0: Report(0, 3, SUM, 5, "train.py:7 in step"), 1: Report(0, 3, SUM, 5, "train.py:9 in step")}
    error = late(dict(waiting), (2,))
    lines = "rank 0 on a waits at train.py:7 in step, rank 1 on a waits at train.py:9 in step"
    assert error.problem.endswith(f": rank 2 on b has returned; {lines}")
    assert error.where == "train.py:7 in step"
    two = late({0: waiting[0]}, (1, 2))
    assert two.problem.endswith(": rank 1 on a, rank 2 on b have returned; rank 0 on a waits at train.py:7 in step")


def test_a_rank_that_left_before_its_end_has_not_returned() -> None:
    one = find_late(WAITING, (2,), HOSTS, 5, {2})
    assert one.problem.endswith(": rank 2 on b has ended with exit status 0")
    both = find_late({0: WAITING[0]}, (1, 2), HOSTS, 5, {2})
    assert both.problem.endswith(": rank 1 on a has returned, and rank 2 on b has ended with exit status 0")


def test_several_late_ranks_are_named_in_the_plural() -> None:
    error = late({0: WAITING[0], 1: Report(0, 2, at="train.py:3 in job"), 2: Report(0, 2, at="train.py:4 in job")})
    assert error.problem.endswith(
        ": rank 1 on a, rank 2 on b have not made this call, and the first is at train.py:3 in job"
    )
    assert late({0: WAITING[0]}).problem.endswith(": rank 1 on a, rank 2 on b do not answer")


def test_two_different_calls_are_named() -> None:
    error = late({**WAITING, 2: Report(0, 3, "barrier", 5, "train.py:9 in job")})
    assert isinstance(error, ds.RanksDisagreeError)
    assert error.problem == (
        f"the ranks do not agree on step 3: rank 0 on a: {SUM}; rank 1 on a: {SUM}; rank 2 on b: barrier "
        "(rank 2 at train.py:9 in job)"
    )


def test_an_engine_that_does_not_answer() -> None:
    assert "the engine does not answer" in late({**WAITING, 2: Report(0, 3, SUM, 5)}).problem


def test_a_rank_that_was_interrupted_in_a_call_is_named() -> None:
    reports = {rank: Report(0, 3, SUM, 5, "train.py:7 in step") for rank in (0, 1)}
    error = late({**reports, 2: Report(0, 3, SUM, 5, "train.py:90 in on_signal")})
    assert error.problem.endswith(": rank 2 on b has started this call, and is at train.py:90 in on_signal")
    assert (error.late, error.where) == ((2,), "train.py:90 in on_signal")


def test_of_two_ranks_in_one_call_both_are_named_with_their_lines() -> None:
    reports = {0: Report(0, 3, SUM, 5, "train.py:7 in step"), 1: Report(0, 3, SUM, 5, "train.py:90 in on_signal")}
    error: Any = find_late(reports, (), ["a", "b"], 5)
    assert error.problem.endswith(
        ": all ranks are in it, and the engine does not answer; "
        "rank 0 on a is at train.py:7 in step, rank 1 on b is at train.py:90 in on_signal"
    )
    assert error.late == (0, 1)


def test_ranks_that_disagree_are_named_with_their_lines() -> None:
    said = "RanksDisagreeError: the ranks do not agree: rank 0 sums"
    tail = TRACEBACK.replace("ValueError: a bad batch", said)
    error = causes.failure([Ended(2, 1, tail.replace("32", "50")), Ended(0, 1, tail)], HOSTS)
    assert error.problem == (
        "the ranks do not agree: rank 0 sums (rank 0 at train.py:32 in job, rank 2 at train.py:50 in job)"
    )


def test_many_ranks_are_counted() -> None:
    assert causes.name_ranks(range(9), ["a"] * 9) == "rank 0 on a, rank 1 on a, rank 2 on a, rank 3 on a and 5 more"


START = "start of the ranks of torch"
STARTS = Report(0, 1, START, 3.2, "train.py:7 in step", engine="starts")
BARRIER = Report(0, 1, "barrier", 3.1, "train.py:9 in step", engine="none")


def test_a_rank_that_returned_before_a_call_is_named_soon() -> None:
    error: Any = find_stuck({0: STARTS, 1: Report(0, 0)}, {2: 0}, HOSTS)
    line = "rank 2 on b has returned; rank 0 on a waits at train.py:7 in step"
    assert error.problem == f"step 1 ({START}) has waited 3 s on rank 0 on a: {line}"
    assert (error.waiting, error.late) == ((0,), (2,))
    assert find_stuck({0: STARTS}, {2: 1}, HOSTS) is None  # it has made this call


def test_ranks_in_an_engine_and_without_one_disagree() -> None:
    error = find_stuck({0: STARTS, 2: BARRIER}, {}, HOSTS)
    assert isinstance(error, ds.RanksDisagreeError)
    assert error.problem == (
        f"the ranks do not agree on step 1: rank 0 on a: {START}; rank 2 on b: barrier without an engine "
        "(rank 0 at train.py:7 in step, rank 2 at train.py:9 in step)"
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Report(0, 1, "start of the ranks of jax", 3, engine="starts"), True),
        (Report(0, 1, START, 3, engine="starts"), False),
        (Report(0, 1, "barrier", 3, engine="runs"), False),  # the start has ended there
        (Report(0, 2, "barrier", 3, engine="none"), False),  # the other is a step behind, and may come
        (Report(0, 1, "barrier", 1, engine="none"), False),
        (Report(5, 1, "barrier", 3, engine="none"), False),  # it does not answer
        (Report(0, 1, None, 0, engine="none"), False),
    ],
)
def test_ranks_that_may_meet_do_not_disagree(other: Report, expected: bool) -> None:
    assert (find_stuck({0: STARTS, 1: other}, {}, HOSTS) is not None) is expected

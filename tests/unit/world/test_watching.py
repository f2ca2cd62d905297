"""Tests of the launcher's decision who is late, with made-up reports of the ranks."""

from __future__ import annotations

import pytest

import devshim as ds
from devshim.world import restarts
from devshim.world.causes import Ended, Report
from devshim.world.cluster import Host
from devshim.world.control import ControlProcess
from devshim.world.job import Job
from devshim.world.restarts import share_ranks
from devshim.world.watching import Attempt

SUM = "all_reduce, sum of float32 (10,)"
WAITS = Report(0.1, 3, SUM, 5.2)


class Reported(Attempt):
    """A job of two ranks with these reports."""

    def __init__(self, *reports: Report) -> None:
        host = Host("a", "", "127.0.0.1", 0, False)
        super().__init__(Job(timeout=5.0), [host], [2], 0, lambda *_: None)
        self.reports = dict(enumerate(reports))
        self.late_since = 0.0

    def _collect_reports(self) -> dict[int, Report]:
        return self.reports


def test_a_late_rank_is_an_error() -> None:
    with pytest.raises(ds.RankLateError, match="rank 1 on a has not made this call"):
        Reported(WAITS, Report(0, 2))._raise_if_late(at_once=False)


def test_a_program_that_has_ended_may_end_its_process_first() -> None:
    job = Reported(WAITS, Report(3, 2, ends=True))
    job._raise_if_late(at_once=False)
    assert job.late_since is not None
    with pytest.raises(ds.RankLateError, match="rank 1 on a does not answer"):
        job._raise_if_late(at_once=True)


def test_a_program_that_has_ended_with_an_error_is_the_cause_although_its_process_goes_on() -> None:
    tail = "Traceback (most recent call last):\nValueError: a bad batch"
    job = Reported(WAITS, Report(3, 2, ends=True, raised="ValueError", tail=tail))
    job._raise_if_late(at_once=False)
    with pytest.raises(ds.RankFailedError, match="rank 1 on a ended with exit status 1: ValueError: a bad batch"):
        job._raise_if_late(at_once=True)


def test_a_failure_names_the_lines_of_ranks_whose_processes_go_on() -> None:
    def tail(line: int) -> str:
        where = f'  File "program.py", line {line}, in train'
        error = "devshim.RanksDisagreeError: the ranks do not agree on step 3"
        return f"Traceback (most recent call last):\n{where}\n{error}"

    job = Reported(Report(), Report(3, 3, ends=True, raised="RanksDisagreeError", tail=tail(8)))
    job.failed[0] = Ended(0, 1, tail(4))
    expected = r"on step 3 \(rank 0 at program.py:4 in train, rank 1 at program.py:8 in train\)"
    with pytest.raises(ds.RanksDisagreeError, match=expected):
        raise job._failure()


def test_a_rank_that_has_raised_has_failed_before_its_process_ends() -> None:
    job = Reported(WAITS, Report(3, 2, ends=True, raised="ValueError"))
    tail = "Traceback (most recent call last):\nValueError: a bad batch"
    job._receive([("raised", 1, tail, "train.py:7 in step", "")])
    assert str(job._failure().problem) == (
        "rank 1 on a ended with exit status 1: ValueError: a bad batch, and was last at train.py:7 in step"
    )
    job._receive([("end", 1, 0, tail, "", None, 2, True, "")])  # an exit function has ended the process
    assert (job.failed, job.results) == ({}, {1: None})


def test_ranks_that_have_come_in_the_meantime_are_no_error() -> None:
    job = Reported(Report(0.1, 4, SUM, 0.2), Report(0.1, 4, SUM, 0.1))
    job._raise_if_late(at_once=True)
    assert job.late_since is None


STARTS = Report(0.1, 1, "start of the ranks of torch", 2.5, engine="starts")
NO_ENGINE = {"silent": 0.1, "step": 1, "what": "barrier", "seconds": 2.5, "engine": "none"}


def test_ranks_that_wait_for_each_other_disagree_before_the_time_out() -> None:
    job = Reported(STARTS, Report(**NO_ENGINE))
    job._receive([("waits", 0, vars(STARTS))])
    job._raise_if_stuck()
    job._receive([("waits", 1, NO_ENGINE)])
    with pytest.raises(ds.RanksDisagreeError, match="rank 1 on a: barrier without an engine"):
        job._raise_if_stuck()


def test_a_rank_that_has_gone_on_since_its_report_is_no_error() -> None:
    job = Reported(Report(0.1, 1, "barrier", 2.5, engine="none"), Report(**NO_ENGINE))
    job._receive([("waits", 0, vars(STARTS)), ("waits", 1, NO_ENGINE)])
    job._raise_if_stuck()


def test_a_rank_that_returns_while_others_wait_for_it_is_an_error() -> None:
    job = Reported(STARTS)
    job._receive([("waits", 0, vars(STARTS)), ("end", 1, 0, "", "", None, 0, True, "")])
    with pytest.raises(ds.RankLateError, match="rank 1 on a has returned"):
        job._raise_if_stuck()


@pytest.mark.parametrize(("fails_in", "told"), [("_start", []), ("follow", ["started", "steps"])])
def test_steps_are_reported_of_ranks_that_have_started_alone(
    monkeypatch: pytest.MonkeyPatch, fails_in: str, told: list[str]
) -> None:
    def fail(_: Attempt) -> None:
        raise ds.HostLostError("rank 1 on a was lost with its host")

    kinds: list[str] = []
    job = Reported()
    job.notify = lambda kind, *_: kinds.append(kind)
    for name in ("_place", "_start", "follow"):
        monkeypatch.setattr(Attempt, name, fail if name == fails_in else lambda _: None)
    monkeypatch.setattr(Attempt, "_stop_all", lambda _: {0: 0, 1: 0})
    with pytest.raises(ds.HostLostError):
        job.run()
    assert kinds == told


SIMULATED = Host("a", "", "127.0.0.1", 2, True)


def test_more_ranks_than_gpus_are_refused() -> None:
    with pytest.raises(ds.ArgumentError, match="a has 2 GPUs, too few for 3 ranks with 1 GPU each"):
        share_ranks(Job(ranks_per_host=3), [SIMULATED])
    with pytest.raises(ds.ArgumentError, match="a has 1 GPU, too few for 1 rank with 2 GPUs each"):
        share_ranks(Job(cards_per_rank=2), [Host("a", "", "127.0.0.1", 1, True)])


def test_a_job_cannot_restart_with_more_ranks_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of ranks may depend on the hosts' GPUs, which are known once the cluster is."""
    monkeypatch.setattr(restarts, "hosts_of", lambda: {"a": SIMULATED})
    with pytest.raises(ds.ArgumentError, match="min_ranks is 3, and the job has 2 ranks before any host is lost"):
        restarts.run(Job(min_ranks=3), lambda *_: None, ControlProcess("127.0.0.1:1", lambda: None))


def test_ranks_that_simulate_gpus_of_their_own_need_none_of_the_host() -> None:
    assert share_ranks(Job(ranks_per_host=3, simulate=1), [SIMULATED]) == [3]
    assert share_ranks(Job(cards_per_rank=4, ranks_per_host=1, simulate=4), [SIMULATED]) == [1]
    assert share_ranks(Job(simulate=1), [SIMULATED]) == [2]  # as many as it has GPUs
    assert share_ranks(Job(cards_per_rank=4, simulate=4), [SIMULATED]) == [1]

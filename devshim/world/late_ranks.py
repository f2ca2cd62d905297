"""The error of a job in which a rank waits in a collective, too long or for a rank that will never make this call.

It names the rank that is late or has returned, or says how the ranks differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from devshim.errors import RankLateError, RanksDisagreeError
from devshim.errors.formatting import list_some
from devshim.world.causes import ONE_ORDER, describe_returned, name_ranks
from devshim.world.reports import SILENT, WAITS

if TYPE_CHECKING:
    from devshim.errors import WorldError
    from devshim.world.reports import Report

__all__ = ["find_late", "find_stuck"]


def find_late(
    reports: Mapping[int, Report],
    gone: Sequence[int],
    hosts: Sequence[str],
    timeout: float,
    cut_off: Collection[int] = (),
) -> WorldError:
    """Return the error of a job in which ranks have waited too long in a collective: one is late, or they disagree.

    Args:
        reports: The last report of each rank that runs and whose host answers.
        gone: The ranks that have returned.
        hosts: The host of each rank.
        timeout: How many seconds a collective may wait.
        cut_off: The ranks of ``gone`` whose program did not come to its end.
    """
    running = [rank for rank in range(len(hosts)) if rank not in gone]
    silent = [rank for rank in running if rank not in reports or reports[rank].silent > SILENT]
    inside = {rank: each for rank, each in reports.items() if each.what is not None and rank not in silent}
    longest = max(inside, key=lambda rank: inside[rank].seconds) if inside else silent[0]
    step, what = (inside[longest].step, inside[longest].what) if inside else (reports[longest].step, "")
    behind = [rank for rank in running if rank not in silent and reports[rank].step < step]
    waiting = [rank for rank in inside if rank not in behind]
    calls = {reports[rank].what for rank in waiting}
    guilty: Sequence[int] = silent
    where = ""
    if silent:
        reason = f"{name_ranks(silent, hosts)} {_verb(silent, 'does', 'do')} not answer"
        where = reports[silent[0]].at if silent[0] in reports else ""
        reason += f", and {_verb(silent, 'was', 'the first was')} last at {where}" if where else ""
    elif gone:
        guilty, reason = list(gone), describe_returned(gone, cut_off, hosts)
        where, line = _where_waiting(waiting, reports, hosts)
        reason += line
    elif outliving := [rank for rank in behind if reports[rank].ends]:
        ended = _verb(outliving, "has ended, but its process has not", "has ended, but their processes have not")
        guilty, reason = outliving, f"the program of {name_ranks(outliving, hosts)} {ended}"
        where, line = _where_waiting(waiting, reports, hosts)
        reason += line
    elif behind:
        guilty, where = behind, reports[behind[0]].at
        reason = f"{name_ranks(behind, hosts)} {_verb(behind, 'has', 'have')} not made this call"
        reason += f", and {_verb(behind, 'is', 'the first is')} at {where}" if where else ""
    elif len(calls) > 1:
        return _disagreement(step, waiting, reports, hosts)
    else:
        guilty, where, reason = _describe_equal(waiting, reports, hosts)
    text = f"step {step} ({what}) has waited {timeout:g} s on {name_ranks(waiting, hosts)}: {reason}"
    look = "look at that line" if where else "see what the ranks printed last"
    has_returned = bool(gone) and not silent
    error = RankLateError(text, ONE_ORDER if has_returned else f"{look}; or allow more time: timeout=...")
    error.waiting, error.late, error.where = tuple(waiting), tuple(guilty), where
    return error


def find_stuck(
    reports: Mapping[int, Report], returned: Mapping[int, int], hosts: Sequence[str], cut_off: Collection[int] = ()
) -> WorldError | None:
    """Return the error of a job in which ranks wait for one that will never make their call; None without any.

    That rank has returned, or makes another call in the same step. Where both calls use the framework's engine, the
    ranks find that out themselves. But a rank that starts the engine waits for the others, and one that knows no
    framework with an engine does not start it.

    Args:
        reports: As for `find_late`, or older ones of some ranks.
        returned: The ranks that have returned -> the last step of each.
        hosts: The host of each rank.
        cut_off: As for `find_late`.
    """
    if any(each.silent > SILENT for each in reports.values()):
        return None  # a rank that does not answer is another error, after the time that a collective may wait
    waiting = {rank: each for rank, each in reports.items() if each.what is not None and _waited(each) > WAITS}
    if any(each.step > min(returned.values(), default=each.step) for each in waiting.values()):
        longest = max(map(_waited, waiting.values()))
        return find_late(reports, sorted(returned), hosts, round(longest), cut_off)
    by_step: dict[int, list[int]] = {}
    for rank in sorted(waiting):
        by_step.setdefault(waiting[rank].step, []).append(rank)
    for step, ranks in by_step.items():
        calls = {(waiting[rank].engine, waiting[rank].what) for rank in ranks}
        if any(_differ(*pair) for pair in combinations(calls, 2)):
            return _disagreement(step, ranks, reports, hosts)
    return None


def _waited(report: Report) -> float:
    """Return the seconds for which a rank has been in its collective."""
    return report.seconds + report.silent


def _differ(first: tuple[str, str | None], second: tuple[str, str | None]) -> bool:
    """Return True if two ranks cannot meet: one engine starts in the other call's place, or only one rank has one."""
    (engine, what), (other, said) = first, second
    if engine == other:
        return what != said
    return "none" in (engine, other)  # otherwise, the start of one of them has ended earlier


def _disagreement(
    step: int, waiting: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]
) -> RanksDisagreeError:
    """Return the error of ranks that make different calls in one step."""
    has_engines = len({reports[rank].engine == "none" for rank in waiting}) > 1
    calls = {
        rank: f"{reports[rank].what}{' without an engine' if has_engines and reports[rank].engine == 'none' else ''}"
        for rank in waiting
    }
    each = "; ".join(f"{name_ranks([rank], hosts)}: {calls[rank]}" for rank in waiting)
    known = [rank for rank in waiting if reports[rank].at]
    lines = list_some(known, 4, lambda rank: f"rank {rank} at {reports[rank].at}")
    problem = f"the ranks do not agree on step {step}: {each}"
    return RanksDisagreeError(f"{problem} ({lines})" if lines else problem, ONE_ORDER)


def _describe_equal(
    waiting: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]
) -> tuple[Sequence[int], str, str]:
    """Return the late ranks of ranks that all are in one call, the line of the first if it differs, and the reason."""
    reason = "all ranks are in it, and the engine does not answer"
    where_most, most = Counter(reports[rank].at for rank in waiting).most_common(1)[0]
    odd = [rank for rank in waiting if reports[rank].at != where_most]
    if odd and most > len(odd):  # such as a call in a signal handler that interrupted the step
        where = reports[odd[0]].at
        reason = f"{name_ranks(odd, hosts)} {_verb(odd, 'has', 'have')} started this call"
        return odd, where, f"{reason}, and {_verb(odd, 'is', 'the first is')} at {where}"
    if odd:
        reason += "; " + list_some(waiting, 4, lambda rank: f"{name_ranks([rank], hosts)} is at {reports[rank].at}")
    return waiting, "", reason


def _where_waiting(waiting: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]) -> tuple[str, str]:
    """Return the line at which the first of the waiting ranks is, and an addition to the reason that names it."""
    known = [rank for rank in waiting if reports[rank].at]
    if not known:
        return "", ""
    line = list_some(known, 4, lambda rank: f"{name_ranks([rank], hosts)} waits at {reports[rank].at}")
    return reports[known[0]].at, f"; {line}"


def _verb(ranks: Sequence[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many

"""The error of a job in which a rank waits too long in a collective: which rank is late, or how the ranks differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from devshim.errors import RankLateError, RanksDisagreeError
from devshim.errors.formatting import list_some
from devshim.world.causes import ONE_ORDER, describe_returned, name_ranks
from devshim.world.reports import SILENT

if TYPE_CHECKING:
    from devshim.errors import WorldError
    from devshim.world.reports import Report

__all__ = ["find_late"]


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


def _disagreement(
    step: int, waiting: Sequence[int], reports: Mapping[int, Report], hosts: Sequence[str]
) -> RanksDisagreeError:
    """Return the error of ranks that make different calls in one step."""
    each = "; ".join(f"{name_ranks([rank], hosts)}: {reports[rank].what}" for rank in waiting)
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

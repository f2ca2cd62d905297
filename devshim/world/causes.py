"""Find the first cause of a failure: the error for a job, from how its ranks ended and what they were doing.

A rank that dies makes its peers fail as well, each with a different error. The first cause is a lost host or process,
then an error of a program, and last the errors that name another rank.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from devshim.errors import HostLostError, RankFailedError, RankLateError, RanksDisagreeError
from devshim.errors.formatting import list_some
from devshim.registry.processes import describe_exit
from devshim.world.heartbeat import is_program
from devshim.world.output_end import TRACEBACK
from devshim.world.reports import Ended, Report

if TYPE_CHECKING:
    from devshim.errors import WorldError

__all__ = [
    "ONE_ORDER",
    "Ended",
    "Report",
    "describe_returned",
    "exit_status",
    "failure",
    "find_ending",
    "has_raised",
    "is_of_peers",
    "name_ranks",
]

ONE_ORDER = "every rank must make the same calls of ds.world(), in one order"
"""The hint for ranks that do not do the same."""

_ABORTED, _OF_PEERS = 3, 4
"""The positions in the order of causes of ranks that were aborted, as JAX does if rank 0 is lost, and of reports about
other ranks."""
_BY_EXIT = (1, 2)
"""The exit statuses of ``sys.exit("...")`` and of wrong arguments, which print the reason."""
_BY_INTERRUPT = (1, 128 + signal.SIGINT)
"""The exit statuses of Python after a `KeyboardInterrupt` if it does not kill itself by SIGINT."""
_LONGEST_SHOWN = 300
"""The maximum number of characters of a printed reason that an error shows."""
_HEAD = re.compile(r"^(?P<group>  \+ Exception Group )?(?! *\|).*?Traceback \(most recent call last\)", re.MULTILINE)
"""The first line of a traceback that is not part of an exception group: of one error, or of a whole group."""
_BORDER = re.compile(r"^ *\| ?(.*)$", re.MULTILINE)
"""A line of a group, and the text to the right of its border."""
_SEPARATOR = re.compile(r"^ *\+(?:-\+)?-+(?: [\d.]+ -+)?$", re.MULTILINE)
"""The lines before and after each exception of a group."""
_WRAPPED = re.compile(r"^SystemError: .* returned a result with an exception set|RankFailedError: ")
"""The last error if a signal handler of the program raised one in a call: the one before is the cause."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+?)\s*$', re.MULTILINE)
_OF_TRACKER = re.compile(r"^.*resource_tracker\.py:\d+: UserWarning: .*\n?(?:[ \t].*\n?)?", re.MULTILINE)
"""A warning that multiprocessing prints after the end of a program, and its line of code."""
_PEER = re.compile(
    r"RankFailedError|RankLateError|Connection closed by peer|Connection reset|Timed out waiting|TIMEOUT self_rank"
    r"|Collective ops is aborted|another task died|Broken pipe|heartbeat|CheckpointError: ds\.\w+ failed on rank \d"
)


def name_ranks(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Return ``rank 0 on a, rank 2 on b``; of many ranks, the first four and how many more."""
    return list_some(ranks, 4, lambda rank: f"rank {rank} on {hosts[rank]}")


def describe_returned(ranks: Collection[int], cut_off: Collection[int], hosts: Sequence[str]) -> str:
    """Return that ranks have returned, or for some of them only that they have ended.

    Args:
        ranks: The ranks that ended with exit status 0.
        cut_off: Those of them whose program did not come to its end, as after ``os._exit(0)``.
        hosts: The host of each rank.
    """
    returned, others = sorted(set(ranks) - set(cut_off)), sorted(set(ranks) & set(cut_off))
    parts = [f"{name_ranks(returned, hosts)} {_have(returned)} returned"] if returned else []
    parts += [f"{name_ranks(others, hosts)} {_have(others)} ended with exit status 0"] if others else []
    return ", and ".join(parts)


def exit_status(status: int, tail: str) -> int:
    """Return an exit status; for every `KeyboardInterrupt` that of SIGINT.

    Python kills itself by SIGINT after one in a file, but not after one in a module, or if a framework prevents it.
    """
    is_interrupt = status in _BY_INTERRUPT and has_raised(KeyboardInterrupt.__name__, tail)
    return -signal.SIGINT if is_interrupt else status


def failure(
    ended: Sequence[Ended], hosts: Sequence[str], returned: Sequence[int] = (), cut_off: Collection[int] = ()
) -> WorldError:
    """Return the error of a job.

    Args:
        ended: The ranks that failed, in the order of their failures.
        hosts: The host of each rank.
        returned: The ranks that ended normally. If the others report only that a peer has ended, these are the cause.
        cut_off: As for `describe_returned`.
    """
    first = min(ended, key=_order)
    who = name_ranks([first.rank], hosts)
    if returned and _order(first) == _OF_PEERS:
        return _early_error(first, ended, hosts, returned, cut_off)
    if first.status is None:
        return _lost_error(hosts[first.rank], hosts)
    if "RanksDisagreeError" in first.tail:
        problem = _last_error(first.tail).partition(": ")[2] or f"{who} disagrees with its peers"
        lines = {each.rank: _innermost_line(each.tail) for each in ended if "RanksDisagreeError" in each.tail}
        known = [rank for rank in sorted(lines) if lines[rank]]
        where = list_some(known, 4, lambda rank: f"rank {rank} at {lines[rank]}")
        return RanksDisagreeError(f"{problem} ({where})" if where else problem, ONE_ORDER)
    is_crash = first.status < 0 and first.status != -signal.SIGINT  # Python raises KeyboardInterrupt for it
    reason = "" if is_crash else _last_error(first.tail)
    where = _innermost_line(first.tail, is_crash) or first.exit_at
    line = f", at {where}" if where else f", and was last at {first.at}" if first.at else ""
    text = f"{who} {describe_exit(first.status)}{': ' if reason else ''}{reason}{line}"
    said = "" if reason or first.status not in _BY_EXIT else _last_line(first.tail)
    text += f"; the last line of its output is: {said}" if said else ""
    failed = RankFailedError(text, "the end of its output is in the error's attribute tail")
    failed.rank, failed.host, failed.status, failed.tail = first.rank, hosts[first.rank], first.status, first.tail
    return failed


def _early_error(
    first: Ended, ended: Sequence[Ended], hosts: Sequence[str], returned: Sequence[int], cut_off: Collection[int]
) -> RankLateError:
    """Return the error of ranks whose peers have returned, with the line at which the first of them failed."""
    who = name_ranks([first.rank], hosts)
    reason = _last_error(first.tail).partition(": ")[2] or f"{who} {describe_exit(first.status or 0)}"
    where = _innermost_line(first.tail)
    line = f"; {who} was at {where}" if where else ""
    early = RankLateError(
        f"{describe_returned(returned, cut_off, hosts)}, and others have not: {reason}{line}", ONE_ORDER
    )
    early.waiting, early.late = tuple(sorted(each.rank for each in ended)), tuple(sorted(returned))
    early.where = where
    return early


def _lost_error(host: str, hosts: Sequence[str]) -> HostLostError:
    """Return the error of a host that is lost."""
    lost = [rank for rank, each in enumerate(hosts) if each == host]
    how = "was lost with its host" if len(lost) == 1 else "were lost with their host"
    error = HostLostError(
        f"{name_ranks(lost, hosts)} {how}, or the host is unreachable",
        "start the job again on the hosts that are left, or let it restart: retries=1, min_ranks=1",
    )
    error.host, error.ranks = host, tuple(lost)
    return error


def _have(ranks: Collection[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def find_ending(reports: Mapping[int, Report]) -> list[Ended]:
    """Return the ranks whose programs have ended with an error, but whose processes have not."""
    return [
        Ended(rank, exit_status(1, each.tail), each.tail, each.at, each.exit_at)
        for rank, each in reports.items()
        if each.ends and has_raised(each.raised, each.tail)
    ]


def has_raised(error: str, tail: str) -> bool:
    """Return True if the last traceback of an output ends with an error of this type.

    Args:
        error: The name of the type of the last exception that Python has stored; it may be one that pytest has handled.
        tail: The end of the output; it may contain tracebacks that the program has logged.
    """
    heads = list(_HEAD.finditer(tail)) if error else []
    line = rf"^(?:  \| )?(?:\S+\.)?{re.escape(error)}(?::|$)"  # of an exception group, after its border
    return bool(heads) and re.search(line, tail[heads[-1].end() :], re.MULTILINE) is not None


def is_of_peers(ended: Sequence[Ended]) -> bool:
    """Return True if all of these ranks may have ended because another one failed, which is not known yet."""
    return all(_order(each) >= _ABORTED for each in ended)


def _order(ended: Ended) -> int:
    if ended.status is None:
        return 0
    if "RanksDisagreeError" in ended.tail:
        return 1
    if ended.status > 0 and all(_PEER.search(error or ended.tail[-600:]) for error in _last_errors(ended.tail)):
        return _OF_PEERS
    return 2 if ended.status != -signal.SIGABRT else _ABORTED


def _last_error(tail: str) -> str:
    """Return the last line of a traceback with its error, without indented context; empty if there is none."""
    return _error_of(_find_cause(tail))


def _last_errors(tail: str) -> list[str]:
    """Return the errors that a program ended with: the exceptions of a group, or one error; empty if there is none."""
    parts = [_without_border(part) for part in _SEPARATOR.split(_group(tail))[1:]]
    errors = [_error_of(part.split(TRACEBACK)[-1]) for part in parts]
    return [error for error in errors if error and not re.search(r"\(\d+ sub-exceptions?\)$", error)] or [
        _last_error(tail)
    ]


def _group(tail: str) -> str:
    """Return the traceback of the exception group that ended a program, without its first line, or an empty text."""
    heads = list(_HEAD.finditer(tail))
    return tail[heads[-1].end() :] if heads and heads[-1]["group"] else ""


def _without_border(part: str) -> str:
    return "\n" + "\n".join(_BORDER.findall(part))


def _last_line(tail: str) -> str:
    """Return the last nonempty line of an output; of a long line, the beginning."""
    lines = [line.strip() for line in _OF_TRACKER.sub("", tail).splitlines() if line.strip()]
    return lines[-1][:_LONGEST_SHOWN] if lines else ""


def _find_cause(tail: str) -> str:
    """Return the traceback that explains the end of a program: the last one, or the one that it only wraps."""
    group = _group(tail)
    if group:
        tail = TRACEBACK + _without_border(_SEPARATOR.split(group)[0])
    tracebacks = tail.split(TRACEBACK)[1:]
    if len(tracebacks) > 1 and _WRAPPED.search(_error_of(tracebacks[-1])):
        frames = _FRAME.findall(tracebacks[-2])
        if frames and is_program(frames[-1][0]):
            return tracebacks[-2]
    return tracebacks[-1] if tracebacks else ""


def _error_of(traceback: str) -> str:
    lines = traceback.splitlines()[1:]
    return next((line.strip() for line in lines if line[:1].strip() and re.match(r"[\w.]+(:|$)", line)), "")


def _innermost_line(tail: str, is_crash: bool = False) -> str:
    """Return the innermost line of the program in a traceback; faulthandler prints the innermost one first.

    A line of code without a file, such as ``<string>``, may be a library's: a line with a file comes first.
    """
    if is_crash:
        part = re.split(r"Current thread[^\n]*\n|Stack \(most recent call first\):\n", tail)[-1].partition("\n\n")[0]
        frames = list(_FRAME.finditer(part)) if "Fatal Python error" in tail else []
    else:
        frames = list(_FRAME.finditer(_find_cause(tail)))[::-1]
    program = [each for each in frames if is_program(each["file"])]
    if not program:
        return ""
    found = next((each for each in program if not each["file"].startswith("<")), program[0])
    return f"{found['file'].rpartition('/')[2]}:{found['line']} in {found['name']}"

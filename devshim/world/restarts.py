"""The launcher's view of a job: start it, and start it again after a failure, on the hosts that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from devshim.errors import ArgumentError, HostLostError, WorldError
from devshim.world.cluster import Host, hosts_of
from devshim.world.control import ControlProcess
from devshim.world.job import Job, require_possible
from devshim.world.watching import Attempt

__all__ = ["run", "share_ranks"]

Listener = Callable[..., None]


def run(job: Job, notify: Listener, control: ControlProcess) -> list[bytes | None]:
    """Run a job, again after a failure if it requests that, and return the pickled result of each rank.

    Args:
        job: The job.
        notify: Called with each event.
        control: The control process of the cluster.

    Raises:
        WorldError: It failed, or could not start, or the cluster has ended.
    """
    lost, first = dict[str, str](), 0  # by Ray's names: other nodes of the same machine change theirs
    for attempt in range(job.retries + 1):
        there = {name: host for name, host in hosts_of().items() if host.node not in lost}
        names = None if job.hosts is None else [name for name in job.hosts if name not in lost.values()]
        hosts = _chosen(there, names)
        counts = share_ranks(job, hosts)
        size = sum(counts)
        first = first or size
        require_possible(job.min_ranks, first)
        least = first if job.min_ranks is None else job.min_ranks
        if attempt and size < least:
            msg = f"{size} ranks are left, and at least {least} are needed"
            raise WorldError(msg, f"allow fewer: min_ranks={size}" if size else "check the hosts")
        try:
            return Attempt(job, hosts, counts, attempt, notify).run()
        except WorldError as error:
            control.require()
            if isinstance(error, HostLostError):
                lost.update({host.node: host.name for host in hosts if host.name == error.host})
            if attempt == job.retries:
                raise
            notify("again", attempt + 1, error.problem)
    raise AssertionError


def _chosen(there: dict[str, Host], names: Iterable[str] | None) -> list[Host]:
    """Return the hosts with these names, or all hosts.

    Raises:
        ArgumentError: The cluster has no such host.
    """
    wanted = list(there) if names is None else list(names)
    missing = [name for name in wanted if name not in there]
    if missing:
        msg = f"the cluster has no host {', '.join(missing)}: it has {', '.join(there)}"
        raise ArgumentError(msg, "`devshim cluster status` lists the hosts")
    return [there[name] for name in wanted]


def share_ranks(job: Job, hosts: Sequence[Host]) -> list[int]:
    """Return how many ranks each host gets."""
    if not hosts:
        msg = "no host is left"
        raise WorldError(msg, "`devshim cluster status` lists the hosts")
    counts = []
    for host in hosts:
        cards = host.cards if job.simulate is None or host.simulated else 0
        per_rank = job.cards_per_rank if cards else 0
        wanted = job.ranks_per_host or (cards // per_rank if per_rank else 1)
        is_short = wanted < 1 or wanted * per_rank > cards or (not cards and job.cards_per_rank > 1)
        if is_short and job.simulate is None:  # ranks that simulate GPUs of their own need none of the host
            asked = f"{_count(max(wanted, 1), 'rank')} with {_count(job.cards_per_rank, 'GPU')} each"
            msg = f"{host.name} has {_count(host.cards, 'GPU')}, too few for {asked}"
            raise ArgumentError(msg, "ask for fewer: ranks_per_host=1, cards_per_rank=1; or simulate them: simulate=2")
        counts.append(max(wanted, 1))
    return counts


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

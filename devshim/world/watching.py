"""One start of a job: place the agents, start the ranks, and wait for their results or the first failure."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from devshim.errors import WorldError
from devshim.world import agents, causes, lost_agents, rank_environment
from devshim.world.agent import with_concurrency_groups
from devshim.world.cluster import Host
from devshim.world.job import Job
from devshim.world.late_ranks import find_late, find_stuck

__all__ = ["Attempt"]

_GRACE = 1.5
"""Seconds in which further ranks may fail before the first cause is chosen."""
_PATIENCE = 30.0
_ENDING = 4.0
"""Seconds for the end of a process whose program has ended, or of one that its peers have reported."""
_MOMENT = 0.1
"""Seconds before an agent that Ray could not reach is asked again."""
REPORTS = 50.0
"""The maximum number of progress reports per second, from all agents together."""
Listener = Callable[..., None]


class Attempt:
    """One start of a job, from the placement of its agents to their end."""

    def __init__(self, job: Job, hosts: list[Host], counts: list[int], attempt: int, notify: Listener) -> None:
        self.job: Job = job
        self.hosts: list[Host] = hosts
        self.counts: list[int] = counts
        self.attempt: int = attempt
        self.notify: Listener = notify
        self.names: list[str] = [host.name for host, count in zip(hosts, counts, strict=True) for _ in range(count)]
        self.name: str = f"devshim-{uuid.uuid4().hex[:12]}"
        self.agents: list[Any] = []
        self.devices: list[str] = []
        self.results: dict[int, bytes | None] = {}
        self.cut_off: set[int] = set()  # of the results, as in `causes.describe_returned`
        self.failed: dict[int, causes.Ended] = {}
        self.late_since: float | None = None
        self.waiting: dict[int, causes.Report] = {}
        """The last report of each rank that has waited some seconds in a collective, from that moment."""
        self.last_steps: dict[int, int] = {}
        """The last collective of each rank that has returned."""
        self.received: list[int] = [0] * len(hosts)
        """How many answers each agent has given to the question for news."""
        self.unreachable: lost_agents.Unreachable = lost_agents.Unreachable()

    def run(self) -> list[bytes | None]:
        """Return the pickled result of each rank; in any case, end all ranks and agents."""
        try:
            self._place()
            self._start()
            self.notify("started", self.names, self.attempt, self.devices)
            try:
                self.follow()
            except WorldError:
                self.notify("steps", self._stop_all())
                raise
        finally:
            self._stop_all()
        return [self.results[rank] for rank in range(len(self.names))]

    def _stop_all(self) -> dict[int, int]:
        """End all ranks and agents; return how many collectives each rank has started, if its agent answers."""
        stopped, self.agents = self.agents, []
        return agents.stop_all(stopped)

    def _place(self) -> None:
        """Start an agent on each host, and wait until all answer."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        groups = {"peers": 64, "watch": 8}
        kind = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups=groups)(with_concurrency_groups())
        for index, (host, count) in enumerate(zip(self.hosts, self.counts, strict=True)):
            cards = count * self.job.cards_per_rank if host.cards and self.job.simulate is None else 0
            needs: dict[str, Any] = {"resources": {"sim_gpu": cards}} if host.simulated else {"num_gpus": cards}
            strategy = NodeAffinitySchedulingStrategy(node_id=host.node, soft=False)
            options = kind.options(
                name=f"host{index}", namespace=self.name, scheduling_strategy=strategy, **(needs if cards else {})
            )
            progress = None if self.job.progress is None else max(self.job.progress, len(self.hosts) / REPORTS)
            self.agents.append(options.remote(host.address, self.job.timeout, progress))
        self.addresses: list[Any] = self._wait_for_answers([agent.prepare.remote for agent in self.agents])

    def _wait_for_answers(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call all agents, and return their answers; one that Ray cannot reach is called again, for two seconds.

        Raises:
            WorldError: An agent does not answer in time, or has failed; or its host is lost.
        """
        import ray
        from ray.exceptions import RayError

        left, found = dict(enumerate(calls)), {}
        until = time.monotonic() + self.job.start_timeout
        while left:
            asked = {call(): index for index, call in left.items()}
            late = ray.wait(list(asked), num_returns=len(asked), timeout=max(until - time.monotonic(), 0))[1]
            if late:
                raise lost_agents.silent_error([self.hosts[asked[ref]].name for ref in late], self.job.start_timeout)
            for ref, index in asked.items():
                try:
                    found[index] = ray.get(ref)
                except RayError as error:
                    if self.unreachable.may_answer(index, error):
                        continue
                    self._note_lost(index, error)
                del left[index]
                self.unreachable.mark_answered(index)
            time.sleep(_MOMENT if left else 0)
        if self.failed:
            raise causes.failure(list(self.failed.values()), self.names)
        return [found[index] for index in range(len(calls))]

    def _start(self) -> None:
        import ray

        job, rank = self.job, 0
        addresses = [self.addresses[i] for i, count in enumerate(self.counts) for _ in range(count)]
        variables = rank_environment.shared(job, self.name, self.attempt, self.names, addresses)
        shared, code, whole = (ray.put(each) for each in (variables, job.code, job.environment))  # sent once
        calls = []
        for index, (host, count) in enumerate(zip(self.hosts, self.counts, strict=True)):
            own = {}
            for local in range(count):
                own[rank], devices = rank_environment.make_variables(job, host, rank, local)
                self.devices.append(devices)
                rank += 1
            base = whole if host.address.startswith("127.") else None
            start = self.agents[index].start.remote
            calls.append(partial(start, own, shared, job.command, code, base, job.folder))
        self._wait_for_answers(calls)

    def follow(self) -> None:
        """Receive the reports of the agents until all ranks have returned.

        Raises:
            WorldError: A rank or a host failed, or is late.
        """
        import ray
        from ray.exceptions import RayError

        waiting = {self._ask(index): index for index in range(len(self.agents))}
        began: float | None = None
        while len(self.results) < len(self.names):
            ready, left = ray.wait(list(waiting), timeout=0.5)
            if ready and left:  # other reports that are ready
                ready += ray.wait(left, num_returns=len(left), timeout=0)[0]
            unreachable = []
            for ref in ready:
                index = waiting.pop(ref)
                try:
                    news = ray.get(ref)
                except RayError as error:
                    if not self.failed and self.unreachable.may_answer(index, error):
                        unreachable.append(index)
                    else:
                        self._note_lost(index, error)
                    continue
                self.unreachable.mark_answered(index)
                self.received[index] += 1
                self._receive(news)
                waiting[self._ask(index)] = index
            time.sleep(_MOMENT if unreachable else 0)
            waiting |= {self._ask(index): index for index in unreachable}
            if self.late_since is not None and not self.failed:
                self._raise_if_late(time.monotonic() - self.late_since > _ENDING)
            if ready and self.waiting and not self.failed:
                self._raise_if_stuck()
            began = (began or time.monotonic()) if self.failed else None
            if began is not None:
                grace = _ENDING if causes.is_of_peers(list(self.failed.values())) else _GRACE
                if time.monotonic() - began > grace or len(self.failed) + len(self.results) == len(self.names):
                    raise self._failure()

    def _failure(self) -> WorldError:
        """Return the error of the ranks that failed, also of those that still end or that Ray cannot reach."""
        for index, error in self.unreachable.list_lost():
            self._note_lost(index, error)
        ended = list(self.failed.values())
        if len(ended) + len(self.results) < len(self.names):
            ended += [
                each
                for each in causes.find_ending(self._collect_reports())
                if each.rank not in self.failed | self.results
            ]
        return causes.failure(ended, self.names, list(self.results), self.cut_off)

    def _ranks_of(self, index: int) -> range:
        first = sum(self.counts[:index])
        return range(first, first + self.counts[index])

    def _ask(self, index: int) -> Any:
        """Ask an agent for news, and name its answers that have arrived: Ray may lose one."""
        return self.agents[index].news.remote(_PATIENCE, self.received[index])

    def _note_lost(self, index: int, error: Exception) -> None:
        """Note that the ranks of a host are lost, or nothing if only its agent has ended after a rank failed.

        Raises:
            WorldError: Only the agent has ended, and that is the first cause.
        """
        host, ranks = self.hosts[index], self._ranks_of(index)
        reason = lost_agents.reason(error, host.node)
        if reason:
            if self.failed and not causes.is_of_peers(list(self.failed.values())):
                return
            those = causes.name_ranks(list(ranks), self.names)
            msg = f"the agent of {host.name}, which runs {those}, has failed: {reason}"
            raise WorldError(msg, "start the job again, or let it restart: retries=1")
        for rank in ranks:
            if rank not in self.results:
                self.failed[rank] = causes.Ended(rank, None)

    def _receive(self, news: list[tuple[Any, ...]]) -> None:
        for kind, rank, *rest in news:
            if kind == "output":
                self.notify("output", rank, self.names[rank], *rest)
            elif kind == "state":
                self.notify("state", rank, *rest)
            elif kind == "waits":
                self.waiting[rank] = causes.Report(**rest[0])
            elif kind == "late":
                self.late_since = self.late_since or time.monotonic()
            elif kind == "raised":
                self.failed[rank] = causes.Ended(rank, causes.exit_status(1, rest[0]), *rest)
            else:
                status, tail, at, result, step, is_over, exit_at = rest
                self.failed.pop(rank, None)
                if status == 0:
                    self.results[rank], self.last_steps[rank] = result, step
                    self.cut_off.update(() if is_over else (rank,))
                else:
                    self.failed[rank] = causes.Ended(rank, status, tail, at, exit_at)
                self.notify("end", rank, status, step, is_over)

    def _raise_if_stuck(self) -> None:
        """Raise the error of ranks that wait in a collective which another rank will never reach."""
        if find_stuck(self.waiting, self.last_steps, self.names) is not None:
            self.waiting = {}  # these reports may be old
            error = find_stuck(self._collect_reports(), self.last_steps, self.names, self.cut_off)
            if error is not None:
                raise error

    def _raise_if_late(self, at_once: bool) -> None:
        """Raise the error of ranks that have waited too long; but first wait for a rank whose program has ended.

        Its own error may be the cause, and its process may take seconds to end.
        """
        reports = self._collect_reports()
        waits = [each.seconds + each.silent for each in reports.values() if each.what is not None]
        if max(waits, default=0.0) <= self.job.timeout:
            self.late_since = None  # the ranks that it waited for have arrived
        elif not any(each.ends for each in reports.values()) or (at_once and not causes.find_ending(reports)):
            raise find_late(reports, list(self.results), self.names, self.job.timeout, self.cut_off)
        elif at_once:
            raise causes.failure(causes.find_ending(reports), self.names, list(self.results), self.cut_off)

    def _collect_reports(self) -> dict[int, causes.Report]:
        return agents.collect_reports(self.agents)

"""A model of the launcher of a large job: its own loop and Ray's messages, with made-up agents.

``python tests/world/launcher_model.py 1000`` starts one Ray on this machine. One actor answers for all agents, so no
rank is started, and the launcher's loop does what it would do with 1,000 hosts of 8 ranks. It prints the processor
time that the launcher used in each second of a job without news, of a job whose table is shown, and for its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

from devshim.world import cluster, folders, watching
from devshim.world.job import Job

RANKS = 8
"""Ranks of each host."""


class Agents:
    """The answers of all agents: nothing, the steps of their ranks, or their ends."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.seconds, self.progress = ranks, 0.0, None  # type: int, float, float | None
        self.calls = 0

    async def begin(self, seconds: float, progress: float | None) -> None:
        """Begin a job of the given length, with reports of progress at the given interval."""
        self.seconds, self.progress, self.calls = time.monotonic() + seconds, progress, 0

    async def news(self, host: int, patience: float) -> list[tuple[Any, ...]]:
        """Return what an agent has to say, once it has something to say."""
        self.calls += 1
        mine = range(host * self.ranks, (host + 1) * self.ranks)
        left = self.seconds - time.monotonic()
        if self.progress is not None and self.progress < left:
            await asyncio.sleep(self.progress)
            return [("state", rank, "runs", self.calls, "all_reduce, sum of float32 (10,)", "") for rank in mine]
        if patience < left:
            await asyncio.sleep(patience)
            return []
        await asyncio.sleep(max(left, 0))
        return [("end", rank, 0, "", "train.py:1 in job", None, 7, True, "") for rank in mine]

    async def counted(self) -> int:
        """Return how many calls have arrived."""
        return self.calls


def watch(actor: Any, hosts: int, seconds: float, progress: float | None) -> dict[str, float]:
    """Let the launcher watch a job of some seconds, and return its processor time and the messages, each per second."""
    import ray

    there = [cluster.Host(f"host{index}", "", "10.0.0.1", RANKS, False) for index in range(hosts)]
    events = []
    attempt = watching.Attempt(Job(), there, [RANKS] * hosts, 0, lambda *event: events.append(event))
    attempt.agents = [
        SimpleNamespace(news=SimpleNamespace(remote=lambda patience, _, host=host: actor.news.remote(host, patience)))
        for host in range(hosts)
    ]
    ray.get(actor.begin.remote(seconds, progress))
    began, used = time.monotonic(), time.process_time()
    attempt.follow()
    took, cpu = time.monotonic() - began, time.process_time() - used
    assert len(attempt.results) == hosts * RANKS
    return {"seconds": took, "cpu": cpu, "messages": ray.get(actor.counted.remote()), "events": len(events)}


def measured(hosts: int) -> dict[str, dict[str, float]]:
    """Return what the launcher used for a short job and a longer one; the difference is a job without its end."""
    folder = folders.new()
    os.environ.update(cluster.settings(cluster.make_token(folder), folder, local=True))
    import ray

    cluster.start_own(folder)
    try:
        actor = ray.remote(num_cpus=0, max_concurrency=2 * hosts)(Agents).remote(RANKS)
        watch(actor, min(hosts, 50), 1.0, None)  # the first calls load code
        report = max(0.5, hosts / watching.REPORTS)
        found = {}
        for name, progress in (("quiet", None), ("table", report)):
            longest = 10.0 + max(30.0, 3 * report)
            short, long = (watch(actor, hosts, seconds, progress) for seconds in (10.0, longest))
            time_between = long["seconds"] - short["seconds"]
            found[name] = {
                "cpu_per_second": (long["cpu"] - short["cpu"]) / time_between,
                "messages_per_second": (long["messages"] - short["messages"]) / time_between,
                "end": short["cpu"],
                "seconds_after_the_end": short["seconds"] - 10.0,
            }
        return found
    finally:
        ray.shutdown()
        folders.remove(folder)


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1])), indent=1))

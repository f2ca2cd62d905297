"""Calls to the agents of all hosts at once: the reports of their ranks, and the end of a job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from devshim.world.reports import Report

__all__ = ["collect_reports", "stop_all"]


def collect_reports(agents: Sequence[Any]) -> dict[int, Report]:
    """Return the last report of each rank that runs and whose agent answers."""
    answers = _ask([agent.where.remote() for agent in agents], 2)
    return {rank: Report(**each) for answer in answers for rank, each in answer.items()}


def stop_all(agents: Sequence[Any]) -> dict[int, int]:
    """End all ranks and agents; return how many collectives each rank has started, if its agent answers."""
    import ray

    answers = _ask([agent.stop.remote() for agent in agents], 10)
    for agent in agents:
        ray.kill(agent)
    return {rank: step for answer in answers for rank, step in answer.items()}


def _ask(asked: list[Any], seconds: float) -> list[dict[int, Any]]:
    """Return the answers that come in time, without errors of Ray."""
    import ray

    found = []
    for ref in ray.wait(asked, num_returns=len(asked), timeout=seconds)[0] if asked else ():
        with suppress(ray.exceptions.RayError):
            found.append(ray.get(ref))
    return found

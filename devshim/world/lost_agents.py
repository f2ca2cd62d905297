"""The meaning of a Ray error about an agent: its host is lost, the agent may answer again, or only it has ended.

Ray has one tree of errors for all of these. Only a lost host is left out when a job starts again.
"""

from __future__ import annotations

import time
from typing import Any

from devshim.errors import WorldError

__all__ = ["Unreachable", "reason", "silent_error"]

_AGAIN = 2.0
"""Seconds for which an agent that Ray cannot reach is asked again: on a busy network or host, it may answer."""
_UNTIL_DEAD = 1.0
"""Seconds in which Ray may note that the host of an agent that has ended is lost, too."""
_NODE_DIED = "node has died"
_LONGEST = 300


class Unreachable:
    """The agents that Ray could not reach: the first error of each, and when it came."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[float, Exception]] = {}

    def may_answer(self, index: int, error: Exception) -> bool:
        """Return True if an agent that gave this error must be asked again, after a moment."""
        from ray.exceptions import ActorUnavailableError

        if not isinstance(error, ActorUnavailableError):
            return False
        since, _ = self._first.setdefault(index, (time.monotonic(), error))
        return time.monotonic() - since < _AGAIN

    def mark_answered(self, index: int) -> None:
        """Forget that an agent could not be reached."""
        self._first.pop(index, None)

    def list_lost(self) -> list[tuple[int, Exception]]:
        """Return the agents that have not answered since."""
        return [(index, error) for index, (_, error) in self._first.items()]


def reason(error: Exception, node: str) -> str:
    """Return why an agent has ended or failed although its host runs; empty if the host is lost.

    Args:
        error: Ray's error for a call of the agent.
        node: Ray's name for the node of the host.
    """
    from ray.exceptions import ActorDiedError, ActorUnavailableError, NodeDiedError

    if isinstance(error, (ActorUnavailableError, NodeDiedError)) or _NODE_DIED in str(error):
        return ""
    until = time.monotonic() + (_UNTIL_DEAD if isinstance(error, ActorDiedError) else 0)
    while _is_alive(node):
        if time.monotonic() >= until:
            return _shown(error)
        time.sleep(0.05)
    return ""


def silent_error(hosts: list[str], seconds: float) -> WorldError:
    """Return the error for hosts whose agents have not started in so many seconds."""
    import ray

    resources = sorted(ray.available_resources().items())
    free = ", ".join(f"{value:g} {key}" for key, value in resources if "_" not in key or key == "sim_gpu")
    msg = f"{', '.join(hosts)} did not start in {seconds:g} s; free in the cluster: {free}"
    return WorldError(msg, "wait until another job ends, or ask for fewer GPUs")


def _is_alive(node: str) -> bool:
    import ray

    return any(each["NodeID"] == node and each["Alive"] for each in ray.nodes())


def _shown(error: Any) -> str:
    """Return the line of Ray's text that says what happened: the error of the agent, or the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = getattr(error, "cause", None)
    last = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else lines[-1] if lines else ""
    return (last or type(error).__name__)[:_LONGEST]

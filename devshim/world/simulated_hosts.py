"""Simulated hosts with simulated GPUs, for tests: several Ray nodes on this machine, in a separate process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from devshim.errors import WorldError
from devshim.world import cluster, folders, job, sessions

__all__ = ["SimulatedHosts"]

_ENDING = 20.0
_VARIABLES = ("DEVSHIM_RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH")


class SimulatedHosts:
    """A cluster of simulated hosts; while it is open, `devshim.launch` runs on it.

    Attributes:
        names: The names of the hosts: ``host0``, ``host1`` and so on.
        address: The address of the cluster.

    Raises:
        ArgumentError: A number makes no sense.
        UnsupportedError: Ray is not installed.
        WorldError: Ray does not start.
    """

    def __init__(self, hosts: int = 2, cards: int = 2) -> None:
        job.count(hosts, "hosts", 1)
        job.count(cards, "cards", 0)
        cluster.require_ray()
        self.names: list[str] = [f"host{index}" for index in range(hosts)]
        self._before = {name: os.environ.get(name) for name in _VARIABLES}
        self._folder = folders.new()
        token = cluster.make_token(self._folder)
        command = [sys.executable, "-m", "devshim.world.simulated_hosts", str(hosts), str(cards)]
        self._process = subprocess.Popen(
            cluster.tied(command, signal.SIGTERM),
            env={**os.environ, **cluster.settings(token, self._folder, local=True)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[folders.lock_of(self._folder)],
            text=True,
            start_new_session=True,
        )
        self.address: str = self._answer()
        os.environ.update(zip(_VARIABLES, (self.address, str(token)), strict=True))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("devshim: "):
                return line.removeprefix("devshim: ").strip()
        self.close()
        msg = "the process of the simulated hosts ended unexpectedly"
        raise WorldError(msg, "its output is above")

    def lose(self, name: str) -> None:
        """End a host, with everything that runs on it."""
        self._ask(f"{self.names.index(name)}")

    def add(self) -> str:
        """Start another host, and return its name."""
        self._ask("+")
        self.names.append(f"host{len(self.names)}")
        return self.names[-1]

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        """End all hosts, and restore the environment."""
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        sessions.finish(self._process, _ENDING)
        folders.remove(self._folder)


def _start(hosts: int, cards: int) -> tuple[Any, list[Any]]:
    """Start the nodes in this process; return Ray's objects for the cluster and for each node."""
    from ray.cluster_utils import Cluster

    Path(os.environ["RAY_TMPDIR"], "ray").mkdir(exist_ok=True)
    started = Cluster()
    return started, [_add(started, index, cards) for index in range(hosts)]


def _add(started: Any, index: int, cards: int) -> Any:
    """Start one node of a cluster."""
    with cluster.disable_extra_processes():
        return started.add_node(
            node_ip_address=cluster.LOOPBACK,
            num_cpus=1,
            resources={"sim_gpu": cards} if cards else {},
            labels={"devshim.host": f"host{index}"},
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            object_store_memory=cluster.STORE,
        )


def main(hosts: int, cards: int) -> None:
    """Hold the hosts until standard input ends; a line with the index of a host ends it, and ``+`` starts another."""

    def leave(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(1)

    signal.signal(signal.SIGTERM, leave)  # the process that started this one has ended
    try:
        started, nodes = _start(hosts, cards)
        signal.signal(signal.SIGTERM, leave)  # Ray has set a handler that waits forever if it interrupts the end below
        try:
            print(f"devshim: {started.address}", flush=True)
            for line in sys.stdin:
                if line.strip() == "+":
                    nodes.append(_add(started, len(nodes), cards))
                else:
                    started.remove_node(nodes[int(line)], allow_graceful=False)
                print("devshim: done", flush=True)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which may come with the end of standard input, or after it
            started.shutdown()
    finally:
        sessions.end(os.getpid())
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

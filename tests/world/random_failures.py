"""Random failures of jobs on two simulated hosts with two simulated GPUs each.

``python tests/world/random_failures.py [--seed 7] [--count 10]`` draws a framework of this environment, the way in
which tensors are added, the ranks, and which of them fails, how, and when; or its host is lost, or its launcher is
killed. It prints a line for each with its sentence. A wrong or late error, or anything that is left, ends it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from failing_ranks import CAUSES, LATEST, LONG, MOMENTS, check, job, left
from leftovers import MARK, nothing_left
from listening import descendants

import devshim as ds
from devshim.world.simulated_hosts import SimulatedHosts

HOSTS, CARDS = 2, 2
ENGINES = {"numpy": ("portable",), "mxnet": ("portable",)}
"""The frameworks without their own collectives; the others have both ways."""
FRAMEWORKS = ("numpy", "torch", "tensorflow", "paddle", "jax", "mxnet")
OTHERS = ("lose", "launcher")
"""A lost host, and a killed launcher."""


@dataclass(frozen=True)
class Case:
    """One failure: on which framework, added in which way, by how many GPUs in each rank, of which rank, and when."""

    framework: str
    engine: str
    cards: int
    how: str
    when: str
    rank: int

    @property
    def host(self) -> str:
        """The host of the rank."""
        return f"host{self.rank // (CARDS // self.cards)}"


def drawn(seed: int, count: int) -> list[Case]:
    """Return as many cases as asked for; the same for the same seed and frameworks."""
    source, found = random.Random(seed), []
    here = [name for name in FRAMEWORKS if find_spec(name) is not None]
    for _ in range(count):
        framework = source.choice(here)
        cards = source.choice((1, 2))
        found.append(
            Case(
                framework=framework,
                engine=source.choice(ENGINES.get(framework, ("native", "portable"))),
                cards=cards,
                how=source.choice((*CAUSES, *OTHERS)),
                when=source.choice(MOMENTS),
                rank=source.randrange(HOSTS * CARDS // cards),
            )
        )
    return found


def run(case: Case, hosts: SimulatedHosts, folder: Path, patience: float) -> tuple[float, str]:
    """Let a job fail; return the seconds from the failure to the error, and its sentence."""
    os.environ["DEVSHIM_ENGINE"] = case.engine
    breaking = threading.Thread(target=_break, args=(case, hosts, folder))
    breaking.start()
    how = case.how if case.how in CAUSES else "wait"
    timeout = patience if case.how in CAUSES else patience + 6  # longer than it takes to notice the loss
    words = (case.framework, how, case.when, str(folder), case.rank)
    with pytest.raises(ds.WorldError) as caught:
        ds.launch(job, *words, cards_per_rank=case.cards, timeout=timeout)
    error: Any = caught.value
    failed = folder / ("failed" if case.how in CAUSES else "broken")
    assert failed.exists(), error  # on a busy machine, the start may take longer than the time-out
    waited = time.time() - failed.stat().st_mtime
    breaking.join()
    if case.how in CAUSES:
        check(error, case.how, case.rank, case.host, HOSTS * CARDS // case.cards)
    elif case.how == "lose":
        assert type(error) is ds.HostLostError, error
        assert error.host == case.host, error
        assert f"rank {case.rank} on {case.host}" in error.problem, error
    else:
        assert "the launcher of the job ended unexpectedly" in error.problem, error
    assert waited < timeout + LATEST, (waited, error)
    until = time.monotonic() + (LATEST if case.how == "launcher" else 0)  # the agents end the ranks
    while left(folder) and time.monotonic() < until:
        time.sleep(0.1)
    assert left(folder) == []
    return waited, str(error.problem)


def _break(case: Case, hosts: SimulatedHosts, folder: Path) -> None:
    """Lose the host of the rank, or kill the launcher, when the rank requests it."""
    if case.how not in OTHERS:
        return
    until = time.monotonic() + LONG
    while not (folder / "failed").exists() and time.monotonic() < until:
        time.sleep(0.05)
    if case.how == "lose":
        hosts.lose(case.host)
    else:
        for child in descendants(os.getpid()):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if b"devshim.world.driver" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)
    (folder / "broken").touch()


def main() -> None:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds that a collective may wait")
    options = parser.parse_args()
    print(f"--seed {options.seed} --count {options.count} --timeout {options.timeout:g}", flush=True)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as whole:
        os.environ.update({MARK: whole, "TMPDIR": whole})
        tempfile.tempdir = None
        hosts: SimulatedHosts | None = None
        with nothing_left():
            for number, case in enumerate(drawn(options.seed, options.count)):
                hosts = hosts or SimulatedHosts(HOSTS, CARDS)
                folder = Path(whole, f"case-{number}")
                folder.mkdir()
                print(case, flush=True)
                if case.how in OTHERS:
                    waited, problem = run(case, hosts, folder, options.timeout)
                    hosts.close()
                    hosts = None
                else:
                    with nothing_left():
                        waited, problem = run(case, hosts, folder, options.timeout)
                print(f"  {waited:.1f} s: {problem}", flush=True)
            if hosts is not None:
                hosts.close()
    print(f"{options.count} failures were named in time, and nothing is left")


if __name__ == "__main__":
    main()

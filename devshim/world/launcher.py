"""`devshim.launch`: run a function or a program in several processes, on this machine or on the hosts of a cluster.

The launcher is a separate process (`devshim.world.driver`), with Ray's variables in its environment. The process of the
caller never joins a cluster, and may call `launch` any number of times. If the caller is killed, the kernel kills the
launcher, and the ranks end with the launcher.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from devshim import errors
from devshim.errors import ArgumentError, ConversionError, RankLateError, WorldError
from devshim.errors.formatting import describe, show
from devshim.registry import current
from devshim.transfers.cells import name_cells
from devshim.world import cluster, folders, job, pickles, sessions
from devshim.world.job import Job

__all__ = ["job_of", "launch", "launch_job", "show_event"]

Listener = Callable[..., None]
_ENDING = 20.0
"""Seconds that the end of a job may take."""


def launch(
    fn: Callable[..., Any],
    *args: Any,
    hosts: Sequence[str] | None = None,
    ranks_per_host: int | None = None,
    cards_per_rank: int = 1,
    simulate: int | None = None,
    timeout: str | float = "60s",
    start_timeout: str | float = "5min",
    retries: int = 0,
    min_ranks: int | None = None,
) -> list[Any]:
    """Run ``fn(*args)`` in one process for each rank, and return the results in the order of the ranks.

    In each process, `devshim.world` gives the rank its place. Without a cluster, the ranks run on this machine, and
    listen only on its loopback address. Each line that they print is prefixed with the rank and the host. Arguments and
    results are pickled. The result of a rank that ends by ``sys.exit(0)`` is None.

    Args:
        fn: The function; a lambda or a local function also works.
        *args: Its arguments.
        hosts: The names of hosts in the cluster; None for all of them, or for this machine.
        ranks_per_host: How many ranks on each host; None for as many as its GPUs allow, or one without GPUs.
        cards_per_rank: How many GPUs each rank gets. It has no effect on a machine without GPUs unless it is above 1.
        simulate: How many GPUs to simulate in each rank, which then needs none of its host; None for the host's GPUs.
        timeout: How long a collective may wait for a rank: seconds, or a text such as ``"60s"``.
        start_timeout: How long the processes may take to start.
        retries: How many times the whole job starts again after a failure; ``ds.world().attempt`` counts.
        min_ranks: The minimum number of ranks for a restart on the remaining hosts; None for the original number.

    Raises:
        ArgumentError: An argument makes no sense, or the hosts have too few GPUs.
        WorldError: The job failed. The error names the rank, the host and the line of the first cause:
            `RankFailedError`, `RankLateError`, `RanksDisagreeError` or `HostLostError`.
        UnsupportedError: Ray is not installed.
        ConversionError: The result of a rank cannot be unpickled in this process.

    ``ds.launch(train, 10, ranks_per_host=2)`` calls ``train(10)`` in two processes.
    """
    if not callable(fn):
        msg = f"launch needs a function, not {describe(fn)}"
        raise ArgumentError(msg, "ds.launch(train, 10, ranks_per_host=2); `devshim launch` runs a script")
    wanted = job_of(hosts, ranks_per_host, cards_per_rank, simulate, timeout, start_timeout, retries, min_ranks)
    cluster.require_ray()
    found = launch_job(replace(wanted, code=_pickle_call(fn, args)), show_event)
    return [None if result is None else _unpickle_result(result, rank) for rank, result in enumerate(found)]


def _unpickle_result(result: bytes, rank: int) -> Any:
    try:
        return pickles.loads(result)
    except Exception as error:
        msg = f"the result of rank {rank} cannot be unpickled here: {type(error).__name__}: {error}"
        raise ConversionError(msg, "return numbers, arrays, text, or trees of them") from error


def job_of(
    hosts: Sequence[str] | None,
    ranks_per_host: int | None,
    cards_per_rank: int,
    simulate: int | None,
    timeout: str | float,
    start_timeout: str | float,
    retries: int,
    min_ranks: int | None = None,
) -> Job:
    """Return a job with these settings after checking them; it has no program yet."""
    if hosts is not None and (isinstance(hosts, str) or not hosts or any(type(each) is not str for each in hosts)):
        msg = f"hosts is {show(hosts)}, which is not a list of names"
        raise ArgumentError(msg, 'hosts=["a", "b"]; leave it out for all hosts')
    simulated = None if simulate is None else job.count(simulate, "simulate", 1)
    cards = job.count(cards_per_rank, "cards_per_rank", 0)
    if simulated is not None and cards not in (1, simulated):
        msg = f"simulate={simulated} and cards_per_rank={cards} contradict each other"
        raise ArgumentError(msg, "leave cards_per_rank out: simulate is how many GPUs each rank has")
    environment = dict(os.environ)
    backend = current._process
    if backend is not None:
        environment["DEVSHIM_BACKEND"] = backend if isinstance(backend, str) else backend.name
    address = os.environ.get("DEVSHIM_RAY_ADDRESS") or None
    if hosts is not None and address is None:
        msg = "hosts are given, but there is no cluster"
        raise ArgumentError(
            msg, "set DEVSHIM_RAY_ADDRESS to the address of a Ray cluster; without hosts, this machine is used"
        )
    least = None if min_ranks is None else job.count(min_ranks, "min_ranks", 1)
    if ranks_per_host is not None and (hosts is not None or address is None):
        job.require_possible(least, job.count(ranks_per_host, "ranks_per_host", 1) * len(set(hosts or "1")))
    return Job(
        hosts=None if hosts is None else list(dict.fromkeys(hosts)),
        ranks_per_host=None if ranks_per_host is None else job.count(ranks_per_host, "ranks_per_host", 1),
        cards_per_rank=cards,
        simulate=simulated,
        timeout=job.seconds(timeout, "timeout"),
        start_timeout=job.seconds(start_timeout, "start_timeout"),
        retries=job.count(retries, "retries", 0),
        min_ranks=least,
        environment=environment,
        folder=os.getcwd(),
        cluster=address,
    )


def _pickle_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return a function and its arguments as bytes; a module that a rank cannot import is pickled as well."""
    from importlib.util import find_spec

    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    missing = None
    if module is not None and module.__name__ != "__main__":
        with suppress(ImportError, ValueError):
            missing = module if find_spec(module.__name__.partition(".")[0]) is None else None
    try:
        call = pickles.dumps((fn, args)) if missing is None else pickles.dumps_by_value((fn, args), missing)
        return pickle.dumps((sys.path, call))
    except Exception as error:
        msg = f"{describe(fn)} or its arguments cannot be sent to another process: {error}"
        raise ArgumentError(msg, "give a function and arguments that can be pickled") from error


def launch_job(wanted: Job, notify: Listener) -> list[bytes | None]:
    """Run a job in a launcher process, and return the pickled result of each rank.

    Args:
        wanted: The job.
        notify: Called with each event: ``("started", hosts, attempt, devices)``,
            ``("output", rank, host, stream, lines)``, ``("state", rank, state, step, collective, line)``,
            ``("end", rank, status, step, is_over)``, ``("again", attempt, problem)``, and ``("steps", {rank: step})``
            of a start that has failed. ``is_over`` is False if the program did not come to its end, as after
            ``os._exit(0)``.
    """
    folder = folders.new()
    try:
        token = _token(wanted, folder)
        local = wanted.cluster is None or wanted.cluster.startswith("127.")
        environment = {**os.environ, **cluster.settings(token, folder, local)}
        return _run(wanted, folder, environment, notify)
    finally:
        folders.remove(folder)


def _token(wanted: Job, folder: Path) -> Path:
    """Return the file of the cluster's token.

    Raises:
        ArgumentError: There is a cluster without one, or others may read it.
    """
    if wanted.cluster is None:
        return cluster.make_token(folder)
    return cluster.find_token(wanted.cluster)


def _run(wanted: Job, folder: Path, environment: dict[str, str], notify: Listener) -> list[bytes | None]:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "devshim.world.driver", str(writing), str(folder)]
    driver = subprocess.Popen(
        cluster.tied(command, signal.SIGTERM),
        env=environment,
        stdin=subprocess.PIPE,
        pass_fds=[writing, folders.lock_of(folder)],
        start_new_session=True,
    )
    os.close(writing)
    assert driver.stdin is not None
    try:
        with os.fdopen(reading, "rb") as events:
            with suppress(BrokenPipeError):  # it has ended already, which `_listen` reports
                pickle.dump(wanted, driver.stdin)
                driver.stdin.flush()
            return _listen(events, notify)
    finally:
        with suppress(OSError):
            driver.stdin.close()  # the launcher ends its ranks and itself
        sessions.finish(driver, _ENDING)


def _listen(events: Any, notify: Listener) -> list[bytes | None]:
    while True:
        try:
            kind, *rest = pickle.load(events)
        except EOFError:
            msg = "the launcher of the job ended unexpectedly"
            raise WorldError(msg, "its output is above; start the job again") from None
        if kind == "done":
            return list(rest[0])
        if kind == "error":
            raise _rebuild_error(*rest)
        notify(kind, *rest)


def _rebuild_error(name: str, problem: str, hint: str | None, facts: dict[str, Any]) -> Exception:
    """Return an error as the launcher raised it."""
    found: Exception = getattr(errors, name, WorldError)(name_cells(problem), hint)
    vars(found).update(facts)
    if isinstance(found, RankLateError):
        found.where = name_cells(found.where)
    return found


def show_event(kind: str, *rest: Any) -> None:
    """Print the output of a rank, and report that a job starts again."""
    if kind == "output":
        rank, host, stream, lines = rest
        text = "\n".join(f"[{rank} {host}] {line}" for line in lines)
        file = sys.stderr if stream == "stderr" else sys.stdout
        try:
            print(text, file=file, flush=True)
        except UnicodeEncodeError as error:  # the caller's encoding has fewer characters, as ASCII
            print(text.encode(error.encoding, "replace").decode(error.encoding), file=file, flush=True)
    elif kind == "again":
        print(f"devshim: {name_cells(rest[1])}; starting again (attempt {rest[0]})", file=sys.stderr, flush=True)

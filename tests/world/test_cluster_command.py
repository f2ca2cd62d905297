"""Tests of `devshim cluster`: two nodes of this machine, a job on them, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from listening import descendants, is_loopback, listening

import devshim as ds
from devshim.testing.ports import free_port
from devshim.world import node

PROGRAM = "import os; print(os.environ['RANK'], os.environ['DEVSHIM_SIMULATE_GPUS'])"
LONG = """
import os, time
import devshim as ds
world = ds.world()
print(world.attempt, *world.all_gather(os.environ["DEVSHIM_SIMULATE_GPUS"]), flush=True)
time.sleep(100)
"""


def command(folder: Path, *words: str, **variables: str) -> Any:
    """Run the command with the state of one machine."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "devshim", *words],
        env={**os.environ, "XDG_STATE_HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def own_address() -> str:
    """Return an address of this machine that is not loopback; skip the test without one."""
    try:
        return node.own_address("198.51.100.1", 9)
    except ds.WorldError:
        pytest.skip("this machine has no address but loopback, and Ray joins no cluster there")


def test_a_cluster_of_this_machine_alone_listens_on_loopback(tmp_path: Path) -> None:
    try:
        done = command(tmp_path, "cluster", "start", "--port", str(free_port()))
        assert done.returncode == 0, done.stderr
        assert "No other machine can join." in done.stdout
        found = listening({each for process in _processes(tmp_path) for each in descendants(process)})
    finally:
        command(tmp_path, "cluster", "stop")
    assert found
    assert [each for each in found if not is_loopback(each)] == []


def test_a_cluster_of_two_hosts(tmp_path: Path) -> None:
    here, port = own_address(), free_port()
    first, second = tmp_path / "the first", tmp_path / "second"
    address, token = f"{here}:{port}", first / "devshim/cluster/token"
    try:
        done = command(first, "cluster", "start", "--listen", here, "--port", str(port), "--simulate", "1")
        assert done.returncode == 0, done.stderr
        assert f"export DEVSHIM_RAY_ADDRESS={address}\n" in done.stdout
        assert f"export RAY_AUTH_TOKEN_PATH='{token}'\n" in done.stdout
        assert f"mkdir -p -m 700 '{token.parent}'\n" in done.stdout
        assert f"scp '{here}:{token}' '{token}'\n" in done.stdout
        assert token.stat().st_mode & 0o777 == 0o600
        again = command(first, "cluster", "start", "--port", str(port))
        assert again.returncode == 1
        assert f"this machine has a node of the cluster at {address} already" in " ".join(again.stderr.split())

        without = command(second, "cluster", "join", address)
        assert without.returncode == 1
        assert "without a token anybody could join" in " ".join(without.stderr.split())
        copied = tmp_path / "copied"
        copied.write_text(token.read_text())
        copied.chmod(0o644)
        open_ = command(second, "cluster", "join", address, "--token", str(copied))
        assert "others may read the token" in " ".join(open_.stderr.split())
        copied.chmod(0o600)
        words = ("cluster", "join", address, "--token", str(copied), "--simulate", "1")
        joined = command(second, *words)
        assert joined.returncode == 0, joined.stderr

        listed = command(second, "cluster", "status")
        assert listed.returncode == 0, listed.stderr
        rows = [line.split("  ") for line in listed.stdout.splitlines()[3:]]
        assert [[each.strip() for each in row if each][1:] for row in rows] == [
            [here, "1 simulated"],
            [here, "1 simulated"],
        ]
        wrong = tmp_path / "wrong"
        wrong.touch(mode=0o600)
        wrong.write_text("0" * 64)
        for each in (("cluster", "status"), ("launch", "-c", PROGRAM)):
            refused = command(tmp_path, *each, DEVSHIM_RAY_ADDRESS=address, RAY_AUTH_TOKEN_PATH=str(wrong))
            said = " ".join((refused.stdout + refused.stderr).split())
            assert f"the cluster at {address} refuses the token" in said
            assert "Unauthenticated" not in said  # from Ray
        assert _stop_during_a_job(first, second, DEVSHIM_RAY_ADDRESS=address, RAY_AUTH_TOKEN_PATH=str(token)) == address
    finally:
        for folder in (second, first):
            command(folder, "cluster", "stop")
    late = command(second, *words)
    said = " ".join(late.stderr.split())
    assert f"no Ray cluster answers at {address}: connection refused" in said
    assert "DEVSHIM_RAY_ADDRESS" not in said
    assert command(first, "cluster", "status").returncode == 1
    assert command(first, "cluster", "stop").stdout == "This machine has no node of a cluster.\n"


def _stop_during_a_job(first: Path, second: Path, **variables: str) -> str:
    """Stop the node of the second machine during a job, and then that of the first one; return what has ended."""
    words = [sys.executable, "-m", "devshim", "launch", "--retries", "2", "--min-ranks", "1", "-c", LONG]
    with subprocess.Popen(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        lines: list[str] = []

        def read(until: str) -> str:
            while not (lines and until in lines[-1]):
                line = job.stdout.readline()  # type: ignore[union-attr]
                assert line, lines
                lines.append(line)
            return lines[-1]

        read("] 0 1 1")
        started = [process for each in (first, second) for node in _processes(each) for process in descendants(node)]
        assert command(second, "cluster", "stop").stdout.startswith("This machine has left the cluster at ")
        assert "lost with its host, or the host is unreachable; starting again (attempt 1)" in read("starting again")
        read("] 1 1")
        ended = command(first, "cluster", "stop").stdout
        said = read("the job failed")
        assert job.wait() == 1
    address = ended.removeprefix("The cluster at ").removesuffix(" has ended.\n")
    assert f": the cluster at {address} has ended, or its first machine is unreachable: connection refused. The" in said
    assert [each for each in started if Path(f"/proc/{each}").exists()] == []
    return address


def _processes(folder: Path) -> list[int]:
    path = folder / "devshim/cluster/node.json"
    return [json.loads(path.read_text())["process"]] if path.exists() else []


@pytest.fixture
def no_cluster() -> Iterator[str]:
    """Yield the address of a server that greets like Ray's control process, and never answers a call."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as peers:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    peers.enter_context(server.accept()[0]).sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))

        threading.Thread(target=greet, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("is_closed", [True, False])
def test_nothing_waits_for_a_cluster_that_does_not_run(tmp_path: Path, no_cluster: str, is_closed: bool) -> None:
    address = f"127.0.0.1:{free_port()}" if is_closed else no_cluster
    said = f"no Ray cluster answers at {address}: connection refused"
    said = said if is_closed else f"a server answers at {address}, but it has not accepted this process"
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef" * 4)
    variables = {"DEVSHIM_RAY_ADDRESS": address, "RAY_AUTH_TOKEN_PATH": str(token)}
    calls = [("launch", "--start-timeout", "4s", "-c", PROGRAM), ("cluster", "status")]
    for words in calls:
        began = time.monotonic()
        done = command(tmp_path, *words, **variables)
        assert time.monotonic() - began < 30  # of the 120 after which `command` fails
        assert done.returncode == 1, done.stdout
        assert said in " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in done.stderr


def test_an_invalid_address_is_refused(tmp_path: Path) -> None:
    done = command(tmp_path, "cluster", "join", "elsewhere")
    assert done.returncode == 1
    assert "'elsewhere' is not the address of a cluster" in done.stderr
    far = command(tmp_path, "cluster", "start", "--listen", "198.51.100.1")
    assert far.returncode == 1
    assert "the cluster cannot listen on 198.51.100.1:6379" in " ".join(far.stderr.split())

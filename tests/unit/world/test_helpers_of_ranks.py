"""Tests of the processes that a rank starts: those of multiprocessing are not ranks, and others may not be."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, os, sys
import devshim as ds

is_first = ds.world().size == 2  # in the file, which spawned processes run again

def place(changes):
    os.environ.update(changes)
    world = ds.world()
    return world.rank, world.size

def answer(changes):
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        return pool.apply(place, (changes,))

if __name__ == "__main__":
    assert is_first
    print(answer({}), (ds.world().rank, ds.world().size))
"""
LATER = PROGRAM.replace("is_first = ds.world().size == 2", "is_first = True")
RANK = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5000"}


def printed(text: str, method: str, folder: Path) -> str:
    """Return what a program prints as rank 1 of 2."""
    file = folder / "program.py"
    file.write_text(text)
    environment = {**os.environ, **RANK, "DEVSHIM_BACKEND": "numpy"}
    done = subprocess.run(
        [sys.executable, str(file), method], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_is_not_a_rank(method: str, tmp_path: Path) -> None:
    assert printed(PROGRAM, method, tmp_path) == "(0, 1) (1, 2)"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_gets_a_place_of_its_own_is_a_rank(method: str, tmp_path: Path) -> None:
    text = LATER.replace("answer({})", 'answer({"RANK": "0", "LOCAL_RANK": "0", "MASTER_PORT": "5001"})')
    assert printed(text, method, tmp_path) == "(0, 2) (1, 2)"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_first_process_that_asks_is_the_rank(method: str, tmp_path: Path) -> None:
    text = LATER.replace(", (ds.world().rank, ds.world().size))", ")")
    assert printed(text, method, tmp_path) == "(1, 2)"


FORKED = """
import os
import devshim as ds
world = ds.world()
if os.fork() == 0:
    try:
        world.barrier()
    except ds.UnsupportedError as error:
        print(error.problem.partition(", ")[2], (ds.world().rank, ds.world().size), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_process_cannot_use_the_world_of_its_rank(tmp_path: Path) -> None:
    assert printed(FORKED, "fork", tmp_path) == "which is not a rank: the rank has forked it (0, 1)"


CHILD = "import devshim as ds; world = ds.world(); print((world.rank, world.size))"
PARENT = f"""
import os, subprocess, sys
import devshim as ds
asked = sys.argv[1] != "wrapper" and ds.world()
child = [sys.executable, "-c", {CHILD!r}]
if sys.argv[1] == "exec":
    os.execv(sys.executable, child)
if sys.argv[1] == "alone":
    del os.environ["RANK"]
done = subprocess.run(child, capture_output=True, text=True)
print(done.stdout.strip() or done.stderr.splitlines()[-3])
"""


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("child", "devshim.UnsupportedError: this process is not a rank: rank 1 on {host} has started it"),
        ("wrapper", "(1, 2)"),  # which never asked for its own place
        ("exec", "(1, 2)"),
        ("alone", "(0, 1)"),
    ],
)
def test_a_child_of_a_rank_does_not_take_its_place(how: str, answer: str, tmp_path: Path) -> None:
    assert printed(PARENT, how, tmp_path).startswith(answer.format(host=socket.gethostname()))

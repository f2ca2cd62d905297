"""A test of where the processes of a job accept connections."""

from __future__ import annotations

import os
import threading
import time

from listening import descendants, is_loopback, listening

import devshim as ds


def still(framework: str) -> str:
    """Wait in the middle of a job until the caller has looked."""
    ds.use(framework)
    world = ds.world()
    world.all_reduce_([ds.ones(10)])
    world.barrier()
    time.sleep(4)
    world.barrier()
    return os.environ["DEVSHIM_JOB"]


def test_a_job_on_one_machine_listens_on_loopback_alone() -> None:
    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.update(listening(descendants(os.getpid())))
            time.sleep(0.3)

    looking = threading.Thread(target=look)
    before = listening(descendants(os.getpid()))
    looking.start()
    try:
        ds.launch(still, ds.framework().__name__.split(".")[0], ranks_per_host=2, timeout=60)
    finally:
        done.set()
        looking.join()
    found = seen - before
    assert found  # Ray listens
    assert [each for each in found if not is_loopback(each)] == []

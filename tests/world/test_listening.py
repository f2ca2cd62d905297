"""A test of where the processes of a job accept connections."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from listening import descendants, is_loopback, listening

import devshim as ds

LONG = 60.0


def still(framework: str, folder: str) -> None:
    """Wait in the middle of a job until the caller has looked."""
    ds.use(framework)
    world = ds.world()
    world.all_reduce_([ds.ones(10)])
    world.barrier()
    Path(folder, f"here-{world.rank}").touch()
    until = time.monotonic() + LONG
    while not Path(folder, "looked").exists() and time.monotonic() < until:
        time.sleep(0.05)


def folders() -> set[Path]:
    """Return the folders of jobs."""
    return {file.parent for file in Path(tempfile.gettempdir()).glob("devshim-*/in-use")}


def modes_of(paths: set[Path]) -> set[int]:
    """Return the permissions of the folders that are still there."""
    modes = set()
    for path in paths:
        with suppress(FileNotFoundError):
            modes.add(stat.S_IMODE(path.stat().st_mode))
    return modes


def test_a_job_on_one_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    seen: set[str] = set()
    modes: set[int] = set()
    older = folders()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            are_here = len(list(tmp_path.glob("here-*"))) == 2
            seen.update(listening(descendants(os.getpid())))
            if are_here:
                modes.update(modes_of(folders() - older))
                (tmp_path / "looked").touch()
            time.sleep(0.3)

    looking = threading.Thread(target=look)
    before = listening(descendants(os.getpid()))
    looking.start()
    try:
        name = ds.framework().__name__.split(".")[0]
        ds.launch(still, name, str(tmp_path), ranks_per_host=2, timeout=LONG)
    finally:
        done.set()
        looking.join()
    assert (tmp_path / "looked").exists()
    found = seen - before
    assert modes == {0o700}  # of the folder with the token; other jobs may start at the same time
    assert found  # Ray listens
    assert [each for each in found if not is_loopback(each)] == []

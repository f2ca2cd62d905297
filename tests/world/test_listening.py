"""A test of where the processes of a job accept connections."""

from __future__ import annotations

import os
import stat
import threading
import time
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
    if world.rank == 0:
        Path(folder, "ray").write_text(os.environ["RAY_TMPDIR"])
    Path(folder, f"here-{world.rank}").touch()
    until = time.monotonic() + LONG
    while not Path(folder, "looked").exists() and time.monotonic() < until:
        time.sleep(0.05)


def test_a_job_on_one_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    seen: set[str] = set()
    modes: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            are_here = len(list(tmp_path.glob("here-*"))) == 2
            seen.update(listening(descendants(os.getpid())))
            if are_here:
                modes.append(stat.S_IMODE(Path((tmp_path / "ray").read_text()).stat().st_mode))
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
    assert set(modes) == {0o700}  # the folder with the token
    assert found  # Ray listens
    assert [each for each in found if not is_loopback(each)] == []

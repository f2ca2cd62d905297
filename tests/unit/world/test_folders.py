"""Tests of the temporary folders of jobs: the next start removes those that no process uses any more."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devshim.world import folders

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs locks of files as Unix has them")

HOLDING = """
import subprocess, sys
from devshim.world import folders
folder = folders.new()
if sys.argv[1] == "child":
    locks = [folders.lock_of(folder)]
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=locks, stdout=subprocess.DEVNULL)
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder for temporary files of this test; Ray needs a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)


class Holder:
    """A process with a folder, which a child of it also keeps if asked for; the end of a block ends both."""

    def __init__(self, who: str = "process") -> None:
        command = [sys.executable, "-c", HOLDING, who]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.folder = Path(self.process.stdout.readline().strip())

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__(None, None, None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end_child(self) -> None:
        """Close the standard input, which the child shares."""
        assert self.process.stdin is not None
        self.process.stdin.close()


def test_the_folder_of_a_killed_process_is_removed_at_the_next_start(parent: Path) -> None:
    with Holder() as holder:
        (holder.folder / "ray").mkdir()
        (holder.folder / "ray" / "socket").touch()
        own = folders.new()
        assert holder.folder.exists()
        holder.kill()
    assert holder.folder.exists()
    another = folders.new()
    assert sorted(parent.iterdir()) == sorted([own, another])
    for each in (own, another):
        folders.remove(each)
    assert list(parent.iterdir()) == []


def test_a_process_that_inherits_the_lock_keeps_the_folder() -> None:
    with Holder("child") as holder:
        holder.kill()
        folders.remove(folders.new())
        assert holder.folder.exists()
        holder.end_child()
        until = time.monotonic() + 10
        while holder.folder.exists() and time.monotonic() < until:
            folders.remove(folders.new())
            time.sleep(0.02)
        assert not holder.folder.exists()


def test_other_folders_stay(parent: Path) -> None:
    with Holder() as holder:
        holder.kill()
    readable = holder.folder
    readable.chmod(0o755)
    unlocked = parent / "devshim-older"
    unlocked.mkdir(mode=0o700)
    link = parent / "devshim-link"
    link.symlink_to(readable)
    folders.remove(folders.new())
    assert sorted(parent.iterdir()) == sorted([readable, unlocked, link])


@pytest.mark.parametrize("name", ["\u00fc", "a b", "long" * 5])
def test_ray_gets_a_folder_whose_path_it_accepts(parent: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (parent / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(parent / name))
    folder = folders.new()
    folders.remove(folder)
    assert folder.parent == Path("/tmp")

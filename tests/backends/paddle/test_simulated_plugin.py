"""Tests of the plug-in for PaddlePaddle's simulated GPUs: compiled once, into a folder that only its owner can write
to.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import devshim as ds

USE = """
import devshim as ds
ds.use("paddle")
ds.simulate(gpus=2)
x = ds.ones(3, device="gpu:1")
assert ds.memory("gpu:1").used == 512 and (x + x).sum() == 6
"""
REFUSED = """
import devshim as ds
ds.use("paddle")
ds.simulate(gpus=2)
import paddle
assert paddle.ones([2]).sum() == 2 and ds.device_count() == 0  # the import goes on, for work on the CPU
try:
    ds.zeros(2, device="gpu:0")
except ds.DeviceNotFoundError as error:
    print(error.problem)
try:
    ds.simulate(gpus=2)
except ds.SimulationError as error:
    print(error)
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a user's empty cache folder."""
    tmp_path.chmod(0o700)
    return tmp_path / "cache"


def start(code: str, cache: Path, **settings: str) -> subprocess.Popen[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("DEVSHIM_")}
    environ = {**inherited, "CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(cache), **settings}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return output


def built(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_the_plug_in_is_compiled_once_and_only_for_this_user(cache: Path) -> None:
    finish(start(USE, cache))
    (library,) = built(cache)
    assert stat.S_IMODE(library.stat().st_mode) == 0o700
    for folder in (library.parent, *library.parent.parents[:2]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert ds.backends()["paddle"].version in library.parent.name
    before = library.stat().st_mtime_ns, library.stat().st_ino
    finish(start(USE, cache, CXX="/no/such/compiler"))  # nothing is compiled again
    assert (library.stat().st_mtime_ns, library.stat().st_ino) == before


def test_processes_that_compile_at_once_all_work(cache: Path) -> None:
    """Each writes its own file and renames it; a partial file never exists under the final name."""
    processes = [start(USE, cache) for _ in range(6)]
    for process in processes:
        finish(process)
    assert len(built(cache)) == 1


def test_without_a_compiler_it_says_what_to_install(cache: Path, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    output = finish(start(REFUSED, cache, PATH=str(empty), CXX=""))
    assert output.count("on first use, and this machine has no C++ compiler") == 2
    assert "apt-get install g++" in output
    assert "dnf install gcc-c++" in output


def test_a_broken_compiler_is_shown_with_what_it_said(cache: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'it is Sunday' >&2\nexit 3\n", encoding="utf-8")
    compiler.chmod(0o700)
    output = finish(start(REFUSED, cache, CXX=str(compiler)))
    assert f"simulated GPUs with {compiler}" in output
    assert "it is Sunday" in output
    assert built(cache) == []


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [("SOURCE", "source of devshim's plug-in", "install devshim again"), ("HEADER", "the header", "paddlepaddle")],
)
def test_an_incomplete_installation_is_named(monkeypatch: pytest.MonkeyPatch, name: str, what: str, hint: str) -> None:
    """A missing source belongs to devshim's wheel, a missing header to Paddle's."""
    plugin = import_module("devshim_backends._paddle.simulation.internals.plugin")
    monkeypatch.setattr(plugin, name, Path("/no/such/file"))
    monkeypatch.delenv("CUSTOM_DEVICE_ROOT", raising=False)
    with pytest.raises(ds.SimulationError, match=f"{what}.* cannot be read: .*/no/such/file") as caught:
        plugin._build(Path(str(ds.framework("paddle").__file__)).parent)
    assert hint in str(caught.value.hint)


def test_another_plug_in_is_left_alone(cache: Path, tmp_path: Path) -> None:
    output = finish(start(REFUSED, cache, CUSTOM_DEVICE_ROOT=str(tmp_path)))
    assert f"CUSTOM_DEVICE_ROOT={tmp_path} makes PaddlePaddle load another plug-in" in output


# ---------------------------------------------------------------- the folder
def private_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    found: Path = import_module("devshim_backends._paddle.simulation.internals.cache_dir").private_folder(
        "devshim", "paddle"
    )
    return found


def test_a_folder_is_made_and_closed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert private_folder(cache, monkeypatch) == cache / "devshim" / "paddle"
    (cache / "devshim").chmod(0o755)  # readable by others: made private again
    private_folder(cache, monkeypatch)
    assert stat.S_IMODE((cache / "devshim").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o722])
def test_a_parent_that_every_user_can_write_to_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(ds.SimulationError, match="every user can write to it") as caught:
        private_folder(cache, monkeypatch)
    assert str(cache) in caught.value.problem
    assert "XDG_CACHE_HOME" in str(caught.value.hint)
    cache.chmod(mode | stat.S_ISVTX)  # like /tmp: a user can replace only their own files
    private_folder(cache, monkeypatch)


def test_a_link_to_such_a_folder_is_refused(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    cache.symlink_to(open_to_all)
    with pytest.raises(ds.SimulationError, match="every user can write to it"):
        private_folder(cache, monkeypatch)


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_of_its_own_that_others_could_write_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """Its contents may be theirs."""
    ours = cache / "devshim"
    ours.mkdir(parents=True)
    ours.chmod(mode)
    with pytest.raises(ds.SimulationError, match="other users can write to it"):
        private_folder(cache, monkeypatch)


def test_a_folder_of_its_own_that_is_a_link_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (cache / "devshim").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ds.SimulationError, match="it is not a folder"):
        private_folder(cache, monkeypatch)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user's")
def test_files_of_another_user_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = import_module("devshim_backends._paddle.simulation.internals.cache_dir")
    ours = private_folder(cache, monkeypatch)
    library = ours / "library.so"
    library.write_bytes(b"")
    library.chmod(0o700)
    private.require_private_file(library)
    os.chown(library, 12345, -1)
    with pytest.raises(ds.SimulationError, match="not a file that only this user can write to"):
        private.require_private_file(library)
    os.chown(ours, 12345, -1)
    with pytest.raises(ds.SimulationError, match="it belongs to another user"):
        private_folder(cache, monkeypatch)
    os.chown(ours, os.getuid(), -1)
    os.chown(cache, 12345, -1)
    with pytest.raises(ds.SimulationError, match="it belongs to another user"):
        private_folder(cache, monkeypatch)


def test_a_library_that_others_can_write_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = private_folder(cache, monkeypatch) / "library.so"
    library.write_bytes(b"")
    library.chmod(0o722)
    with pytest.raises(ds.SimulationError, match="not a file that only this user can write to"):
        import_module("devshim_backends._paddle.simulation.internals.cache_dir").require_private_file(library)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ds.SimulationError, match="cannot create the folder") as caught:
        private_folder(tmp_path / "file" / "cache", monkeypatch)
    assert caught.value.hint == "set XDG_CACHE_HOME to a folder that you can write to"


def test_a_relative_cache_folder_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The XDG specification requires this; otherwise it would depend on the folder in which a program starts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private_folder(Path("cache"), monkeypatch) == tmp_path / ".cache" / "devshim" / "paddle"

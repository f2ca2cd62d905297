"""Tests of checkpoint files: damaged, malicious, written by several processes, and from writers that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import devshim as ds
from devshim.checkpoints import crc, stream
from devshim.checkpoints import replace as replace_module

TREE = {"w": np.arange(6, dtype="f4").reshape(2, 3), "half": np.ones(3, "f2"), "list": [1, "text", np.array(True)]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def is_tree(back: Any) -> bool:
    return list(back) == list(TREE) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes() and np.asarray(x).dtype == np.asarray(y).dtype
        for x, y in zip(leaves(back), leaves(TREE), strict=True)
    )


def leaves(tree: Any) -> list[Any]:
    return [tree["w"], tree["half"], *tree["list"]]


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def file_of(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the metadata of a file: an object, or its JSON text. The checksum of the metadata is correct again."""
    header, data = header_of(path.read_bytes())
    changed = change(json.loads(header["__metadata__"]["devshim"]))
    text = changed if isinstance(changed, str) else json.dumps(changed)
    header["__metadata__"] = {"devshim": text, "devshim.crc32": f"{zlib.crc32(text.encode()):08x}"}
    path.write_bytes(file_of(header, data))


# ---------------------------------------------------------------------- damage
def test_no_bit_can_flip_unseen(path: Path) -> None:
    """Every byte with one bit flipped gives the same tree, or an error; never other values."""
    ds.save(TREE, path)
    content = path.read_bytes()
    dice = random.Random(0)
    refused: list[ds.CheckpointError] = []
    for at in range(len(content)):
        broken = bytearray(content)
        broken[at] ^= 1 << dice.randrange(8)
        path.write_bytes(broken)
        try:
            back = ds.load(path)
        except ds.CheckpointError as error:
            refused.append(error)
        else:
            assert is_tree(back), f"byte {at}"
    assert len(refused) > 0.9 * len(content)
    assert all(str(path) in str(error) and error.hint for error in refused)


def test_no_cut_goes_unseen(path: Path) -> None:
    ds.save(TREE, path)
    content = path.read_bytes()
    into = {"w": np.zeros((2, 3), "f4"), "half": None, "list": None}
    for length in range(len(content)):
        path.write_bytes(content[:length])
        for call in (lambda: ds.load(path), lambda: ds.load(path, into=into)):
            with pytest.raises(ds.CheckpointError):
                call()
    path.write_bytes(content + b"\0")
    with pytest.raises(ds.CheckpointError):
        ds.load(path)
    assert not into["w"].any()


def test_damaged_values_are_named(path: Path) -> None:
    ds.save(TREE, path)
    content = bytearray(path.read_bytes())
    start = content.index(TREE["w"].tobytes())
    content[start + 5] ^= 4
    path.write_bytes(content)
    with pytest.raises(ds.CheckpointError, match=r"the values of the tensor 'w' are damaged"):
        ds.load(path)
    assert ds.load(path, into={"w": None, "half": np.zeros(3, "f2"), "list": None})["half"].all(), "the rest can be had"


# ---------------------------------------------------------------------- malicious files
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "seven bytes": b"1234567",
    "a huge header": struct.pack("<Q", 2**63) + b"{}",
    "a header of a gigabyte": struct.pack("<Q", 2**30) + b"{}",
    "no JSON": file_of(b"not json at all", b""),
    "no object": file_of(b"[]", b""),
    "no text": file_of(b'{"\xff": 1}', b""),
    "deep": file_of(b'{"__metadata__":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b""),
    "a deep object": file_of(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b""),
    "a name twice": file_of(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}',
        b"1234",
    ),
    "a key twice in an entry": file_of(
        b'{"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}', b"1234"
    ),
    "NaN": file_of(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', b"1234"),
    "infinity": file_of(b'{"a":{"dtype":"F32","shape":[Infinity],"data_offsets":[0,4]}}', b"1234"),
    "a number of 9999 digits": file_of(
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 9999 + b'],"data_offsets":[0,4]}}', b"1234"
    ),
    "a negative size": file_of({"a": {**ONE, "shape": [-1]}}, b"1234"),
    "a size of 2**96": file_of({"a": {**ONE, "shape": [2**32, 2**32, 2**32]}}, b"1234"),
    "a fraction": file_of({"a": {**ONE, "shape": [1.5]}}, b"1234"),
    "offsets beyond the end": file_of({"a": {**ONE, "data_offsets": [0, 400]}}, b"1234"),
    "offsets backwards": file_of({"a": {**ONE, "data_offsets": [4, 0]}}, b"1234"),
    "offsets that overlap": file_of({"a": ONE, "b": ONE}, b"1234"),
    "a hole": file_of({"a": {**ONE, "data_offsets": [4, 8]}}, b"12345678"),
    "an unknown dtype": file_of({"a": {**ONE, "dtype": "PY"}}, b"1234"),
    "numbers as metadata": file_of({"__metadata__": {"devshim": 1}}, b""),
    "a list as metadata": file_of({"__metadata__": ["devshim"]}, b""),
    "a checksum alone": file_of({"__metadata__": {"devshim.crc32": "00000000"}}, b""),
    "a text alone": file_of({"__metadata__": {"devshim": "{}"}}, b""),
    "a zip bomb": b"PK\x03\x04" + b"\0" * 100,
    "a pickle": b"\x80\x04\x95" + b"\0" * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(name: str, path: Path) -> None:
    path.write_bytes(HOSTILE[name])
    into = {"a": np.zeros(1, "f4")}
    for call in (lambda: ds.load(path), lambda: ds.load(path, into=into)):
        with pytest.raises(ds.CheckpointError, match=r"is not a checkpoint that ds\.load can read") as caught:
            call()
        assert caught.value.hint
    assert into["a"][0] == 0


def changed(**entry: Any) -> Callable[[Any], Any]:
    return lambda reported: {**reported, "tensors": [{**reported["tensors"][0], **entry}, *reported["tensors"][1:]]}


def nodes(*table: Any) -> Callable[[Any], Any]:
    return lambda reported: {**reported, "nodes": list(table)}


def linear(*weight: Any) -> Callable[[Any], Any]:
    """Describe a model of one linear layer."""
    layer = {"kind": "linear", "path": "w", "weights": {"weight": list(weight)}, "facts": {}}
    leaves = [["w", "parameter", 0]]
    entry = {"framework": "numpy", "title": "", "class": "", "leaves": leaves, "layers": [layer], "facts": None}
    return nodes(["whole", entry])


LEAF = ["value", 1]
TELLINGS: dict[str, Callable[[Any], Any]] = {
    "no object": lambda reported: [],
    "no nodes": nodes(),
    "nodes of another form": lambda reported: {**reported, "nodes": {"0": LEAF}},
    "no tensors": lambda reported: {key: value for key, value in reported.items() if key != "tensors"},
    "another dtype": changed(dtype="int32"),
    "another shape": changed(shape=[3, 2]),
    "an object's dtype": changed(dtype="finfo"),
    "a dtype of Python's": changed(dtype="object"),
    "a dtype that is none": changed(dtype=["float32"]),
    "a negative size": changed(shape=[-2, -3]),
    "a size that is none": changed(shape=[2.0, 3]),
    "a checksum that is none": changed(crc32=None),
    "another name": changed(name="../../etc/passwd"),
    "a tensor listed twice": lambda reported: {**reported, "tensors": [*reported["tensors"], reported["tensors"][0]]},
    "a node of no kind": nodes([]),
    "a node that is a number": nodes(7),
    "an unknown kind": nodes(["pickle", "cos"]),
    "a tensor that is not there": nodes(["tensor", 99]),
    "a tensor before the first": nodes(["tensor", -1]),
    "a tensor by a truth value": nodes(["tensor", True]),
    "itself": nodes(["list", [0]]),
    "what comes later": nodes(["list", [1]], LEAF),
    "before the first": nodes(LEAF, ["list", [-1]]),
    "a text as children": nodes(LEAF, ["list", "0"]),
    "a key twice": nodes(LEAF, ["dict", [0, 0], [0, 0]]),
    "fewer keys than values": nodes(LEAF, ["dict", [0, 0], [0]]),
    "a key that has no hash": nodes(["list", []], ["dict", [0], [0]]),
    "a tensor as a key": nodes(["tensor", 0], ["dict", [0], [0]]),
    "a class that is code": nodes(LEAF, ["named", [0], "x', (), rename=1) or print('owned'", ["a"]]),
    "a field that is code": nodes(LEAF, ["named", [0], "T", ["a=print('owned')"]]),
    "a field that is a keyword": nodes(LEAF, ["named", [0], "T", ["class"]]),
    "a field twice": nodes(LEAF, ["named", [0, 0], "T", ["a", "a"]]),
    "a class without fields": nodes(LEAF, ["named", [0], "T", []]),
    "a dataclass that is code": nodes(LEAF, ["data", [0], "T:\n print('owned')\nclass U", ["a"]]),
    "a dataclass's field": nodes(LEAF, ["data", [0], "T", ["__class__ = print('owned')"]]),
    "a device that is none": nodes(["device", "gpu:1; import os"]),
    "a float that is none": nodes(["float", "one"]),
    "a huge float": nodes(["float", "0x1p99999"]),
    "an int that is none": nodes(["int", 3]),
    "bytes that are none": nodes(["bytes", "zz"]),
    "a number of objects": nodes(["number", "object", "00"]),
    "numbers for a number": nodes(["number", "int8", "0000"]),
    "a value that is a list": nodes(["value", [1]]),
    "too much for a value": nodes(["value", 1, 2]),
    "a model that is none": nodes(["whole", 3]),
    "a model of nothing": nodes(["whole", {}]),
    "a model's leaf": nodes(
        [
            "whole",
            {
                "framework": "numpy",
                "title": "",
                "class": "",
                "leaves": [["w", "parameter", 99]],
                "layers": [],
                "facts": None,
            },
        ]
    ),
    "a model's name": nodes(
        ["whole", {"framework": {}, "title": "", "class": "", "leaves": [], "layers": [], "facts": None}]
    ),
}


@pytest.mark.parametrize("name", TELLINGS)
def test_a_lie_about_the_contents_is_one_clear_error(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checksums are right, so the contents are wrong on purpose."""
    ds.save(TREE, path)
    rewrite(path, TELLINGS[name])
    with pytest.raises(ds.CheckpointError, match=r"is not a checkpoint that ds\.load can read"):
        ds.load(path)
    assert "owned" not in capsys.readouterr().out


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "a model's axes": linear("w", [0, 5]),
    "a model's axes in floating point": linear("w", [0.0, 1.0]),
    "a model's axes as truth values": linear("w", [False, True]),
    "a model's axes as a text": linear("w", "01"),
    "a model's axes as an object": linear("w", {"0": 0, "1": 1}),
    "a weight's order in floating point": linear("w", [0, 1], {"order": [0.0, 1.0]}),
    "a weight's part as truth values": linear("w", [0, 1], {"part": [False, True]}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_lie_about_a_weights_layout_is_one_clear_error(name: str, path: Path) -> None:
    """Everything else in the file is true: without the wrong entry it can be read."""
    ds.save({"w": np.zeros((2, 3), "f4")}, path)
    rewrite(path, linear("w", [0, 1]))
    assert ds.load(path)
    rewrite(path, LAYOUTS[name])
    with pytest.raises(ds.CheckpointError, match=r"is not a checkpoint that ds\.load can read"):
        ds.load(path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"version": NaN}', '{"a": 1, "a": 2}'], ids=range(5))
def test_the_metadata_is_strict_json(text: str, path: Path) -> None:
    ds.save(TREE, path)
    rewrite(path, lambda _: text)
    with pytest.raises(ds.CheckpointError):
        ds.load(path)


@pytest.mark.timeout(300)  # otherwise it would take days
def test_what_grows_when_it_is_read_does_not(path: Path) -> None:
    """Forty nested containers, each with the previous one twice (a billion laughs), stay shared and cost little."""
    table: list[Any] = [["value", "ha"], *(["list", [i, i]] for i in range(40))]
    ds.save(TREE, path)
    rewrite(path, nodes(*table))
    back = ds.load(path)
    assert back[0] is back[1]
    with pytest.raises(ds.CheckpointError):
        ds.load(path, into=[1, 2])


def test_a_newer_version_is_refused_by_its_number(path: Path) -> None:
    ds.save(TREE, path)
    rewrite(path, lambda metadata: {**metadata, "version": 2})
    with pytest.raises(ds.CheckpointError, match="version 2"):
        ds.load(path)


def test_names_are_never_paths(path: Path, tmp_path: Path) -> None:
    names = ["../up", "/etc/passwd", "a\0b", "con", "__metadata__", "", "é", "x" * 5000, "\ud800"]
    ds.save({name: np.array(float(i)) for i, name in enumerate(names)}, path)
    assert [float(x) for x in ds.load(path).values()] == [float(i) for i in range(len(names))]
    assert os.listdir(tmp_path) == [path.name]


# ---------------------------------------------------------------------- several writers, and writers that are killed
def test_writers_do_not_meet_and_readers_see_one_whole_file(path: Path) -> None:
    ds.save({"who": -1, "x": np.full(1000, -1.0)}, path)
    failures: list[BaseException] = []
    stop = threading.Event()

    def write(who: int) -> None:
        try:
            for _ in range(25):
                ds.save({"who": who, "x": np.full(1000 + who, float(who))}, path)
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        try:
            while not stop.is_set():
                back = ds.load(path)
                assert (back["x"] == back["who"]).all()
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert os.listdir(path.parent) == [path.name]


WRITER = """
import sys, numpy as np, devshim as ds
ds.use("numpy")
n = 0
while True:
    n += 1
    ds.save({"n": n, "x": np.full(100_000, float(n))}, sys.argv[1])
    if n == 1:
        print("ready", flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_time_the_file_is_whole(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    dice = random.Random(1)
    for _ in range(10):
        ds.save({"n": 0, "x": np.zeros(3)}, path)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=environment)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(dice.uniform(0.0, 0.2))
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        back = ds.load(path)
        assert back["n"] >= 1
        assert (back["x"] == back["n"]).all()


KILLED_AT_A_STEP = """
import os, signal, sys, numpy as np, devshim as ds, safetensors.numpy
from devshim.checkpoints import write as _checkpoint_file
ds.use("numpy")
path, last = sys.argv[1], int(sys.argv[2])
steps = 0

def counted(module, name):
    kept = getattr(module, name)
    def step(*args, **kwargs):
        global steps
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return kept(*args, **kwargs)
    setattr(module, name, step)

for name in ("mkdir", "open", "close", "chmod", "fsync", "replace"):
    counted(os, name)
counted(safetensors.numpy, "serialize_file")
ds.save([2, np.ones(1000)], path)
print(steps)
"""


@pytest.mark.slow
def test_killed_before_every_step_the_file_is_whole(path: Path) -> None:
    """The process is killed before each system call in turn; from the renaming on, the file is the new one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = []
    for last in range(1, 100):
        ds.save([1, np.zeros(1000)], path)
        command = [sys.executable, "-c", KILLED_AT_A_STEP, str(path), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        version, x = ds.load(path)
        assert (x == version - 1).all()
        found.append(version)
        assert len(os.listdir(path.parent)) <= 2, "the file, and what one killed writer left"
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert found == sorted(found)
    assert set(found[:-1]) == {1, 2}
    ds.save([1], path)
    assert os.listdir(path.parent) == [path.name], "the next writer removes what is left"


PAUSED = """
import sys, devshim as ds
from devshim.checkpoints import stream
ds.use("numpy")
write = stream.write

def paused(*args, **kwargs):
    print("writing", flush=True)
    sys.stdin.readline()
    return write(*args, **kwargs)

stream.write = paused
ds.save({"by": "the slow one"}, sys.argv[1])
"""


def paused(path: Path) -> subprocess.Popen[bytes]:
    """Start a writer that pauses in the middle of a save."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PAUSED, str(path)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    return writer


def left(path: Path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name != path.name]


def test_a_writer_removes_what_the_killed_left_and_not_what_another_writes(path: Path) -> None:
    slow, killed, other = paused(path), paused(path), paused(path.with_name("other"))
    try:
        assert len(left(path)) == 3
        for writer in (killed, other):
            writer.kill()
            writer.communicate()
        ds.save([1], path)
        assert len(left(path)) == 2, "of the slow writer, and of the other file"
        reported, _ = slow.communicate(b"\n")
        assert slow.returncode == 0, reported
    finally:
        for writer in (slow, killed, other):
            writer.kill()
            writer.communicate()
    assert ds.load(path) == {"by": "the slow one"}
    assert len(left(path)) == 1
    ds.save([1], path.with_name("other"))
    assert left(path) == ["other"]


def test_what_was_left_on_another_machine_must_be_a_day_old(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of another machine may not be visible here."""
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "elsewhere")
        writer = paused(path)  # named after this machine, then renamed to the other's
        writer.kill()
        writer.communicate()
        (name,) = left(path)
        with replace_module.temporary_folder_for(str(path)) as temporary:
            theirs = os.path.basename(temporary)
    os.rename(path.with_name(name), path.with_name(theirs))
    ds.save([1], path)
    assert left(path) == [theirs]
    day = time.time() - 25 * 3600
    os.utime(path.with_name(theirs), (day, day))
    ds.save([1], path)
    assert left(path) == []


def test_a_new_folder_that_another_writer_removes_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two calls that make and lock it, a folder looks like a leftover."""
    flock = replace_module.fcntl.flock
    removed: list[str] = []

    def remove_first(lock: int, operation: int) -> None:
        if not removed:
            removed.extend(left(path))
            os.rmdir(path.with_name(removed[0]))
        flock(lock, operation)

    monkeypatch.setattr(replace_module.fcntl, "flock", remove_first)
    with replace_module.temporary_folder_for(str(path)) as temporary:
        assert os.path.isdir(temporary)
        assert left(path) == [os.path.basename(temporary)] != removed


def test_files_of_the_same_form_that_are_not_ours_stay(path: Path) -> None:
    names = [".devshim-notes", ".devshim-0123456789abcdef.tmp", ".tmpabc", f".{path.name}.tmp"]
    for name in names:
        path.with_name(name).write_bytes(b"")
    with replace_module.temporary_folder_for(str(path)) as temporary:
        link = temporary.replace(".tmp", "0.tmp")
    os.symlink(path.parent, link)
    ds.save([1], path)
    assert sorted(left(path)) == sorted([*names, os.path.basename(link)])


def test_a_folder_that_cannot_be_listed_can_be_saved_into(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(replace_module.os, "listdir", refuse)
    ds.save([1], path)
    assert ds.load(path) == [1]


def test_a_full_disk_leaves_the_file_and_nothing_beside_it(path: Path, python: Callable[..., str]) -> None:
    ds.save([1], path)
    reported = python(
        f"""
        import resource, numpy as np, devshim as ds
        ds.use("numpy")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            ds.save(np.ones(1_000_000), {str(path)!r})
        except ds.CheckpointError as error:
            print(type(error.__cause__).__name__, error)
        """
    )
    assert "cannot be written" in reported
    assert ds.load(path) == [1]
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_is_an_error_of_the_system_where_the_library_writes(path: Path, python: Callable[..., str]) -> None:
    """Each of several ranks writes its file with the library, whose error has the system's number only as a text."""
    reported = python(
        f"""
        import resource, numpy as np, devshim as ds
        from devshim.checkpoints.write import write_arrays
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            write_arrays({str(path)!r}, {{"x": np.ones(1_000_000)}}, {{}}, "model")
        except ds.CheckpointError as error:
            print(isinstance(error, OSError), error.errno, error.filename, error)
        """
    )
    assert reported.startswith("True 27 model 'model' cannot be written: File too large\n\nHint: free disk space")


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(5, "broken disk"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_fails_late_leaves_the_file(
    call: str, error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds.save([1], path)

    def fail(*args: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(type(error)):
            ds.save([2], path)
    assert ds.load(path) == [1]
    assert os.listdir(path.parent) == [path.name]


def test_file_and_folder_are_flushed_in_the_right_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(handle: int) -> None:
        order.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def recorded_replace(source: Any, target: Any) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    ds.save(TREE, path)
    assert order == ["file", "replace", "folder"]


def test_a_tensor_that_changes_while_it_is_written_gives_a_whole_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(3 * crc.CHUNK // 4, "float32")
    write_all = stream._write_all

    def written(handle: int, data: memoryview) -> None:
        x[:] += 1  # after the bytes were copied and summed
        write_all(handle, data)

    monkeypatch.setattr(stream, "_write_all", written)
    ds.save({"x": x}, path)
    parts = ds.load(path)["x"].reshape(3, -1)
    assert (parts == [[0], [1], [2]]).all()


def test_a_short_write_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(stream.os, "write", lambda handle, data: write(handle, data[:1000]))
    ds.save(TREE | {"long": np.arange(10_000)}, path)
    back = ds.load(path)
    assert (back.pop("long") == np.arange(10_000)).all()
    assert is_tree(back)


def test_a_header_that_the_format_does_not_allow_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.save([1], path)
    monkeypatch.setattr(stream, "LONGEST", 100)
    with pytest.raises(ds.CheckpointError, match="longer than the format allows"):
        ds.save(TREE, path)
    assert ds.load(path) == [1]


def test_tensors_are_aligned_in_the_file(path: Path) -> None:
    ds.save({"byte": np.ones(3, "uint8"), "long": np.ones(2, "int64"), "half": np.ones(1, "f2")}, path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    for name, size in (("long", 8), ("half", 2), ("byte", 1)):
        assert header[name]["data_offsets"][0] % size == 0


def test_another_program_can_read_what_is_there(path: Path) -> None:
    ds.save(TREE, path)
    with safe_open(path, framework="np") as file:
        reported = json.loads(file.metadata()["devshim"])
    assert reported["frameworks"] == {"numpy": np.__version__}
    assert [entry["device"] for entry in reported["tensors"]] == ["cpu"] * 3


@pytest.mark.parametrize(("dtype", "code"), [("bool", "BOOL"), ("float32", "F32"), ("int64", "I64"), ("uint64", "U64")])
def test_dtypes_have_the_codes_of_the_format(dtype: str, code: str, path: Path) -> None:
    """Other programs read these tensors: they are not stored as bytes."""
    ds.save(np.ones(2, dtype), path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert [each["dtype"] for name, each in header.items() if name != "__metadata__"] == [code]

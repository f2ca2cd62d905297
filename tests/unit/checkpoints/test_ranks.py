"""Tests of checkpoint folders: killed ranks, damaged and malicious files, and ranks that disagree."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.checkpoints import ranks_index, ranks_parts
from devshim.testing.thread_ranks import on_ranks
from devshim.world.world import World

TABLE = np.arange(40, dtype="f8").reshape(10, 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def tree_of(world: Any, number: int = 0) -> dict[str, Any]:
    rows = slice(0, 10) if world is None else world.part(10)
    return {"e": ds.Rows((TABLE + number)[rows]), "w": np.full((3, 2), number, "f4"), "n": number}


def save(path: Path, size: int = 3, number: int = 0) -> None:
    assert on_ranks(size, lambda world: ds.save(tree_of(world, number), path, world=world)) == [None] * size


def number_in(path: Path) -> int:
    back = ds.load(path)
    number = back["n"]
    assert (back["e"] == TABLE + number).all()
    assert (back["w"] == number).all()
    return int(number)


def index_of(path: Path) -> Any:
    return json.loads((path / "index.json").read_text())["contents"]


def write_index(path: Path, contents: Any) -> None:
    """Write an index whose checksum is right."""
    text = contents if isinstance(contents, str) else json.dumps(contents, separators=(",", ":"))
    crc32 = f"{zlib.crc32(text.encode()):08x}"
    (path / "index.json").write_text(f'{{"crc32":"{crc32}","contents":{text}}}\n')


def parts_of(path: Path) -> list[Path]:
    return sorted(path.glob("part-*"))


# ---------------------------------------------------------------------- what is written
def test_a_folder_has_one_file_for_each_rank_and_an_index(path: Path) -> None:
    save(path)
    save(path, number=1)
    assert len(parts_of(path)) == 3
    assert len(os.listdir(path)) == 4
    assert os.listdir(path.parent) == ["run"]
    assert number_in(path) == 1


def test_each_rank_reads_only_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_parts, "_BLOCK", 64)  # two rows
    save(path, size=2)
    read: list[int] = []
    checked = ranks_parts.block_checksums
    monkeypatch.setattr(
        "devshim.checkpoints.ranks_read.block_checksums", lambda array: read.append(len(array)) or checked(array)
    )
    parts = on_ranks(5, lambda world: ds.load(path, world=world)["e"].part)
    assert (np.concatenate(parts) == TABLE).all()
    assert all(len(each) == 2 for each in parts)
    # two rows for each rank, and the rest of their blocks; ``w`` has three rows
    assert sum(read) - 5 * 3 <= 5 * 4


def test_replicated_tensors_are_divided_by_size(path: Path) -> None:
    tree = {str(i): np.ones(size, "u1") for i, size in enumerate((4000, 1000, 1000, 1000, 1000))}
    assert on_ranks(2, lambda world: ds.save(tree, path, world=world)) == [None] * 2
    sizes = [sum(each.nbytes for each in ds.load(part).values()) for part in parts_of(path)]
    assert sizes == [4000, 4000]
    back = ds.load(path)
    assert all((back[name] == x).all() for name, x in tree.items())


def test_the_index_does_not_grow_with_the_ranks_for_each_tensor(path: Path) -> None:
    def many(world: World, skip: int) -> dict[str, Any]:
        rows = np.zeros((0 if world.rank < skip else 2, 1), "f4")
        return {f"{i:04d}": ds.Rows(rows) for i in range(50)}

    for skip in (0, 3):
        assert on_ranks(8, lambda world, skip=skip: ds.save(many(world, skip), path, world=world)) == [None] * 8
        contents = index_of(path)
        assert len(contents["cuts"]) == (1 if skip else 0)
        assert len(json.dumps(contents["tensors"])) < 50 * 130


def test_whole_tensors_and_rows_fill_each_other(path: Path) -> None:
    save(path)
    whole = ds.load(path, into={"e": np.zeros((10, 4)), "w": np.zeros((3, 2), "f4"), "n": 0})
    assert (whole["e"] == TABLE).all()
    ds.save({"e": TABLE, "w": np.zeros((3, 2), "f4"), "n": 1}, path.with_suffix(".one"))
    found = on_ranks(2, lambda world: ds.load(path.with_suffix(".one"), into=tree_of(world, 9), world=world))
    assert (np.concatenate([each["e"].part for each in found]) == TABLE).all()
    unequal = on_ranks(2, lambda world: ds.load(path, into={**tree_of(world), "e": ds.Rows(TABLE)}, world=world))
    assert all("the ranks have 20 rows together" in str(each) for each in unequal)


# ---------------------------------------------------------------------- refusals
def test_ranks_that_do_not_save_the_same_tree_are_refused(path: Path) -> None:
    save(path)
    found = on_ranks(3, lambda world: ds.save({"x": np.zeros(2 + (world.rank == 2))}, path, world=world))
    assert all("rank 2 on host0 has 'x', float64 of shape (3,)" in str(each) for each in found)
    more = on_ranks(2, lambda world: ds.save({str(i): TABLE + i for i in range(1 + world.rank)}, path, world=world))
    assert all("rank 0 has no further tensor" in str(each) for each in more)
    twice = on_ranks(2, lambda world: ds.save({str(i): TABLE for i in range(1 + world.rank)}, path, world=world))
    assert all("rank 1 on host1 has other keys than rank 0" in str(each) for each in twice)
    assert number_in(path) == 0
    assert len(os.listdir(path)) == 4


def test_a_rank_that_cannot_write_stops_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.checkpoints import write

    save(path)
    kept = write.write_arrays

    def full(part: str, *rest: Any) -> None:
        if "-00001-of" in part:
            raise OSError(28, "No space left on device")
        kept(part, *rest)

    monkeypatch.setattr(write, "write_arrays", full)
    found = on_ranks(3, lambda world: ds.save(tree_of(world, 1), path, world=world))
    assert all(isinstance(each, ds.CheckpointError) and isinstance(each, OSError) for each in found)
    assert [(each.errno, each.filename) for each in found] == [(28, str(path))] * 3
    assert all("No space left" in str(each) for each in found)
    assert all("rank 1 on host1" in str(each) for each in (found[0], found[2]))
    assert number_in(path) == 0
    assert len(os.listdir(path)) == 4


def test_an_interrupt_of_one_rank_is_reported_to_the_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.checkpoints import write

    kept = write.write_arrays

    def interrupted(part: str, *rest: Any) -> None:
        if "-00000-of" in part:
            raise KeyboardInterrupt
        kept(part, *rest)

    monkeypatch.setattr(write, "write_arrays", interrupted)
    found = on_ranks(2, lambda world: ds.save(tree_of(world), path, world=world))
    assert isinstance(found[0], KeyboardInterrupt)
    assert "KeyboardInterrupt" in str(found[1])
    assert os.listdir(path.parent) == []


def test_hosts_that_do_not_share_the_folder_are_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.checkpoints import ranks_save

    kept = ranks_save._Save.begin

    def elsewhere(self: Any, facts: Any) -> None:
        kept(self, facts)
        if self._world.rank == 1:
            self._folder = str(path.parent / "elsewhere")

    monkeypatch.setattr(ranks_save._Save, "begin", elsewhere)
    found = on_ranks(2, lambda world: ds.save(tree_of(world), path, world=world))
    assert all("is not visible on host1" in str(each) for each in found)
    assert os.listdir(path.parent) == []


def test_other_files_are_never_replaced(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("mine")
    found = on_ranks(2, lambda world: ds.save(tree_of(world), path, world=world))
    assert isinstance(found[0], ds.ArgumentError)
    assert os.listdir(path) == ["thesis.txt"]
    ds.save(TABLE, path.with_suffix(".file"))
    found = on_ranks(2, lambda world: ds.save(tree_of(world), path.with_suffix(".file"), world=world))
    assert "is a file" in str(found[1])
    for other in (3, SimpleNamespace(rank=0, size=2, host="a", all_gather=list)):
        with pytest.raises(ds.ArgumentError, match="takes the ranks of the job"):
            ds.save(TABLE, path, world=other)  # type: ignore[arg-type]


def test_a_second_job_does_not_disturb_a_save(path: Path) -> None:
    from devshim.checkpoints.replace import locked_folder

    save(path)
    with locked_folder(str(path)):
        found = on_ranks(2, lambda world: ds.save(tree_of(world, 1), path, world=world))
    assert all("another process is saving" in str(each) for each in found)
    save(path, number=2)
    assert number_in(path) == 2


def test_orphans_are_removed_by_the_next_save(path: Path) -> None:
    save(path)
    orphans = ["part-0123456789abcdef-00001-of-00004.safetensors", "saving-0123456789abcdef.tmp"]
    (path / orphans[0]).write_bytes(b"x")
    (path / orphans[1]).mkdir()
    (path / orphans[1] / ".tmpx").write_bytes(b"x")
    (path / "notes.txt").write_text("kept")
    assert number_in(path) == 0
    save(path, number=1)
    assert not set(orphans) & set(os.listdir(path))
    assert "notes.txt" in os.listdir(path)


# ---------------------------------------------------------------------- damaged and malicious folders
def swap_parts(path: Path) -> None:
    first, second, *_ = parts_of(path)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def truncate(path: Path) -> None:
    part = parts_of(path)[1]
    part.write_bytes(part.read_bytes()[:-1])


def flip(path: Path) -> None:
    part = parts_of(path)[0]
    data = bytearray(part.read_bytes())
    data[-2] ^= 4
    part.write_bytes(data)


def mix_saves(path: Path) -> None:
    other = path.with_name("other")
    save(other, number=5)
    shutil.copy(parts_of(other)[1], parts_of(path)[1])


def remove_part(path: Path) -> None:
    parts_of(path)[2].unlink()


def flip_index(path: Path) -> None:
    text = (path / "index.json").read_text()
    (path / "index.json").write_text(text.replace('"shape":[10,4]', '"shape":[11,4]'))


@pytest.mark.parametrize("damage", [swap_parts, truncate, flip, mix_saves, remove_part, flip_index])
def test_damaged_folders_are_refused(path: Path, damage: Callable[[Path], None]) -> None:
    save(path)
    damage(path)
    for load in (ds.load, lambda folder: on_ranks(2, lambda world: ds.load(folder, world=world))):
        try:
            found = load(path)
        except ds.CheckpointError as error:
            found = [error]
        assert all(isinstance(each, ds.CheckpointError) for each in found), found


def changed(**more: Any) -> Callable[[Any], Any]:
    return lambda contents: {**contents, **more}


def tensor(which: int, **more: Any) -> Callable[[Any], Any]:
    def change(contents: Any) -> Any:
        contents["tensors"][which].update(more)
        return contents

    return change


def cut(bounds: Any) -> Callable[[Any], Any]:
    def change(contents: Any) -> Any:
        contents["tensors"][0]["cut"] = 0
        return {**contents, "cuts": [bounds]}

    return change


HOSTILE = {
    "a path for a save": changed(save="../../etc"),
    "a long name for a save": changed(save="a" * 17),
    "no parts": changed(parts=[]),
    "parts that are paths": changed(parts=["../x", "y", "z"]),
    "fewer parts": lambda contents: {**contents, "parts": contents["parts"][:2]},
    "a gap": cut([0, 4, 8, 10]),
    "an overlap": cut([0, 6, 4, 10]),
    "too many bounds": cut([0, 4, 7, 10, 10]),
    "negative bounds": cut([0, -4, 7, 10]),
    "bounds of text": cut("0479"),
    "an absurd shape": tensor(0, shape=[10**30, 4]),
    "a huge shape": tensor(0, shape=[2**62, 4]),
    "a huge row": tensor(0, shape=[10, 2**62]),
    "a negative shape": tensor(1, shape=[-3, -2]),
    "a shape of text": tensor(1, shape="ab"),
    "another dtype": tensor(1, dtype="float64"),
    "an object dtype": tensor(1, dtype="object"),
    "a part that is not there": tensor(1, part=7),
    "a part that is text": tensor(1, part="../w"),
    "another part": lambda contents: tensor(1, part=(contents["tensors"][1]["part"] + 1) % 3)(contents),
    "a part and a cut": tensor(0, part=0),
    "a cut of a whole tensor": tensor(1, cut=None),
    "one name twice": tensor(1, name="e"),
    "a path as a name": tensor(1, name="../../w"),
    "another format": changed(format="other"),
    "another version": changed(version=99),
    "rows as a tensor": changed(nodes=[["tensor", 0]]),
    "a tensor as rows": changed(nodes=[["rows", 1]]),
    "no nodes": changed(nodes=[]),
    "a list": lambda _: [],
    "deep nesting": lambda _: "[" * 200_000,
    "a name twice": lambda _: '{"save":1,"save":2}',
    "NaN": lambda _: '{"save":NaN}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_indexes_are_refused(path: Path, name: str) -> None:
    save(path)
    write_index(path, HOSTILE[name](index_of(path)))
    with pytest.raises(ds.CheckpointError):
        ds.load(path)


def test_an_index_that_is_too_long_is_not_read(path: Path) -> None:
    save(path)
    with (path / "index.json").open("r+b") as file:
        file.truncate(10**12)  # a sparse file
    with pytest.raises(ds.CheckpointError, match="longer than"):
        ds.load(path)


def test_a_hostile_header_of_a_part_is_refused(path: Path) -> None:
    save(path)
    part = parts_of(path)[0]
    data = part.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    for text in ("{}", json.dumps({**header, "__metadata__": {"devshim.part": "[]"}}), "[" * 1000):
        part.write_bytes(struct.pack("<Q", len(text)) + text.encode() + data[8 + length :])
        contents = index_of(path)
        contents["parts"][0] = [part.stat().st_size, zlib.crc32(text.encode())]
        write_index(path, contents)
        with pytest.raises(ds.CheckpointError):
            ds.load(path)


# ---------------------------------------------------------------------- killed ranks
class ProcessRank:
    """A rank in its own process; rank 0 passes on what each says."""

    def __init__(self, rank: int, size: int, links: list[socket.socket]) -> None:
        self.rank, self.size, self.host, self._links = rank, size, f"host{rank}", links

    def gather_for(self, _: str, array: Any) -> list[Any]:
        if self.rank:
            _send(self._links[0], [array.tobytes().hex()])
            found = _receive(self._links[0])
        else:
            found = [array.tobytes().hex(), *(_receive(link)[0] for link in self._links)]
            for link in self._links:
                _send(link, found)
        return [np.frombuffer(bytes.fromhex(each), "u1") for each in found]

    def part(self, length: int) -> slice:
        return World.part(self, length)  # type: ignore[arg-type]


def _send(link: socket.socket, words: Any) -> None:
    data = json.dumps(words).encode()
    link.sendall(struct.pack("<Q", len(data)) + data)


def _receive(link: socket.socket) -> Any:
    (length,) = struct.unpack("<Q", _bytes(link, 8))
    return json.loads(_bytes(link, length))


def _bytes(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise ConnectionError("a rank has ended")
        data += more
    return data


def forked(path: Path, size: int, number: int) -> list[int]:
    """Start a save in its own processes, and return their ids."""
    pairs = [socket.socketpair() for _ in range(size - 1)]
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            try:
                for i, (here, there) in enumerate(pairs):
                    if rank:
                        here.close()
                    if rank != i + 1:
                        there.close()
                links = [here for here, _ in pairs] if rank == 0 else [pairs[rank - 1][1]]
                world = ProcessRank(rank, size, links)
                ds.save(tree_of(world, number), path, world=world)
            finally:
                os._exit(0)
        children.append(child)
    for pair in pairs:
        for each in pair:
            each.close()
    return children


def run_and_kill(path: Path, size: int, number: int, victim: int, after: float) -> None:
    children = forked(path, size, number)
    time.sleep(after)
    os.kill(children[victim], signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def kill_at_random_times(path: Path, times: int) -> set[int]:
    """Kill one of three ranks in each of some saves; return how many saves were complete, and how many were not."""
    chance = random.Random(0)
    save(path, number=0)
    start = time.monotonic()
    for child in forked(path, 3, 0):
        os.waitpid(child, 0)
    took = time.monotonic() - start
    current, outcomes = 0, {0: 0, 1: 0}
    for number in range(1, times + 1):
        run_and_kill(path, 3, number, chance.randrange(3), chance.uniform(0, 1.3) * took)
        found = number_in(path)
        assert found in (current, number)
        outcomes[int(found == number)] += 1
        current = found
    save(path, number=7)
    assert len(os.listdir(path)) == 4
    assert number_in(path) == 7
    return {key for key, count in outcomes.items() if count}


@pytest.mark.filterwarnings("ignore:This process")
def test_a_rank_is_killed_in_a_save_and_a_checkpoint_is_there(path: Path) -> None:
    kill_at_random_times(path, 12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process")
def test_a_rank_is_killed_at_200_random_times(path: Path) -> None:
    assert kill_at_random_times(path, 200) == {0, 1}


@pytest.mark.filterwarnings("ignore:This process")
def test_a_rank_is_killed_in_the_first_save(path: Path) -> None:
    """Until the first save is complete, there is no folder, so that a program that looks for it starts again."""
    for i in range(6):
        run_and_kill(path, 3, 1, i % 3, 0.004 * i)
        if path.exists():
            assert number_in(path) == 1
            shutil.rmtree(path)
    save(path, number=2)
    assert os.listdir(path.parent) == ["run"]


def test_names_of_parts_are_recognized() -> None:
    name = ranks_index.part_name("0123456789abcdef", 3, 12)
    assert ranks_index.is_part(name)
    assert not ranks_index.is_part(f"../{name}")
    assert not ranks_index.is_part(f"{name}\n")

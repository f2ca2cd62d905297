"""Tests of paths: the errors of `save` and `load` for invalid paths, and for files of another kind."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds

X = np.arange(3.0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the current folder, with one checkpoint in it."""
    monkeypatch.chdir(tmp_path)
    ds.save({"x": X}, "model.safetensors")
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    ds.save({"x": X}, "full/a.safetensors")
    before = sorted(os.listdir(tmp_path))
    yield tmp_path
    assert sorted(os.listdir(tmp_path)) == before, "nothing is left"


class Says:
    """A path that returns arbitrary text."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __fspath__(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


GIVEN: dict[str, tuple[str, str]] = {
    "ds.load(5)": (
        "ds.load takes the path of a file, and was given 5",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(True)": (
        "ds.load takes the path of a file, and was given True",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(None)": (
        "ds.load takes the path of a file, and was given None",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(X)": (
        "ds.load takes the path of a file, and was given an ndarray",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(Says(ValueError()))": (
        "ds.load takes the path of a file, and was given a Says",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(Says(5))": (
        "ds.load takes the path of a file, and was given a Says",
        "pass its path: ds.load('checkpoint.safetensors')",
    ),
    "ds.load(Says(b'model'))": ("ds.load takes a path as text, and was given bytes", "ds.load(os.fsdecode(path))"),
    "ds.load(b'model')": ("ds.load takes a path as text, and was given bytes", "ds.load(os.fsdecode(path))"),
    "ds.load('')": ("ds.load was given an empty path", "name a file: ds.load('checkpoint.safetensors')"),
    "ds.load('a\\0b')": ("'a\\x00b' contains a character that no file name can have", "ds.load('ab')"),
    "ds.load('gpu:0', 'model.safetensors')": (
        "ds.load takes the path first and the device second, and was given 'gpu:0' first and 'model.safetensors' "
        "second",
        "the arguments are swapped: ds.load('model.safetensors', 'gpu:0')",
    ),
    "ds.load(ds.cpu(), Path('model.safetensors'))": (
        "ds.load takes the path first and the device second, and was given 'cpu' first and 'model.safetensors' second",
        "the arguments are swapped: ds.load('model.safetensors', 'cpu')",
    ),
    "ds.save(X, 5)": (
        "ds.save takes the path of a file, and was given 5",
        "pass its path: ds.save(obj, 'checkpoint.safetensors')",
    ),
    "ds.save(X, None)": (
        "ds.save takes the path of a file, and was given None",
        "pass its path: ds.save(obj, 'checkpoint.safetensors')",
    ),
    "ds.save(X, b'model')": ("ds.save takes a path as text, and was given bytes", "ds.save(obj, os.fsdecode(path))"),
    "ds.save(X, '')": ("ds.save was given an empty path", "name a file: ds.save(obj, 'checkpoint.safetensors')"),
    "ds.save(X, 'a\\0b')": ("'a\\x00b' contains a character that no file name can have", "ds.save(obj, 'ab')"),
    "ds.save('model.safetensors', X)": (
        "ds.save takes the path second, and was given 'model.safetensors' first and an ndarray second",
        "the arguments are swapped: ds.save(obj, 'model.safetensors')",
    ),
    "ds.save(Path('new'), {'x': X})": (
        "ds.save takes the path second, and was given 'new' first and a dict second",
        "the arguments are swapped: ds.save(obj, 'new')",
    ),
    "ds.save(X, 'folder')": (
        "'{here}/folder' is a folder, not a file",
        "ds.save(obj, '{here}/folder/checkpoint.safetensors')",
    ),
    "ds.save(X, 'new/')": ("'new/' is the path of a folder, and ds.save writes a file", "ds.save(obj, 'new')"),
    "ds.save(X, 'model.safetensors/')": (
        "'model.safetensors/' is the path of a folder, and ds.save writes a file",
        "ds.save(obj, 'model.safetensors')",
    ),
    "ds.save(X, os.devnull)": (
        "'/dev/null' is not a regular file, and saving would replace it with one",
        "pass another path",
    ),
    "ds.save(X, '/dev/full')": (
        "'/dev/full' is not a regular file, and saving would replace it with one",
        "pass another path",
    ),
}


@pytest.mark.parametrize("call", GIVEN)
def test_a_path_that_is_none(call: str, here: Path) -> None:
    problem, hint = (text.replace("{here}", str(here)) for text in GIVEN[call])
    with pytest.raises(ds.ArgumentError) as caught:
        eval(call, globals())
    assert (caught.value.problem, caught.value.hint) == (problem, hint)


def test_half_a_character_is_not_a_name() -> None:
    for call in (lambda: ds.load("\ud800"), lambda: ds.save(X, "\ud800")):
        with pytest.raises(ds.ArgumentError, match="contains a character that no file name can have"):
            call()


NOT_THERE: dict[str, tuple[str, str]] = {
    "model.safetensor": (
        "there is no file 'model.safetensor' to load",
        "did you mean ds.load('model.safetensors')?",
    ),
    "model": ("there is no file 'model' to load", "did you mean ds.load('model.safetensors')?"),
    "full/b.safetensors": (
        "there is no file 'full/b.safetensors' to load",
        "did you mean ds.load('full/a.safetensors')?",
    ),
    "full/unlike": ("there is no file 'full/unlike' to load", "in that folder are 'a.safetensors'"),
    "folder/x": (
        "there is no file 'folder/x' to load",
        "pass the full path: the current folder is '{here}'",
    ),
    "nowhere/x": (
        "there is no file 'nowhere/x' to load",
        "there is no folder 'nowhere': the current folder is '{here}'",
    ),
    "~/x": ("there is no file '~/x' to load", "'~' is not expanded: ds.load(os.path.expanduser('~/x'))"),
}


@pytest.mark.parametrize("path", NOT_THERE)
def test_a_file_that_is_not_there(path: str, here: Path) -> None:
    problem, hint = (
        text.replace("{here}", str(here)[:37] + "..." if len(str(here)) > 38 else str(here)) for text in NOT_THERE[path]
    )
    for given in (path, Path(path)):
        with pytest.raises(ds.CheckpointError) as caught:
            ds.load(given)
        assert (caught.value.problem, caught.value.hint) == (problem, hint)
        assert isinstance(caught.value, FileNotFoundError)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, path)
        assert type(caught.value.__cause__) is FileNotFoundError


def test_the_error_of_the_system_travels() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ds.load("model")
    assert type(caught.value).__name__ == "CheckpointError"
    assert type(caught.value).__module__ == "devshim"
    for other in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert type(other) is type(caught.value)
        assert str(other) == str(caught.value)
        assert (other.errno, other.filename) == (errno.ENOENT, "model")


def test_a_folder_that_is_not_there(here: Path) -> None:
    with pytest.raises(ds.CheckpointError) as caught:
        ds.save(X, "nowhere/x")
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.problem == f"the folder '{here}/nowhere' does not exist"
    assert str(caught.value.hint).startswith("os.makedirs('")
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist") as caught:
        ds.save(X, "~/x")
    assert "expanduser" in str(caught.value.hint)  # type: ignore[attr-defined]


def test_folders_are_distinguished_from_files(here: Path) -> None:
    with pytest.raises(ds.CheckpointError) as caught:
        ds.load("full")
    assert caught.value.problem == "'full' is a folder, not a checkpoint file"
    assert caught.value.hint == "ds.load('full/a.safetensors')"
    assert (eval(str(caught.value.hint))["x"] == X).all()
    with pytest.raises(ds.CheckpointError, match="is a folder, not a checkpoint file"):
        ds.load("folder")
    with pytest.raises(ds.CheckpointError, match="it is not a regular file"):
        ds.load(os.devnull)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(here: Path) -> None:
    os.chmod("model.safetensors", 0)
    with pytest.raises(ds.CheckpointError, match="cannot be read: Permission denied") as caught:
        ds.load("model.safetensors")
    assert isinstance(caught.value, PermissionError)


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free disk space"), (errno.EACCES, "save to a folder that you may write to")],
)
def test_what_the_system_says_when_saving(number: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(ds.CheckpointError) as caught:
            ds.save([1], "model.safetensors")
    assert caught.value.problem == f"'model.safetensors' cannot be written: {os.strerror(number)}"
    assert caught.value.hint == f"{hint}; nothing has changed"
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, PermissionError) == (number == errno.EACCES)
    assert (ds.load("model.safetensors")["x"] == X).all()


def test_a_name_that_is_too_long() -> None:
    for call in (lambda: ds.load("x" * 300), lambda: ds.save(X, "x" * 300)):
        with pytest.raises(ds.CheckpointError, match="File name too long") as caught:
            call()
        assert caught.value.hint
        assert isinstance(caught.value, OSError)


# ---------------------------------------------------------------------- files of other programs
def archive(*names: str) -> bytes:
    with zipfile.ZipFile("made.zip", "w") as made:
        for name in names:
            made.writestr(name, b"")
    data = Path("made.zip").read_bytes()
    os.unlink("made.zip")
    return data


def npz() -> bytes:
    np.savez("made.npz", x=X)
    data = Path("made.npz").read_bytes()
    os.unlink("made.npz")
    return data


def npy() -> bytes:
    np.save("made.npy", X)
    data = Path("made.npy").read_bytes()
    os.unlink("made.npy")
    return data


OTHERS: dict[str, tuple[Any, str, str]] = {
    "a.pt": (
        lambda: archive("archive/data.pkl", "archive/data/0"),
        "it is a file of torch.save",
        "ds.save(torch.load('a.pt', map_location='cpu', weights_only=True), 'a.safetensors') converts it",
    ),
    "old.pth": (
        lambda: pickle.dumps(1, 2),
        "it is a file of torch.save",
        "ds.save(torch.load('old.pth', map_location='cpu', weights_only=True), 'old.safetensors') converts it",
    ),
    "a.pdparams": (
        lambda: pickle.dumps({}, 4),
        "it is a file of paddle.save",
        "ds.save(paddle.load('a.pdparams'), 'a.safetensors') converts it",
    ),
    "a.pkl": (
        lambda: pickle.dumps({}),
        "it is a pickle",
        "read it with the program that wrote it, and save the contents with ds.save",
    ),
    "a.npz": (npz, "it is a file of numpy.savez", "ds.save(dict(numpy.load('a.npz')), 'a.safetensors') converts it"),
    "a.npy": (npy, "it is an array of numpy.save", "ds.from_numpy(numpy.load('a.npy')) makes a tensor from it"),
    "a.keras": (
        lambda: archive("metadata.json", "config.json", "model.weights.h5"),
        "it is a model of Keras",
        "ds.save(keras.saving.load_model('a.keras'), 'a.safetensors') converts it",
    ),
    "a.weights.h5": (
        lambda: b"\x89HDF\r\n\x1a\n" + bytes(100),
        "it is an HDF5 file, as Keras saves weights",
        "model.load_weights('a.weights.h5'), then ds.save(model, 'a.weights.safetensors')",
    ),
    "a.params": (
        lambda: struct.pack("<QQ", 0x112, 0) + bytes(100),
        "it is a file of mxnet.nd.save",
        "ds.save(mxnet.nd.load('a.params'), 'a.safetensors') converts it",
    ),
    "a.gguf": (
        lambda: b"GGUF" + bytes(100),
        "it is a GGUF file, as llama.cpp uses",
        "download the model's safetensors files instead",
    ),
    "lfs.safetensors": (
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "it is a Git LFS pointer instead of the file",
        "`git lfs pull` downloads the file itself",
    ),
    "page.safetensors": (
        lambda: b"<!doctype html><html></html>",
        "it is a web page or XML",
        "download the file itself",
    ),
    "a.index.json": (
        lambda: b'{"weight_map": {"w": "a-1.safetensors"}}',
        "it is JSON, perhaps the index of several files",
        "ds.load each of the .safetensors files that it names",
    ),
    "other.zip": (
        lambda: archive("readme"),
        "it is a zip archive",
        "unpack it, and ds.load the .safetensors file in it",
    ),
    "cut.pt": (
        lambda: archive("archive/data.pkl")[:50],
        "it is a zip archive that is cut off or damaged",
        "load another copy of it",
    ),
    "junk": (
        lambda: b"x" * 100,
        "it is cut off, or not a safetensors file",
        "load another copy of it; nothing has changed",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_program_is_recognized(name: str, here: Path) -> None:
    make, why, hint = OTHERS[name]
    Path(name).write_bytes(make())
    for into in (None, {"x": np.zeros(3)}):
        with pytest.raises(ds.CheckpointError) as caught:
            ds.load(name, into=into)
        assert caught.value.problem == f"{name!r} is not a checkpoint that ds.load can read: {why}"
        assert caught.value.hint == hint
    if "numpy." in hint:
        made = eval(hint.partition(") ")[0] + ")", {"ds": ds, "numpy": np})
        assert ((made if made is not None else ds.load("a.safetensors")["x"]) == X).all()
    for each in {name, "a.safetensors"} & set(os.listdir(here)):
        os.unlink(each)


def test_a_safetensors_file_whose_first_byte_is_another_formats() -> None:
    """A header of 0x50 bytes starts with P, as zip archives do: the length decides, not the byte."""
    for count in range(300):
        ds.save({"x" * count: X}, "model.safetensors")
        assert (ds.load("model.safetensors")["x" * count] == X).all()


def test_a_model_for_a_tree(tmp_path: Path) -> None:
    """The file contains tensors without a counterpart in the tree: the hint says how to read them."""
    with pytest.raises(ds.CheckpointError) as caught:
        ds.load("model.safetensors", into=[np.zeros(3)])
    assert caught.value.problem == "the file does not fit `into`: the file has a dict, not a list"
    for model in ({"x": np.zeros(3)}, [np.zeros(3)]):
        with pytest.raises(ds.DeviceSpecError) as refused:
            ds.load("model.safetensors", model)  # type: ignore[arg-type]
        assert refused.value.hint == "to load into what is there, name it: ds.load(path, into=model)"


def test_devices_for_one_device() -> None:
    with pytest.raises(ds.DeviceSpecError) as refused:
        ds.load("model.safetensors", {"x": "gpu:1", "y": "cpu"})  # type: ignore[arg-type]
    assert refused.value.hint == "make a placement of the leaves' devices: ds.load(path, ds.Placement(devices))"


def test_a_file_in_the_place_of_a_folder_is_named() -> None:
    with pytest.raises(ds.CheckpointError, match=r"model.safetensors' is a file, not a folder") as caught:
        ds.save(X, "model.safetensors/x")
    assert caught.value.hint == "save to another folder"
    for path in ("model.safetensors/", "model.safetensors/x"):
        with pytest.raises(ds.CheckpointError, match="there is no file") as caught:
            ds.load(path)
        assert caught.value.hint == (
            "'model.safetensors' is a file, not a folder: did you mean ds.load('model.safetensors')?"
        )

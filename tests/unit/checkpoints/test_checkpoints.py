"""Tests of checkpoints: a saved value comes back with its structure, every bit, and on the requested device.

If that is impossible, nothing changes.
"""

from __future__ import annotations

import collections
import gc
import math
import os
import pickle
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors import safe_open
from safetensors.numpy import save_file

import devshim as ds
from devshim.devices.device import CPU

G0, G1 = ds.gpu(0), ds.gpu(1)
Pair = collections.namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Batch:
    inputs: Any
    name: str = "batch"


@pytest.fixture(autouse=True)
def _cards() -> None:
    ds.simulate(2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.safetensors"


def same(a: Any, b: Any) -> bool:
    """Return True if two values are equal in type, structure, order, dtype, shape and bits."""
    if isinstance(a, np.ndarray):
        a, b = (ds.to_numpy(x) for x in (a, b))
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, (float, complex, np.generic)) and a != a and b != b)


def used(device: ds.Device) -> int:
    gc.collect()
    return ds.memory(device).used or 0


# ---------------------------------------------------------------------- round trips
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
    *("float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"),
]


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (1,)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_to_the_bit(dtype: str, shape: tuple[int, ...], path: Path) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
    ds.save(x, path)
    for device in (CPU, G1):
        back = ds.load(path, device)
        assert ds.device_of(back) is device
        assert same(back, x)
        assert back.flags.writeable


PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(), st.binary(max_size=9)),
    *(st.sampled_from([CPU, G1]), st.floats(width=32).map(np.float32), st.integers(-9, 9).map(np.int16)),
)
KEYS = st.recursive(
    st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.none()), lambda k: st.tuples(k, k), max_leaves=3
)
TENSORS = arrays(st.sampled_from(["f4", "i8", "?", "c8"]), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
TREES = st.recursive(
    st.one_of(PLAIN, TENSORS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict),
        st.tuples(inner, inner),
        st.just(()),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_a_tree_comes_back_in_the_structure_it_was_saved_in(tree: Any, path: Path) -> None:
    ds.save(tree, path)
    assert same(ds.load(path), tree)


def test_tensors_and_containers_that_stand_in_two_places_are_saved_once(path: Path) -> None:
    x = np.ones(1000)
    ds.save({"a": x, "b": [x]}, path)
    assert path.stat().st_size < 2 * x.nbytes
    back = ds.load(path)
    assert back["a"] is back["b"][0]
    shared = [np.ones(2)]
    ds.save([shared, shared], path)
    back = ds.load(path)
    assert back[0] is back[1]


def test_without_the_class_there_is_one_of_its_name_and_fields(path: Path) -> None:
    ds.save({"pair": Pair(np.ones(2), 1), "batch": Batch(np.zeros(3), "first")}, path)
    back = ds.load(path)
    assert (type(back["pair"]).__name__, back["pair"]._fields, back["pair"].y) == ("Pair", ("x", "y"), 1)
    assert type(back["pair"]) is not Pair
    assert (type(back["batch"]).__name__, back["batch"].name) == ("Batch", "first")
    moved = ds.place(back, 1)
    assert ds.device_of(moved["batch"].inputs) is G1
    ds.save(moved, path)
    assert same(ds.load(path)["pair"].x, np.ones(2))


def test_with_into_there_are_the_classes_themselves(path: Path) -> None:
    saved = {"pair": Pair(np.ones(2), 1), "batch": Batch(np.zeros(3), "first"), "skip": [np.ones(1)], "n": 5}
    ds.save(saved, path)
    into = {"pair": Pair(ds.zeros(2, device=1), 0), "batch": Batch(np.ones(3), "?"), "skip": None, "n": 0}
    back = ds.load(path, into=into)
    assert type(back["pair"]) is Pair
    assert type(back["batch"]) is Batch
    assert (back["pair"].y, back["batch"].name, back["skip"], back["n"]) == (1, "first", None, 5)
    assert ds.device_of(back["pair"].x) is G1
    assert same(back["pair"].x, np.ones(2))
    assert same(into["pair"].x, np.zeros(2)), "into itself is as it was"
    assert ds.device_of(ds.load(path, "cpu", into=into)["pair"].x) is CPU


def test_each_leaf_goes_where_its_placement_says(path: Path) -> None:
    ds.save({"a": np.ones(2), "deep": [np.ones(3), np.ones(1)]}, path)
    back = ds.load(path, ds.Placement({"deep.*": "gpu:1", "deep.1": "cpu"}, default="gpu:0"))
    assert [ds.device_of(x) for x in (back["a"], *back["deep"])] == [G0, G1, CPU]
    with pytest.raises(ds.ArgumentError, match="'a'"):
        ds.load(path, ds.Placement({"deep": 0}))
    with ds.on("gpu:1"):
        assert ds.device_of(ds.load(path)["a"]) is G1
    assert ds.device_of(ds.load(path)["a"]) is CPU
    with pytest.raises(ds.DeviceNotFoundError):
        ds.load(path, "gpu:7")
    with pytest.raises(ds.DeviceNotFoundError):
        ds.load(path, ds.Placement({"a": "gpu:7"}, default=0))


def test_every_safetensors_program_reads_a_checkpoint(path: Path) -> None:
    ds.save({"layer": {"weight": np.ones((2, 3), "f4")}, "layer.weight": np.zeros(1), "b": [np.array(3)]}, path)
    with safe_open(path, framework="np") as file:
        assert sorted(file.keys()) == ["b.0", "layer.weight", "layer.weight#2"]
        assert same(file.get_tensor("layer.weight"), np.ones((2, 3), "f4"))
    assert sorted(ds.load(path)) == ["b", "layer", "layer.weight"]
    ds.save(np.ones(2), path)
    with safe_open(path, framework="np") as file:
        assert file.keys() == ["tensor"]


def test_a_file_of_another_program_is_a_dict_of_its_tensors(path: Path) -> None:
    given = {"w": np.ones((2, 2), "f4"), "h": np.ones(3, ml_dtypes.bfloat16)}
    if tuple(map(int, safetensors.__version__.split(".")[:2])) >= (0, 7):  # it has codes for more dtypes
        given["z"] = np.zeros(2, "c8")
    save_file(given, path, metadata={"format": "np"})
    back = ds.load(path, 1)
    assert {name: ds.device_of(x) for name, x in back.items()} == dict.fromkeys(given, G1)
    assert all(same(back[name], given[name]) for name in given)
    assert same(ds.load(path, into={**dict.fromkeys(given), "w": np.zeros((2, 2), "f4")})["w"], given["w"])


def test_a_dtype_the_library_cannot_read_is_said(path: Path) -> None:
    save_file({"e": np.ones(2, ml_dtypes.float8_e5m2)}, path)
    with pytest.raises(ds.CheckpointError, match="'e' is F8_E5M2"):
        ds.load(path)


def test_what_numpy_keeps_apart_arrives_native(path: Path) -> None:
    ds.save([np.arange(3).astype(">i4"), np.arange(6).reshape(2, 3).T, np.broadcast_to(np.ones(1), (3, 2))], path)
    big, turned, spread = ds.load(path)
    assert big.dtype.isnative
    assert big.tolist() == [0, 1, 2]
    assert same(turned, np.ascontiguousarray(np.arange(6).reshape(2, 3).T))
    assert same(spread, np.ones((3, 2)))


def test_another_framework_reads_it(fake: Any, path: Path) -> None:
    ds.save({"x": ds.asarray([1.0, 2.0], device=1)}, path)
    with ds.using("fakeframe"):
        back = ds.load(path, 0)["x"]
    assert type(back).__name__ == "Array"
    assert ds.device_of(back) is G0
    theirs = fake.to_device(np.zeros(2), CPU)
    assert type(ds.load(path, into={"x": theirs})["x"]).__name__ == "Array", "the framework of what is there counts"


# ---------------------------------------------------------------------- values that cannot be saved
UNSAVED: dict[str, tuple[Any, str]] = {
    "a set": ({"s": {1}}, r"\['s'\] is of type set"),
    "an object": ([object()], r"\[0\] is of type object"),
    "a function": (len, "this is of type"),
    "a text of another class": ([type("T", (str,), {})("x")], r"\[0\] is of type T"),
    "a key": ({"a": {b"k".__class__: 1}}, r"\['a'\] has one of type type"),
    "a masked array": ({"m": np.ma.masked_array([1.0], [True])}, "mask"),
    "objects": ({"o": np.array([None])}, "object"),
    "long numbers": ([np.ones(2, np.longdouble)], "cannot store the dtype"),
    "dates": ([np.datetime64("2020-01-01")], r"\[0\] is of type datetime64"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_what_cannot_be_written_down_is_refused_and_named(name: str, path: Path) -> None:
    tree, reported = UNSAVED[name]
    path.write_bytes(b"before")
    with pytest.raises((ds.ArgumentError, ds.ConversionError), match=reported) as caught:
        ds.save(tree, path)
    assert caught.value.hint
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == [path.name]


def test_a_cycle_is_refused(path: Path) -> None:
    tree: list[Any] = []
    tree.append(tree)
    with pytest.raises(ds.ArgumentError, match="contains itself"):
        ds.save(tree, path)


@pytest.mark.slow
def test_a_deep_and_a_wide_tree_are_no_trouble(path: Path) -> None:
    tree: Any = np.ones(2)
    for _ in range(3000):
        tree = [tree]
    ds.save(tree, path)
    back = ds.load(path)
    for _ in range(3000):
        (back,) = back
    assert same(back, np.ones(2))
    ds.save([np.array(float(i)) for i in range(2000)], path)
    assert [float(x) for x in ds.load(path)] == [float(i) for i in range(2000)]


# ---------------------------------------------------------------------- files that do not match
SAVED = {"w": np.ones((2, 3), "f4"), "n": 5, "list": [np.zeros(1), {"k": "v"}]}
UNFIT: dict[str, tuple[Any, str]] = {
    "shape": ({**SAVED, "w": np.ones((3, 2), "f4")}, r"at \['w'\] a tensor is float32 of shape \(3, 2\).*\(2, 3\)"),
    "dtype": ({**SAVED, "w": np.ones((2, 3))}, r"at \['w'\] a tensor is float64.*float32"),
    "missing": ({"w": SAVED["w"], "n": 5}, "has the additional key 'list'"),
    "more": ({**SAVED, "extra": 1}, "no 'extra'"),
    "a value for a tensor": ({**SAVED, "w": 3}, r"at \['w'\] 3 would be replaced by the tensor 'w'"),
    "a tensor for a value": ({**SAVED, "n": np.ones(1)}, r"at \['n'\] a tensor would be replaced by an int"),
    "a value for a list": ({**SAVED, "list": 3}, r"at \['list'\] 3 would be replaced by a list"),
    "a list for a value": ({**SAVED, "n": [np.ones(1)]}, r"at \['n'\] the file has 5, not a list"),
    "length": ({**SAVED, "list": [np.zeros(1)]}, r"at \['list'\] the file has the additional key 1"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_named_and_nothing_is_read(name: str, path: Path) -> None:
    into, reported = UNFIT[name]
    ds.save(SAVED, path)
    with ds.transfers() as log, pytest.raises(ds.CheckpointError, match=reported) as caught:
        ds.load(path, into=into)
    assert log.count == 0
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint


# ---------------------------------------------------------------------- failures in the middle
def test_a_full_card_releases_what_had_arrived_and_names_the_leaf(path: Path) -> None:
    ds.save({"a": np.ones(100), "b": np.ones(100)}, path)
    before = used(G0)
    ds.simulate(2, memory=before + 1536)
    into = {"a": np.zeros(100), "b": np.zeros(100)}
    for call in (lambda: ds.load(path, 0), lambda: ds.load(path, 0, into=into)):
        with pytest.raises(ds.OutOfMemoryError, match=r"gpu:0.*\['b'\]"):
            call()
        assert used(G0) == before
    assert same(into["a"], np.zeros(100))


def test_saving_from_a_failing_card_leaves_the_file(path: Path) -> None:
    ds.save([1], path)
    tree = {"a": ds.zeros(3, device=0), "b": ds.zeros(3, device=1)}
    ds.simulate(2, faults=ds.Fault("gpu:1", "copy"))
    with pytest.raises(ds.DeviceFailedError, match=r"\['b'\]"):
        ds.save(tree, path)
    assert ds.load(path) == [1]
    assert os.listdir(path.parent) == [path.name]


def test_every_copy_is_in_the_ledger(path: Path) -> None:
    tree = {"a": ds.zeros(3, device=0), "b": ds.zeros(3, device=1)}
    with ds.transfers() as log:
        ds.save(tree, path)
        ds.load(path, 1)
    assert log.bytes(source=G0) == log.bytes(source=G1) == 24
    assert log.bytes(target=G1) == 48


# ---------------------------------------------------------------------- the file itself
def test_permissions_are_kept_and_a_new_file_has_the_usual_ones(path: Path) -> None:
    before = os.umask(0o027)
    try:
        ds.save([1], path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        ds.save([2], path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)
    assert os.listdir(path.parent) == [path.name]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder" / "real"
    real.write_bytes(b"")
    path.symlink_to(real)
    ds.save([3], path)
    assert path.is_symlink()
    assert ds.load(real) == [3]


def test_text_paths_and_strange_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "with space", "ä" * 120, "-dash", "a.b.c"):
        ds.save([name], name)
        assert ds.load(name) == [name]


def test_places_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        ds.save([1], tmp_path / "nowhere" / "file")
    with pytest.raises(ds.ArgumentError, match="is a folder, not a file"):
        ds.save([1], tmp_path)
    os.mkfifo(tmp_path / "pipe")  # not /dev/null: without the check, root would replace that of the whole machine
    with pytest.raises(ds.ArgumentError, match="is not a regular file"):
        ds.save([1], tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(FileNotFoundError):
        ds.load(tmp_path / "nothing")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ds.CheckpointError, match=r"is a folder|is not a regular file"):
            ds.load(place)


def test_no_pickle_is_read_or_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("pickle")

    for name in ("dump", "dumps", "load", "loads", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    ds.save({"pair": Pair(np.ones(2), np.float32(1)), "batch": Batch(ds.zeros(3, device=1))}, path)
    ds.load(path)
    harmful = Path(path.parent / "model.bin")
    harmful.write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(ds.CheckpointError):
        ds.load(harmful)


def test_neither_torch_nor_safetensors_is_loaded_before_it_is_needed(python: Callable[..., str]) -> None:
    python("""
        import sys
        import devshim as ds
        ds.save, ds.load
        assert "safetensors" not in sys.modules
        ds.use("numpy")
        ds.save([1], "file")
        assert ds.load("file") == [1]
        assert "safetensors" in sys.modules
        assert not {"torch", "tensorflow", "jax", "paddle", "mxnet", "safetensors.torch"} & set(sys.modules)
    """)
    assert "torch" not in sys.modules


def test_floats_are_kept_exactly(path: Path) -> None:
    values = [0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 1e22, 10**400, -(2**63), 2**63]
    ds.save(values, path)
    assert same(ds.load(path), values)
    assert math.copysign(1, ds.load(path)[1]) == -1

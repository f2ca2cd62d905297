"""Tests of `device`: every common spelling, and `DeviceSpecError` for everything else."""

from __future__ import annotations

import enum
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import devshim as ds
from devshim.devices import parsing
from devshim.devices.device import MAX_INDEX

ACCEPTED = {
    "cpu": "cpu",
    "CPU": "cpu",
    "cpu:0": "cpu",
    "cpu:3": "cpu",
    "/CPU:0": "cpu",
    "/device:CPU:0": "cpu",
    "Place(cpu)": "cpu",
    "Place(gpu_pinned)": "cpu",
    "cpu(0)": "cpu",
    "gpu": "gpu:0",
    "GPU:1": "gpu:1",
    "cuda": "gpu:0",
    "cuda:1": "gpu:1",
    "CUDA:1": "gpu:1",
    "rocm:1": "gpu:1",
    "/GPU:1": "gpu:1",
    "/gpu:1": "gpu:1",
    "/device:GPU:1": "gpu:1",
    "/job:localhost/replica:0/task:0/device:GPU:1": "gpu:1",
    "/job:localhost/replica:0/task:0/device:CPU:0": "cpu",
    "gpu(1)": "gpu:1",
    "Place(gpu:1)": "gpu:1",
    "place(GPU:1)": "gpu:1",
    "1": "gpu:1",
    "0": "gpu:0",
    "tpu:3": "tpu:3",
    "mps": "gpu:0",
    "xpu:1": "gpu:1",
    "npu:1": "npu:1",
    f"gpu:{MAX_INDEX}": f"gpu:{MAX_INDEX}",
}

REFUSED = {
    "": None,
    "gup:1": "gpu:1",
    "cdua": "gpu",
    "gpu1": "gpu:1",
    "gpu 1": "gpu:1",
    " gpu:1": "gpu:1",
    "gpu:1\n": "gpu:1",
    "gpu:": "gpu",
    "gpu:-1": "gpu:1",
    "gpu:01": "gpu:1",
    "gpu:1x": "gpu:1",
    "gpu:1.0": "gpu:1",
    "gpu:99999": f"gpu:{MAX_INDEX}",
    "gpu:99999999999999999999999999": f"gpu:{MAX_INDEX}",
    "gpu:\u0661": None,
    "cuda:a": None,
    "\u0661": None,
    "\uff47\uff50\uff55": None,
    "-1": "gpu:1",
    "+1": "gpu:1",
    "1e3": "gpu:1",
    "gpu(1": "gpu:1",
    "gpu:1)": "gpu:1",
    "gpu(:1)": "gpu:1",
    "Place(Place(gpu:1))": None,
    "/job:worker/replica:0/task:0/device:GPU:1": None,
    "/job:localhost/replica:0/tas\u212a:0/device:GPU:1": None,
    "//GPU:1": "gpu:1",
    "gpu:1:2": "gpu:1",
    "\x00": None,
    "\ud800": None,
    "None": None,
    "__import__('os').system('true')": None,
    "gpu:{0.__class__}": "gpu:0",
    "auto": None,
    "best": None,
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert str(ds.device(text)) == ACCEPTED[text]
    assert ds.device(text) is ds.device(text)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_what_was_given_what_is_accepted_and_the_nearest(text: str) -> None:
    with pytest.raises(ds.DeviceSpecError) as caught:
        ds.device(text)
    problem, hint = caught.value.problem, str(caught.value.hint)
    assert repr(text[:20])[1:-1] in problem
    assert "'gpu:1'" in hint
    assert "'/GPU:1'" in hint
    assert ("did you mean" in hint) == (REFUSED[text] is not None)


@pytest.mark.parametrize("text", [text for text, nearest in REFUSED.items() if nearest is not None])
def test_the_nearest_spelling_is_valid(text: str) -> None:
    with pytest.raises(ds.DeviceSpecError, match="did you mean") as caught:
        ds.device(text)
    nearest = str(caught.value.hint).split("'")[1]
    assert nearest == REFUSED[text]
    assert isinstance(ds.device(nearest), ds.Device)


class Kind(enum.IntEnum):
    CPU = 1
    CUDA = 2


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((1, 0), "cpu"),
        ((1, 5), "cpu"),
        ((1, None), "cpu"),
        ((2, 1), "gpu:1"),
        ((np.int32(2), np.int64(1)), "gpu:1"),
        ((Kind.CUDA, 1), "gpu:1"),
        ((3, 0), "cpu"),
        ((10, 1), "gpu:1"),
        ((11, 0), "cpu"),
        ((13, 1), "gpu:1"),
        ((8, 0), "gpu:0"),
        ((14, 1), "gpu:1"),
    ],
)
def test_dlpack_pairs(pair: tuple[Any, Any], text: str) -> None:
    """DLDeviceType in dlpack.h: 1 CPU, 2 CUDA, 3 CUDA host, 8 Metal, 10 ROCm, 11 ROCm host, 13 managed, 14 oneAPI."""
    assert str(ds.device(pair)) == text


def test_what_a_tensor_says_of_itself_is_read() -> None:
    assert ds.device(np.zeros(1).__dlpack_device__()) is ds.cpu()


@pytest.mark.parametrize("index", [1, np.int8(1), np.uint64(1), np.array(1), Kind.CPU])
def test_an_integer_is_a_gpus_index(index: object) -> None:
    assert ds.device(index) is ds.gpu(1)


def test_a_device_is_itself() -> None:
    assert ds.device(ds.gpu(3)) is ds.gpu(3)


class Text(str):
    """Text whose own methods do not work, and must not be called."""

    def _refuse(self, *args: object) -> Any:
        raise RuntimeError("do not touch")

    __len__ = __getitem__ = __iter__ = lower = isascii = startswith = _refuse  # type: ignore[assignment]


def shared(depth: int) -> Any:
    """Return a tuple of tuples whose repr has 2**depth parts."""
    node: Any = (1,)
    for _ in range(depth):
        node = (node, node)
    return node


def liars() -> dict[str, Any]:
    """Return objects that raise when inspected, or give false answers.

    Pytest must not see them, because it inspects.
    """

    def refuse(*args: object) -> Any:
        raise RuntimeError("do not touch")

    def index(answer: Any) -> Any:
        return type("Index", (), {"__index__": answer})()

    meta = type("Meta", (type,), {"__getattribute__": refuse})
    return {
        "metaclass": meta("Hidden", (), {})(),
        "attributes": type("Raising", (), {"__getattribute__": refuse})(),
        "module": type("Module", (), {"__module__": property(refuse)})(),
        "class": type("SaysText", (), {"__class__": str})(),
        "raising class": type("Raising", (), {"__class__": property(refuse)})(),
        "torch": type("SaysTorch", (), {"__module__": "torch"})(),
        "repr": type("Repr", (), {"__repr__": refuse, "__str__": refuse})(),
        "name": type("a\nb" * 100, (), {})(),
        "index raises": index(refuse),
        "index recurses": index(lambda self: self.__index__()),
        "index is text": index(lambda self: "1"),
        "index is itself": index(lambda self: self),
        "index is a bool": index(lambda self: 2**70),
        "shape raises": type("Shape", (), {"__index__": lambda self: 1, "shape": property(refuse)})(),
        "shape lies": type("Shape", (), {"__index__": lambda self: 1, "shape": (2,)})(),
    }


def hostile() -> dict[str, Any]:
    recursive: list[Any] = []
    recursive.append(recursive)
    plain: list[Any] = [
        *(Text("gpu:x"), Text("x" * 1000), shared(60), (shared(60), 0), recursive, (recursive, recursive)),
        *(object(), object, type, ..., NotImplemented, True, False, None, b"gpu:1", bytearray(b"gpu"), lambda: 1),
        *(1.0, float("nan"), float("inf"), 1j, Fraction(1), [1], [2, 1], {"gpu": 1}, {1}, range(2), sys, ds),
        *((), (2,), (2, 1, 0), (2, None), (2, -1), (2, True), (True, 1), (2.0, 1), (2, 1.0), ("2", "1")),
        *((99, 0), (-1, 0), (10**30, 0), (1, "0"), -1, MAX_INDEX + 1, 10**5000),
        *(np.array([1]), np.array([1, 2]), np.array([]), np.array(True), np.array(1.0), np.array("gpu:1")),
        *(np.array(None), np.bool_(True), np.float64(1), np.datetime64("2020-01-01"), np.zeros((100, 100))),
        np.zeros(1, dtype=[("a", int)])[0],
    ]
    return {f"{i} {type(each).__name__}": each for i, each in enumerate(plain)} | liars()


@pytest.mark.parametrize("name", hostile())
def test_nothing_but_a_device_spec_error_comes_out(name: str) -> None:
    with pytest.raises(ds.DeviceSpecError) as caught:
        ds.device(hostile()[name])
    assert len(str(caught.value)) < 500
    assert caught.value.hint
    assert type(pickle.loads(pickle.dumps(caught.value))) is ds.DeviceSpecError


@pytest.mark.parametrize("name", liars())
def test_a_liar_is_no_kind_and_no_index(name: str) -> None:
    with pytest.raises(ds.DeviceSpecError):
        ds.Device(liars()[name])
    if not name.startswith("shape"):  # as an index, its shape is not read
        with pytest.raises(ds.DeviceSpecError):
            ds.Device("gpu", liars()[name])


def test_a_subclass_of_str_is_read_by_its_characters() -> None:
    assert ds.device(Text("gpu:1")) is ds.gpu(1)
    assert ds.device(np.str_("gpu:1")) is ds.gpu(1)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
anything = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(anything)
def test_any_object_names_a_device_or_is_refused(spec: Any) -> None:
    try:
        found = ds.device(spec)
    except ds.DeviceSpecError:
        return
    assert ds.device(str(found)) is found


@given(st.text(alphabet="gpucda:/()0123456789- PlaceGPU", max_size=90))
def test_near_misses(text: str) -> None:
    try:
        found = ds.device(text)
    except ds.DeviceSpecError as error:
        hint = str(error.hint)
        found = ds.device(hint.split("'")[1]) if "did you mean" in hint else ds.cpu()
    assert ds.device(str(found)) is found


def work(call: Any) -> int:
    """Return roughly how many Python lines, C function calls and characters of exact text a call processes."""
    steps = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return steps


def refused(spec: object) -> None:
    try:
        ds.device(spec)
    except ds.DeviceSpecError:
        return
    raise AssertionError("accepted")


@pytest.mark.parametrize("make", [lambda n: "g" * n, lambda n: "gpu:" * n, lambda n: "/" * n, lambda n: "(" * n])
def test_a_long_text_costs_no_more_than_a_short_one(make: Any) -> None:
    """The number of calls does not grow with the text, and its characters are not read, not even for a hash."""
    refused(make(200))
    assert work(lambda: refused(make(10**7))) <= work(lambda: refused(make(200))) + 5


def test_a_long_text_is_not_even_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen(dict[Any, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            assert len(key) <= 80
            return super().get(key, default)

    monkeypatch.setattr(parsing, "_TEXTS", Seen())
    refused("gpu:1" * 10**6)
    assert ds.device("cuda:1") is ds.gpu(1)


def test_the_memory_of_texts_is_bounded() -> None:
    for index in range(3 * parsing._REMEMBERED):
        assert ds.device(f"cuda:{index}").index == index
        refused(f"no:{index}")
    assert len(parsing._TEXTS) <= parsing._REMEMBERED


def test_no_text_is_evaluated() -> None:
    called = set()

    def profile(frame: object, event: str, argument: Any) -> None:
        if event == "c_call":
            called.add(argument)

    texts = [*ACCEPTED, *REFUSED, "exec('1')", "(lambda: exit())()", "__import__('os')", "f'{1}'", "1+1"]
    outcomes = []
    sys.setprofile(profile)
    try:
        for text in texts:
            try:
                outcomes.append(parsing._from_text(text))
            except ds.DeviceSpecError:
                outcomes.append(None)
    finally:
        sys.setprofile(None)
    assert len([found for found in outcomes if found is not None]) == len(ACCEPTED)
    assert len in called  # the profile sees the calls
    assert not called & {eval, exec, compile, __import__, open}


def test_a_framework_that_is_not_imported_is_not_imported_by_a_lie() -> None:
    before = set(sys.modules)
    for root in ("tensorflow.python", "mxnet", "jaxlib.xla", "paddle.base"):
        refused(type("Device", (), {"__module__": root})())
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"tensorflow", "mxnet", "jax", "paddle"}


def test_a_frameworks_own_objects(fake: Any, device_object: type) -> None:
    assert ds.device(device_object(1)) is ds.gpu(1)
    assert ds.device(device_object(-1)) is ds.cpu()
    refused(device_object("x"))
    refused(fake)


@pytest.mark.parametrize(("count", "is_named"), [(1, True), (19, True), (20, False), (500, False)])
def test_only_of_short_text_the_index_is_named(count: int, is_named: bool) -> None:
    """Longer text would be cut off in the middle."""
    with pytest.raises(ds.DeviceSpecError) as caught:
        ds.device("cuda:" + "a" * count)
    assert ("is not an index" in str(caught.value)) == is_named


def test_a_frameworks_own_device_is_read_by_its_backend(fake: Any) -> None:
    assert ds.device(fake.to_native(ds.gpu(1))) is ds.gpu(1)
    assert ds.device(fake.to_native(ds.cpu())) is ds.cpu()

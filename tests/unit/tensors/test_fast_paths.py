"""Tests of the fast paths to a new tensor, to NumPy, and into `on` and `run`: none of them skips a check.

Each test changes one thing that a fast path must notice, after the call was already made on the fast path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.errors import PlacementError
from devshim.registry import current, registry, tracing
from devshim.tensors import arguments, on_host
from devshim.transfers import observing

NEW: dict[str, Callable[[], Any]] = {
    "ones": lambda: ds.ones((2, 3)),
    "zeros, with a dtype": lambda: ds.zeros(3, dtype="float32"),
    "full": lambda: ds.full(3, 7.0),
    "full, with a dtype": lambda: ds.full((2, 2), 7, dtype="float32"),
    "full, a bool": lambda: ds.full(3, True),
    "arange": lambda: ds.arange(3),
    "arange, with a dtype": lambda: ds.arange(0.0, 1.0, 0.25, dtype="float32"),
    "eye": lambda: ds.eye(2, 3, k=1),
    "asarray": lambda: ds.asarray([1.0, 2.0]),
    "asarray, with a dtype": lambda: ds.asarray([1, 2], dtype="float64"),
    "from_numpy": lambda: ds.from_numpy(np.ones(3)),
    "normal": lambda: ds.random.normal(size=3),
    "uniform": lambda: ds.random.uniform(-1, 1, size=3),
    "randint": lambda: ds.random.randint(10, size=3),
    "permutation": lambda: ds.random.permutation(3),
    "bernoulli": lambda: ds.random.bernoulli(0.5, size=3),
}
LIKE: dict[str, Callable[[Any], Any]] = {
    "empty": ds.empty_like,
    "ones": ds.ones_like,
    "zeros": ds.zeros_like,
    "full": lambda x: ds.full_like(x, 7),
}
G1 = ds.gpu(1)


@pytest.fixture(params=NEW)
def new(request: pytest.FixtureRequest, cards: object) -> Callable[[], Any]:
    """Return a call that has just made a tensor on the CPU."""
    call = NEW[request.param]
    assert ds.device_of(call()) is ds.cpu()
    return call


def test_they_are_taken() -> None:
    """Otherwise the tests below would test nothing."""
    assert current.usual_backend is current.backend_on_host() is registry.load("numpy")
    assert on_host.make("ones", ((2,),), (2,), None, None) is not None
    assert on_host.make("full", ((2,), 7.0), (2,), None, "cpu") is not None
    assert on_host.make("asarray", ([1.0],), (), None, ds.cpu()) is not None
    assert on_host.make("zeros", ((2,),), (2,), "float32", None) is not None
    assert on_host.make("full", ((2,), 1000), (2,), "int8", None) is None  # the numbers may not fit
    assert on_host.make("normal", (0, 2.0, (2,)), (2,), "float32", None) is not None
    assert on_host.make(on_host.COPY, (np.ones(3),), (), None, None) is not None
    assert on_host.make("full", ((2,), 100), (2,), "int8", None) is not None
    assert on_host.make("arange", (0, 5, 2), (), "float32", None) is not None
    assert on_host.make("eye", (2, 3, 0), (2, 3), None, None) is not None
    assert ds.device_of(np.ones(3)) is ds.cpu()  # from here on, arrays are known
    assert on_host.make_like("zeros", np.ones(3)) is not None


@pytest.mark.parametrize("call", LIKE)
def test_like_a_tensor(call: str, cards: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dtype and the device are those of the tensor, regardless of defaults; observers and compilers are asked."""
    x = ds.ones((2, 3), dtype="int8")
    made = LIKE[call](x)
    assert (made.shape, made.dtype, ds.device_of(made)) == (x.shape, x.dtype, ds.cpu())
    with ds.on(G1):
        assert ds.device_of(LIKE[call](x)) is ds.cpu()
        there = ds.ones(2, dtype="float16")
    assert ds.device_of(LIKE[call](there)) is G1
    with ds.explain(file=None) as lines:
        LIKE[call](x)
    assert len(lines) == 1
    monkeypatch.setattr(tracing, "reading", lambda: True)
    assert on_host.make_like(call, x) is None


def test_numbers_that_do_not_fit() -> None:
    ds.full(3, 7), ds.arange(3), ds.full_like(np.ones(3, "int8"), 7)
    for made in (
        lambda: ds.full(3, 300, dtype="int8"),
        lambda: ds.full(3, float("nan"), dtype="int32"),
        lambda: ds.full(3, -1, dtype="uint8"),
        lambda: ds.full_like(np.ones(3, "uint8"), 300),
        lambda: ds.asarray([300, 1], dtype="int8"),
        lambda: ds.asarray(300, dtype="int8"),
        lambda: ds.arange(0, 300, 100, dtype="int8"),
    ):
        with pytest.raises(ds.ConversionError):
            made()
    for refused in (
        lambda: ds.arange(0, 3, 0),
        lambda: ds.arange(float("nan")),
        lambda: ds.arange(0, float("inf")),
        lambda: ds.arange(0, 1, 1e-300),
        lambda: ds.arange(0, 1, 0.5, dtype="int32"),
        lambda: ds.arange(3, dtype="bool"),
        lambda: ds.eye(-1),
        lambda: ds.eye(2.0),
        lambda: ds.random.permutation(-1),
        lambda: ds.random.bernoulli(1.5),
    ):
        with pytest.raises(ds.ArgumentError):
            refused()
    assert ds.arange(3, 0).tolist() == ds.arange(0, 1, float("1e9")).tolist()[1:] == []


@pytest.mark.parametrize("code", "?bhilqBHILQefdFD")
def test_which_arrays_are_taken(code: str) -> None:
    """NumPy has two equal 64-bit integer dtypes; the fast path takes the default one of its arrays."""
    array = np.ones(3, code)
    taken = on_host.make(on_host.COPY, (array,), (), None, None) is not None
    assert taken is (array.dtype is np.dtype(array.dtype.name))
    with_metadata = array.view(np.dtype(code, metadata={"unit": "m"}))
    assert on_host.make(on_host.COPY, (with_metadata,), (), None, None) is None
    assert on_host.make(on_host.COPY, (np.ones(3, ">f4"),), (), None, None) is None


def test_the_default_device(new: Callable[[], Any]) -> None:
    with ds.on(G1):
        assert ds.device_of(new()) is G1
        with ds.on("cpu"):
            assert ds.device_of(new()) is ds.cpu()
        assert ds.device_of(new()) is G1
    assert ds.device_of(new()) is ds.cpu()
    ds.set_device(G1)
    assert ds.device_of(new()) is G1
    ds.set_device("cpu")


def test_the_environment(new: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_DEVICE", "gpu:1")
    assert ds.device_of(new()) is G1
    monkeypatch.setenv("DEVSHIM_DEVICE", "gpu:7")
    with pytest.raises(ds.DeviceNotFoundError, match="DEVSHIM_DEVICE"):
        new()
    monkeypatch.setenv("DEVSHIM_DEVICE", "")
    assert ds.device_of(new()) is ds.cpu()


def test_the_device_inside_run(new: Callable[[], Any]) -> None:
    assert ds.device_of(ds.run(lambda x: new(), ds.ones(1, device=G1))) is G1
    with ds.on(G1):
        assert ds.device_of(ds.run(lambda x: new(), ds.ones(1, device="cpu"))) is ds.cpu()


def test_the_framework(new: Callable[[], Any], fake: Any) -> None:
    with ds.using("fakeframe"):
        made = current.backend_on_host()
    assert made is fake
    ds.use(None)
    assert current.usual_backend is None


def test_the_framework_is_the_one_chosen_last(new: Callable[[], Any], fake: Any) -> None:
    for _ in range(2):
        ds.use("fakeframe")
        new()
        assert current.usual_backend is fake
        ds.use("numpy")
        new()
        assert current.usual_backend is registry.load("numpy")


def test_the_framework_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use(None)
    monkeypatch.setenv("DEVSHIM_BACKEND", "numpy")
    assert isinstance(ds.ones(2), np.ndarray)
    monkeypatch.setenv("DEVSHIM_BACKEND", "nimpy")
    with pytest.raises(ds.BackendNotFoundError, match="nimpy"):
        ds.ones(2)


def test_the_default_dtype() -> None:
    ds.ones(3), ds.random.normal(size=3), ds.random.randint(10, size=3), ds.asarray([1.0])
    ds.set_default_dtype("float16", int="int8")
    try:
        found = {ds.dtype_of(ds.ones(3)), ds.dtype_of(ds.random.normal(size=3)), ds.dtype_of(ds.asarray([1.0]))}
        assert found == {"float16"}
        with pytest.raises(ds.ArgumentError, match="int8"):
            ds.random.randint(1000, size=3)
    finally:
        ds.set_default_dtype(None)


def test_explain(new: Callable[[], Any]) -> None:
    with ds.explain(file=None) as lines:
        new()
    assert len(lines) == 1


def test_a_block_in_compiled_code(cards: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that stops inside a block leaves the block's device to the code that runs then."""
    ds.ones(3)
    monkeypatch.setattr(current, "traced_scopes", current.traced_scopes)
    current.note_traced_scope()
    current.TRACED.devices.append(G1)
    try:
        assert ds.device_of(ds.ones(3)) is G1
    finally:
        current.TRACED.devices.pop()
    assert ds.device_of(ds.ones(3)) is ds.cpu()


def test_values_that_are_not_plain(cards: object) -> None:
    """Lists with tensors, arrays with metadata or another byte order, and other numbers than Python's."""
    assert ds.device_of(ds.asarray([ds.ones(2, device=G1), ds.ones(2, device=G1)])) is G1
    assert ds.dtype_of(ds.from_numpy(np.ones(3, ">f4"))) == "float32"
    assert ds.asarray([np.float32(1), 2]).tolist() == [1, 2]
    for values in ([1, "2"], [None], [[1], [2, 3]], ["1"], [2**70]):
        with pytest.raises(ds.ConversionError):
            ds.asarray(values)
    with pytest.raises(ds.CopyNeededError):
        ds.asarray([1.0], copy=False)


def test_draws_that_are_refused() -> None:
    ds.random.normal(size=3), ds.random.uniform(size=3)
    for draw in (
        lambda: ds.random.normal(0, -1),
        lambda: ds.random.normal(0, float("nan")),
        lambda: ds.random.uniform(1, 0),
        lambda: ds.random.uniform(float("nan")),
        lambda: ds.random.uniform(0, float("inf")),
        lambda: ds.random.uniform(size=3, dtype="int32"),
        lambda: ds.random.normal(size=3, dtype=np.int32),
        lambda: ds.random.uniform(size=(-1,)),
        lambda: ds.random.uniform(size=(2.0,)),
        lambda: ds.random.randint(3, 3),
        lambda: ds.random.randint(1000, size=3, dtype="int8"),
    ):
        with pytest.raises(ds.ArgumentError):
            draw()


def test_a_draw_counts_once(fake: Any) -> None:
    """The fast path does not draw before it leaves the rest to the slow path."""
    for size in (None, (), 3, (2, 2)):
        ds.use("numpy")
        np.random.seed(0)
        expected = np.random.uniform(size=size), np.random.normal(size=size)
        np.random.seed(0)
        assert np.array_equal(ds.random.uniform(size=size), expected[0])
        assert np.array_equal(ds.random.normal(size=size), expected[1])


def test_a_maker_of_an_adapter(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result is checked, and where it fails, the slow path makes the tensor."""
    ds.use("fakeframe")
    proper = ds.ones(3)
    results: list[Any] = [fake.to_device(np.ones(3), G1), None, 1 / 1]
    for result in results:
        makers = {"ones": lambda shape, result=result: result}
        for host_type in (None, type(proper)):
            fast = type(fake.fast_paths)(host_makers=makers, host_type=host_type)
            monkeypatch.setattr(fake, "fast_paths", fast)
            if host_type is not None and type(result) is host_type:
                continue  # an adapter with that type promises that it is on the host
            assert ds.device_of(ds.ones(3)) is ds.cpu()
            assert type(ds.ones(3)) is type(proper)


def test_a_portable_seed(cards: object) -> None:
    ds.random.normal(size=3)
    ds.random.seed(0, portable=True)
    try:
        assert ds.random.randint(0, 100, size=4).tolist() == [1, 30, 14, 72]
    finally:
        ds.random.seed(0)


@pytest.mark.parametrize("kind", ["record", "fault"])
def test_observers(new: Callable[[], Any], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers, guards and faults see the new tensor, and the reading of one."""
    x, seen = ds.ones(3), []
    observer = lambda *about: seen.append(about)  # noqa: E731
    active = observing.Active(None, **{"record": None, "fault": None, kind: observer})
    with ds.on(G1):  # what is made on the CPU cannot fail by a fault
        monkeypatch.setattr(observing, "ACTIVE", active)
        new()
    made = len(seen)
    ds.to_numpy(x)
    assert made
    assert len(seen) > made


@pytest.mark.parametrize("call", ["ones", "from_numpy", "asarray", "uniform"])
def test_a_result_on_another_device(call: str, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use("fakeframe")
    monkeypatch.setattr(fake, call, lambda *args: fake.to_device(np.ones(3), G1))
    new = {"from_numpy": lambda: ds.from_numpy(np.ones(3)), "asarray": lambda: ds.asarray([1.0])}
    with pytest.raises(PlacementError):
        new.get(call, lambda: ds.ones(3) if call == "ones" else ds.random.uniform(size=3))()


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (True,), (2.0,), (2**14, 2**14, 2**14, 2**20), (2**60,), "ab", None])
def test_bad_shapes(shape: Any) -> None:
    ds.ones((2, 3))
    with pytest.raises(ds.ArgumentError):
        ds.ones(shape)


@pytest.mark.parametrize("shape", [-1, [-1], (-1,), [2.5]])
def test_a_bad_shape_is_shown_as_it_was_given(shape: Any) -> None:
    with pytest.raises(ds.ArgumentError, match=re.escape(f"is {shape}")):
        ds.ones(shape)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2**14, 0), (1, 2, 3, 4, 5), [2, 3], 4, (np.int64(2), 3)])
def test_good_shapes(shape: Any) -> None:
    assert ds.ones(shape).shape == np.ones(shape).shape
    assert all(type(size) is int for size in arguments.shape(shape))


def test_nothing_while_code_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that reads code cannot follow a context variable."""
    numpy = registry.load("numpy")
    with monkeypatch.context() as during:
        during.setattr(type(numpy), "compiling", lambda self: True)
        during.setattr(tracing, "COMPILERS", [numpy])
        assert current.backend_on_host() is None
        assert on_host.make("ones", ((2,),), (2,), None, None) is not None
        during.setattr(tracing, "reading", numpy.compiling)
        assert on_host.make("ones", ((2,),), (2,), None, None) is None
        during.setattr(tracing, "reading", None)
        during.setattr(tracing, "COMPILERS", [])  # a compiler that runs the code
        with pytest.raises(ds.TracingError):
            ds.to_numpy(np.ones(3))
        with pytest.raises(ds.TracingError):
            ds.from_numpy(np.ones(3))


def test_an_adapters_copy_for_to_numpy(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves only copies, and a failing one leaves the slow path."""
    ds.use("fakeframe")
    x = ds.ones(3)
    copies: dict[type, Any] = {type(x): lambda x: np.full(3, 7.0)}
    monkeypatch.setattr(fake, "fast_paths", type(fake.fast_paths)(numpy_copy=copies))
    assert ds.to_numpy(x).tolist() == [7, 7, 7]
    assert ds.to_numpy(x, copy=False).tolist() == [1, 1, 1]
    copies[type(x)] = lambda x: 1 / 0
    assert ds.to_numpy(x).tolist() == [1, 1, 1]
    copies[type(x)] = lambda x: None
    assert ds.to_numpy(x).tolist() == [1, 1, 1]


def test_run_on_the_device_of_all(cards: object) -> None:
    x, y = ds.ones(2, device="gpu:0"), ds.ones(2, device=G1)
    assert ds.run(lambda x: ds.device_of(ds.zeros(1)), y) is G1
    with pytest.raises(ds.DeviceMismatchError):
        ds.run(lambda *xs: None, x, y)
    with ds.explain(file=None) as lines:
        ds.run(lambda x: None, y)
    assert len(lines) == 1


def test_on_a_device_that_is_missing(cards: object) -> None:
    with ds.on("cpu"), pytest.raises(ds.DeviceNotFoundError), ds.on("gpu:5"):
        pass
    with ds.explain(file=None) as lines, ds.on("cpu"):
        pass
    assert len(lines) == 1


def test_on_asks_a_compiler_once(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy, asked = registry.load("numpy"), []
    ds.ones(3)
    monkeypatch.setattr(current, "traced_scopes", current.traced_scopes)
    with monkeypatch.context() as during:
        during.setattr(type(numpy), "compiling", lambda self: not asked.append(self))
        during.setattr(tracing, "COMPILERS", [numpy])
        with ds.on("cpu"):
            assert current.TRACED.devices == [ds.cpu()]
    assert asked == [numpy]

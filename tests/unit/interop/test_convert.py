"""Tests of `convert`, `to_numpy` and `from_numpy` between NumPy and a fictitious framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.backend import Backend
from devshim.interop import convert
from devshim.registry import registry
from devshim.transfers import alignment


def test_shares_where_it_can(fake: Any) -> None:
    x = np.arange(4)
    y = ds.convert(x, "fakeframe")
    assert type(y).__module__ == "fakeframe"
    assert np.shares_memory(x, y)
    y = fake.from_numpy(x, ds.cpu(), copy=False)  # before NumPy 2.1, arrays read through DLPack are read-only
    back = ds.convert(y, "np")
    assert type(back) is np.ndarray
    assert np.shares_memory(x, back)
    assert ds.convert(x, "numpy") is x
    assert ds.convert(y) is not y  # the current backend is NumPy


def test_copies_when_asked(fake: Any) -> None:
    x = np.arange(4)
    y = ds.convert(x, "fakeframe", copy=True)
    x[0] = 9
    assert y.tolist() == [0, 1, 2, 3]
    with pytest.raises(ds.CopyNeededError, match="the tensor is on cpu, and gpu:1 was asked for"):
        ds.convert(x, "fakeframe", "gpu:1", copy=False)
    assert ds.device_of(ds.convert(x, "fakeframe", "gpu:1")) is ds.gpu(1)
    with pytest.raises(ds.ArgumentError, match="copy"):
        ds.convert(x, "fakeframe", copy="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("spoil", ["reversed", "read-only", "empty", "0-d", "strided", "big-endian"])
def test_awkward_memory_gives_the_right_values(spoil: str, fake: Any) -> None:
    x = np.arange(12.0).reshape(3, 4)
    x = {
        "reversed": lambda: x[::-1],
        "empty": lambda: x[:0],
        "0-d": lambda: x[0, 0, ...],
        "strided": lambda: x[:, ::2],
        "big-endian": lambda: x.astype(">f8"),
    }.get(spoil, lambda: x)()
    if spoil == "read-only":
        x.flags.writeable = False
    y = ds.convert(x, "fakeframe")
    assert np.array_equal(y, x)
    assert (y.shape, y.dtype.name) == (x.shape, x.dtype.name)
    if spoil in ("reversed", "big-endian"):
        assert not np.shares_memory(x, y)
        with pytest.raises(ds.CopyNeededError):
            ds.convert(x, "fakeframe", copy=False)


def test_memory_that_must_not_be_written_is_shared_read_only_or_not_at_all(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(4)
    x.flags.writeable = False
    for copy in (None, False):
        y = ds.convert(x, "fakeframe", copy=copy)
        assert np.shares_memory(x, y)
        assert not y.flags.writeable
    monkeypatch.setattr(type(fake), "has_readonly_tensors", False)
    y = ds.convert(x, "fakeframe")
    y[...] = 9
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(ds.CopyNeededError, match="the memory is read-only"):
        ds.convert(x, "fakeframe", copy=False)


def test_a_mask_is_refused(fake: Any) -> None:
    with pytest.raises(ds.ConversionError, match="mask") as caught:
        ds.convert(np.ma.masked_array([1.0, 2.0], [False, True]), "fakeframe")
    assert caught.value.hint == "fill the masked values: a.filled(0)"


def test_simulated_cards_go_through_the_host(fake: Any, cards: object) -> None:
    x = ds.asarray([1.0, 2.0], device=1)
    y = ds.convert(x, "fakeframe")
    assert ds.device_of(y) is ds.gpu(1)
    assert y.tolist() == [1, 2]
    with pytest.raises(ds.CopyNeededError, match="belongs to a simulated GPU"):
        ds.convert(x, "fakeframe", copy=False)
    fake.real = 0
    fake.simulated = 0
    with pytest.raises(ds.DeviceNotFoundError):
        ds.convert(x, "fakeframe")


def test_a_dtype_the_other_side_lacks_is_refused_first(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.errors import messages

    def dtype(self: Any, name: str) -> Any:
        raise messages.no_dtype(self, name)

    monkeypatch.setattr(type(fake), "dtype", dtype)
    with pytest.raises(ds.ConversionError, match="Fakeframe has no dtype 'int64'"):
        ds.convert(np.arange(3), "fakeframe")


def test_an_exchange_that_changes_something_is_not_believed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lies = [lambda x: x.astype("float32"), lambda x: x.reshape(-1), lambda x: fake.to_device(x, ds.gpu(1))]
    x = np.arange(4.0).reshape(2, 2)
    for lie in lies:
        monkeypatch.setattr(
            type(fake),
            "from_dlpack",
            lambda self, source, lie=lie: lie(self.to_device(np.from_dlpack(source), ds.cpu())),
        )
        y = ds.convert(x, "fakeframe")
        assert (y.dtype, y.shape, ds.device_of(y)) == (x.dtype, x.shape, ds.cpu())
        assert np.array_equal(x, y)


@pytest.mark.parametrize("thing", [[1, 2], 3, None, "x", {"a": np.zeros(1)}])
def test_only_tensors(thing: Any) -> None:
    for call in (lambda: ds.convert(thing, "numpy"), lambda: ds.to_numpy(thing), lambda: ds.device_of(thing)):
        with pytest.raises(ds.NotATensorError):
            call()


def test_numpy_to_and_from(cards: object) -> None:
    a = np.arange(3)
    assert not np.shares_memory(ds.from_numpy(a), a)
    assert ds.from_numpy(a, copy=False) is a
    assert not np.shares_memory(ds.to_numpy(a), a)
    assert np.shares_memory(ds.to_numpy(a, copy=False), a)
    assert ds.from_numpy(np.float32(3)).shape == ()
    x = ds.from_numpy(a, "gpu:1")
    assert type(ds.to_numpy(x)) is np.ndarray
    with pytest.raises(ds.CopyNeededError):
        ds.to_numpy(x, copy=False)
    with pytest.raises(ds.CopyNeededError):
        ds.from_numpy(a, "gpu:1", copy=False)
    with pytest.raises(ds.ArgumentError, match="copy"):
        ds.from_numpy(a, copy="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [
        *(np.array(["a"]), np.array([None]), np.array([b"a"]), np.zeros(2, [("a", int)]), np.array(["2020"], "M8[D]")),
        np.array([1], "m8[s]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_no_counterpart(array: Any) -> None:
    with pytest.raises(ds.ConversionError, match="no counterpart"):
        ds.from_numpy(array)


@pytest.mark.parametrize("thing", [[1, 2], 3, None, "x"])
def test_from_numpy_takes_arrays(thing: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="a NumPy array"):
        ds.from_numpy(thing)


def test_the_result_of_every_placement_is_checked(fake: Any) -> None:
    """An adapter whose copies arrive on another device is detected, in every call."""
    fake.lands_on = ds.gpu(0)
    x = fake.to_device(np.zeros(1), ds.cpu())
    for call in (lambda: ds.place(x, "gpu:1"), lambda: ds.copy([x], "gpu:1"), lambda: ds.place({"a": x}, "gpu:1")):
        with pytest.raises(ds.PlacementError, match="Fakeframe put the result on gpu:0 instead of gpu:1"):
            call()


@pytest.mark.parametrize("both", [False, True])
def test_memory_of_a_simulated_card_is_shared_with_no_other_framework(fake: Any, cards: object, both: bool) -> None:
    """The other framework's GPU may be a real one, which is not the same device either."""
    fake.simulated = 2 if both else 0
    x = ds.asarray([1.0, 2.0], device=1)
    with pytest.raises(ds.CopyNeededError, match="belongs to a simulated GPU"):
        ds.convert(x, "fakeframe", copy=False)


def test_host_memory_is_shared_while_cards_are_simulated(fake: Any, cards: object) -> None:
    x = np.arange(3.0)
    assert np.shares_memory(ds.convert(x, "fakeframe", copy=False), x)


def test_memory_of_one_real_card_is_offered_to_the_other_framework(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two frameworks on one real GPU: nothing is simulated, so the memory is shared there."""
    x = fake.to_device(np.arange(3.0), ds.gpu(1))
    numpy = registry.load("numpy")
    shared: list[Any] = []

    def from_dlpack(source: Any) -> Any:
        shared.append(source)
        return x

    monkeypatch.setattr(numpy, "count", lambda kind: 2)
    monkeypatch.setattr(numpy, "from_dlpack", from_dlpack)
    monkeypatch.setattr(numpy, "device_of", lambda tensor: ds.gpu(1))
    monkeypatch.setattr(fake, "to_dlpack", lambda tensor: tensor)
    assert ds.convert(x, "numpy", "gpu:1", copy=False) is x
    assert len(shared) == 1


@pytest.mark.parametrize("asked", [None, True])
def test_frozen_memory_of_a_real_card_is_copied_there(
    fake: Any, monkeypatch: pytest.MonkeyPatch, asked: bool | None
) -> None:
    """The memory may not be shared; it used to be copied through the host."""
    x, lent, made = (fake.to_device(np.arange(3.0), ds.gpu(1)) for _ in range(3))
    numpy = registry.load("numpy")
    done: list[str] = []

    def copy_to(tensor: Any, device: Any, non_blocking: bool = False) -> Any:
        assert tensor is lent
        assert device is ds.gpu(1)
        done.append("copied")
        return made

    monkeypatch.setattr(numpy, "count", lambda kind: 2)
    monkeypatch.setattr(type(numpy), "has_readonly_tensors", False)
    monkeypatch.setattr(type(numpy), "freeze", Backend.freeze)  # a framework without read-only tensors has no other
    monkeypatch.setattr(numpy, "from_dlpack", lambda source: lent)
    monkeypatch.setattr(numpy, "copy_to", copy_to)
    monkeypatch.setattr(numpy, "synchronize", lambda device: done.append(f"waited for {device}"))
    monkeypatch.setattr(numpy, "device_of", lambda tensor: tensor.card)
    monkeypatch.setattr(fake, "to_dlpack", lambda tensor: tensor)
    monkeypatch.setattr(fake, "is_writable", lambda tensor: False)
    monkeypatch.setattr(fake, "to_numpy", lambda tensor, copy: pytest.fail("by way of the host"))
    assert ds.convert(x, "numpy", "gpu:1", copy=asked) is made
    assert done == ["copied", "waited for gpu:1"]
    with pytest.raises(ds.CopyNeededError, match="the memory is read-only"):
        ds.convert(x, "numpy", "gpu:1", copy=False)


@pytest.mark.parametrize("stream", [None, -1, 1, 140_000])
def test_a_card_is_waited_for_unless_the_consumer_says_on_which_stream_it_computes(
    fake: Any, monkeypatch: pytest.MonkeyPatch, stream: int | None
) -> None:
    """Waiting stops the whole GPU; with a stream, the producer orders its work before the consumer's."""
    numpy, done = registry.load("numpy"), []

    class Producer:
        def __dlpack__(self, **options: Any) -> Any:
            done.append(options)
            return np.arange(3.0).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 1)

    def from_dlpack(source: Any) -> Any:
        assert source.__dlpack_device__() == (2, 1)
        source.__dlpack__(**({} if stream is None else {"stream": stream}))
        return x

    x = fake.to_device(np.arange(3.0), ds.gpu(1))
    monkeypatch.setattr(numpy, "count", lambda kind: 2)
    monkeypatch.setattr(numpy, "from_dlpack", from_dlpack)
    monkeypatch.setattr(numpy, "device_of", lambda tensor: ds.gpu(1))
    monkeypatch.setattr(fake, "to_dlpack", lambda tensor: Producer())
    monkeypatch.setattr(fake, "synchronize", lambda device: done.append(device))
    assert ds.convert(x, "numpy", "gpu:1", copy=False) is x
    assert [each for each in done if each is ds.gpu(1)] == ([ds.gpu(1)] if stream in (None, -1) else [])
    assert done[-1] == ({} if stream is None else {"stream": stream})


@pytest.fixture
def unknown_to_numpy(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a tensor of the fictitious framework in a dtype that NumPy lacks without ``ml_dtypes``."""

    def to_numpy(self: Any, x: Any, copy: bool) -> Any:
        raise ds.ConversionError("NumPy has no bfloat16", "pip install ml_dtypes")

    monkeypatch.setattr(type(fake), "to_numpy", to_numpy)
    for cls in (type(fake), type(registry.load("numpy"))):
        monkeypatch.setattr(cls, "dtype_name", lambda self, x: "bfloat16")
        monkeypatch.setattr(cls, "dtype", lambda self, name: name)
    return fake.to_device(np.arange(3.0), ds.cpu())


def test_what_numpy_lacks_goes_by_shared_memory(unknown_to_numpy: Any) -> None:
    made = ds.convert(unknown_to_numpy, "numpy", copy=True)
    assert type(made) is np.ndarray
    assert made.tolist() == [0, 1, 2]
    assert not np.shares_memory(made, unknown_to_numpy)


def test_what_nothing_carries_is_refused(unknown_to_numpy: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def to_dlpack(self: Any, x: Any) -> Any:
        raise ds.ConversionError("it has no DLPack")

    monkeypatch.setattr(type(fake), "to_dlpack", to_dlpack)
    reported = "neither NumPy nor DLPack carries bfloat16 from Fakeframe to NumPy: it has no DLPack"
    with pytest.raises(ds.ConversionError, match=reported) as caught:
        ds.convert(unknown_to_numpy, "numpy", copy=True)
    assert caught.value.hint == "pip install ml_dtypes"


def test_a_consumer_that_names_no_stream_waits_for_the_tensor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU continues all other work; `devshim.transfers.dlpack.Ordered` says when to wait."""
    asked: list[object] = []
    x, card = np.ones(3), ds.gpu(0)

    class Lent:
        def __dlpack__(self, **options: object) -> object:
            return x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    source = SimpleNamespace(simulated=0, is_writable=lambda x: True, to_dlpack=lambda x: Lent())
    source.wait_for_values = lambda x, device: asked.append((x, device))
    target = SimpleNamespace(simulated=0, alignment=1, device_of=lambda x: card)
    for framework in (source, target):
        framework.dtype_name = framework.shape = lambda x: None
    target.from_dlpack = lambda lent: (lent.__dlpack__(stream=7), list(asked), lent.__dlpack__(), x)[-1]
    monkeypatch.setattr(alignment, "check_producer", lambda target, lent: lent)
    assert convert._Conversion(None, source, target, x, card, card)._share() == (x, None)  # type: ignore[arg-type]
    assert asked == [(x, card)], "once: a consumer with a stream needs no wait"

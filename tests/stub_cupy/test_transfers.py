"""Tests of copies: on which GPU they are requested, in which order, and that the state is restored."""

from __future__ import annotations

import cupy
import numpy as np
import pytest
from cupy import _machine

import devshim as ds

GPUS = ("gpu:0", "gpu:1")


def values(x):
    return ds.to_numpy(x).tolist()


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("target", GPUS)
def test_every_call_restores_the_current_gpu(current: int, target: str) -> None:
    with cupy.cuda.Device(current):
        x = ds.place(np.arange(6.0).reshape(2, 3), target)
        calls = (
            *(lambda each=each: ds.place(x, each) for each in ("cpu", *GPUS)),
            *(lambda each=each: ds.copy(x.T, each) for each in ("cpu", *GPUS)),
            lambda: ds.zeros(3, device=target),
            lambda: ds.linspace(0, 1, 3, device=target),
            lambda: ds.arange(3, dtype="complex64", device=target),
            lambda: ds.random.normal(size=3, device=target),
            lambda: ds.split(x, GPUS),
            lambda: ds.gather([x, x], target),
            lambda: ds.asarray([x, x]),
            lambda: ds.all_reduce_([ds.copy(x, each) for each in GPUS]),
            lambda: ds.synchronize(),
            lambda: ds.memory(target),
            lambda: ds.empty_cache(),
            lambda: ds.run(lambda t: t + t, x),
            lambda: ds.random.seed(1),
            lambda: ds.zeros((1 << 20, 1 << 20), device=target),
        )
        for call in calls:
            try:
                call()
            except ds.OutOfMemoryError:
                assert call is calls[-1]
            assert cupy.cuda.runtime.getDevice() == current


@pytest.mark.parametrize("there", GPUS)
def test_non_contiguous_arrays_are_copied_to_each_gpu(there: str) -> None:
    x = ds.from_numpy(np.arange(12).reshape(3, 4), "gpu:0")
    assert values(ds.place(x.T, there)) == np.arange(12).reshape(3, 4).T.tolist()
    assert values(ds.copy(x[1:, ::2], there)) == [[4, 6], [8, 10]]


def test_a_copy_to_another_gpu_waits_for_earlier_work_on_the_source() -> None:
    """Streams work late here: CuPy's own copy() would read the zeros."""
    x = ds.zeros(4, device="gpu:0")
    _machine.LATE[0] = True
    with cupy.cuda.Device(0):
        x[...] = 7
    with cupy.cuda.Device(1):
        native = x.copy()
    y = ds.place(x, "gpu:1")
    ds.synchronize("gpu:1")
    assert values(y) == [7] * 4
    assert native._a.tolist() == [0] * 4


def test_the_source_is_not_reused_before_it_was_read() -> None:
    """The source's memory is reused on its own stream, as CuPy's pool does."""
    x = ds.full(4, 7, device="gpu:0")
    _machine.LATE[0] = True
    y = ds.place(x, "gpu:1")
    with cupy.cuda.Device(0):
        x[...] = 0  # as the next owner of this memory would
    ds.synchronize("gpu:0")
    assert values(y) == [7] * 4


def test_copies_use_the_streams_of_the_thread() -> None:
    with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True):
        _machine.LATE[0] = True
        x = ds.zeros(3, device="gpu:1") + 1
        assert values(x) == [1] * 3
        assert values(ds.place(x, "gpu:0")) == [1] * 3


def test_a_blocking_copy_has_read_its_source() -> None:
    _machine.LATE[0] = True
    source = np.ones(3)
    x, y = ds.place(source, "gpu:1"), ds.from_numpy(source, "gpu:1")
    z = ds.place(source, "gpu:1", non_blocking=True)
    source[...] = 5  # too early for ``z``, as the contract says
    assert values(x) == values(y) == [1] * 3
    assert values(z) == [5] * 3


def test_values_of_other_streams_are_complete_in_a_log() -> None:
    log = ds.MetricLog("gpu:1", 4)
    _machine.LATE[0] = True
    for number in range(3):
        with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True):
            loss = ds.zeros((), device="gpu:1") + number
            log.append(loss)
    assert log.flush().tolist() == [0, 1, 2]


def test_host_arrays_belong_to_cupy_while_it_is_current() -> None:
    x = ds.zeros(3)
    assert type(x) is np.ndarray
    y = ds.place({"a": x, "b": [x]}, "gpu:1")
    assert y["a"] is y["b"][0]
    assert ds.device_of(y["a"]) is ds.gpu(1)
    parts = ds.split(ds.arange(7), ["cpu", "gpu:0", "gpu:1"])
    assert [type(part).__module__.partition(".")[0] for part in parts] == ["numpy", "cupy", "cupy"]
    assert values(ds.gather(parts, "cpu")) == list(range(7))
    assert ds.device_of(ds.zeros_like(x, device="gpu:1")) is ds.gpu(1)
    assert ds.convert(x, "cupy") is x
    with ds.using("numpy"):
        assert ds.place(x, "cpu") is x
        assert ds.device_of(ds.place(y["a"], "cpu")) is ds.cpu()
        assert ds.device_of(ds.convert(x, "cupy", "gpu:1")) is ds.gpu(1)
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(x, "gpu:1")


@pytest.mark.parametrize(
    "array", [np.ma.masked_array([1.0, 2.0], [0, 1]), np.array(["text"]), np.array([None]), np.zeros(2, ">f4")]
)
def test_arrays_that_a_gpu_cannot_store_are_refused(array: np.ndarray) -> None:
    assert ds.device_of(array) is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError, match="NumPy array"):
        ds.place(array, "gpu:0")


def test_pickles_and_checkpoints(tmp_path) -> None:
    import pickle

    x = ds.place({"w": np.arange(4.0)}, "gpu:1")
    ds.save(x, tmp_path / "x.safetensors")
    for device in ("cpu", *GPUS):
        found = ds.load(tmp_path / "x.safetensors", device)
        assert ds.device_of(found["w"]) is ds.device(device)
        assert values(found["w"]) == [0, 1, 2, 3]
    with cupy.cuda.Device(1):
        assert ds.device_of(pickle.loads(pickle.dumps(x))["w"]) is ds.gpu(1)


class Producer:
    """Memory of a GPU that another framework offers."""

    def __init__(self, card: int, array: np.ndarray) -> None:
        self.card, self.array = card, array
        self.seen: list[tuple[int, object]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.card)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.seen.append((cupy.cuda.runtime.getDevice(), stream))
        return self.array.__dlpack__(max_version=max_version)


def test_shared_memory_is_in_the_order_of_the_consumers_stream() -> None:
    """The producer is queried with its GPU current, and receives CuPy's stream there."""
    from devshim.registry import registry

    adapter, producer = registry.load("cupy"), Producer(1, np.arange(3))
    with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True) as stream, cupy.cuda.Device(0):
        x = adapter.from_dlpack(producer)
    assert producer.seen == [(1, stream.ptr)]
    assert ds.device_of(x) is ds.gpu(1)
    assert values(x) == [0, 1, 2]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    uneven = np.frombuffer(bytearray(17), np.int8)[1:].view(np.int64)
    for array, why in ((frozen, "read-only"), (uneven, "multiple of 8")):
        with pytest.raises(ds.ConversionError, match=why):
            adapter.from_dlpack(Producer(1, array))


def test_an_export_has_its_own_gpu_current() -> None:
    from devshim.registry import registry

    x = ds.ones(3, device="gpu:1")
    producer = registry.load("cupy").to_dlpack(x)
    assert producer.__dlpack_device__() == (2, 1)
    assert producer.__dlpack__(stream=1) is not None
    assert cupy.cuda.runtime.getDevice() == 0


def test_certify_measures_native_copies_between_host_and_gpu() -> None:
    from devshim.certify.rates import _native_move

    x = np.arange(3.0)
    there = _native_move(x, ds.gpu(1))
    assert ds.device_of(there) is ds.gpu(1)
    assert _native_move(there, ds.gpu(1)) is there
    back = _native_move(there, ds.cpu())
    assert type(back) is np.ndarray
    assert back.tolist() == x.tolist()

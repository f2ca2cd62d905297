"""Tests of PaddlePaddle on several CUDA GPUs, without one: simulated GPUs that follow the CUDA rules of Paddle.

The rules (paddle/phi/core/tensor_utils.cc, 3.0 to 3.3): a copy to the host works only from Paddle's current GPU, a
non-blocking copy between GPUs does not wait for the source, and operators compute on the current GPU.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from unstarted_gpus import calls_on_second_gpu, fail_on_second_gpu

import devshim as ds
from devshim.devices import startup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Place:
    """A simulated GPU's place that claims to be a CUDA place."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def is_gpu_place(self) -> bool:
        return bool(self.native.is_custom_place())

    def gpu_device_id(self) -> int:
        return int(self.native.custom_device_id())


class Cuda:
    """Paddle's C++ layer: the current GPU, and the rules for copies.

    Attributes:
        unordered: The sources of copies between GPUs that did not wait for them.
        unguarded: The GPUs from which ``numpy`` read while another was current.
    """

    def __init__(self, paddle: Any, copy: Callable[..., Any], place_of: Any) -> None:
        self.tracer = paddle.base.framework.global_var._dygraph_tracer_
        self.copy, self.place_of = copy, place_of
        self.unordered: list[str] = []
        self.unguarded: list[str] = []

    def current(self) -> int:
        place = self.tracer._expected_place
        return int(place.custom_device_id()) if place.is_custom_place() else 0

    def copy_to(self, x: Any, place: Any, blocking: bool) -> Any:
        source, target = self.place_of(x), getattr(place, "native", place)
        from_gpu, to_gpu = source.is_custom_place(), "cpu" not in str(target).lower()
        if from_gpu and not to_gpu and source.custom_device_id() != self.current():
            raise RuntimeError(f"(Unavailable) Source place and context place do not match, source place is {source}")
        if from_gpu and to_gpu and not blocking:
            self.unordered.append(str(source))
        return self.copy(x, target, blocking)

    def numpy(self, x: Any, own: Callable[..., Any]) -> Any:
        place = self.place_of(x)
        if place.is_custom_place() and place.custom_device_id() != self.current():
            self.unguarded.append(str(place))
        return own(x)

    def require_current(self, x: Any) -> None:
        place = self.place_of(x)
        assert not place.is_custom_place() or place.custom_device_id() == self.current(), "computed on another GPU"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    with ds.using("paddle"), ds.simulate(gpus=2):
        paddle = import_module("paddle")
        scopes = import_module("devshim_backends._paddle.scopes")
        tensor, core = paddle.base.core.eager.Tensor, paddle.base.core
        own_copy, own_place = tensor._copy_to, tensor.place
        found = Cuda(paddle, own_copy, own_place.__get__)
        monkeypatch.setattr(scopes, "is_custom", lambda device: False)
        monkeypatch.setattr(core, "get_cuda_current_device_id", found.current, raising=False)
        monkeypatch.setattr(tensor, "place", property(lambda x: Place(own_place.__get__(x))))
        own_numpy = tensor.numpy
        monkeypatch.setattr(tensor, "numpy", lambda x: found.numpy(x, own_numpy))
        monkeypatch.setattr(tensor, "_copy_to", lambda x, place, blocking: found.copy_to(x, place, blocking))
        yield found
        assert found.unguarded == []
        monkeypatch.undo()


def ones_on(device: str) -> Any:
    return ds.from_numpy(np.ones((2, 3), "float32"), device)


COPIES: dict[str, Callable[[Any], Any]] = {
    "place": lambda x: ds.place(x, "cpu"),
    "copy": lambda x: ds.copy(x, "cpu"),
    "tree": lambda x: ds.place({"x": x}, "cpu")["x"],
    "gather": lambda x: ds.gather([x], "cpu"),
    "gather two": lambda x: ds.gather([x, ds.copy(x, "gpu:0")], "cpu")[:2],
}


@pytest.mark.parametrize("call", COPIES)
@pytest.mark.parametrize("here", [None, "cpu", "gpu:0", "gpu:1"])
def test_a_gpu_that_is_not_current_is_read(cuda: Cuda, call: str, here: str | None) -> None:
    """A copy to the host works from any GPU, with any current one; afterwards Paddle's current GPU is restored."""
    with ds.on(here) if here else nullcontext():
        before = cuda.current()
        y = COPIES[call](ones_on("gpu:1"))
        assert cuda.current() == before
    assert ds.device_of(y) is ds.cpu()
    assert (ds.to_numpy(y) == 1).all()


def _save_and_load(x: Any, path: Any) -> list[Any]:
    ds.save({"x": x, "y": x + x}, path)
    return [ds.load(path, "gpu:1")["x"], ds.load(path, "cpu")["y"] / 2]


def _train(x: Any, path: Any) -> list[Any]:
    """Return a model and its optimizer, with state, that have been on gpu:1."""
    paddle = import_module("paddle")
    model = paddle.nn.Linear(3, 2)
    optimizer = paddle.optimizer.Adam(0.1, parameters=model.parameters())
    ds.place([model, optimizer], "gpu:1")
    model(x).sum().backward()
    optimizer.step()
    twins = ds.replicate(model, ["gpu:0", "gpu:1"])
    assert [str(ds.device_of(twin.weight)) for twin in twins] == ["gpu:0", "gpu:1"]
    ds.save([model, optimizer], path)
    ds.place([model, optimizer], "cpu")
    assert {str(device) for device in ds.placement_of([model, optimizer]).devices} == {"cpu"}
    ds.load(path, "gpu:1", into=[model, optimizer])
    model(x).sum().backward()
    optimizer.step()
    return []


MORE: dict[str, Callable[[Any, Any], list[Any]]] = {
    "to_numpy": lambda x, path: [ds.from_numpy(ds.to_numpy(x))],
    "convert": lambda x, path: [ds.from_numpy(ds.convert(x, "numpy", "cpu"))],
    "split": lambda x, path: [ds.gather(ds.split(x, ["cpu", "gpu:0"]), "cpu")],
    "broadcast": lambda x, path: ds.broadcast(x, ["cpu", "gpu:0", "gpu:1"]),
    "all_reduce_": lambda x, path: ds.all_reduce_([ones_on("cpu"), x, ones_on("gpu:0")], "max"),
    "mean": lambda x, path: ds.all_reduce_([x, ones_on("gpu:0")], "mean"),
    "there and back": lambda x, path: [ds.place(ds.place(ds.place(x, "gpu:0"), "gpu:1"), "cpu")],
    "non_blocking": lambda x, path: [ds.place([x, ones_on("gpu:0")], "cpu", non_blocking=True)[0]],
    "save and load": _save_and_load,
    "models": _train,
}
"""Copies to the host and between GPUs; each returns tensors of ones."""


@pytest.mark.parametrize("call", MORE)
@pytest.mark.parametrize("here", [None, "gpu:0", "gpu:1"])
def test_every_call_reads_a_gpu_that_is_not_current(cuda: Cuda, tmp_path: Any, call: str, here: str | None) -> None:
    with ds.on(here) if here else nullcontext():
        before = cuda.current()
        found = MORE[call](ones_on("gpu:1"), tmp_path / "file.safetensors")
        assert cuda.current() == before
    assert all((ds.to_numpy(x) == 1).all() for x in found)
    assert cuda.unordered == []


def test_gradients_come_back_from_a_gpu_that_is_not_current(cuda: Cuda) -> None:
    x = ones_on("cpu")
    x.stop_gradient = False
    ds.place(x, "gpu:1").sum().backward()
    assert (x.grad.numpy() == 1).all()


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_copy_between_gpus_waits_for_the_source(cuda: Cuda, needs_gradient: bool) -> None:
    """Paddle copies on the target's stream, which does not wait for the source's."""
    x = ones_on("gpu:0")
    x.stop_gradient = not needs_gradient
    y = ds.place(x, "gpu:1", non_blocking=True)
    assert (ds.to_numpy(y) == 1).all()
    assert cuda.unordered == []


def test_a_copy_between_plug_in_devices_waits_for_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """``phi::Copy`` uses the target's stream for these, too."""
    with ds.using("paddle"), ds.simulate(gpus=2):
        paddle = import_module("paddle")
        tensor, waited = paddle.base.core.eager.Tensor, []
        own = tensor._copy_to
        x = ones_on("gpu:0")
        monkeypatch.setattr(tensor, "_copy_to", lambda x, place, wait: waited.append(wait) or own(x, place, wait))
        ds.place(x, "gpu:1", non_blocking=True)
        assert waited == [True]
        ds.place(ones_on("cpu"), "gpu:1", non_blocking=True)
        assert waited[-1] is False


@pytest.mark.parametrize("place", ["cpu", "gpu:0", "gpu:1"])
def test_a_metric_log_waits_for_every_stream(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Values are stored on the stream that is current at that time; Paddle's streams do not wait for one another."""
    adapter = import_module("devshim.registry.registry").load("paddle")
    cls = import_module("devshim_backends._paddle.collectives").PaddleCollectives
    order: list[str] = []
    own = cls._cuda_scope
    monkeypatch.setattr(type(adapter), "synchronize", lambda self, device: order.append(str(device)))
    monkeypatch.setattr(cls, "_cuda_scope", lambda self, x: order.append("computes") or own(self, x))
    adapter.stack_scalars([ds.ones((), device=place), ds.ones((), device=place)])
    assert order[:2] == [place, "computes"]


def test_collectives_compute_on_the_gpu_of_their_tensors(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's operators run on the current GPU, wherever their arguments are."""
    paddle = import_module("paddle")
    collectives = import_module("devshim_backends._paddle.collectives")
    tensor = type(ones_on("cpu"))

    def checked(own: Any) -> Any:
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            cuda.require_current(x[0] if isinstance(x, list) else x)
            called.append(own)
            return own(x, *args, **kwargs)

        return call

    called: list[Any] = []
    for owner, name in ((paddle, "concat"), (paddle, "stack"), (tensor, "__getitem__")):
        monkeypatch.setattr(owner, name, checked(getattr(owner, name)))
    for op, own in list(collectives._OPS.items()):
        monkeypatch.setitem(collectives._OPS, op, checked(own))
    x = ones_on("gpu:1")
    assert ds.to_numpy(ds.gather([x, x], "gpu:1")).shape == (4, 3)
    assert [part.shape for part in ds.split(x, ["gpu:1", "gpu:1"])] == [[1, 3], [1, 3]]
    assert (ds.to_numpy(ds.all_reduce_([x, ones_on("gpu:1")], "max")[0]) == 1).all()
    log = ds.MetricLog("gpu:1")
    for _ in range(2):
        log.append(ds.ones((), device="gpu:1"))
    log.append(ds.ones((), dtype="float64", device="gpu:1"))
    assert log.flush().tolist() == [1.0, 1.0, 1.0]
    assert len(called) > 4


class Driver:
    """The CUDA driver's answer about the context of a thread."""

    def __init__(self) -> None:
        self.context = 0

    def cuCtxGetCurrent(self, found: Any) -> int:
        found._obj.value = self.context
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        self.context = context.value or 0
        return 0


@pytest.fixture
def driver(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Return a driver whose current context is the one that Paddle's layer left: that of the last tensor's GPU."""
    cuda_context = import_module("devshim_backends._paddle.internals.cuda_context")
    backend = type(import_module("devshim.registry.registry").load("paddle"))
    found = Driver()
    monkeypatch.setattr(cuda_context, "load_driver", lambda: found)

    def changes_context(own: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            found.context = 100 + cuda.current() if found.context == 0 else 777
            return own(*args, **kwargs)

        return call

    for name in cuda_context.CALLS:
        monkeypatch.setattr(backend, name, changes_context(getattr(backend, name)))
    cuda_context.restore_after_calls(backend)
    return found


CALLS: dict[str, Callable[[Any], Any]] = {
    "place": lambda x: ds.place(x, "cpu"),
    "to_numpy": ds.to_numpy,
    "from_numpy": lambda x: ones_on("gpu:1"),
    "zeros": lambda x: ds.zeros(2, device="gpu:1"),
    "random": lambda x: ds.random.normal(size=2, device="gpu:1"),
    "split": lambda x: ds.split(x, ["gpu:1", "gpu:0"]),
    "all_reduce_": lambda x: ds.all_reduce_([x, ones_on("gpu:0")]),
    "a failure": lambda x: check_refusal(),
}


def check_refusal() -> None:
    with pytest.raises(ds.ConversionError):
        ds.asarray("text", device="gpu:1")


@pytest.mark.parametrize("call", CALLS)
def test_the_current_gpu_of_cuda_stays(driver: Driver, call: str) -> None:
    """Paddle sets it for every operator, and PyTorch and CuPy compute there; a thread without one gets Paddle's."""
    x = ones_on("gpu:1")
    assert driver.context
    driver.context = 42
    CALLS[call](x)
    assert driver.context == 42


def test_a_scope_restores_the_current_gpu_of_cuda(driver: Driver) -> None:
    driver.context = 42
    with ds.on("gpu:1"):
        driver.context = 777  # one of the program's own operators
    assert driver.context == 42


def test_synchronize_creates_no_context_on_an_unused_gpu(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    paddle = import_module("paddle")
    devices = import_module("devshim_backends._paddle.devices")
    waited: list[str] = []
    monkeypatch.setattr(devices, "is_custom", lambda device: False)
    monkeypatch.setattr(devices.core, "device_memory_stat_peak_value", lambda what, index: 512 * index)
    monkeypatch.setattr(paddle.device, "synchronize", lambda place: waited.append(str(place)))
    ds.synchronize()
    assert len(waited) == 1
    assert ":1" in waited[0]
    monkeypatch.setattr(import_module("devshim.devices.cuda"), "has_context", lambda index: True)
    ds.synchronize()  # Paddle may also compute in another framework's memory
    assert [place.rpartition(":")[2][0] for place in waited] == ["1", "0", "1"]


TOO_OLD = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
----------------------
Error Message Summary:
----------------------
ExternalError: CUDA error(35), CUDA driver version is insufficient for CUDA runtime version.
  [Hint: 'cudaErrorInsufficientDriver'.] (at ../paddle/phi/backends/gpu/cuda/cuda_info.cc:66)
"""


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Paddle's adapter as in a CUDA build."""
    from devshim.registry import registry

    adapter = registry.load("paddle")
    devices = import_module("devshim_backends._paddle.devices")
    monkeypatch.setattr(devices, "_has_cuda", lambda: True)
    monkeypatch.setattr(adapter, "simulated", 0)
    monkeypatch.setattr(adapter, "simulated_devices", None)
    ds.use("paddle")
    return adapter


def test_a_driver_that_is_too_old_has_no_gpus(with_cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle counts with cudaGetDeviceCount, which then fails: the count is 0, with the reason."""
    import paddle

    def fail() -> int:
        raise OSError(TOO_OLD)

    monkeypatch.setattr(paddle.device.cuda, "device_count", fail)
    assert ds.device_count() == 0
    assert ds.try_gpu() is ds.cpu()
    with pytest.raises(
        ds.DeviceNotFoundError, match=r"Paddle has 0 gpu devices: .*CUDA error\(35\), CUDA driver version is"
    ):
        ds.zeros(3, device="gpu:0")


@pytest.mark.parametrize("kind", [OSError, RuntimeError, SystemError])
def test_a_gpu_that_does_not_start_is_not_found(
    with_cuda: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """It is counted, and the first use raises the reason."""
    import paddle

    x = ds.zeros(3)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 2)
    fail_on_second_gpu(monkeypatch, with_cuda, lambda: kind(TOO_OLD))
    for call in calls_on_second_gpu(x):
        assert ds.device_count() == 2
        with pytest.raises(ds.DeviceNotFoundError, match=r"gpu:1 was asked for.* has 0 gpu devices: CUDA error.35"):
            call()
        assert ds.device_count() == 0
        startup._REASONS.clear()
    assert with_cuda.why_unable_to_start(kind("CUDA error(700), an illegal memory access was encountered")) is None

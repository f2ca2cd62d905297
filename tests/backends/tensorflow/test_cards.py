"""Tests of TensorFlow on CUDA GPUs, without one: kernels that leave int32 on the host, and errors of a full GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from unstarted_gpus import calls_on_second_gpu, fail_on_second_gpu

import devshim as ds
from devshim.devices import startup
from devshim.errors import DeviceMismatchError
from devshim.testing.values import sample
from devshim.transfers import dlpack

pytestmark = pytest.mark.usefixtures("two_cards")


# ---------------------------------------------------------------------------------------------- int32 on the host
@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return kernels like a GPU's (2.21's registry): ConcatV2, Pack, AddV2 and Maximum give int32 in host memory."""
    from devshim_backends._tensorflow import collectives
    from tensorflow.python.ops import gen_array_ops

    left: list[Any] = []

    def kernel(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = own(*args, **kwargs)
            if made.dtype != tf.int32:
                return made
            with tf.device("/CPU:0"):
                left.append(tf.constant(made.numpy()))
            return left[-1]

        return call

    for owner, name in ((tf, "concat"), (tf, "stack"), (gen_array_ops, "pack")):
        monkeypatch.setattr(owner, name, kernel(getattr(owner, name)))
    for op, own in list(collectives._OPS.items()):
        monkeypatch.setitem(collectives._OPS, op, kernel(own))
    return left


@pytest.mark.parametrize("device", ["gpu:0", "gpu:1"])
def test_int32_results_of_gather_are_on_the_gpu(hosted: list[Any], device: str) -> None:
    labels = [ds.from_numpy(np.arange(3, dtype="int32"), device) for _ in range(2)]
    found = ds.gather(labels, device)
    assert hosted
    assert ds.device_of(found) is ds.device(device)
    assert ds.to_numpy(found).tolist() == [0, 1, 2, 0, 1, 2]
    numbers = ds.gather([ds.asarray(i, dtype="int32", device=device) for i in range(2)], device)
    assert ds.device_of(numbers) is ds.device(device)
    assert ds.to_numpy(numbers).tolist() == [0, 1]


@pytest.mark.parametrize("call", ["narrow", "concatenate", "stack_tensors"])
def test_int32_on_a_gpu_is_split_and_joined_there(
    backend: Any, hosted: list[Any], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Every bit is preserved, without an operator that reads int32 from host memory."""
    values = np.array([[0x7F800001, -1], [-(2**31), 0x7FC00000]], "int32")  # of float32, including NaN
    x, slices = ds.from_numpy(values), []
    own = tf.slice
    monkeypatch.setattr(tf, "slice", lambda x, begin, size: slices.append(x.dtype) or own(x, begin, size))
    monkeypatch.setattr(type(backend), "is_accelerator", lambda self, device: True)
    found, expected = {
        "narrow": lambda: (backend.narrow(x, 1, 1, 2), values[:, 1:]),
        "concatenate": lambda: (backend.concatenate([x, x], 0), np.concatenate([values, values])),
        "stack_tensors": lambda: (backend.stack_tensors([x, x]), np.stack([values, values])),
    }[call]()
    monkeypatch.undo()
    assert hosted == []
    assert slices == ([tf.float32] if call == "narrow" else [])
    assert found.dtype == tf.int32
    assert (ds.to_numpy(found) == expected).all()


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_int32_is_reduced_on_its_gpus(hosted: list[Any], op: Any) -> None:
    xs = [ds.from_numpy(np.array([2, 4], "int32"), f"gpu:{i}") for i in range(2)]
    ds.all_reduce_(xs, op)
    assert hosted
    assert [str(ds.device_of(x)) for x in xs] == ["gpu:0", "gpu:1"]
    assert [ds.to_numpy(x).tolist() for x in xs] == [[4, 8] if op == "sum" else [2, 4]] * 2


@pytest.fixture
def behind(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that the memory of int32 is the host's, for every device of its operator."""
    own = type(backend).device_of
    monkeypatch.setattr(type(backend), "device_of", lambda self, x: ds.cpu() if x.dtype == tf.int32 else own(self, x))


@pytest.mark.parametrize("named", [True, False])
def test_a_metric_log_accepts_int32_computed_on_its_gpu(behind: None, named: bool) -> None:
    log = ds.MetricLog("gpu:0" if named else None)
    for i in range(3):
        with tf.device(ds.gpu(0).native()):
            log.append(tf.constant(i) + 1)
    assert log.flush().tolist() == [1, 2, 3]
    with tf.device(ds.gpu(1).native()), pytest.raises(DeviceMismatchError):
        log.append(tf.constant(1) + 1)


# ---------------------------------------------------------------------------------------------- a full card
FULL = [
    tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[1024] and type float on GPU:0"),
    tf.errors.InternalError(
        None,
        None,
        "Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
    ),
    tf.errors.InternalError(None, None, "Dst tensor is not initialized."),
    RuntimeError("Error copying tensor to device: GPU:0. GPU:0 unknown device: Dst tensor is not initialized."),
    tf.errors.InternalError(
        None, None, "Attempting to perform BLAS operation using StreamExecutor: CUBLAS_STATUS_ALLOC_FAILED"
    ),
    tf.errors.InternalError(None, None, "cuDNN launch failure: CUDNN_STATUS_ALLOC_FAILED"),
    tf.errors.UnknownError(None, None, "failed to allocate memory"),
    tf.errors.InternalError(None, None, "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory"),
]
OTHER = [
    tf.errors.InternalError(None, None, "Blas GEMM launch failed"),
    tf.errors.InvalidArgumentError(None, None, "Dst tensor is not initialized."),
    tf.errors.ResourceExhaustedError(None, None, "/checkpoints/model.index; No space left on device"),
    tf.errors.ResourceExhaustedError(None, None, "/data/train.tfrecord; Too many open files"),
    RuntimeError("something else"),
    ValueError("Dst tensor is not initialized."),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_errors_of_a_full_gpu_are_recognized(backend: Any, error: Exception) -> None:
    """Copies allocate where only an InternalError comes out (gpu_util.cc), and libraries have their own messages."""
    assert backend.is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_other_errors_are_not_out_of_memory(backend: Any, error: Exception) -> None:
    assert not backend.is_out_of_memory(error)


def test_a_copy_to_a_full_gpu_is_out_of_memory(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`place` raises it with the number of bytes, and `shrink_batch` continues with a smaller batch."""
    x = ds.zeros(8)
    own = type(backend).copy_to

    def copy_to(self: Any, x: Any, device: Any, non_blocking: bool = False) -> Any:
        if x.shape[0] > 4:
            raise FULL[2]
        return own(self, x, device, non_blocking)

    monkeypatch.setattr(type(backend), "copy_to", copy_to)
    with pytest.raises(ds.OutOfMemoryError, match="32 bytes"):
        ds.place(x, "gpu:0")
    assert ds.shrink_batch(lambda size: int(ds.place(ds.zeros(size), "gpu:0").shape[0]), 16) == (4, 4)
    with pytest.raises(type(FULL[2])):
        raise FULL[2]
    assert ds.shrink_batch(_too_large, 8) == (2, 2)


NO_START = [
    tf.errors.InternalError(None, None, "cudaSetDevice() on GPU:0 failed. Status: CUDA driver version is insufficient"),
    tf.errors.InternalError(None, None, "CUDA runtime implicit initialization on GPU:0 failed. Status: unknown error"),
    RuntimeError("failed initializing StreamExecutor for CUDA device ordinal 0: CUDA_ERROR_NOT_INITIALIZED"),
]


@pytest.mark.parametrize("error", NO_START, ids=str)
def test_a_gpu_that_does_not_start_is_not_found(
    backend: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """TensorFlow lists GPUs without starting them, so the first copy or query fails."""
    from devshim_backends._tensorflow import devices

    x = ds.zeros(8)
    fail_on_second_gpu(monkeypatch, backend, lambda: error)
    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(devices, "logical_gpus", lambda kind: [None, None])
    reported = "TensorFlow has 0 gpu devices: TensorFlow cannot start"
    for call in calls_on_second_gpu(x):
        assert ds.device_count() == 2
        with pytest.raises(ds.DeviceNotFoundError, match=reported) as caught:
            call()
        assert ds.device_count() == 0
        startup._REASONS.clear()
        assert str(error).partition("\n")[0] in str(caught.value)
        assert caught.value.__cause__ is error


def test_another_error_is_not_a_failed_start(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.why_unable_to_start(tf.errors.InternalError(None, None, "Blas GEMM launch failed")) is None
    assert backend.why_unable_to_start(ValueError("cudaSetDevice() on GPU:0 failed")) is None


@pytest.mark.parametrize("reported", [None, "the NVIDIA driver's CUDA does not start (CUDA_ERROR_UNKNOWN)"])
def test_gpus_that_tensorflow_does_not_list_are_explained(
    backend: Any, monkeypatch: pytest.MonkeyPatch, reported: str | None
) -> None:
    """NVML shows them: either the driver's CUDA does not start, or TensorFlow's libraries do not."""
    from devshim.devices import cuda, nvml

    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(tf.test, "is_built_with_gpu_support", lambda: True)
    monkeypatch.setattr(nvml, "visible_cards", lambda: [nvml.Card(0, "H200", "GPU-0", 1, 1)])
    monkeypatch.setattr(cuda, "why_not_started", lambda: reported)
    with pytest.raises(
        ds.DeviceNotFoundError,
        match=re.escape(reported) if reported else "cannot load CUDA .* or the driver is too old",
    ) as caught:
        ds.zeros(3, device="gpu:0")
    assert "TensorFlow has 0 gpu devices" in str(caught.value)


def _too_large(size: int) -> int:
    if size > 2:
        raise FULL[1]
    return size


# ---------------------------------------------------------------------------------------------- copies on a GPU
KERNELS = {"float16", "float32", "float64", "int64", "bfloat16", "int8", "uint8", "uint64"}
"""The dtypes for which a GPU has ``DeepCopy`` (2.21's registry)."""
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


@pytest.fixture
def on_a_card(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a host with a GPU's kernels, from which nothing may be read."""
    from devshim_backends._tensorflow import tensors

    own = tensors._DEEP_COPY

    def deep_copy(x: Any) -> Any:
        if x.dtype.name not in KERNELS:
            raise tf.errors.NotFoundError(None, None, "Could not find device for node DeepCopy")
        return own(x)

    monkeypatch.setattr(tensors, "_DEEP_COPY", deep_copy)
    monkeypatch.setattr(tensors.gen_array_ops, "deep_copy", deep_copy)
    monkeypatch.setattr(type(backend), "is_accelerator", lambda self, device: True)
    monkeypatch.setattr(tensors.EAGER, "numpy", lambda x: pytest.fail("it went by way of the host"))


def address(x: Any) -> int:
    return dlpack.read(tf.experimental.dlpack.to_dlpack(x)).address or 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (), (0, 3), (2, 3)], ids=str)
def test_a_copy_on_a_gpu_does_not_leave_it(
    backend: Any, dtype: str, shape: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    """A dtype without its own kernel is copied as another dtype of its width, bit for bit."""
    x = ds.from_numpy(sample(dtype, shape))
    request.getfixturevalue("on_a_card")
    y = backend.copy_to(x, ds.cpu())
    request.getfixturevalue("monkeypatch").undo()
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert not y.shape.num_elements() or address(y) != address(x)
    assert ds.to_numpy(y).tobytes() == ds.to_numpy(x).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_gradients_flow_through_a_copy_on_a_gpu(backend: Any, dtype: str, on_a_card: None) -> None:
    x = tf.constant([1, 2], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = backend.copy_to(x, ds.cpu()) * 3
    assert bool(tf.reduce_all(tape.gradient(y, x) == 3))


# ---------------------------------------------------------------------------------------------- device ids of GPUs
@pytest.mark.parametrize(
    ("shown", "index", "same"),
    [("01", 0, True), ("01", 1, True), ("1", 0, False), ("10", 0, False), ("02", 1, False), ("00", 1, False)],
)
def test_dlpack_uses_cuda_device_numbers(
    backend: Any, monkeypatch: pytest.MonkeyPatch, shown: str, index: int, same: bool
) -> None:
    """Trap: DLPack's ids are CUDA's, and TensorFlow uses its own, of the GPUs that tf.config shows."""
    from devshim_backends._tensorflow import dlpack as dlpack_module

    x = ds.zeros(64)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list("0123"))
    monkeypatch.setattr(dlpack_module, "logical_gpus", lambda kind: list(shown))
    monkeypatch.setattr(type(backend), "is_accelerator", lambda self, device: True)
    monkeypatch.setattr(type(backend), "device_of", lambda self, x: ds.gpu(index))
    offered = dlpack.TensorInfo(
        device=(dlpack.CUDA, index), dtype="float32", shape=(64,), strides=(1,), address=64, read_only=False
    )
    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(type(backend), "count", lambda self, kind: len(shown))
    if same:
        assert backend.to_dlpack(x).__dlpack_device__()[1] == index
        backend._check_memory(offered)
        return
    with pytest.raises(ds.ConversionError, match="uses its number for another GPU"):
        backend.to_dlpack(x)
    with pytest.raises(BufferError, match=r"numbers GPUs differently from CUDA"):
        backend._check_memory(offered)

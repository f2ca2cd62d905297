"""TensorFlow on CUDA cards, without one: what a full card says."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from devshim import _registry

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.usefixtures("two_cards")


@pytest.fixture
def adapter() -> Any:
    return _registry.load("tensorflow")


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
    RuntimeError("something else"),
    ValueError("Dst tensor is not initialized."),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_what_a_full_card_says(adapter: Any, error: Exception) -> None:
    """Copies allocate where only an InternalError comes out (gpu_util.cc), and libraries have words of their own."""
    assert adapter.is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_what_it_does_not_say(adapter: Any, error: Exception) -> None:
    assert not adapter.is_out_of_memory(error)


def test_a_copy_to_a_full_card_is_out_of_memory(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `place` with the bytes that were asked for, and `shrink_batch` goes on with a smaller one."""
    x = ds.zeros(8)
    own = type(adapter).copy_to

    def copy_to(self: Any, x: Any, device: Any, non_blocking: bool = False) -> Any:
        if x.shape[0] > 4:
            raise FULL[2]
        return own(self, x, device, non_blocking)

    monkeypatch.setattr(type(adapter), "copy_to", copy_to)
    with pytest.raises(ds.OutOfMemoryError, match="32 bytes"):
        ds.place(x, "gpu:0")
    assert ds.shrink_batch(lambda size: int(ds.place(ds.zeros(size), "gpu:0").shape[0]), 16) == (4, 4)
    with pytest.raises(type(FULL[2])):
        raise FULL[2]
    assert ds.shrink_batch(_too_large, 8) == (2, 2)


def _too_large(size: int) -> int:
    if size > 2:
        raise FULL[1]
    return size

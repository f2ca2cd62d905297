"""Counters of memory, which count in steps of 256 bytes, and functions that only a build for CUDA has."""

import contextlib
import io

import paddle

cuda = paddle.device.cuda


def counters(device=None):
    return (
        cuda.memory_allocated(device), cuda.max_memory_allocated(device),
        cuda.memory_reserved(device) >= cuda.memory_allocated(device),
        cuda.max_memory_reserved(device) >= cuda.max_memory_allocated(device),
    )  # fmt: skip


kept = paddle.ones([3])
print(counters(), counters("gpu:1"))
more = paddle.to_tensor([1.0] * 100, place=paddle.CUDAPlace(1))
print(counters(1), counters(paddle.CUDAPlace(1)))
del more
print(counters(1))
cuda.reset_max_memory_allocated(1)
print(counters(1))

text = io.StringIO()
with contextlib.redirect_stdout(text):
    summary = getattr(cuda, "memory_summary", None)  # not in Paddle 3.0
    if summary is not None:
        summary()
print(summary is None or "### Global Memory Snapshot" in text.getvalue())
stream, event = cuda.Stream(), cuda.Event()
stream.record_event(event)
print(event.query(), paddle.base.core.default_cuda_generator(0).initial_seed() >= 0)

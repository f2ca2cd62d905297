"""DLPack: the memory of a GPU stays on the GPU, and NumPy refuses it."""

from contextlib import suppress

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dlpack import from_dlpack, to_dlpack

with tf.device("/GPU:1"):
    x = tf.constant([1.0, 2.0, 3.0])
    part = tf.range(8.0)[1:4]
y = from_dlpack(to_dlpack(x))
print(y.device, y.backing_device, y.numpy())
moved = from_dlpack(to_dlpack(part))
print(moved.device, moved.numpy(), (moved * 2).numpy())
for tensor in (tf.constant(True), tf.zeros((0, 3)), tf.Variable([1.0]).read_value()):
    print(from_dlpack(to_dlpack(tensor)).device, tensor.shape)
if hasattr(x, "__dlpack_device__"):  # TensorFlow 2.20
    assert x.__dlpack_device__() == (2, 1)
    assert tf.constant([1]).__dlpack_device__() == (1, 0)  # int32 stays in host memory
    with suppress(BufferError, RuntimeError):  # NumPy reads no GPU
        print("read", np.from_dlpack(x))
    with tf.device("/CPU:0"):
        assert np.from_dlpack(tf.constant([1.0])) == [1.0]

with tf.device("/CPU:0"):
    host = tf.constant([1.0, 2.0])
print(from_dlpack(to_dlpack(host)).device)
memory = np.zeros(64, np.float32)
start = -memory.ctypes.data % 64 // 4
print(from_dlpack(memory[start : start + 16].__dlpack__()).device)

with tf.device("/GPU:1"):
    large = tf.zeros(10_000)
before = tf.config.experimental.get_memory_info("GPU:1")["current"]
shared = from_dlpack(to_dlpack(large))
assert tf.config.experimental.get_memory_info("GPU:1")["current"] == before
del large
assert tf.config.experimental.get_memory_info("GPU:1")["current"] == before
del shared
assert tf.config.experimental.get_memory_info("GPU:1")["current"] == before - 40_448

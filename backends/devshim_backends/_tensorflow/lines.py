"""The native line each devshim call stands for, as a TensorFlow user writes it. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": 'len(tf.config.get_visible_devices("GPU"))',
        "device_of": "{x}.backing_device",
        "place": "with tf.device({device}): y = tf.identity({x})",
        "copy": "with tf.device({device}): y = tf.raw_ops.DeepCopy(x={x})",
        "to_numpy": "{x}.numpy()",
        "from_numpy": "with tf.device({device}): x = tf.constant({args})",
        "asarray": "with tf.device({device}): x = tf.constant({args}{dtype})",
        "zeros": "with tf.device({device}): x = tf.zeros({args}{dtype})",
        "ones": "with tf.device({device}): x = tf.ones({args}{dtype})",
        "full": "with tf.device({device}): x = tf.fill({args})",
        "empty": "with tf.device({device}): x = tf.raw_ops.Empty(shape={args}{dtype})",
        "arange": "with tf.device({device}): x = tf.range({args}{dtype})",
        "linspace": 'with tf.device({device}): x = tf.constant(np.linspace({args}, dtype="float32"){dtype})',
        "eye": 'with tf.device({device}): x = tf.constant(np.eye({args}, dtype="float32"){dtype})',
        "uniform": "with tf.device({device}): x = tf.random.uniform({2}, {0}, {1}{dtype})",
        "normal": "with tf.device({device}): x = tf.random.normal({2}, {0}, {1}{dtype})",
        "seed": "tf.random.set_seed({args})",
        "on": "with tf.device({device}):",
        "set_device": "tf.device({device}).__enter__()",
        "run": "with tf.device({device}): f({args})",
        "synchronize": "tf.test.experimental.sync_devices()",
        "memory": 'tf.config.experimental.get_memory_info("GPU:{index}")',
        "empty_cache": "gc.collect()",
        "convert": "tf.experimental.dlpack.from_dlpack({x}.__dlpack__())",
        "try_gpu": '"/GPU:{index}" if len(tf.config.get_visible_devices("GPU")) > {index} else "/CPU:0"',
        "dtype": "tf.{name}",
    }
)

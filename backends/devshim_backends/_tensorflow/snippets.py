"""For each devshim call, the code that a TensorFlow user would write without devshim. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": 'len(tf.config.get_visible_devices("GPU"))',
        "devices": 'tf.config.list_logical_devices("GPU")',
        "describe": 'tf.config.experimental.get_device_details(tf.config.get_visible_devices("GPU")[{index}])',
        "memory_policy": 'tf.config.experimental.set_memory_growth(tf.config.get_visible_devices("GPU")[0], True)',
        "memory_fraction": "tf.config.LogicalDeviceConfiguration(memory_limit={args} * total)",
        "place_model": "with tf.device({device}): {x} = keras.models.clone_model({x})  # Keras cannot move a model",
        "copy_model": "with tf.device({device}): {x} = keras.models.clone_model({x})",
        "place_parameter": "with tf.device({device}): v = tf.Variable(weights[{path}])  # Keras cannot move a variable",
        "place_optimizer": "with tf.device({device}): {x} = type({x}).from_config({x}.get_config())",
        "copy_optimizer": "with tf.device({device}): {x} = type({x}).from_config({x}.get_config())",
        "device_of_model": "{x}.weights[0].value.device",
        "split": "parts = tf.split({x}, {sizes}, {axis})  # then tf.identity of each, on {devices}",
        "gather": "with tf.device({device}): y = tf.concat(parts, {axis})",
        "all_reduce": "with tf.device({device}): total = tf.reduce_{op}(tf.stack(ts), 0)",
        "save": "safetensors.tensorflow.save_file({x}, {path})",
        "save_model": "{x}.save_weights({path})",
        "save_optimizer": "tf.train.Checkpoint(optimizer={x}).write({path})",
        "load": "with tf.device({device}): x = safetensors.tensorflow.load_file({path})",
        "load_model": "{x}.load_weights({path})",
        "load_optimizer": "tf.train.Checkpoint(optimizer={x}).read({path})",
        "metric_append": "losses.append(loss)",
        "metric_flush": "tf.stack(losses).numpy()",
        "device_of": "{x}.backing_device",
        "dtype_of": "{x}.dtype",
        "place": "with tf.device({device}): y = tf.identity({x})",
        "copy": "with tf.device({device}): y = tf.raw_ops.DeepCopy(x={x})",
        "to_numpy": "{x}.numpy()",
        "from_numpy": "with tf.device({device}): x = tf.constant({args})",
        "asarray": "with tf.device({device}): x = tf.constant({args}{dtype})",
        "stack": "with tf.device({device}): x = tf.stack(tensors)",
        "zeros": "with tf.device({device}): x = tf.zeros({args}{dtype})",
        "ones": "with tf.device({device}): x = tf.ones({args}{dtype})",
        "full": "with tf.device({device}): x = tf.fill({args})",
        "empty": "with tf.device({device}): x = tf.raw_ops.Empty(shape={args}{dtype})",
        "arange": "with tf.device({device}): x = tf.range({args}{dtype})",
        "linspace": 'with tf.device({device}): x = tf.constant(np.linspace({args}, dtype="float32"){dtype})',
        "eye": 'with tf.device({device}): x = tf.constant(np.eye({args}, dtype="float32"){dtype})',
        "uniform": "with tf.device({device}): x = tf.random.uniform({2}, {0}, {1}{dtype})",
        "normal": "with tf.device({device}): x = tf.random.normal({2}, {0}, {1}{dtype})",
        "randint": "with tf.device({device}): x = tf.random.uniform({2}, {0}, {1}, tf.int64)",
        "permutation": "with tf.device({device}): x = tf.argsort(tf.random.uniform([{0}]))",
        "bernoulli": "with tf.device({device}): x = tf.random.uniform({1}) < {0}",
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

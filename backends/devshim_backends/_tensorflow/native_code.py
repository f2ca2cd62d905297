"""TensorFlow code for devshim calls, as templates for a notebook in TensorFlow's own code. Imports no framework.

`devshim.tutorial.transpiler.templates` explains the placeholders. TensorFlow puts new tensors on GPU 0, and computes
there, so each template that makes a tensor names the device.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETUP = "import tensorflow as tf"
DEVICES: Mapping[str, str] = MappingProxyType(
    {"cpu": '"/CPU:0"', "gpu": '"/GPU:{index}"', "value": "{device}", "dtype": "tf.{name}"}
)
HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": '''
def gpus():
    """Return the names of all GPUs; an empty list on a machine without a GPU."""
    return [f"/GPU:{i}" for i in range(len(tf.config.list_physical_devices("GPU")))]
''',
        "try_gpu": '''
def try_gpu(i=0):
    """Return the name of GPU i if it exists, and that of the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else "/CPU:0"
''',
        "try_all_gpus": '''
def try_all_gpus():
    """Return the names of all GPUs, or of the CPU on a machine without a GPU."""
    return gpus() or ["/CPU:0"]
''',
        "place": '''
def place(x, device):
    """Return a tensor on a device: the same one if it is there, and a copy otherwise."""
    with tf.device(device):
        on_device = tf.zeros(()).backing_device == x.backing_device
        return x if on_device else tf.identity(x)
''',
        "keras": "import keras",
    }
)
_MAKE = "with tf.device({device}):\n    {y} = "
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "len(gpus())",
        "devices": '["/CPU:0", *gpus()]',
        "devices_gpu": "gpus()",
        "try_gpu": "try_gpu({i|$})",
        "try_all_gpus": "try_all_gpus()",
        "on": "tf.device({device})",
        "set_device": "tf.device({device}).__enter__()",
        "device_of": "{x}.backing_device",
        "place": f"{_MAKE}tf.identity({{x}})",
        "place_nested": "place({x}, {device})",
        "place_tree": f"{_MAKE}tf.nest.map_structure(tf.identity, {{x}})",
        "place_model": (
            "with tf.device({device}):\n    moved = keras.models.clone_model({x})\n"
            "    moved.set_weights({x}.get_weights())\n{x} = {y} = moved"
        ),
        "copy": f"{_MAKE}tf.raw_ops.DeepCopy(x={{x}})",
        "copy_tree": f"{_MAKE}tf.nest.map_structure(lambda leaf: tf.raw_ops.DeepCopy(x=leaf), {{x}})",
        "to_numpy": "{x}.numpy()",
        "from_numpy": f"{_MAKE}tf.constant({{a}})",
        "asarray": f"{_MAKE}tf.constant({{obj}}{{dtype|, $}})",
        "zeros": f"{_MAKE}tf.zeros({{shape}}{{dtype|, $}})",
        "ones": f"{_MAKE}tf.ones({{shape}}{{dtype|, $}})",
        "empty": f"{_MAKE}tf.zeros({{shape}}{{dtype|, $}})",
        "full": f"{_MAKE}tf.cast(tf.fill({{shape}}, {{fill_value}}), {{dtype}})",
        "full_standard": f"{_MAKE}tf.fill({{shape}}, {{fill_value}})",
        "arange": f"{_MAKE}tf.range({{start}}{{stop|, $}}{{step|, $}}{{dtype|, dtype=$}})",
        "zeros_like": f"{_MAKE}tf.zeros_like({{x}}{{dtype|, $}})",
        "ones_like": f"{_MAKE}tf.ones_like({{x}}{{dtype|, $}})",
        "random.seed": "tf.random.set_seed({n})",
        "random.uniform": f"{_MAKE}tf.random.uniform({{size}}, {{low}}, {{high}}{{dtype|, $}})",
        "random.uniform_standard": f"{_MAKE}tf.random.uniform({{size}}{{dtype|, dtype=$}})",
        "random.normal": f"{_MAKE}tf.random.normal({{size}}, {{loc}}, {{scale}}{{dtype|, $}})",
        "random.normal_standard": f"{_MAKE}tf.random.normal({{size}}{{dtype|, dtype=$}})",
        "random.randint": f"{_MAKE}tf.random.uniform({{size}}, {{low}}, {{high}}, tf.int64)",
        "run": f"{_MAKE}{{fn}}({{args}})",
        "gather": f"{_MAKE}tf.concat({{parts}}, {{axis}})",
        "synchronize": "tf.test.experimental.sync_devices()",
    }
)

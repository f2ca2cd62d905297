"""Operators on strings and files, which have no kernel for GPUs: TensorFlow runs them on the host."""

import tempfile
from pathlib import Path

import tensorflow as tf

ones = tf.ones(2)
path = Path(tempfile.mkdtemp()) / "two.bin"
path.write_bytes(b"abcdefgh")
image = tf.zeros((8, 8, 3), tf.uint8)


def run():
    raw = tf.io.read_file(str(path))
    floats = tf.io.decode_raw(raw, tf.float32)
    joined = tf.strings.join(["a", tf.strings.as_string(ones)])
    parsed = tf.io.parse_tensor(tf.io.serialize_tensor(ones), tf.float32)
    pixels = tf.io.decode_png(tf.io.encode_png(image))
    print({x.device for x in (raw, floats, joined, parsed, pixels)}, (floats + ones).device)


run()
with tf.device("/GPU:1"):
    run()
with tf.device("/CPU:0"):
    print(tf.strings.length("abc").device)
tf.config.set_soft_device_placement(False)
print(tf.strings.length("abc").device)
for name in ("/GPU:1", "/CPU:0"):
    with tf.device(name):
        try:
            print(tf.strings.length("abc").device)
        except tf.errors.InvalidArgumentError as error:
            print(str(error).partition(" [Op")[0])

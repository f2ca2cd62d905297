"""Operators on strings, files and datasets, which have no kernel for GPUs: TensorFlow runs them on the host."""

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
    words = tf.constant(["a", "b"])
    print(words.backing_device, tf.identity(words).device, tf.where([True, False], ones, 2 * ones).device)
    chosen = tf.where([True, False], words, "x")
    generic = (chosen, tf.concat([words, words], 0), tf.gather(words, [0]), tf.stack([words, words]), words == "a")
    print({x.device for x in (*generic, words[0], tf.fill([2], "a"), tf.reshape(words, [2, 1]))}, chosen.numpy())
    data = tf.data.Dataset.from_tensor_slices(tf.range(4)).map(lambda x: 2 * x).batch(2)
    print([x.device[-5:] for x in data], [(x.device[-5:], y.device[-5:]) for x, y in tf.data.Dataset.zip((data, data))])


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
with tf.device("/GPU:0"):
    for call in (lambda: tf.concat([["a"], ["b"]], 0), lambda: tf.data.Dataset.range(2)):
        try:
            call()
        except tf.errors.InvalidArgumentError as error:
            print(str(error).partition(" Supported")[0])

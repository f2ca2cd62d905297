"""A program that hides all GPUs computes on the CPU, as it does on a machine with GPUs."""

import tensorflow as tf

tf.config.set_visible_devices([], "GPU")
print(len(tf.config.list_physical_devices("GPU")), tf.config.list_logical_devices("GPU"))
print(tf.ones(2).device)
try:
    with tf.device("/GPU:0"):
        print(tf.ones(2).device)
except tf.errors.InvalidArgumentError as error:
    print(type(error).__name__)

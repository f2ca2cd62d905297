"""The log of eager operators: constants, variables and operators, with their GPUs."""

import contextlib
import io

import tensorflow as tf


def log(call):
    with contextlib.redirect_stderr(io.StringIO()) as text:
        tf.debugging.set_log_device_placement(True)
        result = call()
        tf.debugging.set_log_device_placement(False)
    lines = [line.removeprefix("Executing op ") for line in text.getvalue().splitlines()]
    print(*[line.replace(" in device /job:localhost/replica:0/task:0/device", "") for line in lines])
    return result


def on_second():
    with tf.device("/GPU:1"):
        return tf.Variable([1.0, 3.0])


a = log(lambda: tf.constant([1.0, 2.0]))
v = log(on_second)
log(lambda: tf.matmul([[1.0]], [[2.0]]))
log(lambda: (a + 1, a + 1))
log(lambda: v + a)
log(lambda: v.assign([3.0, 4.0]))
log(lambda: v.assign_add(a))
print(tf.debugging.get_log_device_placement())

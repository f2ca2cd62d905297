"""`tf.py_function`: its body gets tensors on the GPU of the operator; beside int32 and strings, on the host."""

import numpy as np
import tensorflow as tf

x = tf.ones(2)


def place(*tensors):
    return [t.backing_device[-5:] for t in tensors]


def body(t):
    print("body", place(t, t + 1))
    return t * t


def used(gpu):
    return tf.config.experimental.get_memory_info(gpu)["current"]


def call(*inputs, result=tf.float32):
    return tf.py_function(body, list(inputs), result)


def eager():
    print("eager", place(call(x)))  # TensorFlow opens a scope of the host where there is none
    with tf.device("/GPU:1"):
        print("scope", place(call(x)), place(call(2.0)))
        print("int32", place(call(tf.constant([3]), result=tf.int32)))
        words = tf.py_function(lambda s: tf.strings.join([s, "b"]), [tf.constant("a")], tf.string)
        print("strings", place(words), words.numpy())
        print("arrays", tf.numpy_function(lambda a: type(a).__name__, [x], tf.string).numpy())
        ragged = tf.ragged.constant([[1.0, 2.0], [3.0]], row_splits_dtype=tf.int64)
        spec = tf.RaggedTensorSpec([2, None], tf.float32, row_splits_dtype=tf.int64)
        print("ragged", tf.py_function(lambda r: r * len(place(r.values)), [ragged], spec).values.device[-5:])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call(x)
        gradient = tape.gradient(y, x)
        print("gradient", gradient.numpy(), place(gradient))
        large, before = tf.ones(1000), used("GPU:1")
        doubled = tf.py_function(lambda t: (t * 2, used("GPU:1") - before), [large], [tf.float32, tf.int64])
        print("memory", doubled[1].numpy(), used("GPU:1") - before)
        tf.config.set_soft_device_placement(False)
        try:
            call(tf.constant([3]), result=tf.int32)
        except tf.errors.InvalidArgumentError as error:
            print(str(error).partition(". enable")[0])
        tf.config.set_soft_device_placement(True)


@tf.function
def anywhere(t):
    return call(t)


@tf.function
def second(t):
    with tf.device("/GPU:1"):
        for _ in tf.range(2):
            t = tf.ensure_shape(call(t), [2])
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = call(t)
        whole = call(tf.constant([3]), result=tf.int32)
        print("shown", whole.device[-5:])
        return tape.gradient(y, t), whole


def replica():
    return call(x)


eager()
print("function", place(anywhere(x)))
with tf.device("/GPU:1"):
    print("called in a scope", place(anywhere(x)))
print("scopes", place(*second(x)))
data = tf.data.Dataset.from_tensors(np.ones(2, "float32")).map(anywhere)
print("dataset", [place(each) for each in data.map(call)])
strategy = tf.distribute.MirroredStrategy()
print("replicas", place(*strategy.experimental_local_results(strategy.run(replica))))
tf.function(lambda: strategy.run(replica))()

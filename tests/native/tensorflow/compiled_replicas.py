"""Functions with ``jit_compile=True`` in the replicas of a strategy: reductions of two GPUs, and what XLA refuses."""

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    total = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
x = tf.constant(2.0)


@tf.function(jit_compile=True)
def reduce(value):
    return tf.distribute.get_replica_context().all_reduce("sum", value)


@tf.function(jit_compile=True)
def add(value):
    total.assign_add(value)
    return total.read_value()


@tf.function(jit_compile=True)
def gradient(value):
    with tf.GradientTape() as tape:
        tape.watch(value)
        y = tf.distribute.get_replica_context().all_reduce("mean", value * value)
    return tape.gradient(y, value)


@tf.function(jit_compile=True)
def scale(value):
    return value * total


def numbers(result):
    return [each.numpy().item() for each in strategy.experimental_local_results(result)]


def refused(call):
    try:
        print("computed", call())
    except (NotImplementedError, tf.errors.InvalidArgumentError) as error:
        text = str(error)
        print(type(error).__name__, "compiled_replicas.py:15" in text, "jit_compile=False" in text)
        print("located in device /job:localhost/replica:0/task:0/device:GPU:1" in text)


@tf.function
def run(function):
    return strategy.run(function, args=(x,))


@tf.function
def run_inside():
    return strategy.run(lambda: reduce(x) + 1)


print(numbers(strategy.run(scale, args=(x,))), numbers(run(scale)))
refused(lambda: strategy.run(reduce, args=(x,)))
print(numbers(run(reduce)), numbers(run_inside()), numbers(run(add)), numbers(total), numbers(run(gradient)))
refused(lambda: strategy.run(lambda: reduce(x)))
print(numbers(run(reduce)))
with strategy.scope():
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse", jit_compile=True)
refused(lambda: net.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0))

"""Refusals: of a GPU or memory that does not exist, and of calls that cannot run on simulated GPUs."""

from functools import partial

import tensorflow as tf


def refused(call):
    try:
        result = call()
    except Exception as error:
        text = str(error).partition("\n")[0].partition(" bytes")[0].partition(". enable")[0]
        kinds = [each.__name__ for each in (tf.errors.OpError, LookupError, ValueError) if isinstance(error, each)]
        print(type(error).__name__, kinds, text)
    else:
        print("computed", result)


def on(name):
    with tf.device(name):
        return tf.ones(2)


@tf.function
def traced(x):
    with tf.device("/GPU:7"):
        return x + x


refused(lambda: on("/GPU:7"))
refused(lambda: traced(tf.ones(2)))
refused(lambda: tf.distribute.MirroredStrategy(["GPU:0", "GPU:2"]).run(lambda: tf.ones(1)))
refused(lambda: on("/CPU:1"))
refused(lambda: tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})))
refused(lambda: tf.zeros((1024, 1024)))
for name in ("GPU:7", "CPU:1", "TPU:0", "GPU"):
    refused(partial(tf.config.experimental.get_memory_info, name))
    refused(partial(tf.config.experimental.reset_memory_stats, name))
refused(lambda: on("/TPU:0"))
refused(lambda: on("/job:worker/task:1/GPU:0"))
try:
    on("/job:worker/task:1/GPU:0")
except tf.errors.InvalidArgumentError as error:
    print(str(error).partition("All available devices ")[2].partition("]")[0])
graph = tf.Graph()
with graph.as_default(), tf.device("/GPU:1"):
    tf.add(1.0, 2.0, name="sum")
definition = graph.as_graph_def()
definition.node[-1].device = "/device:GPU:7"
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.graph_util.import_graph_def(definition, name="")
    refused(lambda: session.run("sum:0"))
print(str(tf.Variable(1.0).handle).partition("device=")[2].partition(", ")[0])
with tf.Graph().as_default(), tf.device("/gpu:1"), tf.compat.v1.Session() as session:
    large = tf.compat.v1.get_variable("large", [1024, 1024])
    refused(lambda: session.run(large.initializer))

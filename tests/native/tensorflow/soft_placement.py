"""Scopes whose device does not exist, or whose name has no index: soft placement takes a GPU, and never the CPU."""

import tensorflow as tf

v1 = tf.compat.v1


def short(x):
    return x.backing_device[-5:]


@tf.function
def in_function(x, name):
    with tf.device(name):
        return x + 1


x = tf.ones((2, 2))
for name in ("/device:XLA_GPU:0", "/device:XLA_CPU:0", "/device:GPUS:1"):
    with tf.device(tf.DeviceSpec.from_string(name)):
        y, v, text = x + 1, tf.Variable(x), tf.strings.as_string(x)
        layer = tf.keras.layers.Dense(2)
        random = tf.random.Generator.from_seed(1)
        print(short(y), v.device[-5:], short(text), short(layer(x)), random.state.device[-5:], short(tf.constant(1.0)))
    print(short(in_function(x, name)), tf.distribute.OneDeviceStrategy(name).run(lambda: tf.ones(2)).device[-5:])
    with tf.device("/GPU:1"):
        print(short(in_function(x, name)))
    with tf.Graph().as_default() as graph:
        with v1.device(name):
            given = v1.placeholder(tf.float32, [1])
            z = given + given
        meta, options = v1.RunMetadata(), v1.RunOptions(trace_level=3)
        with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
            session.run(z, {given: [1.0]}, options, meta)
        devices = {node.node_name: each.device[-5:] for each in meta.step_stats.dev_stats for node in each.node_stats}
        print(devices[z.op.name])

with tf.device("/GPU:1"):
    for name in ("GPU", "gpu", "/device:GPU:*", "/job:localhost", "CPU", None):  # without an index: that of the scope
        with tf.device(name):
            print(name, short(x + 1))


@tf.function
def nested(x, name):
    with tf.device("/GPU:1"), tf.device(name):
        return x + 1


print([short(nested(x, name)) for name in ("GPU", "/job:localhost", "CPU", None)])

tf.config.set_soft_device_placement(False)
try:
    with tf.device("/device:XLA_GPU:0"):
        x + 1
except tf.errors.InvalidArgumentError as error:
    print(str(error).partition("enable")[0])

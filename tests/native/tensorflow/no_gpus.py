"""Run with CUDA_VISIBLE_DEVICES=-1: a build for CUDA shows no GPU, and soft placement takes the CPU."""

import tensorflow as tf
from tensorflow.python.client import device_lib


@tf.function
def add(x):
    with tf.device("/GPU:0"):
        return x + 1


def place(name, make):
    """Return the device of a result in a scope, or the class of the error."""
    try:
        with tf.device(name):
            return make().device
    except (tf.errors.InvalidArgumentError, RuntimeError) as error:
        return type(error).__name__


print(tf.test.is_built_with_cuda(), tf.test.is_built_with_gpu_support(), tf.test.is_gpu_available())
print(tf.sysconfig.get_build_info()["is_cuda_build"], repr(tf.test.gpu_device_name()))
print(tf.config.list_physical_devices("GPU"), tf.config.get_visible_devices("GPU"))
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
tf.config.set_visible_devices([], "GPU")
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print([each.name for each in tf.config.list_logical_devices()])
print([each.name for each in device_lib.list_local_devices()][:1])
for soft in (True, False):
    tf.config.set_soft_device_placement(soft)
    print(place("/GPU:0", lambda: tf.ones(2) + 1), place("/CPU:1", lambda: tf.ones(2)))
    print(place("GPU:1", lambda: tf.constant([1.0])), place("/CPU:0", lambda: add(tf.ones(2))))
tf.config.set_soft_device_placement(True)
print(tf.distribute.MirroredStrategy().num_replicas_in_sync)
print(tf.nn.max_pool2d(tf.ones((1, 1, 4, 4)), 2, 2, "VALID", data_format="NCHW").shape)
with tf.compat.v1.Graph().as_default(), tf.compat.v1.Session() as session:
    print(session.run(tf.constant(2) * 3))
try:
    tf.config.experimental.get_memory_info("GPU:0")
except ValueError as error:
    print(error)
with tf.device("/GPU:0"):
    net = tf.keras.Sequential([tf.keras.layers.LSTM(2), tf.keras.layers.Dense(1)])
    net.compile("sgd", "mse")
    net.fit(tf.ones((2, 3, 2)), tf.ones((2, 1)), verbose=0)
    print(net(tf.ones((2, 3, 2))).device)

"""A guide to GPUs: memory growth, visible and logical GPUs with limits, explicit devices, the log of devices."""

import tensorflow as tf
from tensorflow.python.client import device_lib

gpus = tf.config.list_physical_devices("GPU")
print(gpus[1])
print(tf.test.is_built_with_cuda(), tf.test.is_built_with_gpu_support())
print(tf.sysconfig.get_build_info()["is_cuda_build"])
print(sorted(tf.config.experimental.get_device_details(gpus[0])))
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
print(tf.config.experimental.get_memory_growth(gpus[1]))
tf.config.experimental.set_memory_growth(gpus[0], False)
tf.config.set_visible_devices(gpus[0], "GPU")
print(len(tf.config.get_visible_devices("GPU")))
half = tf.config.LogicalDeviceConfiguration(memory_limit=1)
tf.config.set_logical_device_configuration(gpus[0], [half, half, half])
logical = tf.config.list_logical_devices("GPU")
print(len(gpus), "Physical GPU,", len(logical), "Logical GPUs")
print(logical[2])
print([each.name for each in tf.config.list_logical_devices()][:2])
print(tf.test.gpu_device_name(), device_lib.list_local_devices()[0].name)

a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
c = tf.matmul(a, b)
print(c.device, c.numpy().tolist())
tf.debugging.set_log_device_placement(True)
parts = []
for gpu in logical:
    with tf.device(gpu.name):
        parts.append(tf.matmul(a, b))
with tf.device("/CPU:0"):
    total = tf.add_n(parts)
print([each.device[-5:] for each in parts], total.device[-5:])
print(total.numpy().tolist())
tf.debugging.set_log_device_placement(False)

before = tf.config.experimental.get_memory_info("GPU:1")["current"]
with tf.device("/GPU:1"):
    big = tf.zeros((64, 1024))
print(tf.config.experimental.get_memory_info("GPU:1")["current"] - before)
del big
tf.config.experimental.reset_memory_stats("GPU:1")
print(tf.config.experimental.get_memory_info("GPU:1")["peak"] < 262144)
try:
    with tf.device("/GPU:2"):
        tf.zeros((1024, 1024))
except tf.errors.ResourceExhaustedError as error:
    print(type(error).__name__)
try:
    tf.config.set_visible_devices([], "GPU")
except RuntimeError as error:
    print(error)

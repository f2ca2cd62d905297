"""GPUs that are divided into more logical GPUs than devshim has reserved."""

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    parts = [tf.config.LogicalDeviceConfiguration(memory_limit=100)] * 5
    tf.config.set_logical_device_configuration(gpu, parts)
print(len(tf.config.list_logical_devices("GPU")))
with tf.device("/GPU:9"):
    print(tf.ones(2).device)

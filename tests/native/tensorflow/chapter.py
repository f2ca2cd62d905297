"""A textbook's chapter about GPUs: count them, try them, tensors and models on them, copies between them."""

import tensorflow as tf


def cpu():
    return tf.device("/CPU:0")


def gpu(i=0):
    return tf.device(f"/GPU:{i}")


def num_gpus():
    return len(tf.config.experimental.list_physical_devices("GPU"))


def try_gpu(i=0):
    return gpu(i) if num_gpus() >= i + 1 else cpu()


def try_all_gpus():
    return [gpu(i) for i in range(num_gpus())]


print(num_gpus(), len(try_all_gpus()))
x = tf.constant([1, 2, 3])
print(x.device)
with try_gpu():
    X = tf.ones((2, 3))
print(X.device)
with try_gpu(1):
    Y = tf.random.uniform((2, 3))
print(Y.device)
with try_gpu(10):
    print(tf.ones(1).device)
with try_gpu(1):
    Z = X  # no copy
print(Z.device)
with try_gpu(1):
    Z = tf.identity(X)
    Z2 = Z
print(Z.device)
print((Y + Z).device, Z2 is Z)
print((X * 2).device, tf.matmul(X, X, transpose_b=True).device == X.device)

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    net = tf.keras.models.Sequential([tf.keras.layers.Dense(1)])
print(net(X).shape)
print(net.layers[0].weights[0].value.device)

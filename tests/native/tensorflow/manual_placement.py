"""A guide's manual device placement: tensors of the host, copies that TensorFlow makes, policies, and the log."""

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
print("Num GPUs Available:", len(tf.config.list_physical_devices("GPU")))

with tf.device("/CPU:0"):
    a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
tf.debugging.set_log_device_placement(True)
c = tf.matmul(a, b)  # on the first GPU, wherever its tensors are
tf.debugging.set_log_device_placement(False)
print(c)
print(a.device[-5:], c.device[-5:])

with tf.device("/GPU:1"):
    x = tf.ones((2, 3))
    v = tf.Variable([[1.0], [2.0], [3.0]])
    y = tf.matmul(a, v)  # `a` is copied to the second GPU
print(x.device[-5:], y.device[-5:], (x + x).device[-5:], (a + x).device[-5:], tf.identity(x).device[-5:])
print(v.device[-5:], tf.matmul(x, v).device[-5:])
v.assign_sub(tf.ones((3, 1)) * 0.5)
print(v.value().device[-5:], v.numpy().ravel().tolist())
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(tf.matmul(a, v) ** 2)
print(loss.device[-5:], tape.gradient(loss, v).numpy().ravel().tolist())

tf.config.experimental.set_device_policy("explicit")
try:
    tf.matmul(a, v)
except tf.errors.InvalidArgumentError as error:
    print(str(error).partition(" Tensors can be copied")[0])
print(tf.matmul(x.gpu(0) if hasattr(x, "gpu") else tf.identity(x), tf.ones((3, 1))).device[-5:])
print(tf.config.experimental.get_device_policy())
tf.config.experimental.set_device_policy("silent")


@tf.function
def doubled(x):
    return 2 * x + 1


print(doubled(x).device[-5:], doubled(a).device[-5:])
data = tf.data.Dataset.range(8).map(lambda n: tf.cast(n, tf.float32)).batch(4)
print({batch.device[-5:] for batch in data.apply(tf.data.experimental.prefetch_to_device("/GPU:1"))})
print({(batch * 2).device[-5:] for batch in data})

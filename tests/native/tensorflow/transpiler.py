import tensorflow as tf


def gpus():
    """Return the names of all GPUs; an empty list on a machine without a GPU."""
    return [f"/GPU:{i}" for i in range(len(tf.config.list_physical_devices("GPU")))]


def try_gpu(i=0):
    """Return the name of GPU i if it exists, and that of the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else "/CPU:0"


def try_all_gpus():
    """Return the names of all GPUs, or of the CPU on a machine without a GPU."""
    return gpus() or ["/CPU:0"]


def place(x, device):
    """Return a tensor on a device: the same one if it is there, and a copy otherwise."""
    with tf.device(device):
        on_device = tf.zeros(()).backing_device == x.backing_device
        return x if on_device else tf.identity(x)


print(len(gpus()), len(try_all_gpus()))
print(len(["/CPU:0", *gpus()]))
print(len(gpus()))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
with tf.device("/CPU:0"):
    x = tf.constant([1.0, 2.0, 3.0], tf.float32)
# float32
with tf.device(try_gpu()):
    X = tf.ones((2, 3))
with tf.device("/GPU:1"):
    Y = tf.fill((2, 3), 0.5)
print(x.numpy().tolist(), X.backing_device == Y.backing_device)

tf.random.set_seed(0)
with tf.device(try_gpu(1)):
    R = tf.random.uniform((2, 3), dtype=tf.float32)
with tf.device("/GPU:0"):
    N = tf.random.normal((4,), 3.0, 0.0)
print(tuple(R.shape), N.numpy().tolist(), R.backing_device == Y.backing_device)

# to the GPU of Y
with tf.device("/GPU:1"):
    Z = tf.identity(X)
with tf.device("/GPU:1"):
    S = (lambda a, b: a + b)(Y, Z)
print(S.numpy().tolist(), S.backing_device == Y.backing_device)
with tf.device("/GPU:1"):
    result = tf.raw_ops.DeepCopy(x=Z)
print(place(Z, "/GPU:1") is Z, result is Z)

where = "gpu:0"
parts = [place(part, "/GPU:0") for part in (X, Y)]
with tf.device("/GPU:0"):
    tree = tf.nest.map_structure(tf.identity, {"a": X, "b": [Z]})
print({part.backing_device == X.backing_device for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(place(tensor, "/CPU:0").numpy().sum())


for device in try_all_gpus():
    with tf.device(device):
        zeros = tf.zeros((2,))
    print(total(place(X, device)) + total(zeros))

with tf.device(try_gpu(10)):
    H = tf.constant(Y.numpy())
print(total(H), H.backing_device == x.backing_device)

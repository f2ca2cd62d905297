import jax
import jax.numpy as jnp
import numpy as np


def gpus():
    """Return all GPUs; an empty list on a machine without a GPU."""
    return [device for device in jax.devices() if device.platform == "gpu"]


def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else jax.devices("cpu")[0]


def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return gpus() or jax.devices("cpu")


key = jax.random.key(0)


def next_key():
    """Return a fresh key for one draw: equal keys give equal numbers."""
    global key
    key, fresh = jax.random.split(key)
    return fresh


def place(x, device):
    """Return an array on a device: the same one if it is there, and a copy otherwise."""
    return x if x.device == device else jax.device_put(x, device)


print(len(gpus()), len(try_all_gpus()))
print(len([*jax.devices("cpu")[:1], *gpus()]))
print(len(gpus()))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
x = jax.device_put(np.array([1.0, 2.0, 3.0], dtype=jnp.float32), jax.devices("cpu")[0])
X = jnp.ones((2, 3), device=try_gpu())  # float32
Y = jnp.full((2, 3), 0.5, device=jax.devices("gpu")[1])
print(np.array(x).tolist(), X.device == Y.device)

key = jax.random.key(0)
R = jax.device_put(jax.random.uniform(next_key(), (2, 3), jnp.float32), try_gpu(1))
N = jax.device_put(3.0 + 0.0 * jax.random.normal(next_key(), (4,)), jax.devices("gpu")[0])
print(tuple(R.shape), np.array(N).tolist(), R.device == Y.device)

Z = jax.device_put(X, jax.devices("gpu")[1])  # to the GPU of Y
S = (lambda a, b: a + b)(Y, Z)
print(np.array(S).tolist(), S.device == Y.device)
print(place(Z, jax.devices("gpu")[1]) is Z, jnp.copy(jax.device_put(Z, jax.devices("gpu")[1])) is Z)

where = "gpu:0"
parts = [jax.device_put(part, jax.devices("gpu")[0]) for part in (X, Y)]
tree = jax.device_put({"a": X, "b": [Z]}, jax.devices("gpu")[0])
print({part.device == X.device for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(np.array(jax.device_put(tensor, jax.devices("cpu")[0])).sum())


for device in try_all_gpus():
    zeros = jnp.zeros((2,), device=device)
    print(total(jax.device_put(X, device)) + total(zeros))

H = jax.device_put(np.array(Y), try_gpu(10))
print(total(H), H.device == x.device)

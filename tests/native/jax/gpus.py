"""GPUs, as a book introduces them: count them, store arrays on them, copy between them, and train a network there."""

import jax
import jax.numpy as jnp
from flax import linen as nn


def cpu():
    return jax.devices("cpu")[0]


def gpu(i=0):
    return jax.devices("gpu")[i]


def num_gpus():
    try:
        return jax.device_count("gpu")
    except RuntimeError:
        return 0  # no GPU backend found


def try_gpu(i=0):
    return gpu(i) if num_gpus() >= i + 1 else cpu()


def try_all_gpus():
    return [gpu(i) for i in range(num_gpus())] or [cpu()]


print(cpu(), gpu(), gpu(1), num_gpus())
print(try_gpu(), try_gpu(10), try_all_gpus())

# An array is on the first GPU unless the program says otherwise.
x = jnp.array([1, 2, 3])
print(x.devices(), x.device)
X = jax.device_put(jnp.ones((2, 3)), try_gpu())
print(X, X.device)
Y = jax.device_put(jax.random.uniform(jax.random.PRNGKey(0), (2, 3)), try_gpu(1))
print(Y.device, repr(Y.device), Y.shape)

# Copy to the device of the other operand, then compute there.
Z = jax.device_put(X, try_gpu(1))
print(X.device, Z.device, (Y + Z).device)
try:
    X + Y
except ValueError as error:
    print("ValueError:", str(error).splitlines()[0])

# A network computes where its parameters are.
net = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(1)])
params = jax.device_put(net.init(jax.random.PRNGKey(1), X), try_gpu(1))
print(sorted({str(leaf.device) for leaf in jax.tree_util.tree_leaves(params)}))
print(net.apply(params, Z).device)


@jax.jit
def step(params, inputs, labels):
    def loss(params):
        return ((net.apply(params, inputs) - labels) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads)


labels = jax.device_put(jnp.ones((2, 1)), try_gpu(1))
losses = []
for _ in range(20):
    value, params = step(params, Z, labels)
    losses.append(float(value))
print(value.device, losses[-1] < losses[0])

"""Training on several GPUs: a mesh with a sharded batch, `shard_map`, and `pmap`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices("gpu")), ("data",))
print(mesh.devices, mesh.shape)
by_row, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

rng = np.random.default_rng(0)
inputs = rng.standard_normal((8, 3), dtype=np.float32)
labels = inputs @ np.array([1.0, -2.0, 0.5], dtype=np.float32)
w = jax.device_put(jnp.zeros(3), everywhere)
x, y = jax.device_put((inputs, labels), by_row)
print([(str(shard.device), shard.data.shape) for shard in x.addressable_shards])


def loss(w, x, y):
    return ((x @ w - y) ** 2).mean()


@jax.jit
def step(w, x, y):
    value, grad = jax.value_and_grad(loss)(w, x, y)
    return w - 0.1 * grad, value


for _ in range(200):
    w, value = step(w, x, y)
print(np.round(np.asarray(w), 2), sorted(str(device) for device in w.devices()))


@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(PartitionSpec("data"), PartitionSpec("data")), out_specs=PartitionSpec()
)
def total(x, y):
    return jax.lax.psum((x.sum(1) * y).sum(), "data")


print(np.allclose(total(x, y), (inputs.sum(1) * labels).sum(), rtol=1e-4))

mean = jax.pmap(lambda a: jax.lax.pmean(a, "i"), axis_name="i", devices=jax.devices())
print(mean(jnp.array([1.0, 3.0])), jax.local_device_count())
print(jax.pmap(lambda a: a * 2)(jnp.arange(2 * 3.0).reshape(2, 3)).sum())

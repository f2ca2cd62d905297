"""A notebook about distributed arrays: meshes, shardings, computation that follows them, and constraints."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

print(len(jax.devices()), jax.local_device_count("gpu"))
devices = mesh_utils.create_device_mesh((2, 1))
print(devices.tolist())
mesh = Mesh(devices, axis_names=("x", "y"))
x = jax.random.normal(jax.random.key(0), (4, 4))
print(x.sharding, x.devices())
jax.debug.visualize_array_sharding(x)
y = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
jax.debug.visualize_array_sharding(y)
for shard in y.addressable_shards:
    print(shard.device, shard.index, shard.data.device)
z = jnp.sin(y)
print(z.sharding == y.sharding, len(z.sharding.device_set))
w = jax.device_put(x, NamedSharding(mesh, P("y", "x")))
jax.debug.visualize_array_sharding(jnp.dot(y, jax.device_put(w, NamedSharding(mesh, P(None, None)))))
second = jax.device_put(x, SingleDeviceSharding(jax.devices()[1]))
print(second.addressable_data(0).device, np.allclose(z, jnp.sin(second)))


@jax.jit
def constrained(x):
    x = jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P("y", "x")))
    return x * 2


print(constrained(y).sharding.spec, constrained.lower(y).compile().output_shardings.spec)


@partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P())
def total(block):
    return jax.lax.psum(block.sum(), ("x", "y"))


print(jnp.allclose(total(y), x.sum(), atol=1e-5), total(y).sharding.is_fully_replicated)
try:
    jax.device_put(x, jax.devices()[0]) + jax.device_put(x, jax.devices()[1])
except ValueError as error:
    print(str(error).partition(".")[0])
params = {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}
params = jax.device_put(params, NamedSharding(mesh, P()))
batch = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("x")))


@jax.jit
def step(params, batch):
    loss, grads = jax.value_and_grad(lambda p: ((batch @ p["w"] + p["b"] - 1) ** 2).mean())(params)
    return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


for _ in range(3):
    loss, params = step(params, batch)
print(params["w"].sharding.is_fully_replicated, params["b"].devices() == set(jax.devices()), float(loss) < 9)

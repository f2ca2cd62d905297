"""The default device, and the ways to choose another one."""

import jax
import jax.numpy as jnp

print(jnp.ones(3).device, jnp.ones(3).committed, jax.device_put(2.0).device)
print(jax.random.normal(jax.random.key(0), (3,)).device)
print(jax.jit(lambda a: a * 2)(1.0).device)
print(jnp.zeros(3, device=jax.devices("gpu")[1]).device, jnp.ones(3).to_device(jax.devices("cpu")[0]).device)

with jax.default_device(jax.devices("gpu")[1]):
    print(jnp.arange(3).device)
with jax.default_device("cpu"):
    print(jnp.arange(3).device)
with jax.default_device("gpu"):
    print(jnp.arange(3).device)

jax.config.update("jax_default_device", jax.devices("gpu")[1])
print(jnp.ones(3).device, jax.random.key(0).device, jnp.linalg.inv(jnp.eye(2)).device)
jax.config.update("jax_default_device", None)
print(jnp.ones(3).device)

a = jax.device_put(jnp.arange(4.0), jax.devices("gpu")[1])
print(jax.jit(jnp.sum)(a).device, jax.grad(lambda v: (v**2).sum())(a).device, jax.vmap(jnp.sin)(a).device)
print(a.at[0].set(5.0).device, (a + 1).device, jnp.stack([a, a]).device)
print(jax.lax.scan(lambda carry, v: (carry + v, carry), a[0], a)[0].device)
compiled = jax.jit(lambda v: v * 2).lower(a).compile()
print(compiled(a).device)
placed = jax.jit(lambda: jnp.ones(3), out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[1]))
print(placed().device)
print(jax.jit(lambda v: v + 1, backend="cpu")(1.0).device, jax.jit(lambda v: v + 1, backend="gpu")(1.0).device)

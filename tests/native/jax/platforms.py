"""Code that depends on the platform, devices of functions, donation, callbacks, files, and what devices say."""

import copy
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

first, second = jax.devices("cuda")
host = jax.devices("cpu")[0]
x = jax.device_put(jnp.arange(4.0), second)


@jax.jit
def where(x):
    return jax.lax.platform_dependent(x, cpu=lambda x: x * 0, cuda=lambda x: x + 1, default=lambda x: x - 1)


print(where(x), where(jax.device_put(x, host)), where(jax.device_put(x, first)))
print(jax.vmap(where)(x), jax.grad(lambda x: where(x).sum())(x))
print(where(x).devices(), jax.lax.platform_dependent(x, cpu=jnp.cos, default=lambda x: 2 * x))

with jax.default_device(second):
    print(jnp.ones(2).device, jax.random.uniform(jax.random.key(1)).devices())
print(
    jnp.ones(2).device, jax.jit(lambda: jnp.zeros(2), out_shardings=jax.sharding.SingleDeviceSharding(second))().device
)
print(jax.jit(jnp.sin, in_shardings=jax.sharding.SingleDeviceSharding(second))(np.ones(2)).device)


@partial(jax.jit, donate_argnums=0)
def update(state, gradient):
    return state - 0.1 * gradient


state = jax.device_put(jnp.ones(3), second)
new = update(state, jax.device_put(jnp.ones(3), second))
print(state.is_deleted(), new.device, new)

print(x.device.platform, x.device.id, x.device.process_index, x.device.compute_capability, x.platform())
print(sorted(x.device.memory_stats()), x.device == second, {first: 1}[jax.devices()[0]], host.platform)
print(pickle.loads(pickle.dumps(x)).device, copy.deepcopy(x).device, jnp.asarray(np.asarray(x)).device)


def on_host(a):
    return np.sin(np.asarray(a))


result = jax.jit(lambda a: jax.pure_callback(on_host, jax.ShapeDtypeStruct(a.shape, a.dtype), a))(x)
print(result.device, np.allclose(result, np.sin(np.arange(4.0))))
jax.debug.print("{}", jax.jit(lambda a: a.sum())(x))
jax.effects_barrier()
compiled = jax.jit(lambda a: a @ a).lower(x).compile()
print(compiled(x).device, len(jax.live_arrays("gpu")) > 0)

for array in (jax.device_put(jnp.eye(2), host), jax.device_put(jnp.eye(2), second)):
    for function in (jax.lax.linalg.schur, jax.jit(jax.lax.linalg.hessenberg), jax.scipy.linalg.sqrtm):
        try:
            print(jax.tree.leaves(function(array))[0].device)
        except NotImplementedError as error:
            print(error)

print(first.core_count > 0, first.device_vendor, hasattr(host, "core_count"), first.memory("pinned_host").kind)
for kind in ("gpu", "unpinned_host"):
    try:
        second.memory(kind)
    except jax.errors.JaxRuntimeError as error:
        print(str(error).replace(second.device_kind, "KIND"))

"""Arrays in the host memory of a GPU: they take no memory of the GPU. Kinds of memory that a GPU lacks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

gpu = jax.devices()[1]
on_gpu, on_host = SingleDeviceSharding(gpu), SingleDeviceSharding(gpu, memory_kind="pinned_host")
ONES = np.ones(1 << 16, "float32")
"""A quarter of the memory of a GPU."""


def used():
    return gpu.memory_stats()["bytes_in_use"]


offloaded = [jax.device_put(ONES, on_host) for _ in range(8)]
print(used(), {x.sharding.memory_kind for x in offloaded})
x = jax.device_put(offloaded[0], on_gpu)
print(used(), jax.device_put(x, on_host).sharding.memory_kind, used())

functions = {
    "out_shardings": jax.jit(lambda x: x * 2, out_shardings=on_host),
    "device_put": jax.jit(lambda x: jax.device_put(x * 2, on_host)),
}
for name, function in functions.items():
    offloaded += [function(x) for _ in range(8)]  # the first call, and JAX's fast path
    print(name, offloaded[-1].sharding.memory_kind, used())
back = jax.jit(lambda x: jax.device_put(x, on_gpu) + 1)
results = [back(offloaded[0]) for _ in range(2)]
print(results[1].sharding.memory_kind, used())
del results

mesh = jax.make_mesh((2,), ("x",))
parts = [jax.device_put(ONES, NamedSharding(mesh, P("x"), memory_kind="pinned_host")) for _ in range(16)]
print(used(), jax.device_put(parts[0], parts[0].sharding.with_memory_kind("device")).sharding.memory_kind, used())

policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["z"],
    offload_src="device",
    offload_dst="pinned_host",
)


@partial(jax.checkpoint, policy=policy)
def loss(x):
    z = checkpoint_name(jnp.sin(x), "z")
    return (z * z).sum()


value, backward = jax.vjp(jax.jit(loss), x)
print(sorted(each.sharding.memory_kind for each in jax.tree.leaves(backward)), used())
(gradient,) = backward(value / value)
print(gradient.device, used())
del gradient, value, backward, back, x
print(used())

try:
    kept = [jax.device_put(ONES, on_gpu) for _ in range(5)]
except jax.errors.JaxRuntimeError:
    print("full")


# ---------------------------------------------------------------------- a kind that GPUs lack
def refused(call):
    try:
        print(call())
    except ValueError as error:
        print(str(error).replace(gpu.device_kind, "KIND"))


small = np.ones(2, "float32")
refused(lambda: jax.device_put(small, SingleDeviceSharding(gpu, memory_kind="unpinned_host")))
refused(lambda: jax.device_put(small, NamedSharding(mesh, P("x"), memory_kind="unpinned_host")))
refused(lambda: jax.device_put(small, on_gpu.with_memory_kind("unpinned_host")))
refused(lambda: jax.jit(jnp.sin, out_shardings=SingleDeviceSharding(gpu, memory_kind="unpinned_host"))(small))

"""Questions that programs and libraries ask about GPUs."""

import copy
import pickle

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

first, second = jax.devices()
print(jax.default_backend(), jax.devices(), jax.devices("gpu") == jax.devices("cuda"), jax.devices("cpu"))
print(jax.device_count(), jax.local_device_count("gpu"), jax.device_count("cpu"), jax.local_devices(backend="gpu"))
print(second, repr(second), f"{second}", second.platform, second.id, second.local_hardware_id, second.process_index)
print(second.device_kind.startswith("simulated GPU"), isinstance(second, jax.Device), first == jax.devices("gpu")[0])
print(len({first, second, *jax.devices("gpu")}), max(jax.devices(), key=lambda device: device.id))
print(jax.extend.backend.get_backend().platform, jax.extend.backend.get_default_device())
print(list(jax.extend.backend.backends()), "cuda" in jax.extend.backend.get_backend().platform_version)

x = jax.device_put(jnp.arange(4.0), second)
print(x.sharding, x.sharding.device_set, x.addressable_shards[0].device, x.platform())
print(jax.tree.map(lambda leaf: leaf.device, {"x": x}))
print(pickle.loads(pickle.dumps(x)).device, copy.deepcopy(x).device)
stats = second.memory_stats()
print(stats["bytes_in_use"] >= 16, stats["peak_bytes_in_use"] >= stats["bytes_in_use"], stats["bytes_limit"] > 0)
print(any(y is x for y in jax.live_arrays()), [y.device for y in jax.live_arrays("cpu")])
jax.debug.visualize_array_sharding(x)

print(x.__dlpack_device__(), jnp.from_dlpack(x).device, jax.dlpack.from_dlpack(np.ones(2, np.float32)).device)
print(jax.device_get(x), np.asarray(x), x.tolist(), float(x[1]))
with jax.transfer_guard("disallow"):
    try:
        jnp.sin(np.ones(3, np.float32))
    except RuntimeError as error:
        print(str(error).partition(": aval")[0], "CudaDevice(id=0)" in str(error))

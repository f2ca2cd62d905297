"""Run with CUDA_VISIBLE_DEVICES=-1: the plugin for CUDA finds no GPU, and JAX computes on the CPU."""

import jax
import jax.numpy as jnp


def fails(call):
    """Return the text of JAX's error."""
    try:
        return call()
    except RuntimeError as error:
        return str(error)


print(jax.default_backend(), jax.devices(), jax.local_devices(), jax.device_count(), jax.process_count())
print(jnp.ones(2).device, jax.jit(lambda x: x + 1)(1.0), jax.device_put(1.0, jax.devices()[0]).device)
print(fails(lambda: jax.devices("gpu")))
print(fails(lambda: jax.device_count("gpu")))
print(fails(lambda: jax.devices("cuda")))
jax.config.update("jax_default_device", "gpu")
print(fails(lambda: jnp.ones(2)))
jax.config.update("jax_default_device", None)
print(jax.lax.platform_dependent(1.0, cpu=lambda x: x + 1, cuda=lambda x: x + 2), len(jax.live_arrays()))

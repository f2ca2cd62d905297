"""Errors on GPUs: one that is not there, two that are mixed, a full one, and memory that NumPy cannot read."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

for ask in (lambda: jax.devices("gpu")[7], lambda: jax.devices("rocm"), lambda: jax.local_devices(backend="cud")):
    try:
        ask()
    except (IndexError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")

one, two = (jax.device_put(jnp.ones(3), device) for device in jax.devices("gpu"))
host = jax.device_put(jnp.ones(3), jax.devices("cpu")[0])
for x, y in ((one, two), (one, host)):
    try:
        x + y
    except ValueError as error:
        print(str(error).splitlines()[0])

try:
    jnp.zeros(300_000) + 1
except jax.errors.JaxRuntimeError as error:
    print(type(error).__name__, "-", str(error).splitlines()[0])
print((jnp.zeros(30_000) + 1).device)

try:
    np.from_dlpack(one)
except RuntimeError as error:
    print(error)
print(np.from_dlpack(one, device="cpu"))

jax.config.update("jax_cuda_visible_devices", "1")
jax.extend.backend.clear_backends()
try:
    jax.devices()
except RuntimeError as error:
    print(error)

"""Ask JAX's transfer guard for the lines that copy from a card to the host: explicit copies are allowed."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

gpu = jax.devices("gpu")[1]
halves = NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x"))
READS = {
    "np.asarray": np.asarray,
    "np.array": np.array,
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x.item(),
    "float": float,
    "bool": bool,
    "repr": repr,
    "index": lambda x: "abc"[x],
    "jax.device_get": jax.device_get,
    "sin": jnp.sin,
}


def refused(read, x):
    """Return what the guard says to a read, or that it is allowed."""
    try:
        read(x)
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition(": shape")[0]
    except TypeError as error:
        return str(error)
    return "allowed"


for level in ("disallow", "disallow_explicit", "allow"):
    for name, read in READS.items():
        x = jax.device_put(np.int32(1) if name == "index" else np.float32(1), gpu)  # a read stores the values in it
        with jax.transfer_guard(level):
            print(level, name, refused(read, x))
for place in (halves, jax.devices("cpu")[0]):
    x = jax.device_put(np.ones(2, np.float32), place)
    with jax.transfer_guard_device_to_host("disallow"):
        print(refused(np.asarray, x), refused(jax.device_get, x))
jax.config.update("jax_transfer_guard_device_to_host", "disallow")
print(refused(np.asarray, jax.device_put(np.ones(2), gpu)))

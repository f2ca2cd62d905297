"""Functions exported by `jax.export`, and compiled functions that are stored as bytes and loaded again."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_compilation_cache", False)  # what the cache returns cannot be stored again
gpus, host = jax.devices(), jax.devices("cpu")[0]
inputs = {"host": jax.device_put(np.ones(2, "float32"), host), "gpu": jax.device_put(np.ones(2, "float32"), gpus[1])}
shape = jax.ShapeDtypeStruct((2,), jnp.float32)


def attempt(call, *args):
    try:
        print(call(*args))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        print(type(error).__name__, str(error).partition("\n")[0])


def branch(x):
    return jax.lax.platform_dependent(x, cpu=lambda x: x * 0, default=lambda x: x + 1)


# ---------------------------------------------------------------------- exported functions
for platforms in (["cpu"], ["cuda"], ["cpu", "cuda"], ["tpu"], None):
    exported = jax.export.export(jax.jit(jnp.square), platforms=platforms)(shape)
    print(exported.platforms)
    for where, x in {**inputs, "NumPy": np.ones(2, "float32")}.items():
        print(where, end=": ")
        attempt(lambda exported, x: exported.call(x).device, exported, x)
        attempt(lambda exported, x: jax.jit(lambda x: exported.call(x) + 1)(x).device, exported, x)

for platform, where in {"cpu": "host", "cuda": "gpu"}.items():
    print(jax.export.export(jax.jit(branch), platforms=[platform])(shape).call(inputs[where]))
exported = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(shape)
compiled = jax.jit(exported.call)
attempt(lambda: compiled(inputs["host"]).device)
attempt(compiled, inputs["gpu"])  # not the function that was compiled for the host
nested = jax.export.export(jax.jit(lambda x: exported.call(x) * 2), platforms=["cpu"])(shape)
attempt(lambda: nested.call(inputs["host"]).device)
attempt(nested.call, inputs["gpu"])
check = jax.export.DisabledSafetyCheck.platform()
unchecked = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"], disabled_checks=[check])(shape)
attempt(lambda: unchecked.call(inputs["gpu"]).device)


# ---------------------------------------------------------------------- compiled functions as bytes
def reload(compiled, **options):
    return serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled), **options)


parts = jax.device_put(jnp.arange(8.0), NamedSharding(jax.make_mesh((2,), ("x",)), P("x")))
double = jax.jit(lambda x: x * 2).lower(parts).compile()
for options in ({}, {"execution_devices": gpus}, {"backend": "cuda"}):
    y = reload(double, **options)(parts)
    print(y, y.sharding.device_set == set(gpus))
for gpu in gpus:
    x = jax.device_put(jnp.arange(3.0), gpu)
    compiled = jax.jit(lambda x: x + 1).lower(x).compile()
    print(reload(compiled, execution_devices=[gpu])(x).device)
    print(reload(compiled, backend=gpu.client, execution_devices=[gpu])(x).device)
    attempt(lambda compiled: reload(compiled, execution_devices=[host]), compiled)
    attempt(lambda compiled, x: reload(compiled)(x), compiled, x)  # for two devices
compiled = jax.jit(lambda x: x - 1).lower(inputs["host"]).compile()
print(reload(compiled, backend="cpu")(inputs["host"]).device)

"""For each devshim call, the code that a JAX user would write without devshim. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": 'len(jax.local_devices(backend="gpu"))',
        "devices": 'jax.local_devices(backend="gpu")',
        "describe": "{device}.device_kind",
        "memory_policy": 'os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"',
        "memory_fraction": 'os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "{args}"',
        "place_model": "for v in {x}.variables: v._value = jax.device_put(v.value, {device})  # of Keras",
        "copy_model": "with jax.default_device({device}): {x} = keras.models.clone_model({x})",
        "place_parameter": "v._value = jax.device_put(weights[{path}], {device})",
        "place_optimizer": "for v in {x}.variables: v._value = jax.device_put(v.value, {device})  # of Keras",
        "copy_optimizer": "with jax.default_device({device}): {x} = type({x}).from_config({x}.get_config())",
        "device_of_model": "next(iter({x}.variables[0].value.devices()))",
        "save_model": "{x}.save_weights({path})",
        "save_optimizer": "np.savez({path}, *{x}.variables)",
        "load_model": "{x}.load_weights({path})",
        "load_optimizer": "{x}.set_weights(list(np.load({path}).values()))",
        "split": "[jax.device_put(p, d) for p, d in zip(jnp.array_split({x}, {count}, {axis}), {devices})]",
        "gather": "jnp.concatenate([jax.device_put(part, {device}) for part in parts], {axis})",
        "all_reduce": "total = jnp.{op}(jnp.stack([jax.device_put(t, {device}) for t in ts]), 0)",
        "save": "safetensors.flax.save_file({x}, {path})",
        "load": "jax.device_put(safetensors.flax.load_file({path}), {device})",
        "metric_append": "losses.append(loss)",
        "metric_flush": "np.asarray(jnp.stack(losses))",
        "device_of": "next(iter({x}.devices()))",
        "dtype_of": "{x}.dtype",
        "place": "jax.device_put({x}, {device})",
        "copy": "jnp.copy(jax.device_put({x}, {device}))",
        "to_numpy": "np.array({x})",
        "from_numpy": "jax.device_put(np.copy({args}), {device})",
        "asarray": "jax.device_put(np.array({args}{dtype}), {device})",
        "stack": "jnp.stack(tensors)",
        "zeros": "jnp.zeros({args}{dtype}, device={device})",
        "ones": "jnp.ones({args}{dtype}, device={device})",
        "full": "jnp.full({args}{dtype}, device={device})",
        "empty": "jnp.empty({args}{dtype}, device={device})",
        "arange": "jax.device_put(jnp.arange({args}{dtype}), {device})",
        "linspace": "jax.device_put(jnp.linspace({args}{dtype}), {device})",
        "eye": "jax.device_put(jnp.eye({args}{dtype}), {device})",
        "uniform": "with jax.default_device({device}): x = jax.random.uniform(key, {2}, minval={0}, maxval={1}{dtype})",
        "normal": "with jax.default_device({device}): x = {0} + {1} * jax.random.normal(key, {2}{dtype})",
        "randint": "with jax.default_device({device}): x = jax.random.randint(key, {2}, {0}, {1}{dtype})",
        "permutation": "with jax.default_device({device}): x = jax.random.permutation(key, {0})",
        "bernoulli": "with jax.default_device({device}): x = jax.random.bernoulli(key, {0}, {1})",
        "seed": "key = jax.random.key({args})",
        "on": "with jax.default_device({device}):",
        "set_device": 'jax.config.update("jax_default_device", {device})',
        "run": "f({args})",
        "synchronize": "jax.block_until_ready({x})",
        "memory": "{device}.memory_stats()",
        "empty_cache": "jax.clear_caches()",
        "convert": "jax.dlpack.from_dlpack({x})",
        "try_gpu": 'jax.devices("gpu")[{index}]  # RuntimeError if it does not exist',
        "dtype": "jnp.{name}",
    }
)

"""JAX code for devshim calls, as templates for a notebook in JAX's own code. Imports no framework.

`devshim.tutorial.transpiler.templates` explains the placeholders. JAX puts new arrays on GPU 0, so each template that
creates an array names the device.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETUP = "import jax\nimport jax.numpy as jnp"
DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "cpu": 'jax.devices("cpu")[0]',
        "gpu": 'jax.devices("gpu")[{index}]',
        "value": "{device}",
        "dtype": "jnp.{name}",
    }
)
HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": '''
def gpus():
    """Return all GPUs; an empty list on a machine without a GPU."""
    return [device for device in jax.devices() if device.platform == "gpu"]
''',
        "try_gpu": '''
def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else jax.devices("cpu")[0]
''',
        "try_all_gpus": '''
def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return gpus() or jax.devices("cpu")
''',
        "next_key": '''
key = jax.random.key(0)


def next_key():
    """Return a fresh key for one draw: equal keys give equal numbers."""
    global key
    key, fresh = jax.random.split(key)
    return fresh
''',
        "place": '''
def place(x, device):
    """Return an array on a device: the same one if it is there, and a copy otherwise."""
    return x if x.device == device else jax.device_put(x, device)
''',
        "np": "import numpy as np",
    }
)
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "len(gpus())",
        "devices": '[*jax.devices("cpu")[:1], *gpus()]',
        "devices_gpu": "gpus()",
        "try_gpu": "try_gpu({i|$})",
        "try_all_gpus": "try_all_gpus()",
        "on": "jax.default_device({device})",
        "set_device": 'jax.config.update("jax_default_device", {device})',
        "device_of": "{x}.device",
        "place": "jax.device_put({x}, {device})",
        "place_compared": "place({x}, {device})",
        "place_tree": "jax.device_put({x}, {device})",
        "copy": "jnp.copy(jax.device_put({x}, {device}))",
        "copy_tree": "jax.tree.map(lambda leaf: jnp.copy(jax.device_put(leaf, {device})), {x})",
        "to_numpy": "np.array({x})",
        "from_numpy": "jax.device_put({a}, {device})",
        "asarray": "jax.device_put(np.array({obj}{dtype|, dtype=$}), {device})",
        "zeros": "jnp.zeros({shape}{dtype|, dtype=$}, device={device})",
        "ones": "jnp.ones({shape}{dtype|, dtype=$}, device={device})",
        "empty": "jnp.empty({shape}{dtype|, dtype=$}, device={device})",
        "full": "jnp.full({shape}, {fill_value}{dtype|, dtype=$}, device={device})",
        "arange": "jax.device_put(jnp.arange({start}{stop|, $}{step|, $}{dtype|, dtype=$}), {device})",
        "linspace": "jax.device_put(jnp.linspace({start}, {stop}, {num}{dtype|, dtype=$}), {device})",
        "eye": "jax.device_put(jnp.eye({n_rows}{n_cols|, $}{dtype|, dtype=$}), {device})",
        "zeros_like": "jnp.zeros_like({x}{dtype|, dtype=$}{device|, device=$})",
        "ones_like": "jnp.ones_like({x}{dtype|, dtype=$}{device|, device=$})",
        "random.seed": "{y} = jax.random.key({n})",
        "random.uniform": (
            "jax.device_put(jax.random.uniform(next_key(), {size}{dtype|, $}, minval={low}, maxval={high}), {device})"
        ),
        "random.uniform_standard": "jax.device_put(jax.random.uniform(next_key(), {size}{dtype|, $}), {device})",
        "random.normal": (
            "jax.device_put({loc} + {scale} * jax.random.normal(next_key(), {size}{dtype|, $}), {device})"
        ),
        "random.normal_standard": "jax.device_put(jax.random.normal(next_key(), {size}{dtype|, $}), {device})",
        "random.randint": "jax.device_put(jax.random.randint(next_key(), {size}, {low}, {high}{dtype|, $}), {device})",
        "random.permutation": "jax.device_put(jax.random.permutation(next_key(), {n}), {device})",
        "run": "{fn}({args})",
        "split": "[jax.device_put(part, d) for part, d in zip(jnp.array_split({tree}, {count}, {axis}), {devices})]",
        "gather": "jnp.concatenate([jax.device_put(part, {device}) for part in {parts}], {axis})",
        "value_and_grad": "jax.value_and_grad({fn}{argnums|, argnums=$}{has_aux|, has_aux=$})",
        "stop_gradient": "jax.lax.stop_gradient({x})",
    }
)
TARGETS: Mapping[str, str] = MappingProxyType({"random.seed": "key"})
"""The variable that a template assigns to, if the call has no value."""

"""Modules and functions that the statements of ``jax.txt`` use."""

from __future__ import annotations

import warnings

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding  # noqa: F401  # the statements use them

warnings.simplefilter("ignore")
cpu, gpu = jax.devices("cpu")[0], jax.devices("gpu")[0]


def ones_on(device):
    return jax.device_put(np.ones(2), device)


def defaulted(device):
    with jax.default_device(device):
        return jnp.ones(2).device, jnp.ones(2).committed


def deleted():
    x = jnp.ones(2)
    x.delete()
    return x + 1


def donated():
    x = jnp.ones(2)
    y = jax.jit(lambda t: t * 2, donate_argnums=0)(x)
    return x.is_deleted(), y

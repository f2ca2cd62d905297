"""Claims that `devshim certify` checks on JAX: its device count, 64-bit values, donation, memory kinds, compilation."""

from __future__ import annotations

import time

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, expect

__all__ = ["CLAIMS"]

CLAIMS = Claims("jax")


@CLAIMS.add("devshim's GPUs are those of jax.devices('gpu'), even in MIG slices and without NVML.", real=True)
def counting(at: Setting) -> None:
    """Compare with JAX's own list."""
    own = ds.framework().devices("gpu")
    expect(ds.device_count() == len(own), f"devshim counts {ds.device_count()}, JAX {len(own)}")
    expect([ds.device(each) for each in own] == ds.devices("gpu"), "JAX's own devices have other names")


@CLAIMS.add("float64 and int64 stay 64 bits wide on the GPU while JAX's x64 mode is off, and the mode stays off.")
def wide(at: Setting) -> None:
    """Copy 64-bit values that do not fit in 32 bits."""
    before = ds.framework().config.jax_enable_x64
    for array in (np.array([1 + 2.0**-40]), np.array([2**40 + 1])):
        y = ds.place(ds.from_numpy(array, at.first), at.last)
        expect(str(y.dtype) == str(array.dtype), f"{array.dtype} became {y.dtype}")
        expect(ds.to_numpy(y).tolist() == array.tolist(), f"{array.dtype}: {ds.to_numpy(y).tolist()}")
    expect(ds.framework().config.jax_enable_x64 == before, "the x64 mode has changed")


@CLAIMS.add("A copy may be donated to a compiled function, and its source keeps its values.")
def donation(at: Setting) -> None:
    """Donate a copy on the same GPU."""
    x = ds.ones(1 << 16, dtype="float32", device=at.first)
    doubled = ds.framework().jit(lambda t: t * 2, donate_argnums=0)(ds.copy(x, at.first))
    found, host = ds.to_numpy(doubled), ds.to_numpy(x)
    expect(ds.device_of(doubled) is at.first, f"the result is on {ds.device_of(doubled)}")
    expect(host.min() == host.max() == 1, f"the source has changed from 1 to {host.min()} to {host.max()}")
    expect(found.min() == found.max() == 2, f"twice 1 is {found.min()} to {found.max()}")


@CLAIMS.add("`on` sets JAX's default device and restores it.")
def default(at: Setting) -> None:
    """Create with JAX's own function."""
    jnp = ds.framework().numpy
    before = jnp.ones(1).devices()
    with ds.on(at.last):
        expect(ds.device_of(jnp.ones(2)) is at.last, f"jnp.ones is on {ds.device_of(jnp.ones(2))}")
    expect(jnp.ones(1).devices() == before, "JAX's default has changed")


@CLAIMS.add("An array in pinned host memory is moved into the card's memory by `place`.", real=True)
def memory_kinds(at: Setting) -> None:
    """Make a tensor in pinned memory with JAX's own call."""
    jax = ds.framework()
    kind = jax.sharding.SingleDeviceSharding(at.first.native(), memory_kind="pinned_host")
    there = ds.place(jax.device_put(np.ones(4, "float32"), kind), at.first)
    expect(there.sharding.memory_kind == "device", f"it is in {there.sharding.memory_kind}")


@CLAIMS.add("`all_reduce_` is compiled once: its second call takes less than 50 ms.", cards=2)
def compiled_once(at: Setting) -> str:
    """Reduce a tree of four arrays twice."""
    trees = [[ds.ones(1 << 16, device=i) for _ in range(4)] for i in range(at.gpus)]
    for _ in range(2):
        ds.synchronize()
        began = time.perf_counter()
        ds.all_reduce_(trees)
        ds.synchronize()
        took = time.perf_counter() - began
    expect(at.simulated or took < 0.05, f"it took {took * 1e3:.0f} ms")
    return f"{took * 1e3:.1f} ms"


@CLAIMS.add("The guard passes compiled functions and operators.")
def guard_passes(at: Setting) -> None:
    """Call a compiled function under a guard."""
    jax = ds.framework()
    x, double = ds.ones(4, device=at.last), jax.jit(lambda t: t * 2)
    double(x)
    with ds.guard("error"):
        double(x)
        x + x

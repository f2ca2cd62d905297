"""The conformance kit on JAX."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.testing import Conformance
from devshim.testing.behaviours.compiled_calls import DRAWN, EFFECTS, MADE_ON_A_DEVICE
from devshim.testing.behaviours.native_names import NativeGpus
from devshim.testing.values import feature


class TestJax(Conformance):
    backend = "jax"
    swallowing = ("_xla_gc_callback",)

    def gradient(self, fn: Any, x: Any) -> Any:
        import jax

        return jax.grad(lambda t: (fn(t) ** 2).sum())(x)

    def compiled(self, fn: Any) -> Any:
        import jax

        return jax.jit(fn)

    @feature("float64", "trace_run")
    def test_run_keeps_64_bits_when_compiled(self, device: ds.Device) -> None:
        """Before JAX 0.8, `run` of 64-bit arrays inside ``jax.jit`` is refused if ``jax_enable_x64`` is off."""
        from devshim_backends._jax.internals.widths import KEEPS_WIDTH

        if KEEPS_WIDTH:
            super().test_run_keeps_64_bits_when_compiled(device)
            return
        x, fn, _ = self.wide("float64", device)
        with pytest.raises(ds.TracingError, match="jax_enable_x64"):
            self.compiled(lambda x: ds.run(fn, x))(x)

    _moving = ("Device as a scope", "all_reduce_", "asarray", "broadcast", "convert", "copy", "data_parallel", "gather")
    _moving = (*_moving, "on", "parallel", "place", "shrink_batch", "split", *MADE_ON_A_DEVICE, *DRAWN, *EFFECTS)
    compiler_refuses: ClassVar[Any] = {
        "jit": {*_moving, "device_of", "placement_of", "require_same_device", "same_device"},
        "scan": {*_moving, "run"},
        "vmap": {*EFFECTS},
    }

    def compilers(self) -> Any:
        import jax

        def scan(fn: Any) -> Any:
            def run(x: Any) -> Any:
                return jax.tree.map(lambda y: y[0], jax.lax.scan(lambda c, _: (c, fn(x)), 0, None, length=1)[1])

            return run

        def vmap(fn: Any) -> Any:
            return lambda x: jax.tree.map(lambda y: y[0], jax.vmap(fn)(x[None]))

        def grad(fn: Any) -> Any:
            return lambda x: jax.vjp(fn, x)[0]

        return {"jit": (jax.jit, True), "scan": (scan, True), "vmap": (vmap, False), "grad": (grad, False)}

    def containers(self, x: Any) -> Any:
        import jax
        from jax.experimental import sparse

        made = {
            "class": (_registered()(x, "note"), lambda t: t.x),
            "keyed": (_keyed()(x, "note"), lambda t: t.x),
            "partial": (jax.tree_util.Partial(max, x), lambda t: t.args[0]),
        }
        if ds.device_of(x) is ds.cpu():  # JAX computes the entries with its own operators
            made["sparse"] = (sparse.BCOO.fromdense(x), lambda t: t.data)
        else:
            made["sparse"] = (ds.place(sparse.BCOO.fromdense(ds.place(x, "cpu")), ds.device_of(x)), lambda t: t.data)
        if hasattr(jax.tree_util, "register_dataclass"):
            made["dataclass"] = (_dataclass()(x, "note"), lambda t: t.x)
        return made

    def native_zeros(self) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((2, 2))

    def native_gpus(self) -> NativeGpus:
        import jax
        import jax.numpy as jnp

        def count() -> int:
            try:
                return jax.device_count("gpu")
            except RuntimeError:  # "no platforms that are instances of gpu are present"
                return 0

        def ones(index: int) -> Any:
            return jax.device_put(jnp.ones((3, 4)), jax.devices("gpu")[index])

        def moved(x: Any, index: int) -> Any:
            return jax.device_put(x, jax.local_devices(backend="cuda")[index])

        return NativeGpus(
            count=count,
            ones=ones,
            moved=moved,
            name=lambda x: str(*x.devices()),
            names=("cuda:0", "cuda:1"),
            packages=("jax", "jaxlib"),
            failure=jax.errors.JaxRuntimeError,
        )

    def global_state(self) -> object:
        import jax

        return jax.config.jax_enable_x64, jax.config.jax_default_device, jax.config.jax_platforms

    def train(self, device: ds.Device, inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        import jax

        rng = np.random.default_rng(1)
        shapes = {"kernel": (4, 1, 3, 3), "scale": (4,), "shift": (4,), "weight": (144, 4), "bias": (4,)}
        first = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
        weights = ds.place({name: ds.from_numpy(array) for name, array in first.items()}, device)
        moments = [jax.tree.map(lambda w: w * 0, weights) for _ in range(2)]
        x, y = ds.from_numpy(inputs, device), ds.from_numpy(labels.astype("int32"), device)
        for step in range(1, 4):
            key = ds.place(jax.random.key(step), device)
            loss, gradients = jax.value_and_grad(_loss)(weights, x, y, key)
            moments[0] = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
            moments[1] = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
            weights = jax.tree.map(_adam(step), weights, *moments)
        assert {ds.device_of(leaf) for leaf in [*weights.values(), loss]} == {device}
        return [ds.to_numpy(leaf) for tree in (weights, *moments) for leaf in tree.values()]


@functools.cache
def _registered() -> Any:
    """Return a class registered by a decorator."""
    import jax

    @jax.tree_util.register_pytree_node_class
    class Registered:
        def __init__(self, x: Any, note: str) -> None:
            self.x, self.note = x, note

        def tree_flatten(self) -> Any:
            return (self.x,), self.note

        @classmethod
        def tree_unflatten(cls, note: Any, children: Any) -> Any:
            return cls(*children, note)

    return Registered


@functools.cache
def _keyed() -> Any:
    """Return a class registered with the names of its children."""
    import jax

    class Keyed:
        def __init__(self, x: Any, note: str) -> None:
            self.x, self.note = x, note

    jax.tree_util.register_pytree_with_keys(
        Keyed,
        lambda node: (((jax.tree_util.GetAttrKey("x"), node.x),), node.note),
        lambda note, children: Keyed(*children, note),
    )
    return Keyed


@functools.cache
def _dataclass() -> Any:
    """Return a dataclass whose second field is not a child."""
    import jax

    @dataclasses.dataclass
    class Data:
        x: Any
        note: str

    jax.tree_util.register_dataclass(Data, data_fields=["x"], meta_fields=["note"])
    return Data


def _loss(weights: Any, x: Any, y: Any, key: Any) -> Any:
    """Return the loss of convolution, batch normalization, ReLU, dropout, a linear layer and cross entropy."""
    import jax
    import jax.numpy as jnp

    x = jax.lax.conv(x, weights["kernel"], (1, 1), "VALID")
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    scale, shift = (weights[name][:, None, None] for name in ("scale", "shift"))
    x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift)
    x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0)
    logits = x.reshape(len(x), -1) @ weights["weight"] + weights["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def _adam(step: int) -> Any:
    def move(w: Any, m: Any, v: Any) -> Any:
        return w - 0.01 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)) ** 0.5 + 1e-8)

    return move

"""The native calls that devshim is compared with: each operation as a user writes it by hand in every framework.

Statements can use ``x`` (a tensor), ``n`` (the CPU as the framework's own object), and the framework under its usual
name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Native:
    """A framework's own way to write each operation.

    Args:
        backend: Its name in devshim.
        begin: Imports it, limits it to one thread if possible, and returns the names that statements can use.
        moves: Statements that move ``x`` to the device that it is already on, each with the largest allowed ratio.
        spelled: The same statements with the device's name.
        where: Statements that read the device of ``x``, each with the largest allowed ratio.
        move: One such move as an expression, for the loops over trees.
        scope: The scope that encloses a loop of moves.
        tree: A native call that moves a whole tree, if there is one.
        copy: An expression that copies ``x`` into new memory.
        wait: Added to a copy's result, native or ours, if copies are asynchronous.
        calls: Expressions that make or read a tensor, by the names in `benchmarks.test_calls`. They can also use
            ``shape``, a NumPy array ``a`` of that shape, and ``np``.
        device_scope: A ``with`` statement that enters the framework's own scope of the CPU, if it has one.
        take: An expression that takes over the memory of a NumPy array ``a`` by DLPack; empty if it cannot.
    """

    backend: str
    begin: Callable[[], dict[str, Any]]
    moves: dict[str, float | None] = field(default_factory=dict)
    spelled: tuple[str, ...] = ()
    where: dict[str, float | None] = field(default_factory=dict)
    move: str = ""
    scope: str = ""
    tree: str = ""
    copy: str = ""
    wait: str = ""
    calls: dict[str, str] = field(default_factory=dict)
    device_scope: str = ""
    take: str = ""

    def loops(self) -> dict[str, Callable[[Any], Any]]:
        """Return functions that move all leaves of a list and of nested dicts, as a user writes them by hand."""
        names = self.begin()
        body = f"with {self.scope}: return" if self.scope else "return"
        source = f"""
def flat(tree):
    {body} [{self.move} for x in tree]
def inside(tree):
    return {{key: inside(x) if type(x) is dict else {self.move} for key, x in tree.items()}}
def nested(tree):
    {body} inside(tree)
"""
        exec(source, names)
        return {"flat": names["flat"], "nested": names["nested"]}

    def loop_text(self) -> str:
        """Return the statement that the loops repeat, as the tables name it."""
        return f"{self.move}, in one scope" if self.scope else self.move


def _numpy() -> dict[str, Any]:
    import numpy as np

    return {"np": np, "n": "cpu"}


def _torch() -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)  # with two, a copy of 1 MiB waits for the other core while that core is busy
    return {"torch": torch, "n": torch.device("cpu")}


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    return {"tf": tf, "n": "/CPU:0"}


def _jax() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    return {"jax": jax, "jnp": jnp, "n": jax.devices("cpu")[0], "key": jax.random.key(0)}


def _paddle() -> dict[str, Any]:
    import paddle

    return {"paddle": paddle, "n": paddle.CPUPlace()}


def _mxnet() -> dict[str, Any]:
    import mxnet as mx

    return {"mx": mx, "n": mx.cpu()}


_CALLS = (
    "ones",
    "full",
    "asarray of two numbers",
    "from_numpy",
    "to_numpy",
    "random.normal",
    "random.uniform",
)


def _calls(*statements: str) -> dict[str, str]:
    return dict(zip(_CALLS, statements, strict=True))


_OF_BOTH_MXNETS: dict[str, Any] = {
    "copy": "x.copyto(n)",
    "wait": ".wait_to_read()",
    "take": "mx.nd.from_dlpack(a.__dlpack__())",
    "calls": _calls(
        "mx.np.ones(shape)",
        "mx.np.full(shape, 2.0)",
        "mx.np.array([1.0, 2.0])",
        "mx.np.array(a)",
        "x.asnumpy()",
        "mx.np.random.normal(size=shape)",
        "mx.np.random.uniform(size=shape)",
    ),
    "device_scope": "with n",
}

NATIVE = {
    "numpy": Native(
        "numpy",
        _numpy,
        moves={"x.to_device('cpu')": None},
        where={"x.device": None},
        copy="x.copy()",
        calls=_calls(
            "np.ones(shape)",
            "np.full(shape, 2.0)",
            "np.asarray([1.0, 2.0])",
            "a.copy()",
            "x.copy()",
            "np.random.normal(size=shape)",
            "np.random.uniform(size=shape)",
        ),
    ),
    "torch": Native(
        "torch",
        _torch,
        moves={"x.to(n)": 0.85},
        spelled=("x.to('cpu')",),
        where={"x.device": 3.5},
        move="x.to(n)",
        copy="x.to(n, copy=True)",
        take="torch.from_dlpack(a)",
        calls=_calls(
            "torch.ones(shape)",
            "torch.full(shape, 2.0)",
            "torch.tensor([1.0, 2.0])",
            "torch.tensor(a)",
            "x.numpy().copy()",
            "torch.randn(shape)",
            "torch.rand(shape)",
        ),
        device_scope="with torch.device(n)",
    ),
    "tensorflow": Native(
        "tensorflow",
        _tensorflow,
        moves={"with tf.device(n): tf.identity(x)": 0.02},
        spelled=("with tf.device('CPU:0'): tf.identity(x)",),
        where={"x.device": None, "x.backing_device": None},
        move="tf.identity(x)",
        scope="tf.device(n)",
        copy="tf.raw_ops.DeepCopy(x=x)",
        take="tf.experimental.dlpack.from_dlpack(a.__dlpack__())",
        calls=_calls(
            "tf.ones(shape)",
            "tf.fill(shape, 2.0)",
            "tf.constant([1.0, 2.0])",
            "tf.constant(a)",
            "x.numpy()",
            "tf.random.normal(shape)",
            "tf.random.uniform(shape)",
        ),
        device_scope="with tf.device(n)",
    ),
    "jax": Native(
        "jax",
        _jax,
        moves={"jax.device_put(x, n)": 0.06},
        where={"x.device": 1.2},
        move="jax.device_put(x, n)",
        tree="jax.device_put(tree, n)",
        copy="x.copy().block_until_ready()",
        take="jax.dlpack.from_dlpack(a)",
        calls=_calls(
            "jnp.ones(shape).block_until_ready()",
            "jnp.full(shape, 2.0).block_until_ready()",
            "jnp.asarray([1.0, 2.0])",
            "jnp.array(a)",
            "np.array(x)",
            "jax.random.normal(jax.random.split(key)[1], shape).block_until_ready()",
            "jax.random.uniform(jax.random.split(key)[1], shape).block_until_ready()",
        ),
        device_scope="with jax.default_device(n)",
    ),
    "paddle": Native(
        "paddle",
        _paddle,
        moves={"x.cpu()": 1.0, "x.to(n)": 0.15},
        spelled=("x.to('cpu')",),
        where={"x.place": None},
        move="x.cpu()",
        copy="x.clone()",
        take="paddle.from_dlpack(a)",
        calls=_calls(
            "paddle.ones(shape)",
            "paddle.full(shape, 2.0)",
            "paddle.to_tensor([1.0, 2.0])",
            "paddle.to_tensor(a)",
            "x.numpy()",
            "paddle.randn(shape)",
            "paddle.rand(shape)",
        ),
    ),
    "mxnet1": Native(
        "mxnet",
        _mxnet,
        moves={"x.as_in_ctx(n)": 0.8},
        where={"x.ctx": 0.8},
        move="x.as_in_ctx(n)",
        **_OF_BOTH_MXNETS,
    ),
    "mxnet2": Native(
        "mxnet",
        _mxnet,
        moves={"x.to_device(n)": 0.8},
        where={"x.device": 0.8},
        move="x.to_device(n)",
        **_OF_BOTH_MXNETS,
    ),
}
"""By environment: MXNet 2 renamed parts of 1.9."""

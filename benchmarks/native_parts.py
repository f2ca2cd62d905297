"""Splitting, joining, copying and adding tensors in each framework's own code, for `benchmarks.test_parts`.

Statements use ``x`` (a tensor of two parts), ``a`` and ``b`` (its parts), and the framework under its usual name. All
parts are independent tensors, as devshim's are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parts:
    """A framework's own way to write each operation.

    Args:
        split: Two independent parts.
        gather: One tensor of two.
        broadcast: Two copies.
        all_reduce: The sum in both tensors; where tensors cannot change, two tensors with the sum.
        ready: Waits for a tensor ``t``; empty if nothing is asynchronous.
        tanh: The framework's function.
    """

    split: str
    gather: str
    broadcast: str
    all_reduce: str
    ready: str = ""
    tanh: str = ""


_MXNET = Parts(
    "mx.np.split(x, 2)",
    "mx.np.concatenate([a, b])",
    "[x.copyto(n), x.copyto(n)]",
    "s = a + b; s.copyto(a); s.copyto(b)",
    "t.wait_to_read()",
    "mx.np.tanh",
)
PARTS = {
    "numpy": Parts(
        "[part.copy() for part in np.split(x, 2)]",
        "np.concatenate([a, b])",
        "[x.copy(), x.copy()]",
        "s = a + b; a[...] = s; b[...] = s",
        tanh="np.tanh",
    ),
    "torch": Parts(
        "[part.clone() for part in x.chunk(2)]",
        "torch.cat([a, b])",
        "[x.clone(), x.clone()]",
        "s = a + b; a.copy_(s); b.copy_(s)",
        tanh="torch.tanh",
    ),
    "tensorflow": Parts(
        "tf.split(x, 2)",
        "tf.concat([a, b], 0)",
        "[tf.raw_ops.DeepCopy(x=x), tf.raw_ops.DeepCopy(x=x)]",
        "s = a + b; [s, tf.raw_ops.DeepCopy(x=s)]",
        tanh="tf.math.tanh",
    ),
    "jax": Parts(
        "jnp.split(x, 2)",
        "jnp.concatenate([a, b])",
        "[x.copy(), x.copy()]",
        "s = a + b; ready([s, s.copy()])",
        "t.block_until_ready()",
        "jnp.tanh",
    ),
    "paddle": Parts(
        "paddle.split(x, 2)",
        "paddle.concat([a, b])",
        "[x.clone(), x.clone()]",
        "s = a + b; paddle.assign(s, a); paddle.assign(s, b)",
        tanh="paddle.tanh",
    ),
    "mxnet1": _MXNET,
    "mxnet2": _MXNET,
}
"""By environment."""

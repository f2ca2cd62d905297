"""Tensors that no other framework has; treated as plain ones, some crash the process, and others lose values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Makers = dict[str, Callable[[Any], Any]]
"""Description -> a function that makes it from the framework's module."""


def _fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(3))


def _deleted(jax: Any) -> Any:
    x = jax.numpy.ones(3)
    x.delete()
    return x


MAKERS: dict[str, Makers] = {
    "torch": {
        "sparse": lambda torch: torch.eye(3).to_sparse(),
        "compressed sparse": lambda torch: torch.eye(3).to_sparse_csr(),
        "meta": lambda torch: torch.empty(3, device="meta"),
        "fake": _fake,
        "quantized": lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "nested": lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    },
    "tensorflow": {
        "string": lambda tf: tf.constant(["a"]),
        "string variable": lambda tf: tf.Variable(["a"]),
        "empty string": lambda tf: tf.constant([], tf.string),
        "resource": lambda tf: tf.Variable([1.0]).handle,
        "variant": lambda tf: tf.data.Dataset.range(1)._variant_tensor,
        "quantized": lambda tf: tf.quantization.quantize(tf.ones(3), -1.0, 1.0, tf.qint8).output,
        "ragged": lambda tf: tf.ragged.constant([[1], [2, 3]]),
        "sparse": lambda tf: tf.sparse.eye(3),
        "indexed slices": lambda tf: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])),
    },
    "jax": {"random key": lambda jax: jax.random.key(0), "deleted": _deleted},
    "paddle": {"sparse": lambda paddle: paddle.sparse.sparse_coo_tensor([[0], [0]], [1.0], [3, 3])},
    "mxnet": {},
    "numpy": {
        "objects": lambda np: np.array([None]),
        "text": lambda np: np.array(["a"]),
        "bytes": lambda np: np.array([b"a"]),
        "records": lambda np: np.zeros(2, [("a", "f4")]),
        "raw memory": lambda np: np.zeros(2, "V4"),
        "dates": lambda np: np.array(["2020-01-01"], "M8[D]"),
        "durations": lambda np: np.array([1], "m8[s]"),
        "long double": lambda np: np.ones(2, np.longdouble),
        "masked": lambda np: np.ma.masked_array([1.0, 2.0], [False, True]),
    },
}


def make(backend: str, what: str) -> Any:
    """Return a strange tensor of a framework."""
    import devshim as ds

    return MAKERS[backend][what](np if backend == "numpy" else ds.framework(backend))

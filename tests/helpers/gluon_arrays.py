"""Gluon arrays and models, for either release of MXNet and either of its two array interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds

mx = ds.framework("mxnet")
IS_2 = hasattr(mx, "Device")
DEVICE = "device" if IS_2 else "ctx"
"""The name that this MXNet gives to its argument, and attribute, for a device."""


def array(values: Any, device: Any = "cpu", dtype: str = "float32") -> Any:
    """Return an array of the interface that Gluon currently expects."""
    x = ds.from_numpy(np.asarray(values).astype(dtype), device)
    return x if mx.util.is_np_array() else x.as_nd_ndarray()


def chain(*layers: Any) -> Any:
    """Return a chain of layers, initialized on the host."""
    net = mx.gluon.nn.HybridSequential()
    for layer in layers:
        net.add(layer)
    net.initialize()
    return net


def fill(net: Any, x: Any) -> Any:
    """Give a net always the same weights, whose shapes are inferred from an input."""
    net.initialize(force_reinit=True)
    net(array(x))
    rng = np.random.default_rng(1)
    for parameter in net._collect_params_with_prefix().values():
        if parameter.grad_req != "null":
            parameter.set_data(array(rng.standard_normal(parameter.shape) / 3))
    return net


def trainer_of(net: Any, name: str = "adam", **settings: Any) -> Any:
    """Return a trainer of all parameters of a net."""
    return mx.gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05, **settings})

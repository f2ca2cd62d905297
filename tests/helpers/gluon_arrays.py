"""Gluon arrays, for either of the two array interfaces of MXNet."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds


def array(values: Any, device: Any = "cpu", dtype: str = "float32") -> Any:
    """Return an array of the interface that Gluon currently expects."""
    made = ds.from_numpy(np.asarray(values).astype(dtype), device)
    return made if ds.framework("mxnet").util.is_np_array() else made.as_nd_ndarray()

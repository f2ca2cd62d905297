"""Decompositions of TensorLy on ``gpu:1``, with TensorLy's own device code and with that of devshim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import non_negative_parafac, parafac, robust_pca, tensor_train, tucker

import devshim as ds
from examples.ports import tensorly_devices

VALUES = np.random.default_rng(0).random((4, 5, 6))
NAMES = {framework: name for name, framework in tensorly_devices.FRAMEWORKS.items()}

DECOMPOSITIONS: dict[str, Callable[[Any], Any]] = {
    "parafac": lambda x: parafac(x, rank=2, init="random", random_state=0, n_iter_max=10).factors,
    "parafac by SVD": lambda x: parafac(x, rank=2, init="svd", n_iter_max=10).factors,
    "non-negative parafac": lambda x: (
        non_negative_parafac(x, rank=2, init="random", random_state=0, n_iter_max=10).factors
    ),
    "tucker": lambda x: tucker(x, rank=[2, 2, 2], n_iter_max=10).factors,
    "tensor train": lambda x: tensor_train(x, [1, 2, 2, 1]).factors,
    "robust PCA": lambda x: list(robust_pca(x[0], n_iter_max=5)),
}
NATIVE = {
    "numpy": {"robust PCA"},
    "torch": set(DECOMPOSITIONS),
    "jax": set(DECOMPOSITIONS),
    "tensorflow": {"robust PCA", "tensor train", "tucker"},
    "paddle": {"robust PCA"},
}
"""The decompositions whose results are on ``gpu:1`` with TensorLy's own device code (0.10), by framework."""
PORTED = {"tensorflow": set(DECOMPOSITIONS) - {"parafac by SVD"}}
"""With devshim: all, or these. On TensorFlow, ``index_update`` makes a variable on the default device."""


@pytest.fixture(autouse=True)
def _own_backend(framework: str) -> Iterator[None]:
    tensorly.set_backend(NAMES[framework], local_threadsafe=True)
    yield
    tensorly.set_backend("numpy", local_threadsafe=True)


def is_right(name: str) -> bool:
    """Return True if all results are on ``gpu:1``, where the tensor is, and equal those of the CPU."""
    expected = [ds.to_numpy(each) for each in DECOMPOSITIONS[name](ds.from_numpy(VALUES))]
    try:
        found = DECOMPOSITIONS[name](ds.from_numpy(VALUES, "gpu:1"))
    except (ds.DeviceMismatchError, RuntimeError):
        return False
    if {ds.device_of(each) for each in found} != {ds.gpu(1)}:
        return False
    for each, other in zip(found, expected, strict=True):  # the signs of singular vectors are arbitrary
        np.testing.assert_allclose(np.abs(ds.to_numpy(each)), np.abs(other), rtol=1e-4, atol=1e-6)
    return True


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions_compute_on_a_gpu_with_the_device_code_of_devshim(framework: str, name: str) -> None:
    tensorly_devices.install(NAMES[framework])
    assert is_right(name) == (name in PORTED.get(framework, DECOMPOSITIONS))


def test_which_decompositions_compute_on_a_gpu_without_it(framework: str) -> None:
    """If this fails, TensorLy has changed: update the table in ``docs/ports.md``, too."""
    assert {name for name in DECOMPOSITIONS if is_right(name)} == NATIVE[framework]

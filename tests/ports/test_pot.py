"""Solvers of POT on ``gpu:1``, with POT's own device code and with that of devshim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import ot
import pytest
from ot.backend import _BACKENDS

import devshim as ds
from examples.ports import pot_devices

DRAWN = np.random.default_rng(0)
X, Y = DRAWN.normal(size=(20, 2)), DRAWN.normal(size=(30, 2)) + 2


def weights(x: Any) -> tuple[Any, Any]:
    return ot.unif(20, type_as=x), ot.unif(30, type_as=x)


SOLVERS: dict[str, Callable[[Any, Any], Any]] = {
    "dist": ot.dist,
    "unif": lambda x, y: ot.unif(5, type_as=x),
    "sinkhorn": lambda x, y: ot.sinkhorn(*weights(x), ot.dist(x, y), reg=1.0, numItermax=20, warn=False),
    "sinkhorn_log": lambda x, y: ot.sinkhorn(
        *weights(x), ot.dist(x, y), reg=1.0, numItermax=20, method="sinkhorn_log", warn=False
    ),
    "emd": lambda x, y: ot.emd(*weights(x), ot.dist(x, y)),
    "emd2": lambda x, y: ot.emd2(*weights(x), ot.dist(x, y)),
    "solve_sample": lambda x, y: ot.solve_sample(x, y).plan,
    "unbalanced": lambda x, y: ot.unbalanced.sinkhorn_unbalanced(
        *weights(x), ot.dist(x, y), 1.0, 1.0, numItermax=20, warn=False
    ),
    "gromov": lambda x, y: ot.gromov.gromov_wasserstein(ot.dist(x, x), ot.dist(y, y), *weights(x), max_iter=5),
    "free_support": lambda x, y: ot.lp.free_support_barycenter([x, y], list(weights(x)), x[:5], numItermax=5),
    "partial": lambda x, y: ot.partial.partial_wasserstein(*weights(x), ot.dist(x, y), m=0.5),
}
NATIVE = {
    "numpy": {"dist"},
    "torch": set(SOLVERS) - {"partial"},
    "jax": set(SOLVERS),
    "tensorflow": {"dist"},
}
"""The solvers whose result is on ``gpu:1`` with POT's own device code (0.9.7), by framework."""
UNPORTED = {"numpy": {"partial", "sinkhorn_log"}}
"""Solvers that also fail with devshim, by framework; ``partial`` on all.

``partial`` makes an array without ``type_as``, so no device code can know where it belongs. On NumPy, ``sinkhorn_log``
calls SciPy, whose results are on the CPU.
"""


@pytest.fixture
def own_backends() -> Iterator[None]:
    """Restore POT's backends afterwards."""
    before = dict(_BACKENDS)
    yield
    _BACKENDS.clear()
    _BACKENDS.update(before)


def is_right(solver: str) -> bool:
    """Return True if a solver's result is on ``gpu:1``, where its arguments are, and equals that of the CPU."""
    expected = np.asarray(ds.to_numpy(ds.asarray(SOLVERS[solver](ds.from_numpy(X), ds.from_numpy(Y)))))
    try:
        found = SOLVERS[solver](ds.from_numpy(X, "gpu:1"), ds.from_numpy(Y, "gpu:1"))
    except (ds.DeviceMismatchError, RuntimeError):
        return False
    if isinstance(found, float) or ds.device_of(found) is not ds.gpu(1):
        return False
    np.testing.assert_allclose(ds.to_numpy(found), expected, rtol=1e-5, atol=1e-7)
    return True


@pytest.mark.usefixtures("own_backends")
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_compute_on_a_gpu_with_the_device_code_of_devshim(framework: str, solver: str) -> None:
    pot_devices.install()
    assert is_right(solver) == (solver not in UNPORTED.get(framework, {"partial"}))


@pytest.mark.usefixtures("own_backends")
def test_which_solvers_compute_on_a_gpu_without_it(framework: str) -> None:
    """If this fails, POT has changed: update the table in ``docs/ports.md``, too."""
    _BACKENDS.clear()
    assert {solver for solver in SOLVERS if is_right(solver)} == NATIVE[framework]

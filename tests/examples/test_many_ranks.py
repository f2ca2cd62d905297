"""Tests of ``examples/many_ranks.py``: in one process it is ``train.py``, and it continues from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import devshim as ds

EXAMPLES = Path(__file__).parents[2] / "examples"
DIFFERENTIATING = sorted(ds.backends().keys() - {"numpy", "cupy"})


def losses(program: str, *words: str) -> dict[int, float]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *words],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "DEVSHIM_SIMULATE_GPUS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


@pytest.mark.parametrize("name", DIFFERENTIATING)
def test_alone_it_trains_as_one_process_does_and_continues(name: str, tmp_path: Path) -> None:
    expected, found = losses("train.py", name, "cpu"), losses("many_ranks.py", name, str(tmp_path / "saved"))
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-5)
    assert losses("many_ranks.py", name, str(tmp_path / "saved")) == {}  # the last step was saved

"""Tests of programs for several ranks: that of the guide, and ``examples/many_ranks.py`` with several launchers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "examples/many_ranks.py")
LOSS = re.compile(r"^(?:\[0 \w+\] )?(\d+) ([\d.e+-]+)$", re.MULTILINE)


def backend() -> str:
    """Return the name of the framework of this environment."""
    return ds.framework().__name__.split(".")[0]


def framework() -> str:
    """Return the name of the framework of this environment; skip the tests on NumPy, which has no gradients."""
    name = backend()
    if name == "numpy":
        pytest.skip("NumPy has no gradients")
    return name


def printed(*command: str, **variables: str) -> str:
    """Return what a program prints on a machine without GPUs."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(*command: str, **variables: str) -> list[float]:
    """Return the losses that rank 0 prints."""
    found = LOSS.findall(printed(*command, **variables))
    assert [int(number) for number, _ in found] == list(range(len(found)))
    assert found
    return [float(loss) for _, loss in found]


@cache
def alone() -> list[float]:
    """Return the losses of one process."""
    return losses(sys.executable, PROGRAM, framework())


def same(found: list[float]) -> None:
    np.testing.assert_allclose(found, alone(), rtol=1e-5)


def test_the_program_of_the_guide_prints_the_same_sum_on_every_rank(tmp_path: Path) -> None:
    """Also on JAX and TensorFlow, which cannot write the sum into the tensor that the program passes."""
    page = (ROOT / "docs/guides/many-machines.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    program = tmp_path / "program.py"
    program.write_text(code.replace('ds.use("numpy")', f'ds.use("{backend()}")'), encoding="utf-8")
    output = printed(sys.executable, "-m", "devshim", "launch", "--ranks", "2", str(program))
    assert [f"{rank} 2 [ 90. 100.]" in output for rank in range(2)] == [True, True], output


def test_two_ranks_of_two_gpus() -> None:
    command = [sys.executable, "-m", "devshim", "launch", "--ranks", "2", "--simulate", "2", PROGRAM, framework()]
    same(losses(*command))


def test_two_simulated_hosts(devshim_cluster: Callable[..., Any]) -> None:
    name = framework()
    devshim_cluster(hosts=2, cards=2)
    same(losses(sys.executable, "-m", "devshim", "launch", "--cards", "2", PROGRAM, name))


@pytest.mark.parametrize("wrapper", [(), ("bash", "-c", '"$@"; exit $?', "wrapper")], ids=["rank", "script"])
def test_mpirun(wrapper: tuple[str, ...]) -> None:
    name, mpirun = framework(), shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is not installed")
    options = ["--oversubscribe", "--allow-run-as-root"] if b"Open MPI" in _version(mpirun) else []
    same(losses(mpirun, *options, "-n", "2", *wrapper, sys.executable, PROGRAM, name))


def _version(mpirun: str) -> bytes:
    return subprocess.run([mpirun, "--version"], capture_output=True, check=True).stdout


def test_torchrun() -> None:
    name, torchrun = framework(), shutil.which("torchrun", path=os.path.dirname(sys.executable))
    if torchrun is None:
        pytest.skip("torchrun is not installed")
    address = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    same(losses(torchrun, "--nproc_per_node", "2", *address, PROGRAM, name))

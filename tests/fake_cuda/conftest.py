"""Fixtures for CUDA builds of PyTorch, JAX and TensorFlow on GPUs that do not exist: ``nox -s fake-cuda``.

This process imports the framework and starts nothing; each scenario is a fork of it, so that a hundred take seconds.
"""

from __future__ import annotations

import os
import tempfile
import textwrap
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

LIBRARIES = os.environ.get("FAKE_CUDA_LIBRARIES")
"""The folder that ``build.py`` has filled, in which the loader looks first; other sessions collect nothing here."""
FRAMEWORK = next((name for name in ("torch", "jax", "tensorflow") if find_spec(name) is not None), "torch")
"""The session's framework, whose scenarios run."""
collect_ignore_glob = [] if LIBRARIES else ["test_*.py"]
if LIBRARIES:
    _only = {"jax": ["test_jax"], "tensorflow": ["test_tensorflow"]}
    _files = [each.stem for each in Path(__file__).parent.glob("test_*.py")]
    _mine = _only.get(FRAMEWORK, [each for each in _files if [each] not in _only.values()])
    collect_ignore_glob = [f"{each}.py" for each in _files if each not in _mine]

PRELUDE = """
import os
import pytest
import FRAMEWORK
import devshim as ds
from probe import calls_of, contexts, current
ds.use("FRAMEWORK")
LAST = int(os.environ["FAKE_CUDA_GPUS"]) - 1
CARD = f"gpu:{LAST}"
CUDA = f"cuda:{LAST}"
""".replace("FRAMEWORK", FRAMEWORK)
_TIMEOUT = 60
"""The seconds that a scenario may take; a signal then ends it."""


def scenario(code: str, *, gpus: int = 4, **settings: str) -> None:
    """Run a scenario in a process that has GPUs; it must end without an error.

    Args:
        code: The code to run, after `PRELUDE`.
        gpus: The number of GPUs of the machine.
        settings: Additional environment variables.
    """
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _run(PRELUDE + textwrap.dedent(code), {"FAKE_CUDA_GPUS": str(gpus), **settings}, output.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        assert status == 0, f"exit status {status}\n{output.read().decode()[-3000:]}"


def _run(code: str, settings: dict[str, str], output: int) -> Any:
    """Run a scenario and end this process."""
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_TIMEOUT)
    for name in [each for each in os.environ if each.startswith(("CUDA_", "DEVSHIM_"))]:
        del os.environ[name]
    os.environ.update(settings)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        exec(compile(code, "<scenario>", "exec"), {"__name__": "scenario"})
    except BaseException:
        os.write(2, f"{_number_lines(code)}\n{traceback.format_exc()}".encode())
        os._exit(1)
    os._exit(0)


def _number_lines(code: str) -> str:
    return "\n".join(f"{number:3} {line}" for number, line in enumerate(code.splitlines(), 1))


@pytest.fixture
def run():
    """Return a function that runs a scenario on a machine with four GPUs, or with the given number."""
    return scenario


@pytest.fixture(params=[1, 4], ids=["1 card", "4 cards"])
def run_on_each(request):
    """Return a function that runs a scenario on a machine with one GPU, and on one with four; it uses the last."""
    return lambda code, **settings: scenario(code, gpus=request.param, **settings)


@pytest.fixture(scope="session", autouse=True)
def _framework():
    """Import the framework once; this process must not start its GPUs, or use its threads."""
    if FRAMEWORK == "torch":
        import torch

        assert torch.version.cuda is not None, "install PyTorch's CUDA build"
        started = torch.cuda.is_initialized
    elif FRAMEWORK == "tensorflow":
        import tensorflow as tf
        from tensorflow.python.eager import context

        assert tf.test.is_built_with_cuda(), "install TensorFlow's CUDA build"

        def started() -> bool:
            return bool(context._context is not None and context._context._initialized)

    else:
        from jax._src import hardware_utils, xla_bridge

        # JAX looks for the driver's files before it queries the driver.
        hardware_utils._NVIDIA_GPU_DEVICES = ("/dev/null",)
        started = xla_bridge.backends_are_initialized
    yield
    assert not started()

"""Programs that name GPUs as JAX does, as `devshim run --gpus 2` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import native_scripts
import pytest

OPTIONS = {"errors": ("--memory", "1MiB")}
NEEDS = {"gpus": "flax", "keras_on_jax": "keras"}
"""A program -> the library that it also needs."""


@pytest.mark.parametrize("script", native_scripts.scripts("jax"), ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_with_two_real_gpus(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if script.stem in NEEDS and find_spec(NEEDS[script.stem]) is None:
        pytest.skip(f"{NEEDS[script.stem]} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    native_scripts.run(script, *OPTIONS.get(script.stem, ()))


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as ``devshim run`` does."""
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("DEVSHIM_", "XLA_", "JAX_"))}
    return subprocess.run(
        [sys.executable, "-m", "devshim", "run", "--gpus", "2", *words],
        env={**cleared, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


ASK = "import jax; print(jax.default_backend(), jax.devices(), jax.numpy.ones(1).device)"


@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        ({}, "gpu [CudaDevice(id=0), CudaDevice(id=1)] cuda:0"),
        ({"JAX_PLATFORMS": "cuda"}, "gpu [CudaDevice(id=0), CudaDevice(id=1)] cuda:0"),
        ({"JAX_PLATFORMS": "cpu,cuda"}, "cpu [CpuDevice(id=0)] cpu:0"),
        ({"JAX_PLATFORMS": "cpu"}, "cpu [CpuDevice(id=0)] cpu:0"),
        ({"JAX_PLATFORM_NAME": "cpu"}, "cpu [CpuDevice(id=0)] cpu:0"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "gpu [CudaDevice(id=0)] cuda:0"),
    ],
)
def test_the_environment_chooses_as_with_real_gpus(environment: dict[str, str], printed: str) -> None:
    done = run("-c", ASK, **environment)
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


CUDA_PLUGIN = """
from jax._src import config

def initialize():
    if not config.jax_platforms.value:
        raise RuntimeError("operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE")
"""
"""A plug-in that fails like JAX's for CUDA (0.11.2) if the GPUs are hidden."""


@pytest.mark.parametrize("words", [("--no-native-names",), ()], ids=["devshim's names", "native names"])
def test_the_cuda_plugin_reports_no_error_for_hidden_gpus(tmp_path: Path, words: tuple[str, ...]) -> None:
    plugin = tmp_path / "jax_plugins" / "xla_cuda13" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(CUDA_PLUGIN)
    program = (
        "import devshim as ds; ds.use('jax'); print(ds.device_count()); import jax; print(jax.config.jax_platforms)"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = run(*words, "-c", program, PYTHONPATH=path)
    assert done.stdout.split() == ["2", "None"], done.stderr
    assert "cuInit" not in done.stderr


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ('jax.config.update("jax_platforms", "cpu")', "cpu [CpuDevice(id=0)] cpu:0"),
        ('jax.config.update("jax_platforms", "cuda")', "gpu [CudaDevice(id=0), CudaDevice(id=1)] cuda:0"),
    ],
)
def test_a_program_chooses_after_the_import(line: str, printed: str) -> None:
    done = run("-c", f"import jax; {line}; {ASK}")
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


def test_without_native_names_jax_has_only_cpus() -> None:
    done = run("--no-native-names", "-c", 'import jax; print(jax.devices()); jax.devices("gpu")')
    assert done.stdout == "[CpuDevice(id=0), CpuDevice(id=1), CpuDevice(id=2)]\n"
    assert "RuntimeError: Unknown backend: 'gpu' requested" in done.stderr


def test_devshim_finds_the_native_arrays() -> None:
    code = (
        "import jax, jax.numpy as jnp, devshim as ds\n"
        "x = jax.device_put(jnp.ones(300), jax.devices('gpu')[1])\n"
        "with ds.transfers() as log: y = ds.place(x, 'cuda:0')\n"
        "print(ds.device_of(x), y.device, log.count, log.records[0].source, log.total_bytes)\n"
        "print(ds.device_of(jnp.ones(3)), ds.device_of(ds.ones(3)), ds.memory('gpu:1').used, ds.device_count())\n"
        "with ds.guard('error'):\n"
        "    print((x + 1).device)\n"
        "    try: float(x[0])\n"
        "    except ds.TransferError as error: print(str(error).partition(' at ')[0])\n"
        "with ds.explain(file=None) as lines: ds.place(x, 'gpu:0')\n"
        "print(*lines, ds.describe('gpu:1').simulated)\n"
        "with jax.transfer_guard('disallow'): print(ds.to_numpy(y).sum(), ds.place(y, 'cpu').sum())\n"
    )
    done = run("-c", code)
    assert done.stdout.splitlines() == [
        "gpu:1 cuda:0 1 gpu:1 1200",
        "gpu:0 cpu 1536 2",
        "cuda:1",
        "JAX copies from gpu:1 to cpu for float() (an implicit transfer)",
        'jax.device_put(x, jax.devices("gpu")[0]) True',
        "300.0 300.0",
    ], done.stderr


def test_switching_off_restores_every_attribute() -> None:
    native_scripts.check_attributes("jax")


def test_statements_give_what_they_give_on_a_real_card() -> None:
    native_scripts.check_statements("jax")

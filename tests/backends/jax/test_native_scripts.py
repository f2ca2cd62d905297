"""Programs that name GPUs as JAX does, as `devshim run --gpus 2` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import native_scripts
import pytest

from devshim.testing.ports import free_port

OPTIONS = dict.fromkeys(("errors", "offloading"), ("--memory", "1MiB"))
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


NOT_REGISTERED = "backend 'cuda': Backend 'cuda' is not in the list of known backends: ['cpu', 'tpu']."


@pytest.mark.parametrize(("platforms", "failed"), [("", ""), ("cpu", ""), ("cuda", NOT_REGISTERED)])
def test_hidden_gpus_print_no_advice(platforms: str, failed: str) -> None:
    """JAX would say that CUDA is not installed. A program that asks for CUDA alone fails as with its plug-in."""
    done = run("-c", ASK, CUDA_VISIBLE_DEVICES="-1", JAX_PLATFORMS=platforms)
    if failed:
        assert failed in done.stderr
        assert "CUDA_VISIBLE_DEVICES hides 2" in done.stderr
    else:
        assert done.stdout == "cpu [CpuDevice(id=0)] cpu:0\n", done.stderr
        assert [line for line in done.stderr.splitlines() if not line.startswith("devshim: ")] == []


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


COUNT = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count={}'"
SHOW = (
    'natives = jax.devices("cpu"); mesh = jax.make_mesh((len(natives),), ("x",), devices=natives); '
    "print(jax.default_backend(), jax.devices(), [each.id for each in natives], jax.config.jax_num_cpu_devices)"
)
TWO = "[CudaDevice(id=0), CudaDevice(id=1)]"


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        (f"{COUNT.format(8)}; import jax", f"gpu {TWO} {list(range(8))} -1"),
        (f"import jax; {COUNT.format(2)}", f"gpu {TWO} [0, 1] -1"),
        (f"import jax; {COUNT.format(2)}; jax.config.update('jax_num_cpu_devices', 3)", f"gpu {TWO} [0, 1, 2] 3"),
        (
            f"{COUNT.format(3)}; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax",
            "cpu [CpuDevice(id=0), CpuDevice(id=1), CpuDevice(id=2)] [0, 1, 2] -1",
        ),
    ],
)
def test_a_program_gets_the_cpu_devices_that_it_asks_for(lines: str, printed: str) -> None:
    done = run("-c", f"{lines}; {SHOW}")
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


@pytest.mark.parametrize(
    ("visible", "printed"),
    [
        ("1", ["[CudaDevice(id=0)] [1] [CpuDevice(id=0)] 1", "1"]),
        ("1,0,5", [f"{TWO} [0, 1] [CpuDevice(id=0)] 1", "2"]),
        ("7", ["Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA", "2"]),
    ],
)
def test_a_program_chooses_gpus_for_jax(visible: str, printed: list[str]) -> None:
    code = (
        f"import jax; jax.config.update('jax_cuda_visible_devices', '{visible}')\n"
        "try:\n"
        "    ordinals = [each.local_hardware_id for each in jax.devices()]\n"
        "    print(jax.devices(), ordinals, jax.devices('cpu'), jax.process_count())\n"
        "except RuntimeError as error: print(str(error).partition(' (you')[0])\n"
        "import devshim as ds; ds.use('jax'); print(ds.device_count())\n"
    )
    done = run("-c", code)
    assert (done.stdout.splitlines(), done.returncode) == (printed, 0), done.stderr


LATE = """
try:
    jax.distributed.initialize("127.0.0.1:1", 2, 0)
except RuntimeError as error:
    print(str(error).partition(" any")[0])
try:
    jax.config.update("jax_num_cpu_devices", 4)
except RuntimeError as error:
    print(str(error).partition(" backends")[0])
"""
REFUSED = ["jax.distributed.initialize() must be called before", "jax_num_cpu_devices config should be updated before"]


@pytest.mark.parametrize(
    "start",
    [
        "import jax; jax.devices()",
        "import jax, devshim as ds; ds.use('jax'); ds.gpu(1).native()",
        "import devshim as ds, jax; ds.simulate(0); jax.devices(); ds.simulate(2, native_names=True)",
    ],
)
def test_what_must_come_before_the_start_of_jax_is_refused_after_it(start: str) -> None:
    done = run("-c", start + LATE)
    assert (done.stdout.splitlines(), done.returncode) == (REFUSED, 0), done.stderr


def test_native_names_do_not_start_jax(in_fresh_process: Callable[..., str]) -> None:
    printed = in_fresh_process(
        "from jax._src import xla_bridge\n"
        "with ds.simulate(3, native_names=True):\n"
        "    with ds.simulate(2, native_names=True):\n"
        "        print(ds.device_count(), xla_bridge.backends_are_initialized())\n"
        "    x = jax.device_put(1.0, jax.devices('cuda')[2])\n"
        "    print(x.device, ds.device_of(x), ds.memory('gpu:2').used, xla_bridge.backends_are_initialized())\n"
        "    del x\n"
        "print(jax.devices(), xla_bridge.backends_are_initialized())\n"
        "with ds.simulate(2, native_names=True):\n"
        "    print(jax.devices(), jax.devices('cpu'))\n"
    )
    cpus = ", ".join(f"CpuDevice(id={i})" for i in range(4))
    assert printed.splitlines() == [
        "2 False",
        "cuda:2 gpu:2 512 True",
        f"[{cpus}] True",
        f"{TWO} [CpuDevice(id=0)]",
    ]


IN_A_JOB = """
import sys, jax, jax.numpy as jnp, numpy as np, devshim as ds
rank = int(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank)
ds.use("jax")
said = [jax.devices(), jax.local_devices(), [each.local_hardware_id for each in jax.devices()]]
said += [jax.device_count("cpu"), ds.device_count(), ds.gpu(1).native()]
one, two = (jax.device_put(jnp.ones(3), each) for each in jax.local_devices())
try:
    one + two
except ds.DeviceMismatchError as error:
    said += str(error).splitlines()[1:2]
said += [ds.device_of(two), ds.memory("gpu:1").used]
mesh = jax.make_mesh((4,), ("x",))
x = jax.device_put(np.arange(8.0, dtype="float32"), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
said += [float(jax.jit(jnp.sum, out_shardings=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))(x))]
print("said:", *said, sep=";")
"""


def test_the_processes_of_a_job_number_all_gpus() -> None:
    port = str(free_port())
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda rank: run("-c", IN_A_JOB, str(rank), port), range(2)))
    for rank, job in enumerate(jobs):
        assert job.returncode == 0, job.stderr
        mine = 2 * rank
        assert job.stdout.splitlines()[-1].split(";")[1:] == [
            f"[{', '.join(f'CudaDevice(id={i})' for i in range(4))}]",
            f"[CudaDevice(id={mine}), CudaDevice(id={mine + 1})]",
            ["[0, 1, None, None]", "[None, None, 0, 1]"][rank],
            *("2", "2", f"cuda:{mine + 1}"),
            "the arrays are on gpu:0 (simulated) and on gpu:1 (simulated)",
            *("gpu:1", "512", "28.0"),
        ]


def test_another_simulation_keeps_the_errors_of_jax(in_fresh_process: Callable[..., str]) -> None:
    printed = in_fresh_process(
        "import numpy as np\n"
        "with ds.simulate(2, native_names=True):\n"
        "    ds.simulate(3, native_names=True)\n"
        "    for index in (0, 2):\n"
        "        try: np.from_dlpack(jax.device_put(1.0, jax.devices()[index]))\n"
        "        except Exception as error: print(type(error).__name__, error)\n"
    )
    assert printed.splitlines() == ["RuntimeError Unsupported device in DLTensor."] * 2


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

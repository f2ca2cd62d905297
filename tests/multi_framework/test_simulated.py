"""Tests of simulated GPUs of all frameworks in one run of pytest, and in programs that never import devshim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ALL = ["torch", "tensorflow", "mxnet", "paddle", "jax", "numpy"]
TESTS = """
    import pytest
    import devshim as ds

    def test_cards(devshim_backend, simulated_gpus):
        first, second = simulated_gpus
        x = ds.ones((2, 3), device=first)
        y = ds.place(x, second)
        assert (ds.device_of(x), ds.device_of(y)) == (first, second)
        assert ds.to_numpy(y).tolist() == [[1.0] * 3] * 2
        assert ds.describe(second).simulated
        with pytest.raises(ds.DeviceNotFoundError, match="devshim simulates 2"):
            ds.zeros(1, device="gpu:2")

    def test_limits(devshim_backend, simulated_gpus):
        card = simulated_gpus(3, memory="1MiB")[2]
        with pytest.raises(ds.OutOfMemoryError, match="gpu:2 is out of memory"):
            ds.zeros(2**20, device=card)

    def test_faults(devshim_backend, simulated_gpus):
        simulated_gpus(2, faults=ds.Fault("gpu:1", "copy"))
        with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed"):
            ds.place(ds.ones(3), "gpu:1")

    @pytest.mark.parametrize("copy", [None, True])
    def test_a_conversion_is_one_copy_for_each_way(devshim_backend, simulated_gpus, copy):
        mine, other = devshim_backend, "jax" if devshim_backend == "numpy" else "numpy"
        x = ds.ones((2, 3), dtype="float32", device="gpu:1")
        with ds.transfers() as log:
            y = ds.convert(x, other, "cpu", copy=copy)
            back = ds.convert(y, mine, "gpu:0", copy=copy)
            ds.convert(back, other, "gpu:1", copy=copy)
        assert ds.to_numpy(back).tolist() == [[1.0] * 3] * 2
        ways = [(str(each.source), str(each.target), each.bytes) for each in log.records]
        assert ways == [("gpu:1", "cpu", 24), ("cpu", "gpu:0", 24), ("gpu:0", "cpu", 24), ("cpu", "gpu:1", 24)]

    def test_none(devshim_backend):
        assert ds.device_count() == 0
"""


def test_every_framework_is_tested_in_one_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    info = pytester.mkdir("site") / "fixtures-1.0.dist-info"  # devshim is not installed there, only its source
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fixtures\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\ndevshim = devshim.pytest_plugin\n")
    path = [str(info.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess(f"--devshim-backends={','.join(ALL)}", "-v", timeout=600)
    done.assert_outcomes(passed=6 * len(ALL))


PROGRAMS = {
    "torch": "import torch; print(torch.accelerator.device_count())",
    "tensorflow": "import tensorflow as tf; print(min(len(tf.config.list_logical_devices('CPU')) - 1, 3))",
    "paddle": "import paddle; print(len(paddle.device.get_available_custom_device()))",
    "jax": "import jax; print(len(jax.devices()) - 1)",
    "mxnet": """
import mxnet as mx
try:
    mx.nd.ones(2, ctx=mx.cpu(1)) + mx.nd.ones(2, ctx=mx.cpu(3))
except mx.MXNetError as error:
    print(str(error).count("gpu:0") and str(error).count("gpu:2") and 3)
""",
}


NATIVE_PROGRAMS = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow as tf; print(len(tf.config.list_logical_devices('GPU')))",
    "paddle": "import paddle; print(paddle.device.cuda.device_count())",
    "jax": "import jax; print(len(jax.devices('gpu')))",
    "mxnet": "import mxnet as mx; print(mx.context.num_gpus())",
}
"""The same in the words of a program that is written for real GPUs."""


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_its_cards_without_a_word_of_devshim(name: str, native: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text((NATIVE_PROGRAMS if native else PROGRAMS)[name], encoding="utf-8")
    names = [] if native else ["--no-native-names"]
    done = subprocess.run(
        [sys.executable, "-m", "devshim", "run", "--gpus", "3", *names, str(script)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "3\n", done.stderr
    assert done.stderr.startswith("devshim: 3 simulated GPUs: ")

"""Programs that are written for real GPUs, run by `devshim run`: the names are PaddlePaddle's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from native_scripts import check_attributes, run, scripts

import devshim as ds


@pytest.mark.parametrize("script", scripts("paddle"), ids=lambda path: path.stem)
def test_the_program_prints_what_it_prints_on_real_gpus(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(script, *(("--memory", "1MiB") if script.stem == "errors" else ()))


def test_the_check_of_an_installation_finds_a_gpu() -> None:
    command = [sys.executable, "-m", "devshim", "run", "--gpus", "1", "-c", "import paddle; paddle.utils.run_check()"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "PaddlePaddle works well on 1 GPU.\nPaddlePaddle is installed successfully!" in done.stdout


def test_the_default_device_is_restored() -> None:
    ds.simulate(2)
    paddle = ds.framework("paddle")
    before = str(paddle.ones([1]).place), paddle.get_device()
    with ds.simulate(2, native_names=True):
        assert paddle.get_device() == "gpu:0"
        assert ds.device_of(paddle.ones([1])) is ds.gpu(0)
        assert ds.device_of(ds.ones(1)) is ds.cpu()
        paddle.set_device("gpu:1")
    assert (str(paddle.ones([1]).place), paddle.get_device()) == before == ("Place(cpu)", "cpu")


def test_switching_off_restores_every_attribute() -> None:
    check_attributes("paddle")


CUDA_ONLY = {
    "device.cuda.graphs.CUDAGraph": ((), "call the function itself"),
    "device.cuda.allocate_record_table": ((), "use paddle.device.cuda.memory_summary()"),
    "device.cuda.allocate_record_plot": ((), "use paddle.device.cuda.memory_summary()"),
    "device.get_stream_from_external": ((0,), "use paddle.device.Stream()"),
    "cuda.cudart": ((), "use paddle.device.cuda"),
    "cuda.check_error": ((0,), "use paddle.device.cuda"),
}


def test_what_only_a_build_for_cuda_has_is_refused_with_the_line() -> None:
    ds.simulate(2)
    paddle = ds.framework("paddle")
    refused = 0
    with ds.simulate(2, native_names=True):
        for name, (args, instead) in CUDA_ONLY.items():
            *owners, attribute = name.split(".")
            owner = paddle
            for part in owners:
                owner = getattr(owner, part, None)
            if not hasattr(owner, attribute):  # in Paddle 3.0
                continue
            with pytest.raises(ds.UnsupportedError, match=r"test_native_scripts\.py:") as caught:
                getattr(owner, attribute)(*args)
            assert f"paddle.{name}" in str(caught.value)
            assert instead in str(caught.value)
            refused += 1
    assert refused

"""Programs that are written for real GPUs, run by `devshim run`: the names are MXNet's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from native_scripts import check_attributes, run, scripts

import devshim as ds


def printed(text: str) -> str:
    """Change a text that MXNet 1.9 prints to that of 2.0, which has another word for the device."""
    if not hasattr(ds.framework("mxnet"), "Device"):
        return text
    return text.replace("ctx=", "device=").replace("on context", "on device")


@pytest.mark.parametrize("script", scripts("mxnet"), ids=lambda path: path.stem)
def test_the_program_prints_what_it_prints_on_real_gpus(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(script, *(("--memory", "1MiB") if script.stem == "errors" else ()), printed=printed)


def test_other_cpus_are_the_host(current: str, old_calls: None) -> None:
    mx = ds.framework("mxnet")
    with ds.simulate(2, native_names=True):
        x = mx.nd.ones(2, ctx=mx.cpu(1))
        assert (str(x.ctx), ds.device_of(x), ds.device(mx.cpu(1))) == ("cpu(1)", ds.cpu(), ds.cpu())
        assert ds.device_of(x.copyto(mx.gpu(1))) is ds.gpu(1)
        with pytest.raises(mx.MXNetError):
            x + mx.nd.ones(2, ctx=mx.gpu(0))


@pytest.mark.parametrize("native_names", [False, True])
def test_memory_of_a_simulated_gpu_is_not_exported_as_the_hosts(current: str, native_names: bool) -> None:
    mx = ds.framework("mxnet")
    with ds.simulate(2, native_names=native_names):
        x = ds.place(mx.nd.ones(2), "gpu:1")
        for export in (x.to_dlpack_for_read, x.to_dlpack_for_write):
            with pytest.raises(ds.UnsupportedError, match="copy it first") as caught:
                export()
            assert ("ds.convert" in str(caught.value)) is not native_names
        assert mx.nd.ones(2).to_dlpack_for_read() is not None
        assert ds.convert(x, "numpy").shape == (2,)


def test_files_from_real_gpus_load_to_simulated_ones(current: str, old_calls: None, tmp_path: Path) -> None:
    mx = ds.framework("mxnet")
    file = str(tmp_path / "arrays")
    with ds.simulate(2, native_names=True):
        sparse = mx.nd.ones((2, 3), ctx=mx.gpu(0))
        if not hasattr(mx, "Device"):  # 2.0 does not save sparse arrays
            sparse = sparse.tostype("csr")
        mx.nd.save(file, [mx.nd.arange(3, ctx=mx.gpu(1)), sparse, mx.nd.ones(2, dtype="float16", ctx=mx.gpu(0))])
        assert [str(x.ctx) for x in mx.nd.load(file)] == ["gpu(1)", "gpu(0)", "gpu(0)"]
        assert mx.nd.load(file)[0].asnumpy().tolist() == [0, 1, 2]
        assert [str(x.ctx) for x in mx.nd.load_frombuffer(Path(file).read_bytes())] == ["gpu(1)", "gpu(0)", "gpu(0)"]
    with ds.simulate(1, native_names=True), pytest.raises(ds.DeviceNotFoundError):
        mx.nd.load(file)
    assert [x.ctx for x in mx.nd.load(file)] == [mx.cpu()] * 3  # as in every build without CUDA


def test_a_forked_process_has_the_names(current: str) -> None:
    program = (
        "import os, mxnet as mx\n"
        "if os.fork() == 0:\n"
        "    print(mx.context.num_gpus(), mx.nd.ones(1, ctx=mx.gpu(1)).context, flush=True); os._exit(0)\n"
        "os.wait()"
    )
    command = [sys.executable, "-W", "ignore", "-m", "devshim", "run", "--gpus", "2", "-c", program]
    done: Any = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "2 gpu(1)\n"


@pytest.mark.skipif("hasattr(ds.framework('mxnet'), 'Device')", reason="MXNet 2.0 has no executors and no modules")
def test_executors_and_modules(current: str) -> None:
    mx = ds.framework("mxnet")
    with ds.simulate(2, native_names=True):
        with mx.AttrScope(ctx_group="first"):
            doubled = mx.sym.Variable("a") * 2
        with mx.AttrScope(ctx_group="second"):
            both = doubled + mx.sym.ones((2,), ctx=mx.gpu(1))
        executor = both.simple_bind(mx.gpu(0), group2ctx={"first": mx.gpu(0), "second": mx.gpu(1)}, a=(2,))
        assert (str(executor.arg_arrays[0].context), str(executor.forward()[0].context)) == ("gpu(0)", "gpu(1)")
        layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="layer")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(layer, name="softmax"), context=[mx.gpu(0), mx.gpu(1)])
        batches = mx.io.NDArrayIter(mx.nd.ones((8, 3)), mx.nd.zeros(8), batch_size=4)
        module.fit(batches, num_epoch=1)
        assert str(module._exec_group.execs[1].arg_arrays[0].context) == "gpu(1)"


def test_errors_of_the_library_name_the_gpu(current: str) -> None:
    mx = ds.framework("mxnet")
    with ds.simulate(2, native_names=True):
        with pytest.raises(mx.MXNetError, match=r'ctx="gpu\(1\)"'):
            mx.nd._internal._full(shape=(2,), value="foo", ctx=mx.gpu(1))
        if not hasattr(mx, "Device"):  # 2.0 copies the arguments of an executor to its device
            x, y = (mx.sym.Variable(name) for name in "xy")
            with pytest.raises(mx.MXNetError, match=r"in gpu\(0\) while binding with ctx=gpu\(1\)"):
                (x + y).bind(mx.gpu(1), {"x": mx.nd.ones(2, ctx=mx.gpu(1)), "y": mx.nd.ones(2, ctx=mx.gpu(0))})


@pytest.mark.skipif("not hasattr(ds.framework('mxnet'), 'Device')", reason="MXNet 1.9 has less than 2**31 elements")
@pytest.mark.parametrize("memory", [None, "1GiB"])
def test_an_array_that_is_far_too_large_is_refused_immediately(current: str, memory: str | None) -> None:
    mx = ds.framework("mxnet")
    with ds.simulate(2, memory, native_names=True):
        for create in (mx.nd.zeros, mx.nd.empty, mx.np.zeros, mx.np.empty):
            with pytest.raises(mx.MXNetError, match="gpu:1 is out of memory") as caught:
                create((10**12,), ctx=mx.gpu(1))
            assert isinstance(caught.value, ds.OutOfMemoryError)
        mx.nd.waitall()  # raises nothing: no error is left behind


def test_switching_off_restores_every_attribute() -> None:
    check_attributes("mxnet")


def test_a_function_that_a_metric_calls_may_not_mix_gpus(current: str) -> None:
    mx = ds.framework("mxnet")
    if not hasattr(mx.gluon, "metric"):
        pytest.skip("MXNet 1.9 has its metrics elsewhere, and computes them with NumPy")
    with ds.simulate(2, native_names=True):
        x, y = (mx.np.ones((3,), ctx=mx.gpu(i)) for i in range(2))
        metric = mx.gluon.metric.CustomMetric(lambda label, pred: (x + y).mean())
        with pytest.raises(mx.MXNetError, match="gpu:0 and gpu:1"):
            metric.update([x], [x])

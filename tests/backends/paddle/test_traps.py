"""Tests of the peculiarities of PaddlePaddle: each test names the trap that the adapter's workaround avoids."""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def paddle() -> Iterator[Any]:
    with ds.using("paddle"):
        yield import_module("paddle")


def leaf(paddle: Any) -> Any:
    return paddle.to_tensor([1.0, 2.0], stop_gradient=False, place=paddle.CPUPlace())


# ---------------------------------------------------------------- tensors and gradients
def test_gradient_reaches_the_source_of_a_copy(paddle: Any) -> None:
    """``.to``, ``.cpu`` and ``_copy_to`` return a leaf, and the source's gradient stays None."""
    x = leaf(paddle)
    y = ds.copy(x, "cpu")
    (y * y).sum().backward()
    assert not y.stop_gradient
    assert x.grad.tolist() == [2.0, 4.0]


def test_gradient_of_a_gradient_passes_a_copy(paddle: Any) -> None:
    """A PyLayer whose backward pass only copies cuts the second derivative."""
    x = leaf(paddle)
    (first,) = paddle.grad((ds.copy(x, "cpu") ** 3).sum(), x, create_graph=True)
    (second,) = paddle.grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0]


def test_copy_of_a_view_is_independent_and_differentiable(paddle: Any) -> None:
    """A slice has its own strides and offset; its copy must have neither."""
    base = ds.asarray([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    base.stop_gradient = False
    copy = ds.copy(base[:, 1:], "cpu")
    assert copy.is_contiguous()
    copy.sum().backward()
    assert base.grad.tolist() == [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]


@pytest.mark.parametrize("frozen", [False, True])
def test_copy_of_a_parameter_is_not_a_parameter(paddle: Any, frozen: bool) -> None:
    """``_copy_to`` of a Parameter is a Parameter of the same name, by which optimizers and checkpoints identify it."""
    parameter = paddle.create_parameter([2], "float32")
    parameter.stop_gradient = frozen
    copy = ds.copy(parameter, "cpu")
    assert type(copy) is paddle.Tensor
    assert copy.name != parameter.name
    assert copy.stop_gradient is frozen


@pytest.mark.parametrize("watched", [False, True])
def test_a_copy_has_a_name_of_its_own(paddle: Any, watched: bool) -> None:
    """``_copy_to`` gives its result the name of its source, if the source already has one."""
    x = paddle.ones([2])
    x.name, x.persistable = "running_mean", True
    with ds.transfers() if watched else contextlib.nullcontext():
        y = ds.copy(x, "cpu")
    assert y.persistable
    assert y.name
    assert y.name not in (x.name, ds.copy(x, "cpu").name)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("layout", ["turned", "cut", "stepped"])
def test_a_copy_of_a_view_is_contiguous(paddle: Any, layout: str, watched: bool) -> None:
    """The memory of a copy is contiguous, even if its source is not."""
    base = paddle.arange(12, dtype="float32").reshape([3, 4])
    x = {"turned": base.t(), "cut": base[:, 1:3], "stepped": base[:, ::2]}[layout]
    with ds.transfers() if watched else contextlib.nullcontext():
        y = ds.copy(x, "cpu")
    assert y.is_contiguous()
    assert y.tolist() == x.tolist()
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("watched", [False, True])
def test_dtypes_without_kernels_are_copied(paddle: Any, watched: bool) -> None:
    """A copy moves bytes, so it must not fail because Paddle cannot compute with a dtype."""
    if not hasattr(paddle, "float8_e4m3fn"):
        pytest.skip("hardware: this PaddlePaddle has no 8-bit floats")
    x = paddle.to_tensor([1.0, -2.5]).astype("float8_e4m3fn")
    with ds.transfers() if watched else contextlib.nullcontext() as log:
        y = ds.copy(x, "cpu")
    assert y.dtype == x.dtype
    assert y.astype("float32").tolist() == [1.0, -2.5]
    if log is not None:
        assert log.total_bytes == 2


def test_sparse_tensors_are_refused(paddle: Any) -> None:
    """``_copy_to`` of a sparse tensor misreads its shape (3.3)."""
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2], place=paddle.CPUPlace())
    assert ds.device_of(sparse) is ds.cpu()
    with pytest.raises(ds.UnsupportedError, match="sparse"):
        ds.copy(sparse, "cpu")
    with pytest.raises(ds.UnsupportedError, match="sparse"):
        ds.split(sparse, ["cpu", "cpu"])


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_tensors_are_neither_joined_nor_reduced(paddle: Any, layout: str) -> None:
    """``paddle.concat`` of them ends the process, and ``paddle.add`` of them raises OSError (3.3)."""
    dense = paddle.to_tensor(np.eye(2), place=paddle.CPUPlace())
    x = dense.to_sparse_coo(2) if layout == "coo" else dense.to_sparse_csr()
    with pytest.raises(ds.UnsupportedError, match="a sparse PaddlePaddle tensor cannot be joined"):
        ds.gather([x, x], "cpu")
    for op in ("sum", "mean", "max"):
        for tensors in ([x, x], [dense, x]):
            with pytest.raises(ds.UnsupportedError, match="a sparse PaddlePaddle tensor cannot be reduced"):
                ds.all_reduce_(tensors, op)
    assert dense.numpy().tolist() == [[1, 0], [0, 1]]


def test_missing_gpu_is_refused_before_paddle_sees_it(paddle: Any) -> None:
    """``paddle.CUDAPlace(0)`` on a CPU-only build crashes."""
    with pytest.raises(ds.DeviceNotFoundError):
        ds.gpu(99).native()
    with pytest.raises(ds.DeviceNotFoundError):
        ds.zeros(2, device="gpu:99")


def test_every_place_names_its_device(paddle: Any) -> None:
    """Up to 3.0, equal places do not compare equal, their hashes differ, and their classes are unrelated."""
    assert ds.device(paddle.CPUPlace()) is ds.cpu()
    assert ds.device(ds.zeros(1).place) is ds.cpu()
    assert isinstance(ds.cpu().native(), paddle.CPUPlace)


# ---------------------------------------------------------------- dtypes and NumPy
def test_uint16_is_not_taken_for_bfloat16(paddle: Any) -> None:
    """``paddle.to_tensor(np.uint16)`` reads the bits as bfloat16: 16256 becomes 1.0."""
    for name in ("uint16", "uint32", "uint64"):
        with pytest.raises(ds.ConversionError, match=name):
            ds.from_numpy(np.array([16256], name))
        with pytest.raises(ds.ConversionError, match=name):
            ds.zeros(2, dtype=name)


@pytest.mark.skipif(find_spec("ml_dtypes") is not None, reason="ml_dtypes gives NumPy a bfloat16")
def test_bfloat16_without_ml_dtypes_is_refused(paddle: Any) -> None:
    """``.numpy()`` of a bfloat16 tensor gives uint16 bits."""
    with pytest.raises(ds.ConversionError, match="bfloat16"):
        ds.to_numpy(ds.ones(2, dtype="bfloat16"))


@pytest.mark.skipif(find_spec("ml_dtypes") is None, reason="NumPy has no bfloat16 without ml_dtypes")
def test_bfloat16_keeps_its_values_to_numpy_and_back(paddle: Any) -> None:
    """``.numpy()`` of a bfloat16 tensor gives uint16 bits."""
    x = ds.asarray([1.0, -2.5], dtype="bfloat16")
    array = ds.to_numpy(x)
    assert array.dtype.name == "bfloat16"
    assert array.astype("float32").tolist() == [1.0, -2.5]
    assert ds.from_numpy(array).astype("float32").tolist() == [1.0, -2.5]


def test_one_value_is_created_on_the_requested_device(paddle: Any) -> None:
    """``to_tensor`` of a single number goes through ``paddle.full`` on the process-wide device (3.3, CUDA)."""
    assert ds.device_of(ds.asarray([1.0], device="cpu")) is ds.cpu()
    assert ds.asarray(2**62 + 1).item() == 2**62 + 1
    assert ds.full((), 2**62 + 1).dtype == paddle.int64


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "float16", "bfloat16", "complex64"])
def test_ranges_and_eye_in_dtypes_without_kernels(paddle: Any, dtype: str) -> None:
    """Paddle has no kernels of arange, linspace and eye for these."""
    wanted = getattr(paddle, dtype)
    for made in (ds.arange(0, 2, dtype=dtype), ds.linspace(0, 1, 3, dtype=dtype), ds.eye(2, 3, k=1, dtype=dtype)):
        assert made.dtype == wanted
    assert ds.arange(3, 0, dtype=dtype).shape == [0]


def test_eye_in_bool(paddle: Any) -> None:
    """Paddle has no kernel of eye for bool."""
    assert ds.eye(2, 3, k=1, dtype="bool").tolist() == [[False, True, False], [False, False, True]]
    assert ds.eye(2, dtype="bool").dtype == paddle.bool


def test_long_range_does_not_drift(paddle: Any) -> None:
    """Paddle's kernel accumulates the step, and its errors, in the result's dtype."""
    assert ds.to_numpy(ds.arange(0, 10_000, 0.1))[-1] == np.float32(9_999.9)


# ---------------------------------------------------------------- random numbers
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_uniform_never_reaches_its_upper_bound(paddle: Any, dtype: str) -> None:
    """Rounded to bfloat16, one draw of 512 from [0, 1) is 1."""
    ds.random.seed(0)
    for low, high in ((0, 1), (-1, 0), (-2, -1), (1, 1)):
        drawn = ds.random.uniform(low, high, 20_000, dtype=dtype).astype("float32")
        assert float(drawn.min()) >= low
        assert float(drawn.max()) < high or low == high


# ---------------------------------------------------------------- scopes
def test_scope_leaves_the_process_wide_device_alone(paddle: Any, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``paddle.set_device`` affects every thread; a scope, and a device set inside it, must not, even briefly.

    A scope of the host does nothing where Paddle has no other device, so that this test acts as if it had one.
    """
    monkeypatch.setattr("devshim_backends._paddle.devices.only_host", False)
    framework = paddle.base.framework
    original = framework._current_expected_place_()
    with backend.scope(ds.cpu()):
        inside = framework._current_expected_place_()
        assert inside is not original
        assert framework._global_expected_place_ is original
        seen = in_thread(framework._current_expected_place_)
        assert seen is original
        paddle.set_device("cpu")
        assert framework._global_expected_place_ is original
        in_thread(lambda: framework._set_expected_place(inside))  # as a DataLoader's thread does
        assert framework._global_expected_place_ is original
    assert framework._current_expected_place_() is original


def test_a_program_that_is_built_in_a_scope_has_its_device(paddle: Any, backend: Any) -> None:
    """Another machine may run it, on which the host is not the default."""
    framework = paddle.base.framework
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()), backend.scope(ds.cpu()):
            assert framework._current_expected_place_() is not framework._global_expected_place_
    finally:
        paddle.disable_static()


def test_set_device_works_outside_scopes(paddle: Any, backend: Any) -> None:
    """The functions that scopes patch must work as before for all other code."""
    framework = paddle.base.framework
    with backend.scope(ds.cpu()):
        pass
    before = framework._global_expected_place_
    paddle.set_device("cpu")
    after = framework._global_expected_place_
    framework._set_expected_place(before)
    assert after is not before
    assert isinstance(after, paddle.CPUPlace)


def test_scopes_on_real_gpus_can_end_in_any_order(paddle: Any) -> None:
    """The C++ layer has one current GPU for all threads: the last scope to end must restore it, in any order."""
    scopes = import_module("devshim_backends._paddle.scopes")
    tracer = paddle.base.framework.global_var._dygraph_tracer_
    before = repr(tracer._expected_place)
    first, second = object(), object()
    scopes._set_computing_place(first, paddle.CPUPlace())
    scopes._set_computing_place(second, paddle.CPUPlace())
    scopes._set_computing_place(first, None)
    assert len(scopes._OPEN_GPU_SCOPES) == 1
    scopes._set_computing_place(second, None)
    assert not scopes._OPEN_GPU_SCOPES
    assert repr(tracer._expected_place) == before


def in_thread(what: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(what()))
    thread.start()
    thread.join()
    return found[0]


# ---------------------------------------------------------------- running
def test_synchronize_works_on_a_cpu_build(paddle: Any) -> None:
    """``paddle.device.synchronize()`` raises TypeError there."""
    ds.synchronize()
    ds.synchronize("cpu")
    ds.empty_cache()


# ---------------------------------------------------------------- DLPack
def test_exported_device_has_a_number(paddle: Any, backend: Any) -> None:
    """``__dlpack_device__`` returns ``(CPU, None)``, which JAX refuses."""
    assert backend.to_dlpack(ds.ones(2)).__dlpack_device__() == (1, 0)


def test_export_shares_memory_and_leaves_gradients_behind(paddle: Any, backend: Any) -> None:
    """Other frameworks raise BufferError for a tensor that requires a gradient."""
    x = ds.ones(2)
    x.stop_gradient = False
    shared = np.from_dlpack(backend.to_dlpack(x))
    assert shared.ctypes.data == x.data_ptr()


def test_strided_and_boolean_exchange_is_right_or_refused(paddle: Any, backend: Any) -> None:
    """Paddle before 3.0 took strided memory for contiguous and bool for uint8, without an error."""
    strided = np.arange(6.0)[::2]
    boolean = np.array([True, False])
    for array in (strided, boolean):
        assert ds.to_numpy(ds.convert(array, "paddle")).tolist() == array.tolist()
        with contextlib.suppress(ds.ConversionError):
            assert ds.to_numpy(backend.from_dlpack(array)).tolist() == array.tolist()
    for x in (ds.from_numpy(np.arange(6.0).reshape(2, 3))[:, 1:], ds.from_numpy(boolean)):
        back = ds.convert(x, "numpy")
        assert back.dtype == x.numpy().dtype
        assert back.tolist() == x.tolist()


def test_negative_strides_are_refused(paddle: Any, backend: Any) -> None:
    """Paddle takes them for sizes: a MemoryError (3.3)."""
    backwards = np.arange(3.0)[::-1]
    with pytest.raises(ds.ConversionError, match="negative strides"):
        backend.from_dlpack(backwards)
    assert ds.to_numpy(ds.convert(backwards, "paddle")).tolist() == [2.0, 1.0, 0.0]


def test_read_only_memory_is_never_writable(paddle: Any, backend: Any) -> None:
    """Paddle returns a tensor over a read-only array, and writes into it."""
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.raises(ds.ConversionError, match="read-only"):
        backend.from_dlpack(array)
    with pytest.raises(ds.CopyNeededError):
        ds.from_numpy(array, copy=False)
    x = ds.convert(array, "paddle")
    x[0] = 9.0
    assert array[0] == 0.0


def test_wide_unsigned_integers_are_not_imported(paddle: Any, backend: Any) -> None:
    """Paddle 3.x imports a uint16 capsule, prints it as bfloat16, and cannot compute with it."""
    with pytest.raises(ds.ConversionError):
        backend.from_dlpack(np.arange(3, dtype="uint16"))


# ---------------------------------------------------------------- to_static
def plain(x: Any) -> Any:
    return ds.place(x, "cpu") * 2.0 if ds.device_of(x) is ds.cpu() else x


def copied(x: Any) -> Any:
    return ds.copy(x, "cpu") * 2.0


def double(x: Any) -> Any:
    return x * 2.0


def ran(x: Any) -> Any:
    return ds.run(double, x)


def scoped(x: Any) -> Any:
    with ds.on("cpu"):
        return x + x + ds.zeros(2)


def elsewhere(x: Any) -> Any:
    return ds.place(x, "gpu:99")


def parted(x: Any) -> Any:
    return ds.gather(ds.split(x * 2.0, ["cpu", "cpu"]), "cpu")


def planned(x: Any) -> Any:
    return ds.place({"x": x}, ds.Placement(default="cpu"))["x"] * 2.0


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface:UserWarning")  # 3.3's own full_like
@pytest.mark.parametrize("full_graph", [True, False])
@pytest.mark.parametrize("function", [plain, copied, ran, scoped, parted, planned])
def test_compiled_functions_do_what_they_do_eagerly(paddle: Any, function: Any, full_graph: bool) -> None:
    """``to_static`` rewrites the functions it calls, and loses their early returns and keyword-only arguments."""
    if full_graph and any(ds.device_count(kind) for kind in ("gpu", "xpu", "npu")):
        with pytest.raises(ds.TracingError):
            paddle.jit.to_static(function, full_graph=True)(leaf(paddle))
        return
    x = leaf(paddle)
    y = paddle.jit.to_static(function, full_graph=full_graph)(x)
    y.sum().backward()
    assert y.tolist() == [2.0, 4.0]
    assert x.grad.tolist() == [2.0, 2.0]


ARRAY = np.float32([2, 2])


def with_array(x: Any) -> Any:
    return x * ds.asarray(ARRAY)


def with_array_beside(x: Any) -> Any:
    return x * ds.asarray(ARRAY, like=x)


def with_array_of_namespace(x: Any) -> Any:
    return x * ds.namespace(x).asarray(ARRAY)


def with_shared_array(x: Any) -> Any:
    return x * ds.namespace(x).from_dlpack(ARRAY)


def with_converted_array(x: Any) -> Any:
    return x * ds.convert(ARRAY, "paddle")


def with_read_array(x: Any) -> Any:
    return x * ds.from_numpy(ARRAY, copy=False)


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface:UserWarning")  # 3.3's own full_like
@pytest.mark.parametrize("function", [with_array, with_array_beside, with_array_of_namespace])
def test_an_array_of_numpy_is_a_constant_of_a_compiled_function(paddle: Any, function: Any) -> None:
    """`paddle.Tensor(array)` ends the process while a program is being built (3.3)."""
    x = leaf(paddle)
    compiled = paddle.jit.to_static(function, full_graph=True)
    if any(ds.device_count(kind) for kind in ("gpu", "xpu", "npu")) and function is not with_array_beside:
        with pytest.raises(ds.TracingError):
            compiled(x)
        return
    assert compiled(x).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("function", [with_shared_array, with_converted_array, with_read_array])
def test_the_memory_of_an_array_is_not_shared_in_a_compiled_function(paddle: Any, function: Any) -> None:
    with pytest.raises(ds.TracingError):
        paddle.jit.to_static(function, full_graph=True)(leaf(paddle))


FIRST = {
    "place": 'ds.place(x, "cpu", copy=True)',
    "device_of": "(ds.device_of(x), x)[1]",
    "zeros": "x + ds.zeros(2, dtype='float32')",
    "device": "ds.place(x, ds.device('cpu'))",
    "split": "ds.split(x, ['cpu'])[0]",
    "find": "(placement.find('w'), x)[1]",
    "balanced": "ds.place([x], ds.Placement.balanced([x], ['cpu']))[0]",
    "native": "(ds.cpu().native(), x)[1]",
}
COMPILED_FIRST = """
import paddle
import devshim as ds

placement = ds.Placement(default="cpu")
x = paddle.to_tensor([1.0, 2.0])

def first(x):
    return {call}

assert paddle.jit.to_static(first, full_graph=True)(x).tolist() == [1.0, 2.0]
"""


@pytest.mark.parametrize("call", FIRST)
def test_the_first_call_of_a_process_may_be_compiled(run_python: Callable[..., str], call: str, tmp_path: Path) -> None:
    """Paddle rewrites what it calls before an adapter, which that call loads, can say what to leave unchanged."""
    program = tmp_path / "first.py"
    program.write_text(COMPILED_FIRST.format(call=FIRST[call]))  # Paddle reads a function's source from its file
    run_python(program)


def test_compiled_placement_on_a_missing_gpu_is_refused(paddle: Any) -> None:
    """A compiler must not swallow the error."""
    with pytest.raises((ds.DeviceNotFoundError, ds.TracingError)):
        paddle.jit.to_static(elsewhere, full_graph=True)(leaf(paddle))


# ---------------------------------------------------------------- importing
def test_import_is_quiet_where_warnings_are_errors(run_python: Callable[..., str]) -> None:
    """``import paddle`` warns of a missing ccache."""
    run_python("-W", "error::UserWarning", "-c", "import devshim as ds; ds.use('paddle'); import paddle")


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed beside it")
def test_import_after_tensorflow(run_python: Callable[..., str]) -> None:
    """TensorFlow 2.20 or newer first, then ``import paddle``: a segmentation fault."""
    run_python("-c", "import tensorflow, devshim as ds; ds.use('paddle'); import paddle; print(paddle.ones([2]).sum())")


def test_flags_for_loading_libraries_are_restored(run_python: Callable[..., str]) -> None:
    """RTLD_DEEPBIND applies only to Paddle's own libraries."""
    run_python(
        "-c",
        "import sys; before = sys.getdlopenflags(); import devshim as ds; ds.use('paddle'); import paddle; "
        "assert sys.getdlopenflags() == before",
    )


def test_a_function_that_switches_gradients_off_switches_them_off_inside_alone(paddle):
    def function(x):
        y = (x * x).sum()
        paddle.set_grad_enabled(False)
        return y

    value, grads = ds.value_and_grad(function)(ds.ones(2, dtype="float32"))
    assert paddle.is_grad_enabled()
    assert float(value) == 2
    assert ds.to_numpy(grads).tolist() == [2, 2]


def _compiled_for(paddle: Any, fn: Any, length: int | None) -> Any:
    """Return a function compiled as one program, for batches of a length or of any length."""
    spec = [paddle.static.InputSpec([length, 4], "float32")]
    return paddle.jit.to_static(fn, input_spec=spec, full_graph=True)


def test_a_length_that_the_compiler_does_not_know_is_not_used(paddle: Any) -> None:
    """Paddle's compiler has -1 for the length of a batch: `split` returned all rows in its last part."""

    def first(x: Any) -> Any:
        return ds.split(x, ["cpu", "cpu"])[0]

    with pytest.raises(ds.TracingError, match=r"ds.split needs the length of axis 0, and PaddlePaddle is compiling"):
        _compiled_for(paddle, first, None)(paddle.ones([4, 4]))
    assert _compiled_for(paddle, first, 4)(paddle.ones([4, 4])).shape == [2, 4]


@pytest.mark.parametrize("length", [4, None])
@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "full_like", "empty_like"])
def test_a_tensor_has_the_length_of_its_model_when_the_program_runs(paddle: Any, name: str, length: int | None) -> None:
    """The length of a batch is -1 while Paddle compiles a program for any length."""
    value = (2,) if name == "full_like" else ()

    def call(x: Any) -> Any:
        return getattr(ds, name)(x, *value) + x

    fn = _compiled_for(paddle, call, length)
    for rows in [4] if length else [4, 3]:
        made = fn(paddle.ones([rows, 4]))
        assert made.shape == [rows, 4]
        assert name == "empty_like" or bool((made == {"z": 1, "o": 2, "f": 3}[name[0]]).all())


def test_a_namespace_makes_operands_in_a_program(paddle: Any) -> None:
    """With GPUs, a program has a device when it runs, and what it makes is there."""

    def shifted(x: Any) -> Any:
        xp = ds.namespace(x)
        return x + xp.arange(4, dtype="float32") * xp.asarray(2.0) + xp.eye(4)[0] - xp.full(4, 3.0)

    made = _compiled_for(paddle, shifted, 2)(paddle.ones([2, 4]))
    assert made.numpy().tolist() == [[-1.0, 0.0, 2.0, 4.0]] * 2


def test_all_reduce_refuses_elements_that_share_memory(paddle: Any) -> None:
    """Paddle writes such a tensor without an error: the value written last remains."""
    shared = paddle.as_strided(paddle.arange(6.0), [2, 3], [1, 1])
    with pytest.raises(ds.ArgumentError, match="elements of tensor 0 share memory"):
        ds.all_reduce_([shared, paddle.ones([2, 3])])
    columns = paddle.transpose(paddle.ones([2, 3]), [1, 0])
    assert ds.all_reduce_([columns, paddle.ones([3, 2])])[0].tolist() == [[2.0] * 2] * 3

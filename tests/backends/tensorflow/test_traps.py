"""Tests of the peculiarities of TensorFlow: each names the trap, and fails without the adapter's workaround for it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from programs import run_program
from tensorflow_memory import pointer

import devshim as ds

CPU = ds.cpu()
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


pytestmark = pytest.mark.usefixtures("two_cards")


def aligned(count, offset=0):
    """Return host memory for floats that starts a number of bytes after a multiple of 64."""
    memory = np.zeros(count * 4 + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + count * 4].view(np.float32)


def python(program, folder, **environment):
    """Run a program in its own process, in which TensorFlow has not started."""
    return run_program(program, folder, TF_CPP_MIN_LOG_LEVEL="3", **environment)


# ---------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("target", ["cpu", "gpu:0", "gpu:1"])
def test_a_copy_is_new_memory(name, target):
    """`tf.identity` shares the buffer on one device, and between logical CPUs."""
    x = ds.zeros((3,), dtype=name, device="gpu:0")
    copied = ds.copy(x, target)
    assert pointer(copied) != pointer(x)
    assert ds.device_of(copied) is ds.device(target)


@pytest.mark.parametrize("name", ["float32", "int32", "bool", "complex64", "bfloat16", "string", "qint8"])
def test_every_copy_on_the_host_is_new_memory(name):
    """Numbers take the fast path without an observer; both paths are ``DeepCopy`` in a scope on the host."""
    text = tf.constant(["a", "b"])
    x = text if name == "string" else tf.bitcast(tf.constant([1, 0], tf.int8), tf.qint8) if name == "qint8" else None
    x = tf.cast(tf.constant([1, 0]), name) if x is None else x
    with tf.device("/CPU:1"):  # a user's scope, in which operators would run: a simulated GPU
        short = ds.copy(x, CPU)
        with ds.transfers() as log:
            long = ds.copy(x, CPU)
    assert log.count == 1
    for made in (short, long):
        assert made is not x
        assert made.dtype == x.dtype
        assert ds.device_of(made) is CPU
        assert made.numpy().tolist() == x.numpy().tolist()
        assert name in ("string", "qint8", "bool", "bfloat16") or pointer(made) != pointer(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ds.place(tf.cast(x, tf.int32), "gpu:1"),
        lambda x: ds.zeros((2,), dtype="int32", device="gpu:1"),
        lambda x: ds.arange(3, device="gpu:1"),
        lambda x: ds.asarray([1, 2], device="gpu:1"),
    ],
)
def test_int32_cannot_be_placed_inside_a_function(call):
    """Trap: operators of a tf.function leave int32 in host memory, even in a GPU's scope."""
    x = ds.ones((2,), device="gpu:0")
    assert ds.device_of(call(x)) is ds.gpu(1)
    with pytest.raises(ds.TracingError, match=r"keep int32 in host memory: (place|create) it outside"):
        tf.function(call, autograph=False)(x)
    assert ds.device_of(tf.function(lambda: ds.arange(3, device=CPU))()) is CPU


def test_captured_tensors_are_copied_when_the_function_runs():
    """A tensor that has values while the function is compiled must still be copied in the graph."""
    x = tf.constant([1.0, 2.0])
    made = tf.function(lambda: ds.copy(x, CPU))
    assert [node.type for node in made.get_concrete_function().graph.get_operations()].count("DeepCopy") == 1
    assert made().numpy().tolist() == [1.0, 2.0]


def test_moving_between_simulated_gpus_makes_new_memory():
    x = ds.ones((3,), device="gpu:0")
    assert pointer(ds.place(x, "gpu:1")) != pointer(x)


@pytest.mark.parametrize(
    "make", [lambda: ds.asarray(7.0), lambda: ds.full((), 7.0), lambda: ds.from_numpy(np.float32(7))]
)
def test_a_scalar_has_memory_of_its_own(make):
    """`tf.constant(7.0)` returns the same buffer to every caller: a write to one would change them all."""
    assert pointer(make()) not in (pointer(make()), pointer(tf.constant(7.0)))


def test_assigning_to_a_variable_leaves_its_copy_alone():
    v = tf.Variable([1.0, 2.0])
    copied = ds.copy(v, "cpu")
    v.assign([5.0, 6.0])
    assert copied.numpy().tolist() == [1.0, 2.0]


def test_reading_0d_gives_an_array():
    """`.numpy()` of a 0-d tensor is a NumPy scalar, and of a string tensor `bytes`."""
    array = ds.to_numpy(ds.asarray(3.0))
    assert isinstance(array, np.ndarray)
    array[...] = 4
    assert ds.to_numpy(tf.constant("a")).item() == b"a"


@pytest.mark.parametrize("name", DTYPES)
def test_a_view_of_an_immutable_tensor_is_read_only(name):
    x = ds.ones((2,), dtype=name)
    view = ds.to_numpy(x, copy=False)
    assert not view.flags.writeable
    assert view.ctypes.data == pointer(x)
    assert view.dtype == x.dtype.as_numpy_dtype


# ---------------------------------------------------------------------------------------------------- devices


def test_the_device_is_that_of_the_memory():
    """`.device` of a tf.function's result is the caller's; `backing_device` is where it is."""
    x = tf.function(lambda: ds.ones((2,), device="gpu:1"))()
    assert ds.device_of(ds.zeros((2,))) is CPU  # from here on both names are known
    assert x.device.endswith("CPU:0")
    assert ds.device_of(x) is ds.gpu(1)


def test_an_absent_device_is_refused_and_soft_placement_left_alone():
    """With soft placement, which is on by default, an absent `/GPU:9` is silently the CPU."""
    before = tf.config.get_soft_device_placement()
    with pytest.raises(ds.DeviceNotFoundError):
        ds.zeros((2,), device="gpu:9")
    assert tf.config.get_soft_device_placement() is before


def test_native_devices_are_read():
    logical = tf.config.list_logical_devices("CPU")
    assert [ds.device(native) for native in logical[:3]] == [CPU, ds.gpu(0), ds.gpu(1)]
    assert ds.device(tf.config.list_physical_devices("CPU")[0]) is CPU
    assert ds.device(tf.DeviceSpec.from_string("/job:localhost/replica:0/task:0/device:GPU:3")) is ds.gpu(3)


def test_run_computes_where_the_arguments_are():
    """A compiled function computes in the current scope, not on its arguments' device, as real operators do."""
    x, square = ds.ones((2, 2), device="gpu:1"), tf.function(lambda x: tf.matmul(x, x))
    assert ds.device_of(square(x)) is CPU
    assert ds.device_of(ds.run(square, x)) is ds.gpu(1)


def test_ragged_and_sparse_tensors_move_whole():
    ragged, sparse = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[1.0, 0.0]])
    assert ds.device_of(ds.place(ragged, "gpu:1")) is ds.gpu(1)
    assert ds.place(ragged, "gpu:1").to_list() == [[1], [2, 3]]
    assert ds.device_of(ds.place(sparse, "gpu:0")) is ds.gpu(0)
    with pytest.raises(ds.ConversionError, match=r"x\.to_tensor"):
        ds.to_numpy(ragged)


def test_a_mirrored_variable_is_on_no_single_device():
    with tf.distribute.MirroredStrategy(["/CPU:1", "/CPU:2"]).scope():
        v = tf.Variable(1.0)
    with pytest.raises(ds.UnsupportedError, match="gpu:0, gpu:1"):
        ds.device_of(v)


def test_keras_variables_are_tensors_and_its_layers_models(backend):
    keras = pytest.importorskip("keras")
    v = keras.Variable([1.0, 2.0])
    assert ds.device_of(v) is CPU
    assert ds.device_of(ds.place(v, "gpu:1")) is ds.gpu(1)
    assert backend.is_model(keras.layers.Dense)
    assert backend.is_model(keras.optimizers.Adam)
    assert backend.is_model(tf.Module)
    assert not backend.is_model(tf.Variable)


# ---------------------------------------------------------------------------------------------------- gradients


def test_gradients_flow_through_a_copy_and_come_back_to_their_variable():
    """TensorFlow has no gradient for `DeepCopy`."""
    with ds.on("gpu:0"):
        v = tf.Variable([1.0, 2.0])
    assert ds.place(v, "gpu:0") is v
    with tf.GradientTape() as tape:
        moved = ds.copy(ds.place(v, "gpu:1"), "cpu")
        total = tf.reduce_sum(moved**2)
    gradient = tape.gradient(total, v)
    assert gradient.numpy().tolist() == [2.0, 4.0]
    assert ds.device_of(gradient) is ds.gpu(0)


def test_second_derivatives_flow_through_a_copy():
    x = ds.asarray([1.0, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            total = tf.reduce_sum(ds.copy(x, "gpu:1") ** 3)
        first = inner.gradient(total, x)
    assert outer.gradient(first, x).numpy().tolist() == [6.0, 12.0]


# ---------------------------------------------------------------------------------------------------- tf.function


def test_in_a_function_placed_captured_and_variable_tensors_have_devices():
    """`.device` of a symbolic tensor is `''` unless an operator was given one."""
    x, v = ds.ones((2,), device="gpu:1"), tf.Variable([1.0, 2.0])
    seen = []

    @tf.function
    def f():
        placed = ds.place(v, "gpu:1")
        captured = tf.identity(x).op.inputs[0]
        seen.extend(map(ds.device_of, (placed, captured, x, v)))
        return ds.place(placed, "gpu:1") + ds.run(tf.multiply, placed, x)

    assert f().numpy().tolist() == [2.0, 4.0]
    assert seen == [ds.gpu(1), ds.gpu(1), ds.gpu(1), CPU]


def test_copy_and_on_in_a_function_apply_wherever_it_is_called():
    @tf.function
    def f(x):
        with ds.on("gpu:0"):
            return ds.copy(x, "gpu:1"), x * 2, ds.zeros((2,)), ds.zeros((2,), device="cpu")

    expected = [ds.gpu(1), ds.gpu(0), ds.gpu(0), CPU]
    x = ds.ones((2,))
    assert [ds.device_of(part) for part in f(x)] == expected
    with ds.on("gpu:1"):
        assert [ds.device_of(part) for part in f(x)] == expected
    assert pointer(f(x)[0]) != pointer(x)


def test_in_a_function_an_argument_is_placed_by_itself_and_in_a_tree():
    """An argument has no device yet, so whether it must move is unknown: it is always moved, even in a tree."""

    @tf.function
    def f(x):
        return ds.place(x, "gpu:1"), ds.place({"x": [x]}, "gpu:1")["x"][0]

    assert [ds.device_of(part) for part in f(ds.ones((2,)))] == [ds.gpu(1), ds.gpu(1)]


def test_the_device_of_an_argument_is_refused_with_our_error():
    """One trace serves calls from every device; and AutoGraph converts errors that it does not know into its own."""

    @tf.function
    def f(x):
        ds.device_of(x)
        return x

    with pytest.raises(ds.TracingError):
        f(ds.ones((2,)))


def copied(x):
    return ds.copy(x, "gpu:1")


def scoped(x):
    with ds.on("gpu:1"):
        return x + 1


@pytest.mark.parametrize("fn", [copied, scoped])
def test_xla_refuses_what_it_would_ignore(fn):
    """`jit_compile=True` silently drops device scopes."""
    with pytest.raises(ds.TracingError, match="compiling"):
        tf.function(fn, jit_compile=True)(ds.ones((2,)))


def test_gradients_flow_through_a_copy_in_a_function():
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(ds.copy(x, "gpu:1") ** 2)
        return tape.gradient(total, x)

    assert f(ds.asarray([1.0, 2.0])).numpy().tolist() == [2.0, 4.0]


# ---------------------------------------------------------------------------------------------------- creation


def test_ranges_are_counted_in_64_bits():
    """`tf.range` refuses an empty range that runs backwards, wraps int32, and has no range of most dtypes."""
    assert ds.arange(5, 0).shape == (0,)
    assert ds.arange(2**33, 2**33 + 2).numpy().tolist() == [2**33, 2**33 + 1]
    assert ds.arange(3, dtype="uint8").dtype == tf.uint8
    assert len(ds.arange(0, 0.3, 0.1)) == len(np.arange(0, 0.3, 0.1))


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(ds.ConversionError, match="int8"):
        ds.asarray([300], dtype="int8")
    with pytest.raises(ds.DevshimError):
        ds.asarray([2**70])


def test_float_values_are_read_into_integer_dtypes_as_numpy_does():
    """`tf.constant([1.5], tf.int32)` is a TypeError."""
    assert ds.asarray([1.5, 2.0], dtype="int32").numpy().tolist() == [1, 2]


def test_uniform_never_reaches_its_upper_bound():
    """`tf.random.uniform(minval=10, maxval=11)` in float16 reaches it, by rounding."""
    ds.random.seed(0)
    drawn = ds.random.uniform(10, 11, (100_000,), dtype="float16").numpy()
    assert drawn.max() < 11
    assert drawn.min() >= 10


def test_one_seed_restarts_the_frameworks_own_draws():
    tf.random.get_global_generator()  # from now on there is one to restart
    draws = []
    for _ in range(2):
        ds.random.seed(7)
        with ds.on("gpu:1"):
            draws.append((tf.random.uniform([2]).numpy().tolist(), ds.random.normal(size=2).numpy().tolist()))
        draws[-1] += (tf.random.get_global_generator().normal([2]).numpy().tolist(),)
    assert draws[0] == draws[1]


# ---------------------------------------------------------------------------------------------------- DLPack


@pytest.mark.parametrize("offset", [4, 16, 32])
def test_unaligned_memory_is_refused_before_an_operator_aborts(offset):
    """TensorFlow takes any pointer, and its next operator crashes: `Check failed: IsAligned()`."""
    array = aligned(256, offset)
    array[:] = 1
    with pytest.raises(ds.CopyNeededError, match="aligned to 64 bytes"):
        ds.from_numpy(array, copy=False)
    assert float(tf.reduce_sum(ds.from_numpy(array) + 1)) == 512.0


def test_aligned_memory_is_shared():
    array = aligned(256)
    x = ds.from_numpy(array, copy=False)
    array[0] = 3
    assert float(x[0]) == 3.0


@pytest.mark.parametrize("array", [np.arange(64.0)[::-1], np.arange(64.0)[::2], np.ones((4, 3)).T])
def test_strides_are_refused_where_memory_must_be_shared_and_read_elsewhere(array):
    with pytest.raises(ds.CopyNeededError):
        ds.from_numpy(array, copy=False)
    assert ds.from_numpy(array).numpy().tolist() == array.tolist()


def test_strings_are_refused_before_the_export_aborts(backend):
    """`tf.constant(['a']).__dlpack__()` crashes."""
    with pytest.raises(ds.ConversionError, match="string"):
        backend.to_dlpack(tf.constant(["a"]))


def test_memory_of_a_simulated_gpu_is_exported_as_host_memory(backend):
    """A tensor on `CPU:2` exports the DLPack device (CPU, 2), which no other framework has."""
    x = ds.ones((3,), device="gpu:1")
    export = backend.to_dlpack(x)
    assert export.__dlpack_device__() == (1, 0)
    assert pointer(x) == pointer(backend.from_dlpack(export))


# ---------------------------------------------------------------------------------------------------- before the start


def test_counting_devices_does_not_start_tensorflow(tmp_path):
    """`tf.config.list_logical_devices` starts the devices, after which nothing about them can be set."""
    program = """
import devshim as ds
ds.use("tensorflow")
from devshim.registry import registry
ds.devices(), ds.device_count(), ds.try_all_gpus(), ds.describe("cpu"), ds.random.seed(3), ds.synchronize()
try: ds.zeros((2,), device="gpu:7")
except ds.DeviceNotFoundError: pass
print(registry.load("tensorflow").started(), flush=True)
ds.zeros((2,))
print(registry.load("tensorflow").started())
"""
    assert python(program, tmp_path).split() == ["False", "True"]


def test_simulated_gpus_exist_for_tensors_created_before_the_next_call(tmp_path):
    """The first tensor starts TensorFlow's devices, and by then the logical CPUs must be there."""
    program = """
import devshim as ds
ds.use("tensorflow")
ds.simulate(gpus=3)
import tensorflow as tf
tf.Variable(1.0)
print(ds.device_count())
"""
    assert python(program, tmp_path).split() == ["3"]


def test_the_number_of_simulated_gpus_can_change_up_to_the_reserved_number():
    """TensorFlow's logical devices are fixed when it starts."""
    ds.zeros((2,))
    with ds.simulate(gpus=8):
        assert ds.device_of(ds.zeros((2,), device="gpu:7")) is ds.gpu(7)
    assert ds.device_count() == 2
    with pytest.raises(ds.SimulationError, match="logical CPUs for 8 GPUs"):
        ds.simulate(gpus=9)
    assert ds.device_count() == 2


def test_a_late_call_says_which_line_to_move(tmp_path):
    program = """
import devshim as ds
import tensorflow as tf
tf.zeros([2])
ds.use("tensorflow")
for call in (lambda: ds.simulate(gpus=2), lambda: ds.memory_policy("grow")):
    try: call()
    except (ds.SimulationError, ds.AlreadyStartedError) as error: print(error)
"""
    reported = python(program, tmp_path)
    assert "move ds.simulate(gpus=2) to the top" in reported
    assert "move ds.memory_policy('grow') to the top" in reported


def test_a_memory_fraction_is_set_by_tensorflows_option(tmp_path):
    program = """
import devshim as ds
ds.use("tensorflow")
ds.memory_policy(0.25)
from tensorflow.python.eager import context
print(context.context().config.gpu_options.per_process_gpu_memory_fraction)
"""
    assert float(python(program, tmp_path)) == 0.25

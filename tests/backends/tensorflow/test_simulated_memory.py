"""Tests of the memory count of simulated GPUs on TensorFlow: exact and complete, with all of TensorFlow's sharing."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_memory import ROUND, pointer, rounded, used

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_small_gpus")


# ---------------------------------------------------------------------------------------------------- shared memory
@pytest.mark.parametrize(
    "share",
    [
        tf.identity,
        lambda x: tf.reshape(x, (4096,)),
        lambda x: x[None],
        lambda x: tf.split(x, 2),
        tf.unstack,
        tf.Variable,
    ],
    ids=["identity", "reshape", "newaxis", "split", "unstack", "variable"],
)
def test_shared_memory_is_counted_once(matrix, share):
    before = used()
    with ds.on("gpu:1"):
        shared = share(matrix)
    assert used() == before
    del shared


def test_a_view_keeps_the_whole_buffer_counted(matrix):
    """TensorFlow's tensors share a buffer, and keep the whole buffer alive."""
    before = used()
    with ds.on("gpu:1"):
        part = tf.unstack(matrix)[3]
    assert pointer(matrix) < pointer(part) < pointer(matrix) + 64 * 64 * 4
    del matrix
    assert used() == before
    del part


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (129,)])
def test_every_dtype_and_shape_is_counted(dtype, shape):
    before = used()
    y = ds.zeros(shape, dtype=dtype, device="gpu:1")
    with ds.on("gpu:1"):
        shown = tf.reshape(y, (-1,) if shape != (0, 3) else (3, 0))
    assert used() - before == rounded(int(np.prod(shape)) * y.dtype.size)
    del y, shown
    assert used() == before


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_scalar_is_counted_under_a_guard(dtype):
    """A guard reads through Python buffers, which cannot report under it that they do not support bfloat16."""
    x, before = ds.full((), 1, dtype=dtype, device="cpu"), used()
    with ds.guard("error"):
        y = ds.place(x, "gpu:1")
    assert used() - before == ROUND
    assert ds.device_of(y) is ds.gpu(1)


def test_strings_and_handles_are_not_counted():
    before = used()
    with ds.on("gpu:1"):
        kept = (
            tf.constant(["a" * 1000]),
            tf.Variable(["b"]),
        )
    assert used() == before
    del kept


# ---------------------------------------------------------------------------------------------------- variables
def test_a_variable_takes_memory_of_its_own_once_it_differs(matrix):
    """Assigning lets it share a tensor's memory; writing in place copies first if a tensor shares it."""
    size, before = rounded(64 * 64 * 4), used()
    with ds.on("gpu:1"):
        v = tf.Variable(matrix)
        assert used() - before == 0
        v.assign_add(matrix)
        assert used() - before == size
        v.assign_add(matrix)  # nothing shares it: in place
        read = v.read_value()
        assert used() - before == size
        v.assign_sub(matrix)
        assert used() - before == 2 * size
        del read
        v.assign(matrix)
        assert used() - before == 0
    del v
    assert used() == before


def test_a_variables_memory_is_freed_with_it():
    before = used()
    with ds.on("gpu:1"):
        v = tf.Variable(tf.zeros((1000,)))
    assert used() - before == 4096
    del v
    assert used() == before


def test_sparse_updates_make_a_variable_copy_on_every_read():
    before = used()
    with ds.on("gpu:1"):
        v = tf.Variable(tf.zeros((1000,)))
        v.scatter_nd_update([[3]], [1.0])
        assert used() - before == 4096
        first, second = v.read_value(), v.read_value()
        assert pointer(first) != pointer(second)
        assert used() - before == 3 * 4096
    del first, second
    assert used() - before == 4096


def test_memory_that_a_compiled_function_gives_a_variable_is_counted():
    """The next query detects what happened inside, and so does the next tensor at the old address."""
    before = used()
    with ds.on("gpu:1"):
        v = tf.Variable(tf.zeros((1000,)))
        assign = tf.function(lambda v: v.assign(tf.exp(v) * 2))
        for _ in range(5):
            assign(v)
            kept = [tf.ones((1000,)) + i for i in range(3)]
            assert used() - before == 4 * 4096
            assert {pointer(each) for each in kept}.isdisjoint({pointer(v.read_value())})


def oracle(tensors, variables):
    """Return what is on a GPU, by the addresses of every object that shows memory there."""
    ranges = {}
    for shown in [*tensors, *(v.read_value() for v in variables)]:
        start = pointer(shown)
        ranges[start] = max(ranges.get(start, 0), start + shown.dtype.size * int(np.prod(shown.shape)))
    found, end = 0, 0
    for start, stop in sorted(ranges.items()):
        if start >= end:
            found += rounded(stop - start)
            end = stop
    return found


@pytest.mark.parametrize("seed", range(5))
def test_random_sequences_of_operators_are_counted_exactly(seed):
    """Random tensors and variables are kept and dropped, and compared with a count of their memory."""
    rng = random.Random(seed)
    tensors, variables = [], []
    steps = [
        lambda x, v: tensors.append(x + 1),
        lambda x, v: tensors.append(tf.identity(x)),
        lambda x, v: tensors.append(v.read_value()),
        lambda x, v: tensors.append(v * 2 + x),
        lambda x, v: variables.append(tf.Variable(x)),
        lambda x, v: v.assign(x),
        lambda x, v: v.assign_add(x),
        lambda x, v: v.assign(tf.tanh(v)),
        lambda x, v: tensors.pop(rng.randrange(len(tensors))),
        lambda x, v: variables.pop(rng.randrange(len(variables))),
    ]
    before = used()
    with ds.on("gpu:1"):
        for _ in range(150):
            tensors[:0] = [] if len(tensors) > 2 else [tf.random.normal((256,))]
            variables[:0] = [] if len(variables) > 2 else [tf.Variable(tensors[0])]
            rng.choice(steps)(rng.choice(tensors), rng.choice(variables))
            assert ds.memory("gpu:1").used - before == oracle(tensors, variables)
    tensors.clear(), variables.clear()
    assert used() == before


# ---------------------------------------------------------------------------------------------------- completeness
class Witness:
    """TensorFlow's own hook, which is called for every eager tensor that Python gets."""

    def __init__(self):
        self.seen = []

    def created(self, tensor):
        self.seen.append(weakref.ref(tensor))

    def uncounted(self):
        """Return live tensors of numbers on a GPU that are not counted."""
        from devshim_backends._tensorflow.simulation import memory, storage

        counted = {id(held()) for held in list(storage.TENSOR_REFS.values())}
        alive = [tensor for seen in self.seen if (tensor := seen()) is not None]
        return [
            tensor
            for tensor in alive
            if ds.device_of(tensor) is not ds.cpu()
            and tensor._datatype_enum() not in memory.UNCOUNTED
            and 0 not in tensor.shape
            and id(tensor) not in counted
        ]


@pytest.fixture
def witness():
    from tensorflow.python import pywrap_tfe

    found = Witness()
    pywrap_tfe.TFE_Py_SetEagerTensorProfiler(found)
    yield found
    pywrap_tfe.TFE_Py_SetEagerTensorProfiler(None)


def kept_by_tensorflow(x):
    keras = pytest.importorskip("keras")
    layer = keras.Sequential([keras.layers.LSTM(4), keras.layers.LayerNormalization(), keras.layers.Dropout(0.5)])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = layer(tf.reshape(x, (4, 16, 64)), training=True)
    optimizer = keras.optimizers.Adam()
    optimizer.apply(tape.gradient(y, layer.trainable_variables), layer.trainable_variables)
    return tape, y, tape.gradient(y, x), layer, optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.constant([1.0, 2.0]),
        lambda x: tf.constant(2.5),
        lambda x: tf.convert_to_tensor(np.ones((3, 3))),
        lambda x: tf.zeros((3, 3)),
        lambda x: tf.random.Generator.from_seed(1).normal((2, 2)),
        lambda x: [tf.linalg.svd(x), tf.unique(x[0]), tf.nn.top_k(x, 2), tf.split(x, 4), tf.meshgrid(x[0], x[1])],
        lambda x: tf.function(lambda a: (a + 1, {"b": tf.ones((2, 2))}))(x),
        lambda x: tf.map_fn(lambda a: a * 2, x),
        lambda x: tf.while_loop(lambda a: tf.reduce_sum(a) < 9000, lambda a: (a * 2,), (x,)),
        lambda x: ds.place(ds.zeros((3, 3)), "gpu:1"),
        lambda x: [ds.copy(ds.place(x, "gpu:0"), "gpu:1"), ds.random.normal(size=(2, 2)), ds.arange(3)],
        lambda x: tf.ragged.constant([[1.0], [2.0, 3.0]]) + tf.ragged.constant([[1.0], [2.0, 3.0]]),
        lambda x: [
            v := tf.Variable(x),
            v.read_value(),
            v + 1,
            v[0],
            tf.gather(v, [1, 2]),
            v.assign_add(x).read_value(),
        ],
        kept_by_tensorflow,
    ],
)
def test_no_tensor_escapes_the_count(matrix, witness, make):
    with ds.on("gpu:1"):
        kept = make(matrix)
    assert any(seen() is not None for seen in witness.seen)
    uncounted = witness.uncounted()
    if make is kept_by_tensorflow:  # its tape keeps an axis, a number in TensorFlow's shared store
        assert {(x.dtype, x.ndim) for x in uncounted} <= {(tf.int32, 0)}
        assert len({np.asarray(memoryview(x)).ctypes.data for x in uncounted}) <= 1
        uncounted = []
    assert uncounted == []
    del kept, uncounted

"""Tests of the guard on TensorFlow: reads by NumPy, by Python and by TensorFlow's own code."""

from __future__ import annotations

import pickle
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.transfers import operators
from tensorflow.python import pywrap_tfe

import devshim as ds
from devshim.registry import registry

HOST = np.ones((2, 2), "float32")
FIRST, SECOND = "CPU:1", "CPU:2"


def line():
    return sys._getframe(1).f_lineno


@pytest.fixture(autouse=True, scope="module")
def backend():
    ds.use("tensorflow")
    with ds.simulate(gpus=2):
        yield registry.load("tensorflow")
    ds.use(None)


@pytest.fixture
def x():
    return ds.asarray([[1.0, 2.0], [3.0, 4.0]], dtype="float32", device="gpu:1")


READS = {
    "asarray": np.asarray,
    "array": np.array,
    "a universal function": lambda x: np.add(x, 1),
    "a function": np.sum,
    "with its own arrays": lambda x: np.stack([x, HOST]),
    "a list": lambda x: np.array([x[0, 0], x[0, 1]]),
    "frombuffer": lambda x: np.frombuffer(x, "float32"),
    "memoryview": memoryview,
    "pickle": pickle.dumps,
    "constant": lambda x: tf.get_static_value(x),
    "a slice by a tensor's number": lambda x: list(range(4))[: tf.cast(x[0, 0], tf.int64)],
}


@pytest.mark.parametrize("name", READS)
def test_reads_that_bypass_methods_are_refused(x, name):
    READS[name](x)
    with pytest.raises(ds.TransferError) as caught, ds.guard("error"):
        READS[name](x)
    assert caught.value.problem.startswith("TensorFlow copies from gpu:1 to cpu for ")
    assert __file__ in caught.value.problem
    READS[name](x)
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        READS[name](x)
    assert {each.category for each in seen} == {ds.TransferWarning}


@pytest.fixture(scope="module")
def variables():
    import keras

    with ds.on("gpu:1"):
        return {"tf": tf.Variable(HOST), "keras": keras.Variable(HOST)}


SHOWN = {
    "repr": repr,
    "str": str,
    "a text": "{}".format,
    "a list of them": lambda v: str([v]),
}


@pytest.mark.parametrize("kind", ["tf", "keras"])
@pytest.mark.parametrize("name", SHOWN)
def test_printing_a_variable_is_a_read(variables, name, kind):
    """Trap: TensorFlow and Keras show no value if reading it raises any error."""
    v, show = variables[kind], SHOWN[name]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # NumPy 2 warns about TensorFlow's __array__, which is an error here, and Keras would show no value
        expected = show(v)
    assert "1." in expected
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        show(v)
    assert caught.value.problem.startswith(
        "TensorFlow copies from gpu:1 to cpu for print() (an implicit transfer) at " + __file__
    )
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        assert show(v) == expected
    assert [each.category for each in seen if each.category is not DeprecationWarning] == [ds.TransferWarning]


@pytest.mark.parametrize("kind", ["tf", "keras"])
def test_operands_of_a_variable_on_another_device_are_refused(variables, kind):
    v = variables[kind]
    with ds.guard("error"), ds.on("gpu:1"):
        assert ds.device_of(v + 1) is ds.device_of(v * v) is ds.gpu(1)
        for meet in (lambda: v + HOST, lambda: v @ HOST, lambda: v > HOST):
            text = r"from cpu to gpu:1 for (an operand of [+@]|a comparison) \(an implicit"
            with pytest.raises(ds.TransferError, match=text):
                meet()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_training_loop_passes_the_guard(compiled):
    """Shapes, counters and statistics of a GPU's memory are read on the host, if GPUs are real."""
    import keras

    layers = keras.layers
    model = keras.Sequential([layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)])
    model.build((None, 2))
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    ds.place([model, optimizer], "gpu:1")
    criterion = keras.losses.MeanSquaredError()

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = criterion(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = tf.function(step, autograph=False) if compiled else step
    log = ds.MetricLog("gpu:1")
    with ds.guard("error"), ds.on("gpu:1"):
        for _ in range(2):
            log.append(ds.place(step(ds.from_numpy(HOST, "gpu:1"), ds.from_numpy(HOST[:, :1], "gpu:1")), "gpu:1"))
        assert log.flush().shape == (2,)


def test_reading_int32_placed_on_a_gpu_is_reported(x):
    placed = ds.asarray(1, dtype="int32", device="gpu:1")
    for read in (placed, ds.place(ds.asarray(1, dtype="int32"), "gpu:1"), ds.copy(placed, "gpu:1")):
        with ds.guard("error"), pytest.raises(ds.TransferError, match="for int"):
            int(read)
    with ds.guard("error"), ds.on("gpu:1"):
        assert int(tf.shape(x)[0]) == 2


def test_threads_without_a_guard_are_not_affected(x):
    from devshim.testing.base import in_thread

    with ds.guard("error"):
        assert in_thread(lambda: np.asarray(x).sum()) == 10
        assert in_thread(lambda: memoryview(x).nbytes) == 16


def test_a_report_names_the_line_in_a_keras_callback(x):
    import keras

    at = []

    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                at.append(line() + 1)
                float(x[0, 0])

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        model.fit(HOST, HOST[:, :1], batch_size=1, verbose=0, callbacks=[Reads()])
    assert caught.value.problem.endswith(f"at {__file__}:{at[0]}")


def test_a_report_names_the_line_in_an_eager_tf_function(x):
    at = []

    @tf.function
    def reading(x):
        at.append(line() + 1)
        return x * float(x[0, 0])

    tf.config.run_functions_eagerly(True)
    try:
        with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
            reading(x)
    finally:
        tf.config.run_functions_eagerly(False)
    assert caught.value.problem.endswith(f"at {__file__}:{at[0]}")


def test_afterwards_nothing_is_left(x):
    names = [*operators._ENTRIES]
    before = [getattr(pywrap_tfe, name) for name in names], dict(vars(EAGER))
    with ds.guard("error"):
        assert vars(EAGER)["_numpy"] is not before[1].get("_numpy")
    assert [getattr(pywrap_tfe, name) for name in names] == before[0]
    assert dict(vars(EAGER)) == before[1]

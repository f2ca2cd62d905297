"""Tests of mixed devices on TensorFlow's simulated GPUs: refused in every thread, by its explicit policy."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import devshim as ds

CPU = ds.cpu()


pytestmark = pytest.mark.usefixtures("two_cards")


def matrix(device):
    return ds.random.uniform(1, 2, (4, 4), device=device)


def variable(device):
    with ds.on(device):
        return tf.Variable(tf.ones((4, 4)))


MIXED = {
    "add": lambda x, y: x + y,
    "radd": lambda x, y: y * x,
    "matmul": tf.matmul,
    "compare": lambda x, y: x > y,
    "concat": lambda x, y: tf.concat([x, y], 0),
    "stack": lambda x, y: tf.stack([x, y]),
    "add_n": lambda x, y: tf.add_n([x, y]),
    "where": lambda x, y: tf.where(x > 1.5, x, y),
    "einsum": lambda x, y: tf.einsum("ij,jk->ik", x, y),
    "tensordot": lambda x, y: tf.tensordot(x, y, 1),
    "conv": lambda x, y: tf.nn.conv2d(x[None, ..., None], y[..., None, None], 1, "SAME"),
    "bias": lambda x, y: tf.nn.bias_add(x, y[0]),
    "batch_norm": lambda x, y: tf.nn.batch_normalization(x, y[0], y[1], None, None, 1e-3),
    "loss": lambda x, y: tf.nn.softmax_cross_entropy_with_logits(x, y),
    "labels": lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y[0], tf.int64), x),
    "gather": lambda x, y: tf.gather(x, tf.cast(y[0], tf.int64)),
    "mask": lambda x, y: tf.boolean_mask(x, y > 1.5),
    "scatter": lambda x, y: tf.tensor_scatter_nd_update(x, [[0]], y[:1]),
    "solve": tf.linalg.solve,
    "clip": lambda x, y: tf.clip_by_value(x, y, y + 1),
}


@pytest.mark.parametrize("places", [("gpu:0", "gpu:1"), ("gpu:1", "cpu"), ("cpu", "gpu:1")], ids=">".join)
@pytest.mark.parametrize("mix", MIXED)
def test_operators_refuse_mixed_devices(mix, places):
    x, y = map(matrix, places)
    with pytest.raises(ds.DeviceMismatchError) as caught:
        MIXED[mix](x, y)
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)


@pytest.mark.parametrize("places", [("gpu:0", "gpu:1"), ("gpu:1", "cpu"), ("cpu", "gpu:1")], ids=">".join)
@pytest.mark.parametrize(
    "write",
    [
        lambda v, y: v.assign(y),
        lambda v, y: v.assign_add(y),
        lambda v, y: v + y,
        lambda v, y: tf.matmul(y, v),
        lambda v, y: v[0].assign(y[0]),
        lambda v, y: v.scatter_nd_update([[0]], y[:1]),
    ],
)
def test_variables_refuse_mixed_devices(write, places):
    v, y = variable(places[0]), matrix(places[1])
    with pytest.raises(ds.DeviceMismatchError):
        write(v, y)
    assert v.numpy().tolist() == np.ones((4, 4)).tolist()


def test_the_error_names_the_operator_inputs_and_the_fix():
    x, y = matrix("gpu:0"), matrix("gpu:1")
    with pytest.raises(ds.DeviceMismatchError) as caught:
        x + y
    reported = "TensorFlow's AddV2 needs its tensors on one device: input 0 is on gpu:0, input 1 is on gpu:1"
    assert caught.value.problem == reported
    assert ds.device_of(ds.place(x, "gpu:1") + y) is ds.gpu(1)
    assert "ds.place(x, 'gpu:1')" in caught.value.hint


@pytest.mark.parametrize("scope", ["cpu", "gpu:0"])
def test_an_operator_does_not_leave_its_scope_silently(scope):
    x = matrix("gpu:1")
    with ds.on(scope), pytest.raises(ds.DeviceMismatchError, match=f"the scope is {scope}"):
        x + 1


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + 1,
        lambda x: 2.5 * x,
        lambda x: x + np.float32(1),
        lambda x: x + np.ones((4, 4), np.float32),
        lambda x: np.ones((4, 4), np.float32) - x,
        lambda x: x * [1.0, 2.0, 3.0, 4.0],
        lambda x: x * tf.constant(2.0),
        lambda x: tf.reduce_sum(x, axis=0),
        lambda x: tf.reshape(x, [2, 8]),
        lambda x: tf.reshape(x, tf.constant([2, 8])),
        lambda x: tf.gather(x, [0, 1], axis=1),
        lambda x: tf.gather(x, tf.constant([0, 1])),
        lambda x: x[1:, tf.constant(0)],
        lambda x: tf.broadcast_to(x[0], (3, 4)),
        lambda x: tf.pad(x, [[1, 1], [0, 0]]),
        lambda x: tf.one_hot(tf.argmax(x, 1), 4),
        lambda x: tf.image.resize(x[None, ..., None], (8, 8)),
        lambda x: tf.identity(x),
        lambda x: tf.linalg.svd(x)[0],
        lambda x: tf.unstack(x)[0],
        lambda x: next(iter(x)),
    ],
)
@pytest.mark.parametrize("scoped", [True, False], ids=["scope", "no scope"])
def test_numbers_shapes_and_indices_mix(compute, scoped):
    """With a real GPU these are on the host automatically; and outside of any scope results follow tensors."""
    x = matrix("gpu:1")
    expected = compute(tf.constant(x.numpy()))
    if scoped:
        with ds.on("gpu:1"):
            found = compute(x)
    else:
        found = compute(x)
    assert ds.device_of(found) is ds.gpu(1)
    assert np.allclose(found.numpy(), expected.numpy(), atol=1e-5)


def test_host_tensors_are_computed_on_the_scopes_gpu():
    x = matrix("cpu")
    with ds.on("gpu:1"):
        assert ds.device_of(tf.matmul(x, x)) is ds.gpu(1)
    assert ds.device_of(tf.matmul(x, x)) is CPU


@pytest.mark.parametrize("scoped", [True, False], ids=["scope", "no scope"])
@pytest.mark.parametrize("target", [tf.reduce_sum, lambda y: y, lambda y: tf.unstack(y)[0], lambda y: [y, y[0]]])
def test_gradients_are_where_their_tensors_are(target, scoped):
    """A tape starts with ones, and fills in zeros, which it creates on the current device."""
    x = matrix("gpu:1")

    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = target(tf.nn.relu(x @ x) ** 2)
        return tape.gradient(y, x)

    if scoped:
        with ds.on("gpu:1"):
            found = gradient()
    else:
        found = gradient()
    assert ds.device_of(found) is ds.gpu(1)


def test_a_gradient_flows_back_through_two_gpus():
    v = variable("gpu:0")
    with tf.GradientTape() as tape:
        there = ds.place(v * 2, "gpu:1") ** 2
        back = ds.place(there, "gpu:0") + v
    gradient = tape.gradient(back, v)
    assert ds.device_of(gradient) is ds.gpu(0)
    assert gradient.numpy().tolist() == np.full((4, 4), 9.0).tolist()


# ---------------------------------------------------------------------------------------------------- the policy
def in_thread(fn):
    found = []
    thread = threading.Thread(target=lambda: found.append(fn()))
    thread.start()
    thread.join()
    return found[0]


def refused():
    x, y = matrix("gpu:0"), matrix("gpu:1")
    try:
        x + y
    except ds.DeviceMismatchError:
        return True
    return False


def host(*numbers):
    """Return int64 numbers on the CPU, as NumPy and TensorFlow's NumPy functions make them."""
    with ds.on("cpu"):
        return tf.constant(numbers, dtype=tf.int64)


READ_ON_HOST = {
    "reshape": lambda x: tf.reshape(x, host(2, 8)),
    "broadcast": lambda x: tf.broadcast_to(x[:1], host(4, 4)),
    "transpose": lambda x: tf.transpose(x, host(1, 0)),
    "tile": lambda x: tf.tile(x, host(2, 1)),
    "sum": lambda x: tf.reduce_sum(x, host(0)),
    "any": lambda x: tf.reduce_any(x > 1.5, host(0, 1)),
    "reverse": lambda x: tf.reverse(x, host(1)),
    "roll": lambda x: tf.roll(x, host(1), host(0)),
    "pad": lambda x: tf.pad(x, tf.reshape(host(1, 1, 0, 0), (2, 2))),
    "mirrored": lambda x: tf.pad(x, tf.reshape(host(1, 1, 0, 0), (2, 2)), "REFLECT"),
    "split": lambda x: tf.split(x, host(1, 3), 0)[1],
    "slice": lambda x: tf.slice(x, host(0, 1), host(2, 2)),
    "strided slice": lambda x: tf.strided_slice(x, host(0, 0), host(2, 2), host(1, 1)),
    "scatter": lambda x: tf.scatter_nd(ds.place(tf.reshape(host(3, 2, 1, 0), (4, 1)), ds.device_of(x)), x, host(4, 4)),
    "a gradient": lambda x: grad_of_sum(x),
}


def grad_of_sum(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.transpose(x, host(1, 0)) ** 2, host(0))
    return tape.gradient(y, x)


@pytest.mark.parametrize("name", READ_ON_HOST)
def test_shapes_and_axes_on_the_cpu_are_accepted(name):
    """The kernels for real GPUs read them from host memory, whether they are int32 or int64."""
    x = matrix("cpu")
    result = READ_ON_HOST[name](ds.place(x, "gpu:1"))
    assert ds.device_of(result) is ds.gpu(1)
    np.testing.assert_array_equal(ds.to_numpy(result), ds.to_numpy(READ_ON_HOST[name](x)))


def test_every_thread_refuses_mixed_devices():
    """TensorFlow's device policy belongs to each thread."""
    assert refused()
    assert in_thread(refused)


def test_threads_started_earlier_refuse_mixed_devices():
    asked, answered = threading.Event(), []
    ready = threading.Event()

    def body():
        tf.ones((2,)) + 1
        ready.set()
        asked.wait(60)
        answered.append(refused())

    with ds.simulate(gpus=0):
        thread = threading.Thread(target=body)
        thread.start()
        ready.wait(60)
    asked.set()
    thread.join()
    assert answered == [True]


def test_the_device_policy_is_restored():
    before = tf.config.experimental.get_device_policy()
    with ds.simulate(gpus=0):
        assert tf.config.experimental.get_device_policy() == "silent"
    assert before == tf.config.experimental.get_device_policy() == "explicit"


def test_a_thread_can_set_another_policy():
    tf.config.experimental.set_device_policy("silent")
    try:
        assert not refused()
    finally:
        tf.config.experimental.set_device_policy("explicit")
    assert refused()


def test_compiled_functions_copy_silently():
    """TensorFlow places a tf.function's operators itself, and inserts the copies: the declared gap."""
    x, y = matrix("gpu:0"), matrix("gpu:1")
    assert np.allclose(tf.function(lambda x, y: x + y)(x, y).numpy(), x.numpy() + y.numpy())


def test_a_refusal_inside_a_keras_layer_keeps_its_hint():
    """Keras makes TensorFlow's errors again, from TensorFlow's message, to add the layer's name."""
    import keras

    model = keras.Sequential([keras.layers.Dense(3)])
    model.build((None, 4))
    ds.place(model, "gpu:1")
    with pytest.raises(ds.DeviceMismatchError, match=r"when calling Dense\.call") as caught:
        model(matrix("gpu:0"))
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    assert "\n\nHint: move them with ds.place(x, " in str(caught.value)
    assert caught.value.hint.startswith("move them with ds.place(x, ")
    assert caught.value.hint.endswith("intermediate results")
    assert "needs its tensors on one device" in caught.value.problem
    assert "Hint: move" in caught.value.message


def test_a_gradient_uses_no_constant_of_a_removed_gpu():
    """TensorFlow caches the ones that broadcast the gradient of a sum, on the device of the first sum."""
    for gpus, device in ((2, "gpu:1"), (1, "gpu:0")):
        with ds.simulate(gpus=gpus), ds.on(device):
            x = ds.ones((3, 3), device=device)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_mean(x * x)
            assert ds.device_of(tape.gradient(y, x)) is ds.device(device)


def test_an_operator_that_was_refused_once_is_checked_before_it_runs(monkeypatch):
    """TensorFlow's error costs more than the operator; what a real GPU refuses stays refused."""
    from devshim_backends._tensorflow.simulation import device_rules, hooks

    x, y, axes = matrix("gpu:0"), matrix("gpu:1"), tf.constant([0, 1])
    compiled = tf.function(lambda v: v + v)
    weight = variable("gpu:0")

    def run():
        with ds.on("gpu:0"):
            return [tf.reduce_sum(x, axes), compiled(weight)]

    expected = run()
    x + x
    assert {"Sum", "AddV2"} <= device_rules.REFUSED
    refused = []
    original = hooks.run_refused_operator
    monkeypatch.setattr(hooks, "run_refused_operator", lambda *args: refused.append(args[1]) or original(*args))
    found = [*run(), y + y]
    assert refused == []
    assert [str(ds.device_of(each)) for each in found] == ["gpu:0", "gpu:0", "gpu:1"]
    for each, before in zip(found, expected, strict=False):
        np.testing.assert_array_equal(each, before)
    for mix in (lambda: tf.raw_ops.AddV2(x=x, y=y), lambda: tf.raw_ops.Sum(input=y, axis=axes)):
        with ds.on("gpu:0"), pytest.raises(ds.DeviceMismatchError):
            mix()
    assert refused == ["AddV2", "Sum"]
    assert ds.device_of(axes + axes) is CPU

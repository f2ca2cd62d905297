"""Tests of simulated GPUs on MXNet beyond the kit: what is counted, what is refused, and what works afterwards."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gluon_arrays import DEVICE

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("two_cards", "old_calls")
C0, C1 = mx.cpu(1), mx.cpu(2)
"""MXNet's names for the two simulated GPUs."""


@pytest.fixture(autouse=True)
def _collected():
    """Free the arrays of earlier tests before the count starts."""
    gc.collect()


def used(gpu=1):
    gc.collect()
    return ds.memory(ds.gpu(gpu)).used


def on_gpu(shape=(128,), native=C1):
    """Return float32 ones on a GPU, made only by MXNet; 512 bytes by default."""
    return mx.np.ones(shape, **{DEVICE: native})


# ------------------------------------------------------------------ memory: what is counted
def test_views_share_memory_and_keep_it():
    """A slice, or a view of the other interface, is the same chunk, which exists as long as one of them does."""
    x = on_gpu((256,)).as_nd_ndarray()
    row, other = x[10:20], x.as_np_ndarray()
    assert used() == 1024
    del x, other
    assert used() == 1024
    row[:] = 5
    assert row.asnumpy().tolist() == [5.0] * 10
    del row
    assert used() == 0


@pytest.mark.parametrize("make", ["np", "nd"])
def test_every_new_array_is_counted(make):
    """Creation, operators, copies, slices and late allocation, in both interfaces, count on their GPU."""
    module = getattr(mx, make)
    where = "ctx" if make == "nd" else DEVICE
    made = [
        *(module.zeros((128,), **{where: C1}), module.array(np.ones(128, "float32"), **{where: C1})),
        *(module.empty((128,), **{where: C1}), module.random.uniform(0, 1, (128,), **{where: C1})),
    ]
    made += [made[0] + 1, made[0].copy(), made[1].copyto(C1), made[1].astype("float32"), made[0].as_nd_ndarray() * 2]
    assert (used(0), used(1)) == (0, 512 * len(made))
    made.append(made[0].copyto(C0))
    assert (used(0), used(1)) == (512, 512 * (len(made) - 1))
    made.clear()
    assert (used(0), used(1)) == (0, 0)


def test_in_place_operators_take_no_memory():
    """`out=`, `+=` and assignment write to existing memory."""
    x, y = on_gpu(), on_gpu()
    x += y
    mx.np.add(x, y, out=y)
    x[:] = y
    x[3:5] = 7
    assert used() == 1024


def test_gradients_and_the_tape_are_counted():
    """`attach_grad` takes as much again; what a recording stores counts until `backward` has read it."""
    x = on_gpu()
    x.attach_grad()
    assert used() == 1024
    with mx.autograd.record():
        y = (x * 2) * x  # only the tape refers to x * 2
    assert used() == 1024 + 2 * 512
    assert used() == 1024 + 2 * 512, "a second query gives the same"
    y.backward()
    del y
    assert used() == 1024
    assert x.grad.asnumpy().tolist() == [4.0] * 128
    del x
    assert used() == 0


def test_an_input_that_only_the_tape_holds_is_counted():
    """A batch that Python has dropped stays in memory until its gradient is computed."""
    weight = on_gpu()
    weight.attach_grad()
    with mx.autograd.record():
        y = on_gpu() * 3 * weight
    assert used() == 1024 + 2 * 512
    y.backward()
    del y
    assert used() == 1024


@pytest.mark.usefixtures("numpy_semantics")
@pytest.mark.parametrize("hybrid", [False, True])
def test_gluon_is_counted(hybrid):
    """Parameters, their gradients and an optimizer's state are counted; afterwards nothing is left."""
    net = mx.gluon.nn.Dense(128, in_units=128)
    net.initialize(**{DEVICE: C1})
    if hybrid:
        net.hybridize()
    sizes = 128 * 128 * 4 + 512
    assert used() == 2 * sizes  # with gradients
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    x = on_gpu((4, 128))
    for _ in range(2):
        with mx.autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(4)
    assert used() == 4 * sizes + 4 * 512 + 512  # with two moments each, the input and the loss
    del net, trainer, x, loss
    assert used() == 0


def test_pending_work_does_not_count():
    """MXNet works asynchronously: what Python has dropped is free immediately, and the values are right."""
    with ds.simulate(gpus=2, memory="64KiB"):
        x = on_gpu((1024,))
        for _ in range(200):
            x = x + x * 0  # would be 800 chunks of 4 KiB, and at most four exist at the same time
        assert ds.memory("gpu:1").peak <= 4 * 4096
        assert x.asnumpy().tolist() == [1.0] * 1024


def test_nothing_counts_on_the_host():
    before = used(0), used(1)
    kept = [mx.np.ones((1000,)), mx.nd.ones((1000,)), mx.np.ones((10,), **{DEVICE: mx.cpu(3)})]
    assert (used(0), used(1)) == before
    assert len(kept) == 3


# ------------------------------------------------------------------ memory: switching
def test_arrays_from_before_the_simulation_are_counted():
    """MXNet's `cpu(2)` is not a GPU until GPUs are simulated: then its contents count."""
    ds.simulate(0)
    x = on_gpu()
    row = x[1:3]
    ds.simulate(2, memory=256)
    assert ds.memory("gpu:1").used == ds.memory("gpu:1").peak == 512
    ds.simulate(1)
    assert ds.device_of(x) is ds.gpu(1)  # removed, but still counted
    ds.simulate(2)
    assert used() == 512
    del x, row
    assert used() == 0


def test_each_switch_counts_again():
    """The count restarts with each switch, even with another number and with live arrays, gradients and tapes."""
    x = on_gpu()
    x.attach_grad()
    with mx.autograd.record():
        y = x * x * 2
    for gpus in (0, 3, 2, 1, 2):
        ds.simulate(gpus)
    assert used() == 3 * 512  # what only the tape referred to is forgotten
    y.backward()
    assert x.grad.asnumpy().tolist() == [4.0] * 128
    del x, y
    assert used() == 0


def test_another_build_of_mxnet_is_refused(monkeypatch):
    """Data read from MXNet's memory is first checked against known arrays."""
    from devshim_backends._mxnet.simulation import storage

    ds.simulate(0)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "nbytes", lambda chunk: 42)
        with pytest.raises(ds.SimulationError, match="does not know the memory layout"):
            ds.simulate(2)
    assert ds.device_count() == 0
    ds.simulate(2)


# ------------------------------------------------------------------ memory: full
FILLING = {
    "np": lambda x: mx.np.add(x, x),
    "nd": lambda x: x.as_nd_ndarray() + x.as_nd_ndarray(),
    "create": lambda x: mx.np.zeros((1024,), **{DEVICE: C1}),
    "copy": lambda x: x.copy(),
    "move": lambda x: mx.np.ones((1024,)).copyto(C1),
    "gradient": lambda x: x.attach_grad(),
}


@pytest.mark.parametrize("call", FILLING)
def test_operators_raise_on_a_full_gpu(call):
    """The error is MXNet's and devshim's, the text is the same everywhere, and the GPU stays usable."""
    with ds.simulate(gpus=2, memory=2 * 4096 - 512):
        x = on_gpu((1024,))
        with pytest.raises(ds.OutOfMemoryError) as caught:
            FILLING[call](x)
        assert isinstance(caught.value, mx.MXNetError)
        assert caught.value.problem == "gpu:1 is out of memory: 4,096 bytes were requested, 3,584 bytes are free"
        del caught
        assert used() == 4096
        x[:] = 2
        assert (x[:512] * 3).asnumpy().tolist() == [6.0] * 512


@pytest.mark.parametrize("call", FILLING)
def test_a_gpu_without_a_limit_has_the_memory_of_the_host(call, monkeypatch):
    x = on_gpu((1024,))
    monkeypatch.setattr("devshim_backends._mxnet.simulation.memory._host_bytes", 4095)
    with pytest.raises(ds.OutOfMemoryError, match=r"gpu:1 is out of memory: 4,096 bytes were requested, .* are free"):
        FILLING[call](x)


def test_released_memory_is_reused_in_each_training_step():
    """Memory that a tape has released is requested back from MXNet before a GPU is reported full."""
    with ds.simulate(gpus=2, memory=8 * 4096):
        x = on_gpu((1024,))
        x.attach_grad()
        for _ in range(20):
            with mx.autograd.record():
                y = (x * 2 * x * x).sum()
            y.backward()
        assert x.grad.asnumpy().tolist() == [6.0] * 1024


def test_simulated_faults_reach_operators():
    """A chosen allocation fails in an operator; on a GPU that has vanished, every operator fails."""
    with ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "allocation", at=2)):
        x = on_gpu()
        with pytest.raises(mx.MXNetError, match="gpu:1 is out of memory: 512 bytes"):
            x + 1
        assert (x + 1).asnumpy().tolist() == [2.0] * 128
    with ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "vanish", at=2)):
        x, y = on_gpu(), on_gpu((128,), C0)
        for call in (lambda: x + 1, lambda: mx.np.add(x, x, out=x), lambda: x.as_nd_ndarray() * 2):
            with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed during"):
                call()
        assert (y + 1).asnumpy().tolist() == [2.0] * 128


# ------------------------------------------------------------------ mixed devices
def _index_put(x, y):
    x[y > 0] = 1


MIXED = {
    "add": lambda x, y: x + y,
    "in place": lambda x, y: x.__iadd__(y),
    "host": lambda x, y: x + mx.np.ones((2, 3)),
    "out": lambda x, y: mx.np.add(x, x, out=y),
    "compare": lambda x, y: x == y,
    "matmul": lambda x, y: mx.np.matmul(x, y.T),
    "concatenate": lambda x, y: mx.np.concatenate([x, y]),
    "where": lambda x, y: mx.np.where(x > 0, x, y),
    "einsum": lambda x, y: mx.np.einsum("ij,ij->i", x, y),
    "mask": lambda x, y: x[y > 0],
    "mask put": _index_put,
    "take": lambda x, y: mx.np.take(x, y.astype("int32")),
    "embedding": lambda x, y: mx.npx.embedding(y.astype("int32"), x, input_dim=2, output_dim=3),
    "fully connected": lambda x, y: mx.npx.fully_connected(x, y, num_hidden=2, no_bias=True),
    "draw": lambda x, y: mx.np.random.normal(x, y),
    "nd.add": lambda x, y: x.as_nd_ndarray() + y.as_nd_ndarray(),
    "nd.out": lambda x, y: mx.nd.identity(x.as_nd_ndarray(), out=y.as_nd_ndarray()),
    "nd.concat": lambda x, y: mx.nd.concat(x.as_nd_ndarray(), y.as_nd_ndarray(), dim=0),
    "nd.sgd": lambda x, y: mx.nd.sgd_update(x.as_nd_ndarray(), y.as_nd_ndarray(), lr=1, out=x.as_nd_ndarray()),
    "mark": lambda x, y: mx.autograd.mark_variables([x], [y]),
}


@pytest.mark.parametrize("call", MIXED)
def test_mixed_devices_are_refused(call):
    """In both interfaces, the error is MXNet's and devshim's, and names both devices."""
    x, y = on_gpu((2, 3), C0), on_gpu((2, 3), C1)
    with pytest.raises(
        ds.DeviceMismatchError, match=r"gpu:0 and (gpu:1|cpu)|gpu:1 and gpu:0|gpu:0 and gpu:1"
    ) as caught:
        MIXED[call](x, y)
    assert isinstance(caught.value, mx.MXNetError)


@pytest.mark.parametrize("call", ["method", "function"])
def test_a_gradient_on_another_device_is_refused(call):
    x, seed = on_gpu((2,), C0), on_gpu((2,), C1)
    x.attach_grad()
    with mx.autograd.record():
        y = x * 2
    with pytest.raises(ds.DeviceMismatchError, match="gpu:0 and gpu:1"):
        y.backward(seed) if call == "method" else mx.autograd.backward([y], [seed])
    y.backward(seed.copyto(C0))
    assert x.grad.asnumpy().tolist() == [2.0, 2.0]


@pytest.mark.usefixtures("numpy_semantics")
@pytest.mark.parametrize("hybrid", [False, True])
def test_gluon_refuses_inputs_on_another_device(hybrid):
    net = mx.gluon.nn.Dense(2)
    net.initialize(**{DEVICE: C0})
    if hybrid:
        net.hybridize()
    net(on_gpu((2, 3), C0))
    with pytest.raises(RuntimeError, match=r"gpu:1 \(simulated\), only on gpu:0|gpu:1 and gpu:0|gpu:0 and gpu:1"):
        net(on_gpu((2, 3), C1))


def test_copies_between_simulated_gpus_work_as_on_real_cards():
    """`copyto`, whole assignment, `split_and_load`, a kvstore, and index arrays, which MXNet itself moves."""
    x, y = on_gpu((2, 3), C0) * 2, on_gpu((2, 3), C1)
    assert ds.device_of(x.copyto(y)) is ds.gpu(1)
    y[:] = x * 2
    y[0] = x[0]
    assert y.asnumpy().tolist() == [[2.0] * 3, [4.0] * 3]
    index = mx.np.array([1], dtype="int32", **{DEVICE: C1})
    assert ds.device_of(x[index]) is ds.gpu(0)
    parts = mx.gluon.utils.split_and_load(mx.np.ones((4, 2)), [C0, C1])
    assert [ds.device_of(part) for part in parts] == [ds.gpu(0), ds.gpu(1)]
    store = mx.kv.create("device")
    store.init(3, x)
    store.push(3, [x, y])
    store.pull(3, out=[x, y])
    assert x.asnumpy().tolist() == y.asnumpy().tolist() == [[4.0] * 3, [6.0] * 3]


SEEN: list[object] = []
"""The devices of the arrays that operators in Python got."""


def look_at(*arrays):
    """Record the devices of arrays, and check that each is refused beside one of the host."""
    for x in arrays:
        SEEN.append(ds.device_of(x))
        with pytest.raises(mx.MXNetError, match="arrays on gpu:1 and cpu"):
            x + type(x).copyto(x, mx.cpu())


def is_soon(expected):
    """Return True when the memory of GPU 1 is what is expected: MXNet frees a function's arrays on its own thread."""
    return any(used(1) == expected or time.sleep(0.1) for _ in range(30))


class Double(mx.operator.CustomOp):
    """An operator in Python, which MXNet calls with arrays in the memory of its own."""

    def forward(self, is_train, req, in_data, out_data, aux):
        look_at(in_data[0], out_data[0])
        out_data[0][:] = in_data[0]
        out_data[0][:1] += in_data[0][:1] * mx.nd.ones((1, 3), ctx=C1)
        out_data[0][1:] *= 2

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        look_at(out_grad[0], in_data[0], in_grad[0])
        self.assign(in_grad[0], req[0], out_grad[0] * 2 * mx.nd.ones((2, 3), ctx=C1))


@mx.operator.register("devshim_double")
class DoubleProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Double()


class Square(mx.autograd.Function):
    """A function in Python whose gradient needs saved arrays, which are on the GPU."""

    def forward(self, x):
        self.save_for_backward(x)
        return x * x

    def backward(self, gradient):
        (x,) = self.saved_tensors
        look_at(x, gradient)
        return 2 * x * gradient


@pytest.mark.usefixtures("older_semantics")
@pytest.mark.parametrize("apply", [lambda x: mx.nd.Custom(x, op_type="devshim_double"), lambda x: Square()(x)])
def test_operators_written_in_python_work(apply):
    SEEN.clear()
    x = mx.nd.ones((2, 3), ctx=C1)
    x.attach_grad()
    before = used(1)
    with mx.autograd.record():
        y = apply(x)
    y.backward()
    assert ds.device_of(y) is ds.device_of(x.grad) is ds.gpu(1)
    assert x.grad.asnumpy().tolist() == [[2.0] * 3] * 2
    assert SEEN in ([ds.gpu(1)] * 2, [ds.gpu(1)] * 5)
    del y
    assert is_soon(before)


class OnBoth(mx.autograd.Function):
    """A function with a result on each GPU."""

    def forward(self, x, y):
        return x * 2, y * 3

    def backward(self, of_x, of_y):
        SEEN.extend(map(ds.device_of, (of_x, of_y)))
        return of_x * 2, of_y * 3


@pytest.mark.parametrize("semantics", ["older_semantics", "numpy_semantics"])
def test_each_gradient_of_a_function_is_on_the_device_of_its_output(semantics, request):
    if semantics == "numpy_semantics" and not hasattr(mx, "Device"):
        pytest.skip("MXNet 1.9 passes arrays of the older interface to every function")
    request.getfixturevalue(semantics)
    SEEN.clear()
    ones = mx.nd.ones if semantics == "older_semantics" else mx.np.ones
    x, y = ones((2, 3), ctx=C0), ones((2, 3), ctx=C1)

    def total(x, y):
        first, second = OnBoth()(x, y)
        return (first + ds.place(second, "gpu:0")).sum()

    _, gradients = ds.value_and_grad(total, argnums=(0, 1))(x, y)
    assert [each.asnumpy()[0, 0] for each in gradients] == [2.0, 3.0]
    assert SEEN == [ds.device_of(each) for each in gradients] == [ds.gpu(0), ds.gpu(1)]


def test_threads_compute_gradients_of_functions_at_once():
    def body(seed):
        x = mx.nd.full((8,), seed, ctx=C1)
        x.attach_grad()
        with mx.autograd.record():
            y = Square()(x)
        y.backward()
        return x.grad.asnumpy().tolist() == [2.0 * seed] * 8

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(body, range(16)))
    assert is_soon(0)


# ------------------------------------------------------------------ everything together
@pytest.mark.usefixtures("numpy_semantics")
def test_training_on_two_gpus_equals_training_on_one():
    """Gluon's data parallelism: parameters on both GPUs, gradients summed by a kvstore."""

    def train(natives):
        net = mx.gluon.nn.Dense(1, in_units=3)
        net.initialize(mx.init.One(), **{DEVICE: natives})
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="device")
        data = np.arange(12, dtype="float32").reshape(4, 3) / 10
        for _ in range(3):
            parts = mx.gluon.utils.split_and_load(mx.np.array(data), natives)
            with mx.autograd.record():
                losses = [(net(part) ** 2).sum() for part in parts]
            for loss in losses:
                loss.backward()
            trainer.step(4)
        return net.weight.data(natives[0]).asnumpy()

    assert np.allclose(train([C0, C1]), train([C0]), rtol=1e-6)
    assert (used(0), used(1)) == (0, 0)


def test_threads_record_at_once():
    """Each thread has its own tape; the count is shared, and ends at zero."""

    def body(seed):
        native = (C0, C1)[seed % 2]
        for i in range(30):
            x = mx.np.full((64,), seed + i, dtype="float32", **{DEVICE: native})
            x.attach_grad()
            with mx.autograd.record():
                y = (x * x)[:32] * 2
            y.backward()
            assert x.grad.asnumpy().tolist() == [4.0 * (seed + i)] * 32 + [0.0] * 32

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(body, range(16)))
    assert (used(0), used(1)) == (0, 0)

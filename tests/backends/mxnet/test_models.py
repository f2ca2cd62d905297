"""Tests that Gluon blocks move completely: every layer, hybridized or not, with gradients, ties and deferred
parameters.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
from gluon_arrays import DEVICE, IS_2, array, chain, fill, trainer_of
from model_leaves import leaves

import devshim as ds

mx = ds.framework("mxnet")
nn, rnn = mx.gluon.nn, mx.gluon.rnn
pytestmark = pytest.mark.usefixtures("three_cards", "old_calls")


def weights(net):
    return {path: leaf.read().asnumpy() for path, leaf in leaves(net).items() if leaf.kind != "gradient"}


def backward(net, x):
    mx.random.seed(5)
    with mx.autograd.record():
        y = net(array(x, next(iter(ds.placement_of(net).devices))))
        loss = (y * y).sum()
    loss.backward()
    return y


LAYERS = {
    "Dense": (lambda: [nn.Dense(5, activation="relu"), nn.Dense(3)], (4, 6)),
    "Conv1D": (lambda: [nn.Conv1D(4, 3), nn.GlobalMaxPool1D()], (2, 3, 8)),
    "Conv2D": (lambda: [nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.MaxPool2D(), nn.Dense(2)], (2, 3, 6, 6)),
    "Conv2DTranspose": (lambda: [nn.Conv2DTranspose(4, 3, strides=2)], (2, 3, 4, 4)),
    "BatchNorm": (lambda: [nn.Dense(5), nn.BatchNorm(), nn.Dense(2)], (4, 6)),
    "LayerNorm": (lambda: [nn.Dense(5), nn.LayerNorm(), nn.PReLU()], (4, 6)),
    "InstanceNorm": (lambda: [nn.Conv1D(4, 3), nn.InstanceNorm()], (2, 3, 8)),
    "GroupNorm": (lambda: [nn.Conv1D(4, 3), nn.GroupNorm(2)], (2, 3, 8)),
    "Dropout": (lambda: [nn.Dense(16), nn.Dropout(0.5), nn.Dense(3)], (4, 6)),
    "Embedding": (lambda: [nn.Embedding(7, 4), nn.Dense(3)], "indices"),
    "LSTM": (lambda: [rnn.LSTM(5, 2, bidirectional=True), nn.Dense(3)], (3, 4, 6)),
    "GRU": (lambda: [rnn.GRU(5)], (3, 4, 6)),
    "RNN": (lambda: [rnn.RNN(5)], (3, 4, 6)),
}


def inputs(shape):
    if shape == "indices":
        return np.array([[1, 2, 6], [0, 3, 3]])
    return np.random.default_rng(2).standard_normal(shape)


def trained(name, moves, **compiled):
    """Return the state after steps, with a move before each."""
    make, shape = LAYERS[name]
    x = inputs(shape)
    net = fill(chain(*make()), x)
    if compiled:
        net.hybridize(**compiled)
    trainer = trainer_of(net)
    for move in moves:
        ds.place([net, trainer], move)
        y = backward(net, x)
        assert ds.device_of(y) is ds.device(move)
        trainer.step(len(x))
    assert ds.placement_of(net).devices == {ds.device(moves[-1])}
    return weights(net)


@pytest.mark.parametrize("compiled", [{}, {"active": True}, {"static_alloc": True, "static_shape": True}], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_moves_do_not_change_training(name, compiled):
    """Moved between steps, hybridized or not, every kind of layer learns the same as without moves."""
    expected = trained(name, ["gpu:0"] * 4, **compiled)
    found = trained(name, ["cpu", "gpu:2", "gpu:0", "gpu:0"], **compiled)
    assert list(found) == list(expected)
    for path, value in expected.items():
        assert found[path].tobytes() == value.tobytes(), path


# ---------------------------------------------------------------------- objects
def two(on="cpu"):
    return ds.place(fill(chain(nn.Dense(5), nn.BatchNorm(), nn.Dense(3)), inputs((4, 6))), on)


def test_objects_keep_their_identity():
    """Parameters, their arrays, gradient buffers and hooks stay the same objects, and any reference to them sees the
    move.
    """
    net, calls = two(), []
    net.register_forward_hook(lambda *_: calls.append(1))
    parameters = net._collect_params_with_prefix()
    held = [(p, p.data(), p._data[0], p._grad and p.grad()) for p in parameters.values()]
    before, attributes = weights(net), {id(b): set(vars(b)) for b in (net, net[0], net[1])}
    assert ds.place(net, "gpu:1") is net
    for parameter, data, first, gradient in held:
        assert parameter.data() is data is first
        assert gradient is None or parameter.grad() is gradient
        assert {ds.device_of(x) for x in (data, gradient, data.grad) if x is not None} == {ds.gpu(1)}
        assert parameter.list_ctx() == [ds.gpu(1).native()] if not IS_2 else parameter.list_device()
        with pytest.raises(RuntimeError):
            parameter.data(mx.cpu(0))
    assert all(value.tobytes() == before[path].tobytes() for path, value in weights(net).items())
    net(array(inputs((4, 6)), "gpu:1"))
    assert calls == [1]
    assert {id(b): set(vars(b)) for b in (net, net[0], net[1])} == attributes, "a whole block keeps no trace"


def test_the_paths_are_those_of_save_parameters():
    net = two()
    assert [path for path in leaves(net) if not path.endswith(".grad")] == list(net._collect_params_with_prefix())
    kinds = {path: leaf.kind for path, leaf in leaves(net).items()}
    assert (kinds["0.weight"], kinds["0.weight.grad"], kinds["1.running_mean"]) == ("parameter", "gradient", "buffer")


def test_an_input_on_another_device_is_refused():
    net = ds.place(two(), "gpu:1")
    with pytest.raises(RuntimeError, match="not initialized on"):
        net(array(inputs((4, 6)), "gpu:0"))


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_gradients_move_with_their_grad_req(req):
    """Gluon's own ``reset_ctx`` would set them to zero."""
    results = []
    for moves in (["cpu"] * 3, ["cpu", "gpu:0", "gpu:1"]):
        net = two()
        net[0].weight.grad_req = req
        for move in moves:
            ds.place(net, move)
            backward(net, inputs((4, 6)))
        ds.place(net, "gpu:2")
        assert net[0].weight.grad_req == req
        if req == "null":
            assert net[0].weight._grad is None
        results.append([p._grad[0].asnumpy() for p in net._collect_params_with_prefix().values() if p._grad])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))
    assert any(each.any() for each in results[1])


def test_a_stale_gradient_stays_stale_and_a_fresh_one_fresh():
    """A `Trainer` uses that flag to refuse a gradient that was already used."""
    net = ds.place(two(), "gpu:0")
    trainer = trainer_of(net)
    backward(net, inputs((4, 6)))
    ds.place(net, "gpu:1")
    trainer.step(4)
    ds.place(net, "gpu:2")
    with pytest.raises(UserWarning, match="has not been updated"):
        trainer.step(4)
    backward(net, inputs((4, 6)))
    trainer.step(4)


def test_constant_and_wide_parameters():
    class Net(mx.gluon.Block):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, in_units=4, dtype="float64")
            value = array([1.0, 2.0, 3.0])
            self.scale = mx.gluon.Constant(value) if IS_2 else self.params.get_constant("scale", value)

        def forward(self, x):
            return self.dense(x.astype("float64")).astype("float32") * self.scale.data()

    net = Net()
    net.initialize()
    x = array(inputs((2, 4)))
    expected = net(x).asnumpy()
    ds.place(net, "gpu:1")
    assert {leaf.kind for path, leaf in leaves(net).items() if "scale" in path} == {"buffer"}
    assert net(ds.place(x, "gpu:1")).asnumpy().tobytes() == expected.tobytes()


def test_ties_between_models_of_one_tree():
    """A parameter that two nets share is moved once, in any order of the nets."""
    net = two()
    other = nn.HybridSequential()
    other.add(net[2])
    twice = ds.place({"a": net, "b": other}, "gpu:1")
    assert twice["a"] is net
    assert net[2].weight is other[0].weight
    assert ds.device_of(other(array(inputs((2, 5)), "gpu:1"))) is ds.gpu(1)


# ---------------------------------------------------------------------- deferred parameters
def test_deferred_parameters_are_made_where_they_were_placed():
    net = chain(nn.Dense(5), nn.BatchNorm(), rnn.LSTM(4, input_size=5), nn.Dense(3))
    net.hybridize()
    trainer = trainer_of(net)
    assert ds.place([net, trainer], "gpu:1")[0] is net
    assert "0.weight" not in leaves(net)
    assert "0.bias" in leaves(net)
    x = np.ones((2, 6))
    net2 = nn.HybridSequential()
    for layer in (net[0], net[1]):
        net2.add(layer)
    backward(net2, x)
    assert ds.placement_of(net2).devices == {ds.gpu(1)}
    with pytest.raises(RuntimeError):
        net[0].weight.data(mx.cpu(0))


def test_a_trainer_made_before_the_shapes_are_known_moves_too():
    net = chain(nn.Dense(5), nn.Dense(3))
    trainer = trainer_of(net)
    ds.place([net, trainer], "gpu:2")
    for _ in range(2):
        backward(net, inputs((4, 6)))
        trainer.step(4)
    assert ds.placement_of(trainer).devices == {ds.gpu(2)}


def test_uninitialized_parameters_are_refused():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4))
    with pytest.raises(ds.UnsupportedError, match=r"0\.weight is not initialized"):
        ds.place(net, "gpu:1")


def test_replicas_on_several_devices_are_refused():
    net = nn.Dense(3, in_units=4)
    net.initialize(**{DEVICE: [mx.cpu(1), mx.cpu(2)]})
    with pytest.raises(ds.UnsupportedError, match="weight was initialized on several devices"):
        ds.place(net, "gpu:1")
    assert ds.device_of(net.weight.data(mx.cpu(2))) is ds.gpu(1)


def test_parameters_move_without_their_block(tmp_path):
    """As with ``net.collect_params().reset_ctx(...)``, the idiom of 1.9."""
    net = two()
    trainer = trainer_of(net)
    backward(net, inputs((4, 6)))
    parameters = net.collect_params()
    assert ds.place(parameters, "gpu:1") is parameters
    trainer.step(4)
    assert ds.placement_of(net).devices == ds.placement_of(parameters).devices == {ds.gpu(1)}
    assert ds.place(net[0].weight, "gpu:2") is net[0].weight
    assert ds.device_of(net[0].weight.grad()) is ds.gpu(2)
    assert ds.place(parameters, ds.placement_of(parameters)) is parameters
    ds.save(parameters, tmp_path / "p.safetensors")
    before = weights(net)
    net[0].weight.set_data(array(np.zeros((5, 6)), "gpu:2"))
    assert ds.load(tmp_path / "p.safetensors", into=parameters) is parameters
    assert weights(net)["0.weight"].tobytes() == before["0.weight"].tobytes()
    twin = ds.copy(net[0].weight, "gpu:0")
    assert twin is not net[0].weight
    assert twin.data().asnumpy().tobytes() == before["0.weight"].tobytes()


# ---------------------------------------------------------------------- compiled blocks
def test_only_moved_blocks_are_compiled_again():
    net, x = two(), inputs((4, 6))
    net.hybridize(static_alloc=True)
    expected = net(array(x)).asnumpy()
    ds.place(net, "gpu:1")
    assert net._cached_op is None
    assert net(array(x, "gpu:1")).asnumpy().tobytes() == expected.tobytes()
    compiled = net._cached_op
    assert compiled is not None
    ds.place(net, "gpu:1")
    assert net._cached_op is compiled
    with pytest.raises(ds.OutOfMemoryError), ds.simulate(gpus=3, memory=64):
        ds.place(net, "gpu:2")
    assert net._cached_op is compiled


def test_a_symbol_block_moves():
    data = mx.sym.var("data", dtype="float32")
    if mx.util.is_np_array():
        data = data.as_np_ndarray()
        out = mx.sym.npx.fully_connected(data, mx.sym.var("w").as_np_ndarray(), None, num_hidden=3, no_bias=True)
    else:
        out = mx.sym.FullyConnected(data, mx.sym.var("w"), num_hidden=3, no_bias=True)
    net = mx.gluon.SymbolBlock(out, data)
    net.initialize()
    x = array(inputs((2, 4)))
    expected = net(x).asnumpy()
    ds.place(net, "gpu:1")
    y = net(ds.place(x, "gpu:1"))
    assert ds.device_of(y) is ds.gpu(1)
    assert y.asnumpy().tobytes() == expected.tobytes()
    twin = ds.copy(net, "gpu:2")
    assert twin(ds.place(x, "gpu:2")).asnumpy().tobytes() == expected.tobytes()


# ---------------------------------------------------------------------- copies
@pytest.mark.parametrize("compiled", [False, True])
def test_a_copy_shares_nothing_with_the_original(compiled):
    net, x = two("gpu:0"), inputs((4, 6))
    net.hybridize(compiled)
    trainer = trainer_of(net)
    backward(net, x)
    twin, other = ds.copy([net, trainer], "gpu:1")
    trainer.step(4)
    other.step(4)
    assert all(value.tobytes() == weights(net)[path].tobytes() for path, value in weights(twin).items())
    assert [p is q for p, q in zip(other._params, trainer._params, strict=True)] == [False] * len(trainer._params)
    assert {id(p) for p in other._params} == {id(p) for p in twin.collect_params().values()}
    before = weights(net)
    backward(twin, x)
    other.step(4)
    assert all(value.tobytes() == before[path].tobytes() for path, value in weights(net).items())
    assert ds.placement_of([twin, other]).devices == {ds.gpu(1)}
    children = [child() if IS_2 else child for child in twin._children.values()]
    assert [a is b for a, b in zip(children, [twin[0], twin[1], twin[2]], strict=True)] == [True] * 3
    del net, trainer, before
    gc.collect()
    assert ds.device_of(twin(array(x, "gpu:1"))) is ds.gpu(1)


def test_a_trainer_is_not_copied_alone_and_a_copied_model_has_none():
    net = two()
    trainer = trainer_of(net)
    with pytest.raises(ds.UnsupportedError, match=r"ds\.copy\(\[model, trainer\], device\)"):
        ds.copy(trainer, "gpu:1")
    assert ds.copy(net, "gpu:1")[0].weight._trainer is None
    parts = ds.replicate(net, ["gpu:0", "gpu:1"])
    assert [ds.placement_of(each).devices for each in parts] == [{ds.gpu(0)}, {ds.gpu(1)}]


# ---------------------------------------------------------------------- atomicity
@pytest.mark.parametrize("what", ["allocation", "copy", "vanish"])
def test_faults_leave_everything_as_it_was(what):
    """If any array fails, nothing has moved, the memory is freed, and training continues."""
    net = two("gpu:0")
    trainer = trainer_of(net)
    backward(net, inputs((4, 6)))
    trainer.step(4)
    backward(net, inputs((4, 6)))
    before = {path: leaf.read().asnumpy() for each in (net, trainer) for path, leaf in leaves(each).items()}
    gc.collect()
    for at in (1, 2, 9, 17, 26):
        with ds.simulate(gpus=3, faults=ds.Fault("gpu:1", what, at=at)):
            used = None if what == "vanish" else ds.memory("gpu:1").used
            with pytest.raises((ds.OutOfMemoryError, ds.DeviceFailedError)) as caught:
                ds.place([net, trainer], "gpu:1")
            assert "(at the leaf " in caught.value.problem or at == 1
            del caught
            assert used is None or ds.memory("gpu:1").used == used
        assert ds.placement_of([net, trainer]).devices == {ds.gpu(0)}
    ds.place([net, trainer], "gpu:2")
    found = {path: leaf.read().asnumpy() for each in (net, trainer) for path, leaf in leaves(each).items()}
    assert all(value.tobytes() == before[path].tobytes() for path, value in found.items())
    trainer.step(4)


def test_a_model_larger_than_half_a_gpu_can_move():
    net = chain(nn.Dense(100, in_units=100, use_bias=False))
    gc.collect()
    with ds.simulate(gpus=3, memory=85000):
        for target in ("gpu:1", "cpu", "gpu:1", "gpu:2"):
            ds.place(net, target)
        assert ds.memory("gpu:1").used == 0
        with pytest.raises(ds.OutOfMemoryError, match=r"0\.weight"):
            ds.place(chain(nn.Dense(100, in_units=100, use_bias=False)), "gpu:2")

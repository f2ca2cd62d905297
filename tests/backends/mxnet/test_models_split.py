"""Tests of Gluon models over several devices: they compute and learn the same as on one."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from gluon_arrays import DEVICE, IS_2, array, chain, fill, trainer_of
from model_leaves import leaves

import devshim as ds

mx = ds.framework("mxnet")
nn, rnn = mx.gluon.nn, mx.gluon.rnn
pytestmark = pytest.mark.usefixtures("three_cards", "old_calls")
X = np.random.default_rng(2).standard_normal((4, 6))


def steps(net, trainer, x=X, on="cpu", count=3):
    for _ in range(count):
        with mx.autograd.record():
            y = net(array(x, on))
            loss = (y * y).sum()
        loss.backward()
        trainer.step(4)
    return y


def weights(net):
    return {path: leaf.read().asnumpy() for path, leaf in leaves(net).items()}


def check_same(found, expected):
    assert list(found) == list(expected)
    for path, value in expected.items():
        assert np.allclose(found[path], value, rtol=1e-5, atol=1e-6), path


def three():
    return chain(
        nn.Dense(5, activation="tanh"), chain(nn.Dense(4, use_bias=False), nn.BatchNorm()), nn.Dropout(0.0), nn.Dense(3)
    )


SPLIT = ds.Placement({"0": "gpu:1", "1": "gpu:0", "3": "gpu:2"})


@pytest.mark.parametrize("first", ["trainer", "split"])
@pytest.mark.parametrize("name", ["sgd", "adam", "lamb"])
@pytest.mark.parametrize("hybridize", ["never", "before", "after"])
def test_a_chain_learns(first, name, hybridize):
    """The trainer is made before or after the split, and the parts are compiled before or after it."""
    expected = fill(three(), X)
    home = trainer_of(expected, name)
    steps(expected, home)
    net = fill(three(), X)
    if hybridize == "before":
        net.hybridize(static_alloc=True)
    trainer = trainer_of(net, name) if first == "trainer" else None
    ds.place({"net": net, "trainer": trainer} if trainer else net, SPLIT)
    if hybridize == "after":
        net.hybridize()
    trainer = trainer or trainer_of(net, name)
    y = steps(net, trainer, on="gpu:0")
    assert ds.device_of(y) is ds.gpu(2)
    check_same(weights(net), weights(expected))
    assert ds.placement_of(net) == SPLIT or ds.placement_of(net).devices == SPLIT.devices
    if hybridize != "never":
        assert net._cached_op is None
        assert net[1]._cached_op is not None, "each part is compiled by itself"
    ds.place([net, trainer], "gpu:1")
    assert net._active == net[1]._active == (hybridize != "never")
    assert not {"forward", "hybridize"} & {*vars(net), *vars(net[0]), *vars(net[1])}
    steps(net, trainer, on="gpu:1")
    steps(expected, home)
    check_same(weights(net), weights(expected))
    assert ds.placement_of([net, trainer]).devices == {ds.gpu(1)}


def test_gradients_go_back_to_the_input():
    net, split = fill(three(), X), ds.place(fill(three(), X), SPLIT)
    gradients = []
    for each in (net, split):
        x = array(X)
        x.attach_grad()
        with mx.autograd.record():
            y = each(x)
        y.backward()
        assert ds.device_of(x.grad) is ds.cpu()
        gradients.append(x.grad.asnumpy())
    assert np.allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)
    assert gradients[0].any()


def test_the_ledger_records_copies_between_parts():
    net = ds.place(fill(three(), X), SPLIT)
    x = array(X, "gpu:1")
    with ds.transfers() as log:
        net(x)
    assert [(str(each.source), str(each.target)) for each in log.records] == [("gpu:1", "gpu:0"), ("gpu:0", "gpu:2")]


def test_deferred_parameters_are_created_on_the_devices_of_their_parts():
    net = three()
    ds.place(net, SPLIT)
    trainer = trainer_of(net)
    steps(net, trainer, on="gpu:1")
    assert {path: str(place) for path, place in ds.placement_of(net).items() if path.endswith("weight")} == {
        "0.weight": "gpu:1",
        "1.0.weight": "gpu:0",
        "3.weight": "gpu:2",
    }


class Own(mx.gluon.Block):
    """A block with its own parameter besides its parts."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(4, in_units=6), nn.Dense(3, in_units=4)
        if IS_2:
            self.scale = mx.gluon.Parameter("scale", shape=(1, 6))
        else:
            self.scale = self.params.get("scale", shape=(1, 6))

    def forward(self, x):
        return self.b(self.a(x * self.scale.data()))


def test_a_model_with_a_parameter_of_its_own():
    expected, net = fill(Own(), X), fill(Own(), X)
    ds.place(net, ds.Placement({"scale": "gpu:0", "a": "gpu:1"}, "gpu:2"))
    y = net(array(X, "gpu:2"))
    assert ds.device_of(y) is ds.gpu(2)
    assert np.allclose(y.asnumpy(), expected(array(X)).asnumpy(), rtol=1e-5)


class Combining(mx.gluon.Block):
    """A block that combines results of several parts: added, joined, multiplied by a parameter, written in place."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Dense(6, in_units=6), nn.Dense(6, in_units=6), nn.Dense(3, in_units=12)
        if IS_2:
            self.scale = mx.gluon.Parameter("scale", shape=(1, 3))
        else:
            self.scale = self.params.get("scale", shape=(1, 3))

    def forward(self, x):
        ops, axis = (mx.np.concatenate, {"axis": 1}) if IS_2 else (mx.nd.concat, {"dim": 1})
        y = x + self.b(self.a(x)) * 2
        both = ops([y, x], **axis) if IS_2 else ops(y, x, **axis)
        z = self.c(both) * self.scale.data()
        return z, y


COMBINED = ds.Placement({"a": "gpu:1", "b": "gpu:2", "c": "gpu:0", "scale": "gpu:1"})


def test_a_block_combines_results_of_several_devices():
    """Gradients reach the input and all parts as on one device; the result is on the last part's device."""
    gradients = []
    for net in (fill(Combining(), X), ds.place(fill(Combining(), X), COMBINED)):
        x = array(X)
        x.attach_grad()
        with mx.autograd.record():
            z, y = net(x)
            loss = (z * z).sum() + (y * y).sum()
        loss.backward()
        assert ds.device_of(x.grad) is ds.cpu()
        gradients.append([x.grad.asnumpy(), *(p.grad().asnumpy() for p in net._collect_params_with_prefix().values())])
    assert ds.device_of(z) is ds.device_of(y) is ds.gpu(1)
    for a, b in zip(*gradients, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5)
        assert a.any()


def test_a_residual_block_between_parts_learns():
    def make():
        return chain(nn.Dense(5, in_units=6), Residual(), nn.Dense(2, in_units=5))

    class Residual(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Dense(5, in_units=5, activation="tanh"), nn.Dense(5, in_units=5)

        if IS_2:

            def forward(self, x):
                return x + self.b(self.a(x))

        else:

            def hybrid_forward(self, F, x):
                return x + self.b(self.a(x))

    expected, net = fill(make(), X), fill(make(), X)
    net.hybridize()
    ds.place(net, ds.Placement({"0": "gpu:0", "1.a": "gpu:1", "1.b": "gpu:2", "2": "gpu:0"}))
    steps(expected, trainer_of(expected))
    steps(net, trainer_of(net), on="gpu:1")
    check_same(weights(net), weights(expected))


def test_mixed_arrays_are_accepted_only_inside_the_model():
    """Outside of it, and after an error in it, mixed arrays are refused as before, and nothing is left behind."""
    net = ds.place(fill(Combining(), X), COMBINED)
    before = operator_state()
    net(array(X))
    assert operator_state() == before
    with pytest.raises(Exception, match=r"(?i)shape|incompatible|infer"):
        net(array(X[:, :3])).wait_to_read()
    assert operator_state() == before
    with pytest.raises(ds.DeviceMismatchError):
        array(X, "gpu:0") + array(X, "gpu:1")


def test_outputs_keep_their_device():
    """The NumPy interface of 2.0 does not say which argument is written to, so it is refused, not lost."""
    outputs = []

    class WritingToOut(Combining):
        def forward(self, x):
            y = self.b(self.a(x)).as_np_ndarray()
            outputs.append(mx.np.zeros((4, 6), **{DEVICE: mx.cpu(0)}))
            return mx.np.add(y, y, out=outputs[-1])

    net = WritingToOut()
    net.initialize()
    expected = net(array(X)).asnumpy()
    ds.place(net, COMBINED)
    if IS_2:
        with pytest.raises(ds.DeviceMismatchError):
            net(array(X))
        assert not outputs[-1].asnumpy().any()
    else:
        net(array(X))
        assert np.allclose(outputs[-1].asnumpy(), expected, rtol=1e-5)
        assert ds.device_of(outputs[-1]) is ds.cpu()


def operator_state():
    from devshim_backends._mxnet.models.align_devices import PASS
    from mxnet._ffi._ctypes.function import FunctionBase

    return FunctionBase.__call__, mx.nd._internal._imperative_invoke, PASS.devices, PASS.last_device


class Recurrent(mx.gluon.Block):
    """Layers and cells that take lists of states."""

    def __init__(self):
        super().__init__()
        self.layer, self.stack, self.head = rnn.LSTM(5, layout="NTC"), rnn.SequentialRNNCell(), nn.Dense(2)
        self.stack.add(rnn.LSTMCell(4, input_size=5))
        self.stack.add(rnn.GRUCell(3, input_size=4))

    def forward(self, x):
        states = self.layer.begin_state(x.shape[0], **{DEVICE: ds.device_of(x).native()})
        y, _ = self.layer(x, states)
        y, states = self.stack.unroll(x.shape[1], y, layout="NTC", merge_outputs=True)
        return self.head(y)


def test_states_of_recurrent_parts_are_copied():
    x = np.random.default_rng(4).standard_normal((2, 3, 6))
    expected, net = fill(Recurrent(), x), fill(Recurrent(), x)
    ds.place(net, ds.Placement({"layer": "gpu:0", "stack.0": "gpu:1", "stack.1": "gpu:2"}, "gpu:0"))
    steps(expected, trainer_of(expected), x)
    y = steps(net, trainer_of(net), x, on="gpu:2")
    assert ds.device_of(y) is ds.gpu(0)
    check_same(weights(net), weights(expected))


Pair = namedtuple("Pair", "left right")


class Wrapping(mx.gluon.Block):
    """Two parts that exchange their values in a container."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap, self.first, self.second = wrap, nn.Dense(5), Unwrapping()

    def forward(self, x):
        return self.second(self.wrap(self.first(x)))


class Unwrapping(mx.gluon.Block):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(2)

    def forward(self, values):
        (x, other) = values.values() if isinstance(values, dict) else values
        return type(values)(left=self.layer(x), right=other)


@pytest.mark.parametrize("wrap", [lambda x: Pair(x, 1), lambda x: {"left": x, "right": x}], ids=["named tuple", "dict"])
def test_parts_exchange_named_tuples_and_dicts(wrap):
    expected, net = fill(Wrapping(wrap), X), fill(Wrapping(wrap), X)
    ds.place(net, ds.Placement({"first": "gpu:0"}, "gpu:1"))
    found, wanted = net(array(X)), expected(array(X))
    assert type(found) is type(wanted)
    (left, *_), (right, *_) = (each.values() if isinstance(each, dict) else each for each in (found, wanted))
    assert ds.device_of(left) is ds.gpu(1)
    assert np.allclose(left.asnumpy(), right.asnumpy(), rtol=1e-5)


@pytest.mark.parametrize("place", ["cpu", "gpu:1"])
def test_cells_on_one_gpu_need_no_scope(place):
    """Cells of 2.0 create arrays on the default device."""
    x = np.random.default_rng(4).standard_normal((2, 3, 6))
    expected, net = fill(Recurrent(), x), ds.place(fill(Recurrent(), x), place)
    steps(expected, trainer_of(expected), x)
    assert ds.device_of(steps(net, trainer_of(net), x, on=place)) is ds.device(place)
    check_same(weights(net), weights(expected))


def test_a_layer_cannot_be_split():
    net = fill(three(), X)
    before = ds.placement_of(net)
    with pytest.raises(ds.UnsupportedError, match=r"the parameters of 0 \(Dense\) would be on gpu:1 and gpu:0"):
        ds.place(net, ds.Placement({"0.weight": "gpu:1"}, "gpu:0"))
    assert ds.placement_of(net) == before
    assert ds.device_of(net(array(X))) is ds.cpu()
    ds.place(net, SPLIT)
    with pytest.raises(ds.UnsupportedError):
        ds.place(net, ds.Placement({"0.weight": "gpu:1"}, "gpu:0"))
    assert ds.device_of(net(array(X))) is ds.gpu(2)


def test_a_copy_of_a_split_model_is_split():
    net = ds.place(fill(three(), X), SPLIT)
    trainer = trainer_of(net)
    steps(net, trainer)
    twin, other = ds.place({"net": net, "trainer": trainer}, SPLIT, copy=True).values()
    steps(net, trainer)
    steps(twin, other)
    check_same(weights(twin), weights(net))
    assert vars(twin)["forward"].block is twin
    assert ds.placement_of([twin, other]).devices == SPLIT.devices


def test_gluon_still_refuses_parameters_that_devshim_did_not_split():
    """Gluon refuses parameters on different devices, unless a placement put them there."""
    ds.place(fill(three(), X), SPLIT)
    one, two = nn.Dense(2, in_units=2), nn.Dense(2, in_units=2)
    one.initialize()
    two.initialize()
    ds.place(two, "gpu:1")
    both = nn.HybridSequential()
    both.add(one)
    both.add(two)
    with pytest.raises(AssertionError, match="must be initialized on the same set of"):
        trainer_of(both)


class Body(mx.gluon.Block):
    """The body of a language model: an embedding, and layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.Sequential()
        self.layers.add(*(nn.Dense(32, in_units=32, flatten=False, activation="relu") for _ in range(8)))

    def forward(self, words):
        return self.layers(self.embed(words))


class LanguageModel(mx.gluon.Block):
    def __init__(self, tied):
        super().__init__()
        self.body = Body()
        shared = {"params": self.body.embed.params} if tied and not IS_2 else {}
        self.head = nn.Dense(50, in_units=32, flatten=False, use_bias=False, **shared)
        if tied and IS_2:
            self.head.share_parameters(self.body.embed.collect_params())

    def forward(self, words):
        return self.head(self.body(words))


@pytest.mark.parametrize("tied", [False, True])
def test_a_plan_cuts_the_body_of_a_model_between_its_layers(tied):
    """Tied weights stay on one device, so that the head computes on the device of the embedding."""
    net = LanguageModel(tied)
    for parameter in set(net.collect_params().values()):  # 2.0 warns of a tied one that is initialized twice
        parameter.initialize()
    words = np.arange(6).reshape(2, 3)
    expected = ds.to_numpy(net(array(words)))
    plan = ds.Placement.balanced(net, ["gpu:0", "gpu:1"])
    found = net._collect_params_with_prefix()
    sizes = {id(x): (plan[path], ds.to_numpy(x.data()).nbytes) for path, x in found.items()}
    loads = [sum(size for device, size in sizes.values() if device is ds.gpu(i)) for i in (0, 1)]
    assert max(loads) < 0.55 * sum(loads)
    assert (plan["head.weight"] is plan["body.embed.weight"]) is tied
    ds.place(net, plan)
    with mx.autograd.record():
        y = net(array(words, "gpu:0"))
        loss = y.sum()
    loss.backward()
    assert ds.device_of(y) is plan["head.weight"]
    assert np.allclose(ds.to_numpy(y), expected, rtol=1e-5, atol=1e-6)

"""Tests of Gluon models over several devices: they compute and learn the same as on one."""

from __future__ import annotations

import numpy as np
import pytest
from gluon_arrays import array
from held import leaves

import devshim as ds

if "mxnet" not in ds.backends():
    pytest.skip("MXNet is not installed", allow_module_level=True)

# MXNet's own code calls functions that it has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(as_in_context|Context class|ndarray.ctx).*:DeprecationWarning"),
    pytest.mark.usefixtures("three_cards"),
]

mx = ds.framework("mxnet")

nn, rnn = mx.gluon.nn, mx.gluon.rnn
IS_2 = hasattr(mx, "Device")
X = np.random.default_rng(2).standard_normal((4, 6))


def filled(net, x=X):
    net.initialize()
    net(array(x))
    rng = np.random.default_rng(1)
    for parameter in net._collect_params_with_prefix().values():
        if parameter.grad_req != "null":
            parameter.set_data(array(rng.standard_normal(parameter.shape) / 3))
    return net


def chain(*layers):
    net = nn.HybridSequential()
    for layer in layers:
        net.add(layer)
    return net


def trainer_of(net, name="adam", **settings):
    return mx.gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05, **settings})


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
    expected = filled(three())
    home = trainer_of(expected, name)
    steps(expected, home)
    net = filled(three())
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
    net, split = filled(three()), ds.place(filled(three()), SPLIT)
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


def test_the_ledger_sees_what_is_carried():
    net = ds.place(filled(three()), SPLIT)
    x = array(X, "gpu:1")
    with ds.transfers() as log:
        net(x)
    assert [(str(each.source), str(each.target)) for each in log.records] == [("gpu:1", "gpu:0"), ("gpu:0", "gpu:2")]


def test_what_is_not_built_is_built_part_by_part():
    net = three()
    net.initialize()
    ds.place(net, SPLIT)
    trainer = trainer_of(net)
    steps(net, trainer, on="gpu:1")
    assert {path: str(place) for path, place in ds.placement_of(net).items() if path.endswith("weight")} == {
        "0.weight": "gpu:1",
        "1.0.weight": "gpu:0",
        "3.weight": "gpu:2",
    }


class Own(mx.gluon.Block):
    """A block with a parameter of its own besides its parts."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(4, in_units=6), nn.Dense(3, in_units=4)
        if IS_2:
            self.scale = mx.gluon.Parameter("scale", shape=(1, 6))
        else:
            self.scale = self.params.get("scale", shape=(1, 6))

    def forward(self, x):
        return self.b(self.a(x * self.scale.data()))


def test_a_parameter_of_the_models_own():
    expected, net = filled(Own()), filled(Own())
    ds.place(net, ds.Placement({"scale": "gpu:0", "a": "gpu:1"}, "gpu:2"))
    y = net(array(X, "gpu:2"))
    assert ds.device_of(y) is ds.gpu(2)
    assert np.allclose(y.asnumpy(), expected(array(X)).asnumpy(), rtol=1e-5)


class Meeting(mx.gluon.Block):
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


MET = ds.Placement({"a": "gpu:1", "b": "gpu:2", "c": "gpu:0", "scale": "gpu:1"})


def test_results_of_parts_meet():
    """Gradients reach the input and all parts as on one device; the result is on the last part's device."""
    gradients = []
    for net in (filled(Meeting()), ds.place(filled(Meeting()), MET)):
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

    expected, net = filled(make()), filled(make())
    net.hybridize()
    ds.place(net, ds.Placement({"0": "gpu:0", "1.a": "gpu:1", "1.b": "gpu:2", "2": "gpu:0"}))
    steps(expected, trainer_of(expected))
    steps(net, trainer_of(net), on="gpu:1")
    check_same(weights(net), weights(expected))


def test_arrays_meet_inside_the_model_alone():
    """Outside of it, and after an error in it, mixed arrays are refused as before, and nothing is left behind."""
    net = ds.place(filled(Meeting()), MET)
    before = mixing()
    net(array(X))
    assert mixing() == before
    with pytest.raises(Exception, match=r"(?i)shape|incompatible|infer"):
        net(array(X[:, :3])).wait_to_read()
    assert mixing() == before
    with pytest.raises(ds.DeviceMismatchError):
        array(X, "gpu:0") + array(X, "gpu:1")


def test_what_is_written_stays_where_it_is():
    """The NumPy interface of 2.0 does not say which argument is written to, so it is refused, not lost."""
    held = []

    class Outing(Meeting):
        def forward(self, x):
            y = self.b(self.a(x)).as_np_ndarray()
            held.append(mx.np.zeros((4, 6), **{"device" if IS_2 else "ctx": mx.cpu(0)}))
            return mx.np.add(y, y, out=held[-1])

    net = Outing()
    net.initialize()
    expected = net(array(X)).asnumpy()
    ds.place(net, MET)
    if IS_2:
        with pytest.raises(ds.DeviceMismatchError):
            net(array(X))
        assert not held[-1].asnumpy().any()
    else:
        net(array(X))
        assert np.allclose(held[-1].asnumpy(), expected, rtol=1e-5)
        assert ds.device_of(held[-1]) is ds.cpu()


def mixing():
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
        states = self.layer.begin_state(x.shape[0], **{"device" if IS_2 else "ctx": ds.device_of(x).native()})
        y, _ = self.layer(x, states)
        y, states = self.stack.unroll(x.shape[1], y, layout="NTC", merge_outputs=True)
        return self.head(y)


def test_states_of_recurrent_parts_are_carried():
    x = np.random.default_rng(4).standard_normal((2, 3, 6))
    expected, net = filled(Recurrent(), x), filled(Recurrent(), x)
    ds.place(net, ds.Placement({"layer": "gpu:0", "stack.0": "gpu:1", "stack.1": "gpu:2"}, "gpu:0"))
    steps(expected, trainer_of(expected), x)
    y = steps(net, trainer_of(net), x, on="gpu:2")
    assert ds.device_of(y) is ds.gpu(0)
    check_same(weights(net), weights(expected))


@pytest.mark.parametrize("place", ["cpu", "gpu:1"])
def test_cells_on_one_card_need_no_scope(place):
    """Cells of 2.0 create arrays on the default device."""
    x = np.random.default_rng(4).standard_normal((2, 3, 6))
    expected, net = filled(Recurrent(), x), ds.place(filled(Recurrent(), x), place)
    steps(expected, trainer_of(expected), x)
    assert ds.device_of(steps(net, trainer_of(net), x, on=place)) is ds.device(place)
    check_same(weights(net), weights(expected))


def test_a_layer_is_not_torn():
    net = filled(three())
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
    net = ds.place(filled(three()), SPLIT)
    trainer = trainer_of(net)
    steps(net, trainer)
    twin, other = ds.place({"net": net, "trainer": trainer}, SPLIT, copy=True).values()
    steps(net, trainer)
    steps(twin, other)
    check_same(weights(twin), weights(net))
    assert vars(twin)["forward"].block is twin
    assert ds.placement_of([twin, other]).devices == SPLIT.devices


def test_a_trainer_of_what_was_never_split_is_made_as_before():
    """Gluon refuses parameters on different devices, unless a placement put them there."""
    ds.place(filled(three()), SPLIT)
    one, two = nn.Dense(2, in_units=2), nn.Dense(2, in_units=2)
    one.initialize()
    two.initialize()
    ds.place(two, "gpu:1")
    both = chain(one, two)
    with pytest.raises(AssertionError, match="must be initialized on the same set of"):
        trainer_of(both)

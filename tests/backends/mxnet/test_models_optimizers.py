"""Tests of MXNet trainers and optimizers: half precision, schedules, with and without their model, and checkpoints.

The conformance kit (`test_conformance.py`) tests the dense ones in their plain form; these are the other tests.
"""

from __future__ import annotations

import numpy as np
import pytest
from gluon_arrays import IS_2, array, chain, trainer_of
from model_leaves import leaves

import devshim as ds

mx = ds.framework("mxnet")
nn = mx.gluon.nn
pytestmark = pytest.mark.usefixtures("three_cards", "old_calls")
X = np.random.default_rng(2).standard_normal((4, 6))
STAYS, MOVES = ["gpu:0"] * 5, ["gpu:0", "gpu:1", "cpu", "gpu:2", "gpu:0"]


def network(dtype="float32"):
    net = chain(nn.Dense(5, in_units=6, activation="tanh", dtype=dtype), nn.Dense(3, in_units=5, dtype=dtype))
    rng = np.random.default_rng(1)
    for parameter in net._collect_params_with_prefix().values():
        parameter.set_data(array(rng.standard_normal(parameter.shape) / 3, dtype=dtype))
    return net


def backward(net):
    device = ds.device_of(net[0].weight.data())
    with mx.autograd.record():
        loss = (net(array(X, device)) ** 2).sum()
    loss.backward()


def weights(net):
    return [p.data().asnumpy() for p in net._collect_params_with_prefix().values()]


def trained(make, moves, what=lambda net, trainer: [net, trainer], each=lambda place: None):
    """Return the weights after steps, each moved between backward and step."""
    net = ds.place(network(), moves[0])
    trainer = make(net)
    for move in moves:
        backward(net)
        ds.place(what(net, trainer), move)
        each(move)
        trainer.step(4)
    return weights(net), net, trainer


def check_same(found, expected):
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


# ---------------------------------------------------------------------- how a trainer follows
@pytest.mark.parametrize("name", ["sgd", "adam", "ftml", "nadam"])
def test_a_model_that_moves_without_its_trainer_trains_on(name):
    """MXNet counts updates per device, and leaves state where it was: natively Adam would restart, or fail."""
    settings = {"momentum": 0.9} if name == "sgd" else {}
    expected, _, _ = trained(lambda net: trainer_of(net, name, **settings), STAYS)
    found, net, trainer = trained(lambda net: trainer_of(net, name, **settings), MOVES, lambda net, _: net)
    check_same(found, expected)
    assert ds.placement_of([net, trainer]).devices == {ds.gpu(0)}


def test_a_trainer_that_moves_without_its_model_comes_back_to_it():
    expected, _, _ = trained(trainer_of, STAYS)
    found, _, trainer = trained(trainer_of, MOVES, lambda _, trainer: trainer)
    check_same(found, expected)
    assert ds.placement_of(trainer).devices == {ds.gpu(0)}


def test_mxnet_still_counts_updates_per_device():
    """The bug behind the workaround: if this fails, MXNet counts an optimizer's updates independently of the device."""
    net = network()
    trainer = trainer_of(net)
    for place in (0, 0, 1):
        for parameter in net.collect_params().values():
            parameter.reset_device(mx.cpu(place)) if IS_2 else parameter.reset_ctx(mx.cpu(place))
        for updater in trainer._updaters:
            updater.states_synced = dict.fromkeys(updater.states, False)
        backward(net)
        trainer.step(4)
    assert set(trainer._optimizer._index_update_count.values()) == {1}


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "signum", "lamb"])
def test_half_precision_keeps_its_master_weights(name):
    """With ``multi_precision`` the state contains a float32 copy of every float16 weight."""
    results = []
    for moves in (STAYS, MOVES):
        rng = np.random.default_rng(3)
        weight = array(rng.standard_normal((4, 3)), moves[0], "float16")
        optimizer = mx.optimizer.create(name, learning_rate=0.05, multi_precision=True)
        updater = mx.optimizer.get_updater(optimizer)
        for move in moves:
            weight, _ = ds.place([weight, updater], move)
            updater(0, array(rng.standard_normal((4, 3)), move, "float16"), weight)
        assert "float32" in {str(np.dtype(leaf.read().dtype)) for leaf in leaves(updater).values()}
        results.append(weight.asnumpy())
    assert results[0].tobytes() == results[1].tobytes()
    assert results[0].any()


def test_an_updater_without_state_keeps_its_counts():
    """Its own schedule depends only on the counts."""
    rates = []
    for moves in (STAYS, MOVES):
        schedule = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=1.0)
        updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=1.0, lr_scheduler=schedule))
        for move in moves:
            ds.place(updater, move)
            updater(0, array(np.ones(3), move), array(np.ones(3), move))
        rates.append(updater.optimizer.learning_rate)
    assert rates[0] == rates[1] == 0.0625


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.05),
        lambda: mx.lr_scheduler.MultiFactorScheduler([1, 3], 0.5, base_lr=0.05),
        lambda: mx.lr_scheduler.CosineScheduler(5, base_lr=0.05, warmup_steps=2),
    ],
)
def test_schedules_continue_after_a_move(scheduler):
    """A schedule counts the updates of all parameters, so it must not restart either."""
    expected, _, home = trained(lambda net: trainer_of(net, lr_scheduler=scheduler()), STAYS)
    found, _, trainer = trained(lambda net: trainer_of(net, lr_scheduler=scheduler()), MOVES)
    check_same(found, expected)
    assert trainer.learning_rate == home.learning_rate != 0.05


def test_sgld_draws_from_the_device_it_is_on():
    """Its noise comes from the device's generator; with one seed it is the same, wherever the weights are."""

    def seed(place):
        mx.random.seed(7, ds.device(place).native())

    expected, _, _ = trained(lambda net: trainer_of(net, "sgld"), STAYS, each=seed)
    check_same(trained(lambda net: trainer_of(net, "sgld"), MOVES, each=seed)[0], expected)


if not IS_2:  # 2.0 no longer has LBSGD or sparse Gluon layers

    def test_lbsgd_keeps_arrays_of_its_own():
        """It sums gradients over several batches, in the optimizer itself."""

        def make(net):
            return trainer_of(net, "lbsgd", batch_scale=3, momentum=0.9)

        expected, _, _ = trained(make, STAYS)
        found, _, trainer = trained(make, MOVES)
        check_same(found, expected)
        assert [path for path in leaves(trainer) if path.startswith("cumgrads")] == [
            f"cumgrads.{i}.cum_grad" for i in range(4)
        ]

    def test_sparse_gradients():
        """The step changes only those rows that a row-sparse gradient has."""
        results = []
        for moves in (STAYS, MOVES):
            net = nn.Embedding(5, 3, sparse_grad=True)
            net.initialize()
            net.weight.set_data(mx.nd.array(np.arange(15).reshape(5, 3)))
            trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
            ds.place([net, trainer], moves[0])
            for move in moves:
                x = ds.place(mx.nd.array([1, 3, 3]), ds.device_of(net.weight.data()))
                with mx.autograd.record():
                    loss = (net(x) ** 2).sum()
                loss.backward()
                ds.place([net, trainer], move)
                assert net.weight.grad().stype == "row_sparse"
                trainer.step(1)
            results.append(net.weight.data().asnumpy())
        assert results[0].tobytes() == results[1].tobytes()
        assert results[0][0].tolist() == [0, 1, 2]


def test_dcasgd_with_momentum():
    """1.9.1 tests an array for truth, which fails on any device for more than one element."""
    if IS_2:
        expected, _, _ = trained(lambda net: trainer_of(net, "dcasgd", momentum=0.9), STAYS)
        check_same(trained(lambda net: trainer_of(net, "dcasgd", momentum=0.9), MOVES)[0], expected)
        return
    updater = mx.optimizer.get_updater(mx.optimizer.create("dcasgd", momentum=0.9))
    with pytest.raises(ValueError, match="truth value of an NDArray"):
        updater(0, mx.nd.ones(3), mx.nd.ones(3))


def test_a_trainer_with_a_kvstore():
    """One that only reduces gradients stores no weights; one that updates does, and is refused."""

    def make(net, update=False):
        return mx.gluon.Trainer(
            net.collect_params(), "adam", {"learning_rate": 0.05}, mx.kv.create("local"), update_on_kvstore=update
        )

    check_same(trained(make, ["gpu:0"] * 3)[0], trained(trainer_of, ["gpu:0"] * 3)[0])
    net = network()
    trainer = make(net, update=True)
    backward(net)
    trainer.step(4)
    with pytest.raises(ds.UnsupportedError, match="update_on_kvstore=False"):
        ds.place([net, trainer], "gpu:1")
    assert ds.placement_of(net).devices == {ds.cpu()}


def test_an_optimizer_without_parameters_has_no_leaves():
    optimizer = mx.optimizer.create("adam")
    assert ds.place(optimizer, "gpu:1") is optimizer
    assert leaves(optimizer) == {}
    twin = ds.copy(optimizer, "gpu:1")
    assert twin is not optimizer
    assert twin.beta1 == optimizer.beta1


# ---------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("name", sorted(mx.optimizer.Optimizer.opt_registry))
def test_every_optimizer_continues_from_a_checkpoint(name, tmp_path):
    """After saving on one device and loading into a new pair on another, the next step is the same, bit for bit."""

    def pair(place):
        net = ds.place(network(), place)
        wanted = {k: p for k, p in net.collect_params().items() if name != "groupadagrad" or len(p.shape) == 2}
        return [net, mx.gluon.Trainer(wanted, name, {"learning_rate": 0.05})]

    first = pair("gpu:1")
    for _ in range(3):
        backward(first[0])
        first[1].step(4)
    ds.save(first, tmp_path / "run.safetensors")
    second = pair("gpu:2")
    second[1].set_learning_rate(7.0)
    assert ds.load(tmp_path / "run.safetensors", "gpu:2", into=second) is second
    for net, trainer in (first, second):
        mx.random.seed(3)
        for place in ("gpu:1", "gpu:2"):
            mx.random.seed(3, ds.device(place).native())
        backward(net)
        trainer.step(4)
    check_same(weights(second[0]), weights(first[0]))
    assert ds.placement_of(second).devices == {ds.gpu(2)}


def test_states_are_numbered_by_parameter(tmp_path):
    """1.9 sorts names as text, so that dense10 precedes dense9: states would be swapped."""
    made = []
    for begin in (7, 98):
        net = nn.HybridSequential() if IS_2 else nn.HybridSequential(prefix="")
        for i in range(4):
            net.add(nn.Dense(4, in_units=4) if IS_2 else nn.Dense(4, in_units=4, prefix=f"dense{begin + i}_"))
        net.initialize()
        made.append([net, trainer_of(net)])
    for net, trainer in made:
        for i, parameter in enumerate(net._collect_params_with_prefix().values()):
            parameter.set_data(array(np.full(parameter.shape, i + 1.0)))
        with mx.autograd.record():
            loss = net(array(np.ones((2, 4)))).sum()
        loss.backward()
        trainer.step(1)
    ds.save(made[0], tmp_path / "a.safetensors")
    states = {path: leaf.read().asnumpy() for path, leaf in leaves(made[0][1]).items()}
    for path, leaf in leaves(made[1][1]).items():
        assert leaf.read().asnumpy().tobytes() == states[path].tobytes(), path
    ds.load(tmp_path / "a.safetensors", into=made[1])
    by_weight = [
        {id(leaf.follows): leaf.read().asnumpy().tobytes() for leaf in leaves(trainer).values()} for _, trainer in made
    ]
    order = [list(net._collect_params_with_prefix().values()) for net, _ in made]
    assert [by_weight[0][id(p)] for p in order[0]] == [by_weight[1][id(p)] for p in order[1]]


def test_a_file_that_does_not_match_changes_nothing(tmp_path):
    net = network()
    trainer = trainer_of(net)
    backward(net)
    trainer.step(4)
    ds.save(trainer, tmp_path / "t.safetensors")
    sgd = trainer_of(net, "sgd", momentum=0.9)
    backward(net)
    sgd.step(4)
    before = dict(vars(sgd._optimizer)), dict(sgd._updaters[0].states)
    with pytest.raises(ds.CheckpointError, match="it was saved from Adam"):
        ds.load(tmp_path / "t.safetensors", into=sgd)
    assert (dict(vars(sgd._optimizer)), dict(sgd._updaters[0].states)) == before
    small = nn.Dense(3, in_units=2, use_bias=False)
    small.initialize()
    other = trainer_of(small)
    with pytest.raises(ds.CheckpointError, match="which this optimizer does not train"):
        ds.load(tmp_path / "t.safetensors", into=other)
    assert other._updaters[0].states == {}

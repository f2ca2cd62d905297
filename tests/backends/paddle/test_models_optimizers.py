"""Tests of every optimizer in PaddlePaddle, its schedulers and its scaler: training continues after moves and loads."""

from __future__ import annotations

import gc
import inspect
import warnings
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from model_leaves import devices, leaves

import devshim as ds
from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = ds.cpu()
X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
Y = np.random.default_rng(1).standard_normal((6, 3)).astype("float32")
NAMES = (
    *("SGD", "Momentum", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "RMSProp", "Lamb", "LBFGS"),
    *("NAdam", "RAdam", "Rprop", "ASGD"),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "LBFGS": {"max_iter": 3, "history_size": 2},
    "ASGD": {"batch_num": 2},
    "Momentum": {"weight_decay": 0.1},
}


@pytest.fixture
def paddle(three_cards: None) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "To copy construct from a tensor", UserWarning)  # LBFGS
        warnings.filterwarnings("ignore", "Op `.*` is executed through `append_op`", DeprecationWarning)  # Adagrad, 2.6
        yield import_module("paddle")


def network(paddle: Any) -> Any:
    nn = paddle.nn
    paddle.seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def made(paddle: Any, name: str, model: Any, rate: Any = 0.05, **options: Any) -> Any:
    cls = getattr(paddle.optimizer, name, None)
    if cls is None:
        pytest.skip(f"this PaddlePaddle has no {name}")
    return cls(learning_rate=rate, parameters=model.parameters(), **{**OPTIONS.get(name, {}), **options})


def step(paddle: Any, model: Any, optimizer: Any, between: Any = None) -> None:
    loss_of(model, optimizer)
    if between is not None:
        between()
    searches = type(optimizer).__name__ == "LBFGS"
    optimizer.step(partial(loss_of, model, optimizer)) if searches else optimizer.step()


def loss_of(model: Any, optimizer: Any) -> Any:
    device = ds.device_of(model[0].weight)
    optimizer.clear_grad()
    lost = (model(ds.from_numpy(X, device)) - ds.from_numpy(Y, device)).square().mean()
    lost.backward()
    return lost


def weights(model: Any) -> list[bytes]:
    return [ds.to_numpy(p).tobytes() for p in model.parameters()]


# ---------------------------------------------------------------- every class
def test_every_optimizer_is_tried(paddle: Any) -> None:
    found = {name for name, cls in vars(paddle.optimizer).items() if inspect.isclass(cls)} - {"Optimizer"}
    assert found <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_training_continues_from_a_checkpoint(paddle: Any, name: str, tmp_path: Path) -> None:
    """The state is loaded into an optimizer that has not started, and into one that has, on another device."""
    model = ds.place(network(paddle), "gpu:1")
    first = [model, made(paddle, name, model)]
    step(paddle, *first)
    step(paddle, *first)
    ds.save(first, tmp_path / "run.safetensors")
    step(paddle, *first)
    for device, begun in (("gpu:2", False), ("cpu", True)):
        model = ds.place(network(paddle), device)
        second = [model, made(paddle, name, model, 0.5)]
        if begun:
            step(paddle, *second)
        ds.load(tmp_path / "run.safetensors", device, into=second)
        step(paddle, *second)
        assert devices(*second) == {ds.device(device)}
        assert weights(second[0]) == weights(first[0])


@pytest.mark.parametrize("name", NAMES)
def test_each_copy_trains_its_own_model(paddle: Any, name: str) -> None:
    """Paddle stores state by parameter names, and a copy's differ: its own ``deepcopy`` restarts."""
    model = network(paddle)
    first = [model, made(paddle, name, model)]
    step(paddle, *first)
    second = ds.copy(first, "gpu:1")
    third = ds.copy(second, "gpu:2")
    before = weights(model)
    for pair in (second, third):
        step(paddle, *pair)
        step(paddle, *pair)
        assert weights(model) == before
    step(paddle, *first)
    step(paddle, *first)
    assert weights(second[0]) == weights(third[0]) == weights(model)
    assert (devices(*second), devices(*third)) == ({ds.gpu(1)}, {ds.gpu(2)})
    with pytest.raises(ds.UnsupportedError, match="together with its model"):
        ds.copy(first[1], "gpu:1")


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "Lamb", "ASGD", "Rprop"])
def test_master_weights(paddle: Any, name: str, tmp_path: Path) -> None:
    """In mixed precision the state is that of a copy of each parameter, under the copy's name.

    The host has no kernels for half precision, so the state is created, and not used.
    """

    def begin(model: Any, optimizer: Any) -> list[Any]:
        optimizer.helper = paddle.base.layer_helper.LayerHelper(name)
        optimizer._create_accumulators(optimizer.helper.main_program.global_block(), model.parameters())
        return [optimizer._create_master_weight(parameter) for parameter in model.parameters()]

    model = network(paddle)
    model.to(dtype="float16")
    pair = [model, made(paddle, name, model, multi_precision=True)]
    begin(*pair)
    before = {path: ds.to_numpy(leaf.read()).tobytes() for path, leaf in leaves(pair[1]).items()}
    assert "state.0.master_weight" in before
    ds.place(pair, "gpu:1")
    ds.save(pair, tmp_path / "run.safetensors")
    other = [model := network(paddle), made(paddle, name, model, multi_precision=True)]
    model.to(dtype="float16")
    ds.place(other, "gpu:2")
    ds.load(tmp_path / "run.safetensors", "gpu:2", into=other)
    for each in (pair, other, ds.copy(other, "gpu:0")):
        assert {path: ds.to_numpy(leaf.read()).tobytes() for path, leaf in leaves(each[1]).items()} == before
        masters = begin(*each)
        assert len(leaves(each[1])) == len(before), "Paddle created state that it should have found"
        assert len({ds.device_of(master) for master in masters}) == 1


def several(paddle: Any, model: Any) -> Any:
    """Return an optimizer that steps those in a list, one of which wraps another, and refers to the outer one."""

    class Several(paddle.optimizer.SGD):  # type: ignore[misc, name-defined]
        def step(self) -> None:
            for each in self.each:
                each.step()

    optimizer = Several(0.1, parameters=model.parameters())
    optimizer.each = [
        made(paddle, "Adam", model),
        paddle.incubate.LookAhead(made(paddle, "Momentum", model), alpha=0.5, k=2),
    ]
    optimizer.each[0].outer = optimizer
    return optimizer


@pytest.mark.parametrize("name", ["LookAhead", "ModelAverage", "several in a list"])
def test_optimizers_of_the_incubator(paddle: Any, name: str, tmp_path: Path) -> None:
    """One that wraps another, and one that averages, are moved, copied and saved."""

    def fresh() -> list[Any]:
        model = network(paddle)
        if name == "LookAhead":
            return [model, paddle.incubate.LookAhead(made(paddle, "Momentum", model), alpha=0.5, k=2)]
        if name == "several in a list":
            return [model, several(paddle, model)]
        return [model, paddle.incubate.ModelAverage(0.15, parameters=model.parameters(), min_average_window=2)]

    trained = []
    for moves in (["cpu"] * 4, ["gpu:1", "gpu:2", "cpu", "gpu:1"]):
        pair = fresh()
        for to in moves:
            ds.place(pair, to)
            step(paddle, *pair)
            assert devices(*pair) == {ds.device(to)}
        trained.append(weights(pair[0]))
    assert trained[0] == trained[1]
    ds.save(pair, tmp_path / "run.safetensors")
    loaded, twin = fresh(), ds.copy(pair, "gpu:0")
    ds.load(tmp_path / "run.safetensors", "gpu:2", into=loaded)
    for each in (pair, loaded, twin):
        step(paddle, *each)
        step(paddle, *each)
    assert weights(loaded[0]) == weights(twin[0]) == weights(pair[0])


# ---------------------------------------------------------------- what would move the weights back
@pytest.mark.parametrize("current", ["cpu", "sim_gpu:0", "sim_gpu:1"])
def test_the_step_leaves_weights_where_they_are(paddle: Any, current: str) -> None:
    """Wherever the current place and the rate's tensor are: on a GPU, that tensor would move the host's weights."""
    model = network(paddle)
    optimizer = made(paddle, "Adam", model)
    pair = [model, optimizer]
    paddle.set_device(current)
    try:
        for place in ("gpu:2", "cpu", "gpu:1", "cpu"):
            ds.place(pair, place)
            step(paddle, *pair)
            assert devices(*pair) == {ds.device(place)}
    finally:
        paddle.set_device("cpu")


def test_state_that_was_left_behind_is_an_error(paddle: Any) -> None:
    """Natively the step computes across devices, and moves the weights to the state's device."""
    model = network(paddle)
    optimizer = made(paddle, "Momentum", model)
    step(paddle, model, optimizer)
    ds.place(model, "gpu:1")
    with pytest.raises(ds.DeviceMismatchError, match="without its optimizer"):
        step(paddle, model, optimizer)
    assert devices(model) == {ds.gpu(1)}
    ds.place(optimizer, "gpu:1")
    step(paddle, model, optimizer)


def test_on_real_gpus_all_steps_follow_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is simulated there: the first placed model installs the patches that simulated GPUs include."""
    paddle, optimizer_step = import_module("paddle"), import_module("devshim_backends._paddle.models.optimizer_step")
    with ds.using("paddle"), ds.simulate(gpus=0):
        backend = registry.load("paddle")
        own = {(cls, name): vars(cls)[name] for cls, name, _ in optimizer_step.wrap_methods()}
        for (cls, name), function in own.items():
            monkeypatch.setattr(cls, name, function)  # restored at the end
        monkeypatch.setattr(optimizer_step, "_installed", False)
        optimizer_step.install(backend)
        assert all(vars(cls)[name] is function for (cls, name), function in own.items()), "there are no cards"
        trained = []
        for cards in (0, 1):
            model = network(paddle)
            optimizer = made(paddle, "Adam", model)
            if cards:
                monkeypatch.setattr(type(backend), "count", lambda self, kind: 1)
                ds.place([model, optimizer], "cpu")
                assert all(vars(cls)[name] is not function for (cls, name), function in own.items())
            for _ in range(2):
                step(paddle, model, optimizer)
            trained.append(weights(model))
        assert trained[0] == trained[1]


def test_clipping_decay_and_groups(paddle: Any) -> None:
    trained = []
    for moves in (["cpu"] * 3, ["gpu:1", "gpu:2", "cpu"]):
        model = network(paddle)
        groups = [
            {"params": model[0].parameters(), "learning_rate": 0.1},
            {"params": model[2].parameters(), "weight_decay": 0.5},
        ]
        clip = paddle.nn.ClipGradByGlobalNorm(0.1)
        optimizer = paddle.optimizer.Adam(0.05, parameters=groups, grad_clip=clip, weight_decay=0.1)
        pair = [model, optimizer]
        for to in moves:
            step(paddle, *pair, partial(ds.place, pair, to))
        twin = ds.copy(pair, "gpu:1")
        step(paddle, *pair)
        step(paddle, *twin)
        assert weights(twin[0]) == weights(model)
        trained.append(weights(model))
    assert trained[0] == trained[1]


def test_a_copy_decays_the_same_parameters(paddle: Any) -> None:
    """AdamW passes the parameter's name to a function of the user, and a copy's parameters have other names."""
    model = network(paddle)
    decayed = {model[0].weight.name}
    options = {"weight_decay": 0.5, "apply_decay_param_fun": lambda name: name in decayed}
    pair = [model, made(paddle, "AdamW", model, **options)]
    twin = ds.copy(pair, "gpu:1")
    step(paddle, *pair)
    step(paddle, *twin)
    assert weights(twin[0]) == weights(model)


# ---------------------------------------------------------------- schedulers and scalers
SCHEDULERS = {
    "StepDecay": lambda lr: lr.StepDecay(0.1, 1, 0.5),
    "LinearWarmup": lambda lr: lr.LinearWarmup(lr.ExponentialDecay(0.1, 0.5), 2, 0.0, 0.1),
    "ReduceOnPlateau": lambda lr: lr.ReduceOnPlateau(0.1, patience=0, cooldown=0, threshold=10.0),
    "LambdaDecay": lambda lr: lr.LambdaDecay(0.1, lambda epoch: 0.5**epoch),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(paddle: Any, name: str, tmp_path: Path) -> None:
    """Moved with the rest, saved separately or in their optimizer, they continue from the same state."""

    def run(pair: Any, scheduler: Any) -> None:
        step(paddle, *pair)
        lost = pair[0](ds.from_numpy(X, ds.device_of(pair[0][0].weight))).square().mean().detach()
        scheduler.step(lost) if name == "ReduceOnPlateau" else scheduler.step()

    def fresh() -> Any:
        model, scheduler = network(paddle), SCHEDULERS[name](paddle.optimizer.lr)
        return [model, made(paddle, "Adam", model, scheduler)], scheduler

    trained = []
    for moves in (["cpu"] * 4, ["gpu:1", "gpu:2", "cpu", "gpu:1"]):
        pair, scheduler = fresh()
        for i, to in enumerate(moves):
            ds.place([*pair, scheduler], to)
            run(pair, scheduler)
            if i == 2:
                ds.save([*pair, scheduler], tmp_path / "run.safetensors")
        trained.append((weights(pair[0]), float(scheduler())))
    assert trained[0] == trained[1]
    pair, scheduler = fresh()
    ds.load(tmp_path / "run.safetensors", "gpu:2", into=[*pair, scheduler])
    ds.place(pair, "gpu:2")
    run(pair, scheduler)
    assert (weights(pair[0]), float(scheduler())) == trained[0]
    model = network(paddle)
    into = [model, made(paddle, "Adam", model), SCHEDULERS[name](paddle.optimizer.lr)]
    with pytest.raises(ds.CheckpointError, match="number"):
        ds.load(tmp_path / "run.safetensors", "cpu", into=into)


def test_a_gradient_scaler_moves_with_its_optimizer(
    paddle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensors are on the GPU that was current when it was made; its counts are saved, too."""

    # It works only for half precision, for which the host has no kernels. Set to float16, it scales any dtype.
    monkeypatch.setattr(import_module("paddle.amp.auto_cast").amp_global_state(), "amp_dtype", "float16")

    def fresh() -> tuple[Any, Any, Any]:
        model = ds.place(network(paddle), "gpu:0")
        paddle.set_device("sim_gpu:0")
        try:
            scaler = paddle.amp.GradScaler(init_loss_scaling=8.0, incr_every_n_steps=2)
        finally:
            paddle.set_device("cpu")
        return model, made(paddle, "Adam", model), scaler

    def run(model: Any, optimizer: Any, scaler: Any, to: Any = None) -> None:
        device = ds.device_of(model[0].weight)
        optimizer.clear_grad()
        lost = (model(ds.from_numpy(X, device)) - ds.from_numpy(Y, device)).square().mean()
        scaler.scale(lost).backward()
        if to is not None:
            ds.place([model, optimizer, scaler], to)
        scaler.step(optimizer)
        scaler.update()

    trained = []
    for moves in (["gpu:0"] * 4, ["gpu:1", "gpu:2", "gpu:2", "gpu:1"]):
        held = fresh()
        for to in moves:
            run(*held, to)
            assert devices(held[2]) == {ds.device(to)}
        assert held[2]._scale.item() == 32.0
        trained.append(weights(held[0]))
    assert trained[0] == trained[1]
    ds.save(list(held), tmp_path / "run.safetensors")
    other = fresh()
    ds.load(tmp_path / "run.safetensors", "gpu:2", into=list(other))
    twin = ds.copy(list(held), "gpu:0")
    for each in (held, other, twin):
        run(*each)
        run(*each)
        assert each[2]._scale.item() == 64.0
    assert weights(other[0]) == weights(held[0]) == weights(twin[0])


# ---------------------------------------------------------------- what goes wrong
def test_a_checkpoint_of_another_optimizer_changes_nothing(paddle: Any, tmp_path: Path) -> None:
    model = network(paddle)
    adam, other = made(paddle, "Adam", model), made(paddle, "Momentum", model)
    for optimizer in (adam, other):
        step(paddle, model, optimizer)
        ds.save(optimizer, tmp_path / f"{type(optimizer).__name__}.safetensors")
    before = {path: ds.to_numpy(leaf.read()).tobytes() for path, leaf in leaves(adam).items()}
    with pytest.raises(ds.CheckpointError, match="Momentum"):
        ds.load(tmp_path / "Momentum.safetensors", "cpu", into=adam)
    (tmp_path / "Adam.safetensors").write_bytes((tmp_path / "Adam.safetensors").read_bytes()[:-4])
    with pytest.raises(ds.CheckpointError):
        ds.load(tmp_path / "Adam.safetensors", "cpu", into=adam)
    assert {path: ds.to_numpy(leaf.read()).tobytes() for path, leaf in leaves(adam).items()} == before
    assert adam.get_lr() == 0.05


def test_a_gpu_that_fails_changes_nothing(paddle: Any) -> None:
    model = network(paddle)
    pair = [model, made(paddle, "Adam", model)]
    step(paddle, *pair)
    gc.collect()
    used = ds.memory("gpu:1").used
    for at in range(1, sum(len(leaves(obj)) for obj in pair), 5):
        with ds.simulate(gpus=3, faults=ds.Fault("gpu:1", "allocation", at=at)):
            with pytest.raises(ds.OutOfMemoryError, match="at the leaf"):
                ds.place(pair, "gpu:1")
            assert devices(*pair) == {HOST}
            assert ds.memory("gpu:1").used == used
    ds.place(pair, "gpu:1")
    step(paddle, *pair)

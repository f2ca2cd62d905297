"""Tests of PaddlePaddle models over several devices: results and gradients are the same as on one device."""

from __future__ import annotations

import copy
import gc
import pickle
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from model_leaves import leaves

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track:UserWarning")  # of every BatchNorm

X = np.random.default_rng(0).standard_normal((3, 5, 4)).astype("float32")


@pytest.fixture
def paddle(three_cards: None) -> Any:
    return import_module("paddle")


# ---------------------------------------------------------------- models
def chain(paddle: Any) -> Any:
    nn = paddle.nn
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return nn.Sequential(inner, nn.BatchNorm1D(5), nn.Dropout(0.0), nn.Linear(4, 2))


def residual(paddle: Any) -> Any:
    """Return a model that combines results of several parts with the input: added, joined, and scaled."""

    class Residual(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = paddle.nn.Linear(4, 4), paddle.nn.Linear(8, 4)
            self.gain = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(2.0))

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            y = paddle.nn.functional.relu(self.a(x))
            return x * scale + self.b(paddle.concat([y, x], -1)) * self.gain

    class Outer(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks, self.head = paddle.nn.Linear(4, 4), paddle.nn.LayerList(), paddle.nn.Linear(4, 2)
            self.blocks.extend([Residual(), Residual()])

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x, scale=2.0)
            return self.head(x)

    return Outer()


def trees(paddle: Any) -> Any:
    """Return a model with dictionaries and tuples as inputs and results, a tensor keyword, and parts called by name."""

    class Recurrent(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = paddle.nn.LSTM(4, 3), paddle.nn.Linear(3, 2)

        def forward(self, batch: Any) -> Any:
            y, (h, _) = self.rnn(inputs=batch["x"][0])
            return self.out(y) + self.out(h[0]).unsqueeze(1)

    model = Recurrent()
    model.given = lambda x: {"x": (x, None)}
    return model


def transformer(paddle: Any) -> Any:
    return paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 3)


CASES: dict[str, tuple[Callable[[Any], Any], dict[str, str], str]] = {
    "chain": (chain, {"0.*": "gpu:0", "1.*": "gpu:1", "3.*": "gpu:2"}, "gpu:2"),
    "chain with the host": (chain, {"0.*": "gpu:1", "1.*": "cpu", "3.*": "gpu:1"}, "gpu:1"),
    "residual, between blocks": (residual, {"stem.*": "gpu:0", "blocks.0.*": "gpu:1", "*": "gpu:2"}, "gpu:2"),
    "residual, inside": (residual, {"*.a.*": "gpu:0", "*.gain": "gpu:1", "*": "gpu:2"}, "gpu:2"),
    "trees": (trees, {"rnn.*": "gpu:2", "out.*": "gpu:0"}, "gpu:0"),
    "transformer": (transformer, {"layers.0.*": "gpu:0", "layers.1.*": "gpu:1", "layers.2.*": "gpu:2"}, "gpu:2"),
    "inside attention": (transformer, {"*.q_proj.*": "gpu:0", "*linear2*": "gpu:1", "*": "gpu:2"}, "gpu:2"),
}


def answers(model: Any, device: str) -> tuple[Any, list[np.ndarray]]:
    """Return a model's result, and all gradients and statistics after a backward pass."""
    x = ds.from_numpy(X, device)
    x.stop_gradient = False
    y = model(model.given(x) if hasattr(model, "given") else x)
    y.square().sum().backward()
    held = [leaf.read() for leaf in leaves(model).values() if leaf.kind in ("buffer", "gradient")]
    statistics = [leaf.read() for path, leaf in leaves(model).items() if path.endswith(("_mean", "_variance"))]
    return y, [ds.to_numpy(each) for each in (y, x.grad, *held, *statistics)]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_split_model_computes_what_it_computes_on_one_device(paddle: Any, case: str) -> None:
    """Results, gradients and statistics are equal; moved back to one device, the model is as it was made."""
    make, places, last = CASES[case]
    model = make(paddle)
    twin = ds.copy(model, "cpu")
    expected = answers(twin, "cpu")[1]
    placement = ds.Placement(places)
    assert ds.place(model, placement) is model
    y, found = answers(model, "gpu:1")
    assert ds.device_of(y) is ds.device(last)
    check_equal(found, expected)
    assert {ds.device_of(p.grad) is ds.device_of(p) for p in model.parameters() if p.grad is not None} == {True}
    ds.place(model, "cpu")
    model.clear_gradients()
    assert all("_dygraph_call_func" not in vars(each) for each in model.sublayers())
    with pytest.raises(ds.DeviceMismatchError):
        answers(model, "gpu:1")


def test_training_a_split_model(paddle: Any) -> None:
    """Moved from one split to another during training, the weights are those of a model that stayed."""
    placements = [ds.Placement(CASES[name][1]) for name in ("chain", "chain with the host")]
    trained = []
    for moves in ([None] * 4, [*placements, *placements]):
        paddle.seed(0)
        model = chain(paddle)
        optimizer = paddle.optimizer.AdamW(0.05, parameters=model.parameters())
        for placement in moves:
            answers(model, "cpu")
            if placement is not None:
                prefixed = {f"0.{path}": device for path, device in placement.items()}
                ds.place([model, optimizer], ds.Placement({**prefixed, "1.*": "cpu"}))
                moments = {path: device for path, device in ds.placement_of(optimizer).items() if ".moment1" in path}
                assert not moments or set(moments.values()) == placement.devices, "state follows its parameter"
            optimizer.step()
            optimizer.clear_grad()
        trained.append([ds.to_numpy(p) for p in model.parameters()])
    check_equal(trained[1], trained[0])


def test_an_optimizer_made_after_the_split(paddle: Any) -> None:
    """Paddle would create all of its state on one device, and compute there."""
    model = ds.place(chain(paddle), ds.Placement(CASES["chain"][1]))
    optimizer = paddle.optimizer.Adam(0.05, parameters=model.parameters())
    for _ in range(2):
        answers(model, "gpu:0")
        optimizer.step()
    assert ds.placement_of(model).devices == {ds.gpu(0), ds.gpu(1), ds.gpu(2)}
    assert ds.placement_of(optimizer).devices == {ds.gpu(0), ds.gpu(1), ds.gpu(2)}


# ---------------------------------------------------------------- refusals
SPLIT_LAYERS: dict[str, tuple[Callable[[Any], Any], dict[str, str], str]] = {
    "one layer": (lambda nn: nn.Sequential(nn.Linear(4, 4)), {"*.weight": "gpu:0", "*.bias": "gpu:1"}, "all of 0"),
    "recurrent": (lambda nn: nn.LSTM(4, 3, 2), {"*l0*": "gpu:0", "*.0.*": "gpu:0", "*": "gpu:1"}, "all of it"),
}


@pytest.mark.parametrize("case", SPLIT_LAYERS)
def test_tensors_of_one_operator_are_not_split(paddle: Any, case: str) -> None:
    make, places, hint = SPLIT_LAYERS[case]
    model = make(paddle.nn)
    before = [ds.memory(ds.gpu(i)).used for i in range(2)]
    with pytest.raises(ds.UnsupportedError, match=hint):
        ds.place(model, ds.Placement(places))
    assert ds.placement_of(model).devices == {ds.cpu()}
    assert [ds.memory(ds.gpu(i)).used for i in range(2)] == before


def test_a_compiled_model_is_not_split_and_can_be_a_part(paddle: Any) -> None:
    nn = paddle.nn
    model = paddle.jit.to_static(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), full_graph=False)
    split = ds.Placement({"0.*": "gpu:0", "1.*": "gpu:1"})
    with pytest.raises(ds.UnsupportedError, match="to_static"):
        ds.place(model, split)
    outer = ds.place(nn.Sequential(model, nn.Linear(4, 2)), split)
    assert ds.device_of(outer(ds.from_numpy(X))) is ds.gpu(1)


def test_optimizers_of_all_parameters_at_once_are_refused(paddle: Any) -> None:
    nn = paddle.nn
    for make in (
        lambda held: paddle.optimizer.LBFGS(parameters=held),
        lambda held: paddle.optimizer.Adam(parameters=held, use_multi_tensor=True),
        lambda held: paddle.optimizer.SGD(parameters=held, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
    ):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        tree = [model, make(model.parameters())]
        with pytest.raises(ds.UnsupportedError, match="gpu:0 and gpu:1"):
            ds.place(tree, ds.Placement({"0.0.*": "gpu:0", "0.1.*": "gpu:1", "1.*": "cpu"}))
        assert ds.placement_of(model).devices == {ds.cpu()}


# ---------------------------------------------------------------- memory and copies
def test_nothing_keeps_a_models_memory(paddle: Any) -> None:
    """It is freed with the last reference to the model, without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        before = [ds.memory(ds.gpu(i)).used for i in range(3)]
        for placement in (ds.Placement(CASES["residual, inside"][1]), ds.Placement({"*": "gpu:1"})):
            model = ds.place(residual(paddle), placement)
            assert [ds.memory(ds.gpu(i)).used for i in range(3)] != before
            del model
            assert [ds.memory(ds.gpu(i)).used for i in range(3)] == before
    finally:
        gc.enable()


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_split_model_is_split_itself(paddle: Any, way: str) -> None:
    """It refers only to itself: the original can be deleted."""
    model = ds.place(chain(paddle), ds.Placement(CASES["chain"][1]))
    model.eval()
    expected = ds.to_numpy(model(ds.from_numpy(X, "gpu:0")))
    twin = COPIES[way](model)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        q.get_tensor()._share_data_with(p.get_tensor())  # Paddle's own copies are on the default device
    ds.place(model, "cpu")
    del model
    found = twin(ds.from_numpy(X, "gpu:1"))
    assert ds.device_of(found) is ds.gpu(2)
    assert np.allclose(ds.to_numpy(found), expected, atol=1e-6)
    ds.place(twin, "cpu")
    assert np.allclose(ds.to_numpy(twin(ds.from_numpy(X))), expected, atol=1e-6)


def test_a_part_that_is_placed_again(paddle: Any) -> None:
    """The other parts still send their results to it."""
    model = ds.place(chain(paddle), ds.Placement(CASES["chain"][1]))
    model.eval()
    expected = ds.to_numpy(model(ds.from_numpy(X)))
    ds.place(model[0], ds.Placement({"0.*": "gpu:1"}))
    assert np.allclose(ds.to_numpy(model(ds.from_numpy(X))), expected, atol=1e-6)
    assert ds.device_of(model[0][0].weight) is ds.gpu(1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_forward_pass_that_fails_leaves_nothing_behind(paddle: Any, error: type[BaseException]) -> None:
    model = ds.place(chain(paddle), ds.Placement(CASES["chain"][1]))
    place = paddle.get_device()

    def fail(*_: Any) -> None:
        raise error("asked to")

    hook = model[1].register_forward_pre_hook(fail)
    with pytest.raises(error, match="asked to"):
        model(ds.from_numpy(X))
    hook.remove()
    assert paddle.get_device() == place
    assert ds.device_of(model(ds.from_numpy(X))) is ds.gpu(2)


def test_copies_between_parts_are_in_the_ledger(paddle: Any) -> None:
    model = ds.place(chain(paddle), ds.Placement(CASES["chain"][1]))
    x = ds.from_numpy(X, "gpu:0")
    with ds.transfers() as log:
        model(x)
    assert [(str(r.source), str(r.target)) for r in log.records] == [("gpu:0", "gpu:1"), ("gpu:1", "gpu:2")]
    assert log.total_bytes == 2 * X.nbytes


def test_a_balanced_placement_runs(paddle: Any) -> None:
    model = transformer(paddle)
    expected = answers(ds.copy(model, "cpu"), "cpu")[1]
    plan = ds.Placement.balanced(model, ["gpu:0", "gpu:1", "gpu:2"])
    assert plan.devices == {ds.gpu(0), ds.gpu(1), ds.gpu(2)}
    ds.place(model, plan)
    check_equal(answers(model, "gpu:0")[1], expected)


def language_model(paddle: Any, tied: bool) -> Any:
    """Return a body of an embedding and layers, and a head, which can compute with the embedding's weight."""
    nn = paddle.nn

    class Body(nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.layers = nn.Embedding(50, 32), nn.LayerList([nn.Linear(32, 32) for _ in range(8)])

        def forward(self, words: Any) -> Any:
            x = self.embed(words)
            for layer in self.layers:
                x = x + nn.functional.relu(layer(x))
            return x

    class Head(nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, weight: Any) -> None:
            super().__init__()
            self.weight = weight if tied else self.create_parameter([50, 32])

        def forward(self, x: Any) -> Any:
            return paddle.matmul(x, self.weight, transpose_y=True)

    class Model(nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = Body()
            self.head = Head(self.body.embed.weight)

        def forward(self, words: Any) -> Any:
            return self.head(self.body(words))

    return Model()


@pytest.mark.parametrize("tied", [False, True])
def test_a_plan_cuts_the_body_of_a_model_between_its_layers(paddle: Any, tied: bool) -> None:
    """Tied weights stay on one device, so that the head computes on the device of the embedding."""
    model = language_model(paddle, tied)
    words = np.arange(6).reshape(2, 3)
    expected = ds.to_numpy(model(ds.from_numpy(words)))
    plan = ds.Placement.balanced(model, ["gpu:0", "gpu:1"])
    sizes = {id(x): (plan[path], ds.to_numpy(x).nbytes) for path, x in model.state_dict().items()}
    loads = [sum(size for device, size in sizes.values() if device is ds.gpu(i)) for i in (0, 1)]
    assert max(loads) < 0.55 * sum(loads)
    assert (plan["head.weight"] is plan["body.embed.weight"]) is tied
    ds.place(model, plan)
    found = model(ds.from_numpy(words, "gpu:0"))
    assert ds.device_of(found) is plan["head.weight"]
    assert np.allclose(ds.to_numpy(found), expected, rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert all(ds.device_of(x.grad) is ds.device_of(x) for x in model.parameters())

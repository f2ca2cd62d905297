"""Tests of PaddlePaddle layers when they move: each test names what would go wrong otherwise."""

from __future__ import annotations

import copy
import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from model_leaves import devices, leaves

import devshim as ds
from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track:UserWarning")  # of every BatchNorm

X = np.random.default_rng(0).standard_normal((3, 5, 4)).astype("float32")
X4 = np.tile(X, (1, 1, 4))
SIMULATED = [ds.gpu(i) for i in range(3)]


@pytest.fixture
def paddle(three_cards: None) -> Any:
    return import_module("paddle")


def attention(nn: Any) -> Any:
    layer = nn.Sequential(nn.MultiHeadAttention(4, 2))
    layer.forward = lambda x: layer[0](x, x, x)
    return layer


KINDS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda nn: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.PReLU(5, data_format="NCL")),
    "conv": lambda nn: nn.Sequential(nn.Conv1D(5, 6, 3), nn.Conv1DTranspose(6, 2, 3)),
    "norms": lambda nn: nn.Sequential(nn.LayerNorm(4), nn.BatchNorm1D(5), nn.GroupNorm(5, 5), nn.InstanceNorm1D(5)),
    "LSTM": lambda nn: nn.LSTM(4, 3, 2, direction="bidirect"),
    "GRU": lambda nn: nn.GRU(4, 3),
    "SimpleRNN": lambda nn: nn.SimpleRNN(4, 3),
    "cell": lambda nn: nn.RNN(nn.LSTMCell(4, 3)),
    "attention": attention,
    "transformer": lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 2),
    "weight_norm": lambda nn: nn.utils.weight_norm(nn.Linear(4, 4)),
    "spectral_norm": lambda nn: nn.utils.spectral_norm(nn.Linear(4, 4)),
}


def results(model: Any, device: str, x: np.ndarray = X) -> tuple[Any, np.ndarray]:
    """Return a model's result for an input that requires a gradient, and that gradient."""
    given = ds.from_numpy(x, device)
    given.stop_gradient = False
    made = model(given)
    made = made[0] if isinstance(made, tuple) else made
    made.square().sum().backward()
    return made, ds.to_numpy(given.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_layers(paddle: Any, kind: str) -> None:
    """Recurrent weights in one block, weights computed from others, and statistics give the CPU's numbers, and come
    back.

    Nothing is left on the GPU.
    """
    used = [ds.memory(card).used for card in SIMULATED]
    model = KINDS[kind](paddle.nn)
    names, objects = list(model.state_dict()), [id(p) for p in model.parameters()]
    if kind == "spectral_norm":
        model.eval()  # in training, each call is another step of the power iteration
    expected, gradient = results(model, "cpu")
    for place in ("gpu:1", "gpu:2", "cpu"):
        assert ds.place(model, place) is model
        assert devices(model) == {ds.device(place)}
        made, found = results(model, place)
        assert ds.device_of(made) is ds.device(place)
        assert np.allclose(ds.to_numpy(made), ds.to_numpy(expected), atol=1e-6)
        assert np.allclose(found, gradient, atol=1e-5)
    assert list(model.state_dict()) == names
    assert [id(p) for p in model.parameters()] == objects
    del made
    gc.collect()
    assert [ds.memory(card).used for card in SIMULATED] == used


def test_results_do_not_depend_on_the_current_place(paddle: Any) -> None:
    """Tensors that a layer creates besides its inputs (an LSTM's first state) are created on the layer's device."""
    model = paddle.nn.LSTM(4, 3)
    expected = results(model, "cpu")[0]
    for place in ("gpu:1", "cpu"):
        ds.place(model, place)
        try:
            for current in ("sim_gpu:0", "cpu", "sim_gpu:1"):
                paddle.set_device(current)
                made = results(model, place)[0]
                assert ds.device_of(made) is ds.device(place)
                assert np.allclose(ds.to_numpy(made), ds.to_numpy(expected), atol=1e-6)
                with ds.on("gpu:2"):
                    assert ds.device_of(results(model, place)[0]) is ds.device(place)
        finally:
            paddle.set_device("cpu")


# ---------------------------------------------------------------- what stays the same object
def test_hooks_and_flags_are_kept(paddle: Any) -> None:
    """Hooks of layers and gradients fire once after each move; frozen parameters stay frozen.

    Gradients keep their bits.
    """
    model, fired = paddle.nn.Linear(4, 4), []
    model.bias.stop_gradient = True
    model.register_forward_pre_hook(lambda *_: fired.append("before"))
    model.register_forward_post_hook(lambda *_: fired.append("after"))
    model.weight.register_hook(lambda gradient: fired.append("gradient"))
    results(model, "cpu")
    gradient = ds.to_numpy(model.weight.grad).tobytes()
    weight, name = model.weight, model.weight.name
    for place in ("gpu:1", "gpu:2", "cpu"):
        ds.place(model, place)
        assert model.weight is weight
        assert (weight.name, weight.stop_gradient, model.bias.stop_gradient) == (name, False, True)
        assert ds.device_of(weight.grad) is ds.device(place)
        assert ds.to_numpy(weight.grad).tobytes() == gradient
        fired.clear()
        model.clear_gradients()
        results(model, place)
        assert sorted(fired) == ["after", "before", "gradient"]
        assert ds.to_numpy(weight.grad).tobytes() == gradient


def test_buffers_that_are_not_saved_and_shared_layers(paddle: Any) -> None:
    nn = paddle.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.register_buffer("unsaved", paddle.ones([2]), persistable=False)
    model.add_sublayer("again", model[0])
    unsaved = model.unsaved
    ds.place(model, "gpu:1")
    assert model.unsaved is unsaved
    assert devices(model) == {ds.gpu(1)}
    assert leaves(model)["again.weight"].owner is leaves(model)["0.weight"].owner
    assert "unsaved" in leaves(model)
    assert "unsaved" not in model.state_dict()


def test_a_read_tensor_does_not_move_with_its_source(paddle: Any) -> None:
    """``detach()`` shares more than the data: used for an undo, it would restore nothing."""
    weight = paddle.nn.Linear(2, 2).weight
    leaf = registry.load("paddle").leaves(paddle.nn.Linear(2, 2))[0]
    detached, other = weight.detach(), ds.ones((2, 2), device="gpu:1")
    weight.get_tensor()._share_data_with(other.get_tensor())
    assert ds.device_of(detached) is ds.gpu(1), "when this changes, alias() can go"
    before, address = leaf.read(), leaf.owner.data_ptr()
    leaf.write(ds.full((2, 2), 3.0, device="gpu:1"))
    assert ds.device_of(before) is ds.cpu()
    leaf.write(before)
    assert leaf.owner.data_ptr() == address


def test_sparse_gradients(paddle: Any) -> None:
    """With ``Embedding(sparse=True)``, the values of gradients move, and their rows are on the host."""
    model = paddle.nn.Embedding(6, 3, sparse=True)
    optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters())
    model(paddle.to_tensor([1, 4])).sum().backward()
    assert model.weight.grad.is_selected_rows()
    before = ds.to_numpy(model.weight)
    ds.place([model, optimizer], "gpu:1")
    ds.place([model, optimizer], "cpu")
    optimizer.step()
    changed = np.where((ds.to_numpy(model.weight) != before).any(1))[0]
    assert changed.tolist() == [1, 4]
    with pytest.raises(ds.UnsupportedError, match="sparse embedding"):
        ds.copy(model, "gpu:1")


# ---------------------------------------------------------------- lazy and compiled models
def test_lazy_parameters_follow_the_last_placement(paddle: Any) -> None:
    with paddle.LazyGuard():
        model = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4))
    ds.place(model, "gpu:1")
    ds.place(model, ds.Placement({"0": "gpu:0", "1": "gpu:2"}))
    for parameter in model.parameters():
        parameter.initialize()
    assert devices(model[0]) == {ds.gpu(0)}
    assert devices(model[1]) == {ds.gpu(2)}
    assert ds.device_of(model(ds.from_numpy(X, "gpu:1"))) is ds.gpu(2)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Paddle (3.3) reads the place of traced values
@pytest.mark.parametrize("full_graph", [False, True])
def test_compiled_models(paddle: Any, full_graph: bool) -> None:
    """A model compiled by ``to_static`` moves like any other."""
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 2))
    expected = model(ds.from_numpy(X))
    compiled = paddle.jit.to_static(model, full_graph=full_graph)
    for place in ("cpu", "gpu:1", "gpu:2", "cpu"):
        ds.place(compiled, place)
        assert np.allclose(ds.to_numpy(compiled(ds.from_numpy(X, place))), ds.to_numpy(expected), atol=1e-6)
        assert devices(compiled) == {ds.device(place)}


def test_a_model_that_was_placed_can_still_be_compiled_and_saved(paddle: Any, tmp_path: Path) -> None:
    """Its ``forward`` is the original one, which ``to_static`` and ``jit.save`` inspect."""
    model = ds.place(ds.place(paddle.nn.Sequential(paddle.nn.Linear(4, 2)), "gpu:1"), "cpu")
    expected = ds.to_numpy(model(ds.from_numpy(X)))
    assert "forward" not in vars(model)
    spec = [paddle.static.InputSpec([None, 5, 4], "float32")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec, full_graph=True), str(tmp_path / "net"))
    assert np.allclose(ds.to_numpy(paddle.jit.load(str(tmp_path / "net"))(ds.from_numpy(X))), expected, atol=1e-6)


def test_without_gpus_a_model_is_unchanged(paddle: Any) -> None:
    model = paddle.nn.LSTM(4, 3)
    before = set(vars(model))
    ds.place(model, "gpu:1")
    assert set(vars(model)) != before
    ds.place(model, "cpu")
    with ds.simulate(gpus=0):
        ds.place(model, "cpu")
        assert set(vars(model)) == before
        assert not model._forward_pre_hooks


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("full_graph", [False, True])
def test_a_placed_model_inside_a_compiled_one(paddle: Any, full_graph: bool) -> None:
    inner = ds.place(ds.place(paddle.nn.Sequential(paddle.nn.Linear(4, 4)), "gpu:1"), "cpu")

    class Outer(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x) * 2

    with paddle.no_grad():
        expected = ds.to_numpy(inner(ds.from_numpy(X)) * 2)
        compiled = paddle.jit.to_static(Outer(), full_graph=full_graph)
        for place in ("cpu", "gpu:2"):
            ds.place(compiled, place)
            made = compiled(ds.from_numpy(X, place))
            assert ds.device_of(made) is ds.device(place)
            assert np.allclose(ds.to_numpy(made), expected, atol=1e-6)


# ---------------------------------------------------------------- copies, and other ways to move
def test_a_copy_has_names_ties_flags_and_gradients_of_its_own(paddle: Any) -> None:
    """``copy.deepcopy`` puts the copy on the default device, unfreezes parameters, and drops the gradient."""
    nn = paddle.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1D(5))
    model[1].weight = model[0].weight
    ds.place(model, "gpu:2")
    results(model, "gpu:2")
    twin = ds.copy(model, "gpu:1")
    assert twin[1].weight is twin[0].weight is not model[0].weight
    assert [p.stop_gradient for p in twin.parameters()] == [p.stop_gradient for p in model.parameters()]
    assert ds.to_numpy(twin[0].weight.grad).tobytes() == ds.to_numpy(model[0].weight.grad).tobytes()
    assert not {p.name for p in twin.parameters()} & {p.name for p in model.parameters()}
    assert twin[0].weight.name.endswith(model[0].weight.name)
    assert (devices(model), devices(twin)) == ({ds.gpu(2)}, {ds.gpu(1)})
    again = ds.copy(twin, "cpu")
    assert again[0].weight.name.endswith(model[0].weight.name)
    assert again[0].weight.name.count("copy") == 1


def test_recurrent_weights_are_stored_once(paddle: Any) -> None:
    """The block from which they were cut is freed after a move, and after a copy."""
    model = paddle.nn.LSTM(16, 16)
    held = sum(512 * -(-p.numel().item() * 4 // 512) for p in model.parameters())
    before = [ds.memory(card).used or 0 for card in SIMULATED]
    ds.place(model, "gpu:1")
    twin = ds.copy(ds.place(model, "gpu:2"), "gpu:0")
    used = [(ds.memory(card).used or 0) - start for card, start in zip(SIMULATED, before, strict=True)]
    assert used == [held, 0, held]
    assert twin._flat_weight[0].size == twin.weight_ih_l0.size
    ds.place([model, twin], "cpu")
    with ds.on("cpu"):
        model.flatten_parameters()
    assert model._flat_weight[0].size > held // 5
    assert np.allclose(ds.to_numpy(results(model, "cpu", X4)[0]), ds.to_numpy(results(twin, "cpu", X4)[0]), atol=1e-6)


def test_native_moves_and_devshims_can_be_mixed(paddle: Any) -> None:
    model = paddle.nn.LSTM(4, 3)
    expected, weight = ds.to_numpy(results(model, "cpu")[0]), model.weight_ih_l0
    ds.place(model, "gpu:1")
    model.to("sim_gpu:2")
    assert np.allclose(ds.to_numpy(results(model, "gpu:2")[0]), expected, atol=1e-6)
    ds.place(model, "gpu:0")
    model.to("cpu")
    assert model.weight_ih_l0 is weight
    assert np.allclose(ds.to_numpy(results(copy.deepcopy(model), "cpu")[0]), expected, atol=1e-6)


def test_a_full_gpu_changes_nothing(paddle: Any) -> None:
    model = paddle.nn.Sequential(*(paddle.nn.Linear(16, 16) for _ in range(4)))
    before = {path: leaf.owner.data_ptr() for path, leaf in leaves(model).items()}
    for at in (1, 4, 8):
        with ds.simulate(gpus=3, faults=ds.Fault("gpu:1", "allocation", at=at)):
            with pytest.raises(ds.OutOfMemoryError, match=r"at the leaf \d"):
                ds.place(model, "gpu:1")
            assert {path: leaf.owner.data_ptr() for path, leaf in leaves(model).items()} == before
    used = ds.memory("gpu:0").used or 0
    with ds.simulate(gpus=3, memory=used + 2048):
        with pytest.raises(ds.OutOfMemoryError, match=r"at the leaf 1\.weight"):
            ds.place(model, "gpu:0")
        assert ds.memory("gpu:0").used == used
    assert devices(model) == {ds.cpu()}

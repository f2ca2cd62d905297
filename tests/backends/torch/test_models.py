"""Tests of PyTorch modules when they move: each test names what would go wrong without special handling."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from model_leaves import devices, leaves
from torch.nn.utils import prune

import devshim as ds

nn = torch.nn

CPU = ds.cpu()


@pytest.fixture(autouse=True)
def _same_numbers(three_cards):
    torch.manual_seed(0)


class Buffers(nn.Module):
    """One buffer under two names, one that is not saved, one that is None."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.arange(3.0))
        self.register_buffer("b", self.a)
        self.register_buffer("unsaved", torch.ones(2), persistent=False)
        self.register_buffer("nothing", None)


# ---------------------------------------------------------------- what stays the same object
def test_buffers_stay_the_same_objects():
    """``Module.to`` replaces them by new tensors: two names for one buffer then differ."""
    model = Buffers()
    a, unsaved = model.a, model.unsaved
    ds.place(model, "gpu:1")
    assert model.a is a is model.b
    assert model.unsaved is unsaved
    assert devices(model) == {ds.gpu(1)}
    a.fill_(5)
    assert model.b.tolist() == [5.0, 5.0, 5.0]


def test_hooks_fire_after_a_move():
    """Hooks of tensors, gradients and modules fire after a move as before."""
    model, fired = nn.Linear(2, 2), []
    model.weight.register_hook(lambda g: fired.append("tensor"))
    model.weight.register_post_accumulate_grad_hook(lambda p: fired.append("accumulated"))
    model.register_forward_hook(lambda *_: fired.append("forward"))
    model.register_full_backward_hook(lambda *_: fired.append("backward"))
    for place in ("cpu", "gpu:1", "gpu:2", "cpu"):
        ds.place(model, place)
        fired.clear()
        model(ds.ones((1, 2), device=place).requires_grad_()).sum().backward()
        assert sorted(fired) == ["accumulated", "backward", "forward", "tensor"]
        assert ds.device_of(model.weight.grad) is ds.device(place)


def test_gradients_are_the_same_objects_and_flags_are_kept():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.requires_grad_(False)
    model(torch.ones(1, 2)).sum().backward()
    gradient, parameter = model[0].weight.grad, model[0].weight
    values = gradient.clone()
    ds.place(model, "gpu:0")
    assert model[0].weight is parameter
    assert parameter.grad is gradient
    assert not model[1].weight.requires_grad
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert torch.equal(gradient.cpu(), values)


def test_a_live_loss_does_not_keep_the_gradient():
    """A live graph refers to its parameters: the next backward pass still goes to the moved ones."""
    model = nn.Linear(2, 2, bias=False)
    held = model(torch.ones(1, 2)).sum()
    held.backward()
    ds.place(model, "gpu:1")
    model(ds.ones((1, 2), device="gpu:1")).sum().backward()
    assert model.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    del held


def test_writes_can_be_undone_in_any_order():
    """PyTorch refuses a gradient on another device than its parameter's, in either order of writes."""
    model = nn.Linear(2, 2, bias=False)
    model(torch.ones(1, 2)).sum().backward()
    parameter, gradient = model.weight, model.weight.grad
    before = [leaf.read() for leaf in leaves(model).values()]
    there = [ds.copy(x, "gpu:1") for x in before]
    for order in ((0, 1), (1, 0)):
        for back in ((0, 1), (1, 0)):
            listed = list(leaves(model).values())
            for i in order:
                listed[i].write(there[i])
            assert parameter.grad is gradient
            assert devices(model) == {ds.gpu(1)}
            for i in back:
                listed[i].write(before[i])
            assert parameter.grad is gradient
            assert parameter.data_ptr() == before[0].data_ptr()
            assert gradient.data_ptr() == before[1].data_ptr()


def test_a_model_moved_without_gradients_can_be_trained():
    """A copy made under ``inference_mode`` cannot be saved for a backward pass."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.inference_mode():
        ds.place(model, "gpu:1")
    assert not any(p.is_inference() for p in model.parameters())
    model(ds.ones((1, 2), device="gpu:1")).sum().backward()
    assert ds.device_of(model[0].weight.grad) is ds.gpu(1)


# ---------------------------------------------------------------- kinds of modules
def normed(norm, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older ones are deprecated, but still used
        return norm(nn.Linear(4, 4), *args)


KINDS = {
    "weight_norm": lambda: normed(nn.utils.parametrizations.weight_norm),
    "spectral_norm": lambda: normed(nn.utils.parametrizations.spectral_norm),
    "orthogonal": lambda: normed(nn.utils.parametrizations.orthogonal),
    "old weight_norm": lambda: normed(nn.utils.weight_norm),
    "old spectral_norm": lambda: normed(nn.utils.spectral_norm),
    "pruned": lambda: normed(prune.l1_unstructured, "weight", 0.5),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager"),
    "script": lambda: normed(torch.jit.script),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(nn.Linear(4, 4)),
    "norms": lambda: nn.Sequential(nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.Linear(4, 4)),
    "graph": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_modules_of_every_kind_move(kind):
    """Weights computed from others, wrappers, and modules whose tensors are stored in C++, move, too."""
    model, x = KINDS[kind]().eval(), torch.randn(3, 4)
    expected, names = model(x), list(model.state_dict())
    for place in ("gpu:1", "gpu:2", "cpu"):
        assert ds.place(model, place) is model
        assert devices(model) == {ds.device(place)}
        assert {x.device for x in model.state_dict().values()} == {ds.device(place).native()}
        y = model(ds.place(x, place))
        assert ds.device_of(y) is ds.device(place)
        assert torch.allclose(y.cpu(), expected, atol=1e-6)
        y.sum().backward()
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_modules(cls):
    """Their list of flat weights must contain the parameters themselves."""
    model, x = cls(3, 4, num_layers=2, bidirectional=True), torch.randn(5, 2, 3)
    expected = model(x)[0]
    ds.place(model, "gpu:1")
    listed = zip(model._flat_weights, model._flat_weights_names, strict=True)
    assert all(weight is getattr(model, name) for weight, name in listed)
    assert torch.allclose(model(x.to(ds.gpu(1).native()))[0].cpu(), expected, atol=1e-6)


def test_lists_and_dicts_of_parameters():
    model = nn.Module()
    model.several = nn.ParameterList([torch.ones(2), torch.ones(3)])
    model.named = nn.ParameterDict({"x": torch.ones(1)})
    assert list(leaves(model)) == ["several.0", "several.1", "named.x"]
    ds.place(model, "gpu:1")
    assert devices(model) == {ds.gpu(1)}


def test_lazy_modules_are_built_where_they_were_placed():
    """Before the first call they have nothing to move; an optimizer keeps its references to them."""
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ds.place([model, optimizer], "gpu:1")
    ds.place(model, "gpu:2")
    y = model(ds.ones((4, 5), device="gpu:2"))
    assert devices(model) == {ds.gpu(2)}
    y.sum().backward()
    optimizer.step()
    assert [*map(id, optimizer.param_groups[0]["params"])] == [*map(id, model.parameters())]


def test_a_failed_move_leaves_lazy_modules_in_place():
    model = nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(2))
    with pytest.raises(ds.ArgumentError, match=r"1\.weight"):
        ds.place(model, ds.Placement({"0": "gpu:0"}))
    assert devices(model) == {CPU}
    assert ds.device_of(model(torch.ones(1, 2))) is CPU


# ---------------------------------------------------------------- copies
def test_a_copy_has_ties_and_gradients_of_its_own():
    """``copy.deepcopy`` drops gradients."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model(torch.ones(1, 2)).sum().backward()
    twin = ds.copy(model, "gpu:1")
    assert twin[1].weight is twin[0].weight is not model[0].weight
    assert torch.equal(twin[0].weight.grad.cpu(), model[0].weight.grad)
    model[0].weight.grad.zero_()
    assert twin[0].weight.grad.abs().sum() > 0
    assert devices(model) == {CPU}


def test_a_model_that_cannot_be_copied_is_refused():
    model = nn.Linear(2, 2)
    model.generator = (x for x in ())
    with pytest.raises(ds.UnsupportedError, match="generator"):
        ds.copy(model, "gpu:0")


# ---------------------------------------------------------------- refusals
def test_the_error_names_the_tensor_that_cannot_move():
    """A computed tensor, tensors made of others, and tensors without data are refused, and nothing has moved."""
    from torch.testing._internal.two_tensor import TwoTensor

    def holding(tensor):
        model = nn.Sequential(nn.Linear(2, 2), nn.Module())
        model[1].register_buffer("odd", tensor)
        return model

    for tensor, why in (
        (torch.ones(2, requires_grad=True) * 2, "computation"),
        (TwoTensor(torch.ones(2), torch.ones(2)), "TwoTensor"),
        (torch.ones(2, device="meta"), "meta"),
    ):
        model = holding(tensor)
        with pytest.raises(ds.DevshimError, match=why) as caught:
            ds.place(model, "gpu:1")
        assert "1.odd" in str(caught.value)
        assert ds.device_of(model[0].weight) is CPU


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_frozen_script_module_is_refused():
    """``Module.to`` silently has no effect on it."""
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))
    with pytest.raises(ds.UnsupportedError, match="frozen"):
        ds.place(frozen, "gpu:1")


def test_data_parallel_is_refused_on_other_devices():
    model = nn.DataParallel(nn.Linear(2, 2))
    ds.place(model, "gpu:0")
    assert model(ds.ones((4, 2), device="gpu:0")).shape == (4, 2)
    with pytest.raises(ds.UnsupportedError, match="only from gpu:0"):
        ds.place(model, "gpu:1")
    assert devices(model) == {ds.gpu(0)}
    ds.place(model.module, "gpu:1")


def test_a_model_with_hooks_of_accelerate_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    model[0]._hf_hook = object()
    with pytest.raises(ds.UnsupportedError, match="accelerate"):
        ds.place(model, "gpu:1")
    assert devices(model) == {CPU}


def test_tensors_in_plain_attributes_stay():
    """A tensor in a list, or in a plain attribute, is not part of a module to PyTorch; using it with a GPU raises."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.scales = [torch.ones(2)]

        def forward(self, x):
            return x * self.weight * self.scales[0]

    model = ds.place(Plain(), "gpu:1")
    assert list(leaves(model)) == ["weight"]
    assert ds.device_of(model.scales[0]) is CPU
    with pytest.raises(RuntimeError, match="same device"):
        model(ds.ones(2, device="gpu:1"))


def test_a_generator_is_bound_to_its_device():
    generator = torch.Generator()
    assert ds.place({"g": generator}, "cpu")["g"] is generator
    with pytest.raises(ds.UnsupportedError, match="bound to its device"):
        ds.place([nn.Linear(2, 2), generator], "gpu:1")


def test_native_moves_and_place_can_be_mixed():
    model = nn.Linear(2, 2)
    weight = model.weight
    ds.place(model, "gpu:1")
    model.to(ds.gpu(2).native())
    ds.place(model, "gpu:0")
    model.cpu()
    assert model.weight is weight
    assert ds.device_of(model(torch.ones(1, 2))) is CPU
    assert copy.deepcopy(model)(torch.ones(1, 2)).tolist() == model(torch.ones(1, 2)).tolist()

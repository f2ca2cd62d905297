"""Tests of modules on simulated GPUs in PyTorch: moved with their parameters' identity, copied, and replicated."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

nn = torch.nn


@pytest.fixture(autouse=True, scope="module")
def gpus():
    ds.use("torch")
    with ds.simulate(gpus=3):
        yield
    ds.use(None)


def devices(model):
    return {str(x.device) for x in (*model.parameters(), *model.buffers())}


# ---------------------------------------------------------------- moving


@pytest.mark.parametrize("move", [lambda m: m.to(GPU), lambda m: m.sim(1)])
def test_parameters_keep_their_identity(move):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    parameters, module = list(model.parameters()), model[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert move(model) is model
    assert model[0] is module
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    assert devices(model) == {GPU}
    model(torch.ones(2, 3, device=GPU)).square().sum().backward()
    optimizer.step()
    assert all(type(each) is nn.Parameter for each in model.parameters())
    model.to("sim:2")
    assert {str(each.grad.device) for each in model.parameters()} == {"sim:2"}
    model.cpu()
    assert devices(model) == {"cpu"}
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    assert {str(each.grad.device) for each in model.parameters()} == {"cpu"}


def moved_by_data(parameter, device):
    parameter.data = parameter.data.to(device)


def moved_by_module(parameter, device):
    nn.ParameterList([parameter]).to(device)


@pytest.mark.parametrize("move", [moved_by_data, moved_by_module])
def test_a_graph_made_before_a_move_reaches_the_parameter(move):
    """The old node of the graph, and its hooks, belong to the same parameter."""
    parameter, seen = nn.Parameter(torch.ones(2, device=GPU)), []
    loss = (parameter * 3).sum()
    node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    hook = node.register_hook(lambda *_: seen.append(parameter.grad.tolist()))
    for device in ("cpu", GPU):
        move(parameter, device)
    parameter.register_hook(lambda gradient: gradient * 2)
    arrived = parameter.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor is parameter))
    assert node.variable is parameter
    loss.backward()
    assert parameter.grad.tolist() == [6, 6]
    assert seen == [True, [6, 6]]
    (parameter * 5).sum().backward()
    assert parameter.grad.tolist() == [16, 16]
    hook.remove()  # it refers to the parameter, whose memory the tests after this one would count
    arrived.remove()


def test_a_gradient_that_arrives_after_a_move_stays_on_its_gpu():
    parameter, other = nn.Parameter(torch.ones(2, device=GPU)), torch.ones(2, device=GPU, requires_grad=True)
    loss, product = (parameter * 3).sum(), (parameter * other).sum()
    parameter.data = parameter.data.cpu()
    loss.backward()
    assert (parameter.device.type, str(parameter.grad.device)) == ("cpu", GPU)
    for act in (parameter.sum().backward, product.backward, torch.optim.SGD([parameter]).step):
        with pytest.raises(ds.DeviceMismatchError):
            act()


def test_only_modules_move_gradients():
    layer = nn.Linear(2, 1, bias=False).to(GPU)
    layer(torch.ones(1, 2, device=GPU)).sum().backward()
    gradient = layer.weight.grad
    layer.weight.data = layer.weight.data.cpu()
    assert layer.weight.grad is gradient
    assert str(gradient.device) == GPU
    gradient.data = gradient.data.cpu()
    assert layer.weight.grad.device.type == "cpu"
    layer.to("sim:2").cpu().to(GPU)
    assert layer.weight.grad is gradient
    assert str(gradient.device) == GPU


def test_data_of_another_type_is_refused():
    parameter = nn.Parameter(torch.ones(2, device=GPU))
    for data in (torch.ones(2, dtype=torch.int64), torch.ones(2, device="meta"), torch.ones(2).to_sparse()):
        with pytest.raises(RuntimeError):
            parameter.data = data
        assert (parameter + 1).tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_data_of_a_sparse_tensor_moves(make):
    x, eye = make(torch.eye(2)), torch.eye(2)
    for device in (GPU, "cpu", "sim:2"):
        x.data = x.data.to(device)
        assert str(x.device) == device
        assert torch.equal(x.to_dense().cpu(), eye)


@pytest.mark.parametrize("name", ["overwrite", "swap"])
def test_the_future_ways_to_convert_a_module(name):
    change = getattr(torch.__future__, f"set_{name}_module_params_on_conversion")
    layer = nn.Linear(2, 1)
    weight = layer.weight
    change(True)
    try:
        layer.to(GPU)
    finally:
        change(False)
    assert devices(layer) == {GPU}
    assert (layer.weight is weight) == (name == "swap")
    assert weight.device == (layer.weight.device if name == "swap" else torch.device("cpu"))


def test_tied_parameters_stay_tied():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    model.to(GPU)
    assert model[1].weight is model[0].weight
    model(torch.tensor([1, 2], device=GPU)).sum().backward()
    with torch.no_grad():
        model[0].weight.zero_()
    assert not model[1].weight.any().item()
    model.cpu()
    assert model[1].weight is model[0].weight


def test_buffers_dtypes_and_modes():
    model = nn.BatchNorm1d(3)
    model.register_buffer("counts", torch.arange(3))
    model.register_buffer("volatile", torch.ones(1), persistent=False)
    model.to(GPU, torch.float64)
    assert devices(model) == {GPU}
    assert model.counts.dtype == torch.int64
    assert model.weight.dtype == torch.float64
    assert set(model.state_dict()) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked", "counts"}
    model.half().float().bfloat16().double()
    assert model.eval().training is False
    assert devices(model) == {GPU}
    model.requires_grad_(False).to("cpu")
    assert not model.weight.requires_grad


def test_parts_on_several_gpus():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4).to("sim:0")
            self.second = nn.Linear(4, 2).to("sim:1")

        def forward(self, x):
            return self.second(self.first(x.to("sim:0")).relu().to("sim:1"))

    model = Parts()
    model(torch.ones(3, 4)).sum().backward()
    assert str(model.first.weight.grad.device) == "sim:0"
    assert str(model.second.weight.grad.device) == "sim:1"


def test_meta_and_empty():
    model = nn.Linear(3, 3, device="meta")
    model.to_empty(device=GPU)
    assert devices(model) == {GPU}
    nn.init.ones_(model.weight)
    assert model.weight.sum().item() == 9
    assert devices(nn.utils.skip_init(nn.Linear, 2, 2, device=GPU)) == {GPU}


def test_copies():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(GPU)
    other = copy.deepcopy(model)
    assert devices(other) == {GPU}
    with torch.no_grad():
        other[0].weight.zero_()
    assert model[0].weight.any().item()
    tensor = torch.ones(3, device=GPU)[1:]
    again = copy.deepcopy([tensor, tensor])
    assert again[0] is again[1]
    assert str(again[0].device) == GPU
    assert str(copy.copy(tensor).device) == GPU
    parameter = copy.deepcopy(nn.Parameter(torch.ones(2, device=GPU)))
    assert isinstance(parameter, nn.Parameter)
    assert str(parameter.device) == GPU


def test_lazy_modules():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to(GPU)
    assert model(torch.ones(2, 5, device=GPU)).shape == (2, 3)
    assert devices(model) == {GPU}
    convolution = nn.LazyConv2d(2, 3)
    convolution(torch.ones(1, 1, 4, 4))
    assert devices(convolution.to(GPU)) == {GPU}


def test_parametrizations():
    from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

    model = parametrizations.weight_norm(nn.Linear(3, 3)).to(GPU)
    parametrizations.spectral_norm(nn.Linear(3, 3)).to(GPU)(torch.ones(1, 3, device=GPU)).sum().backward()
    parametrizations.orthogonal(nn.Linear(3, 3)).to(GPU)(torch.ones(1, 3, device=GPU)).sum().backward()
    model(torch.ones(1, 3, device=GPU)).sum().backward()
    assert devices(model) == {GPU}
    parametrize.remove_parametrizations(model, "weight")
    assert str(model.weight.device) == GPU
    with pytest.warns(FutureWarning, match="weight_norm"):
        old = weight_norm(nn.Linear(3, 3))
    assert str(old.to(GPU)(torch.ones(1, 3, device=GPU)).device) == GPU
    assert str(spectral_norm(nn.Linear(3, 3)).to(GPU)(torch.ones(1, 3, device=GPU)).device) == GPU


@pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning")
def test_scripted_modules():
    """They are stored in C++, which has the same parameters after a move."""
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    weight = next(model.parameters())
    assert devices(model.to(GPU)) == {GPU}
    model(torch.ones(3, 2, device=GPU)).square().sum().backward()
    assert {str(each.grad.device) for each in model.parameters()} == {GPU}
    torch.optim.SGD([weight], 0.1).step()
    assert next(model.parameters()) is weight
    assert model.state_dict()["0.weight"].data_ptr() == weight.data_ptr()
    file = io.BytesIO()
    torch.jit.save(model, file)
    file.seek(0)
    assert torch.jit.load(file, map_location="cpu")(torch.ones(3, 2)).device.type == "cpu"
    assert model.cpu()(torch.ones(3, 2)).device.type == "cpu"


def test_pruning():
    from torch.nn.utils import prune

    layer = nn.Linear(4, 4).to(GPU)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    assert (layer.weight == 0).sum().item() == 8
    prune.remove(layer, "weight")
    assert str(layer.weight.device) == GPU


# ---------------------------------------------------------------- data parallel


def test_data_parallel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    x = torch.randn(7, 4)
    wanted = model(x)
    wanted.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    parallel = nn.DataParallel(model.to("sim:0"), device_ids=[0, 1, 2])
    result = parallel(x.to("sim:0"))
    assert str(result.device) == "sim:0"
    torch.testing.assert_close(result.cpu(), wanted)
    result.sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient)
    assert nn.DataParallel(model, device_ids=[0, 1], output_device=1)(x.to("sim:0")).get_device() == 1
    assert nn.DataParallel(model).device_ids == [0, 1, 2]


def test_the_functions_behind_data_parallel():
    from torch.nn.parallel import comm, gather, replicate, scatter

    x = torch.arange(6.0, device="sim:0")
    parts = scatter(x, [0, 1, 2])
    assert [str(part.device) for part in parts] == ["sim:0", "sim:1", "sim:2"]
    assert gather(parts, 0).tolist() == x.tolist()
    copies = comm.broadcast(x, [0, 1])
    assert [str(each.device) for each in copies] == ["sim:0", "sim:1"]
    assert comm.reduce_add(list(copies), 1).tolist() == (2 * x).tolist()
    replicas = replicate(nn.Linear(2, 2).to("sim:0"), [0, 1])
    assert [str(each.weight.device) for each in replicas] == ["sim:0", "sim:1"]

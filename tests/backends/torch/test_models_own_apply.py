"""Tests of modules that override ``_apply`` or ``to``, as metrics of torchmetrics and modules of Lightning do."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from model_leaves import devices, leaves

import devshim as ds

nn = torch.nn
GPU = ds.gpu(1)


@pytest.fixture(autouse=True)
def _cards(three_cards):
    pass


class Mean(nn.Module):
    """A metric: a sum, its first value, the values so far in a list, and the device that it was last moved to."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(())
        self.first = {"total": torch.zeros(())}
        self.values = []
        self.device = torch.device("cpu")

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.total = fn(self.total)
        self.first = {name: fn(x) for name, x in self.first.items()}
        self.values = [fn(x) for x in self.values]
        self.device = fn(torch.zeros(1, device=self.device)).device
        return self

    def forward(self, x):
        self.total += x.sum()
        self.values.append(x)
        return self.total / sum(each.numel() for each in self.values)


class Pair(namedtuple("Pair", "number value")):
    """A tuple with attributes of its own."""


class Noting(nn.Module):
    """A module that notes its device, and overrides ``to`` for that."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.device = torch.device("cpu")

    def to(self, device):
        self.device = torch.device(device)
        return super().to(device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.mean = nn.Linear(2, 2), Mean()


def test_every_tensor_moves():
    metric = Mean()
    metric(torch.ones(2))
    assert ds.place(metric, GPU) is metric
    assert {x.device for x in (metric.total, metric.values[0], metric.first["total"])} == {GPU.native()}
    assert metric.device == GPU.native()
    assert float(metric(ds.full((2,), 2.0, device=GPU))) == 1.5
    assert devices(ds.place(metric, "cpu")) == {ds.cpu()}
    assert metric.device == torch.device("cpu")


def test_the_program_keeps_its_tensors():
    """Those that a metric was given, and results that it caches, with their containers: as with its own ``_apply``."""
    metric, given = Mean(), torch.ones(2)
    metric.cached = result = metric(given)
    metric.pair = pair = (result, (given, given), torch.ones(2).max(0))
    metric.again = pair
    metric.curves = curves = [{"all": [given], "one": pair}, given]
    curves.append(curves)
    ds.place(metric, GPU)
    assert {x.device for x in (given, result, *pair[1], *pair[2], *curves[0]["all"], curves[1])} == {
        torch.device("cpu")
    }
    assert metric.curves[0]["all"][0] is metric.curves[1] is metric.values[0]
    assert metric.curves[2] is metric.curves is not curves
    assert metric.curves[0]["one"] is metric.pair
    assert metric.values[0] is metric.pair[1][0] is metric.pair[1][1]
    assert metric.pair is metric.again
    assert metric.cached is metric.pair[0]
    assert type(metric.pair[2]) is type(pair[2])
    assert {x.device for x in (metric.cached, metric.values[0], *metric.pair[2])} == {GPU.native()}


def test_metrics_that_share_a_tensor_share_it_there():
    first, second = Mean(), Mean()
    second.total = first.total
    both = ds.place(nn.ModuleList([first, second]), GPU)
    assert both[0].total is both[1].total
    assert both[0].total.device == GPU.native()


def test_a_tensor_that_is_trained_stays_the_same_object():
    metric = Mean()
    metric.scale = scale = torch.ones(2, requires_grad=True)
    scale.sum().backward()
    metric.pair = (scale, torch.ones(1))
    ds.place([metric, Mean()], GPU)
    assert metric.scale is metric.pair[0] is scale
    assert scale.device == scale.grad.device == metric.pair[1].device == GPU.native()


def test_a_metric_inside_a_model_moves_with_it():
    net = ds.place(Net(), GPU)
    assert devices(net) == {GPU}
    assert net.mean.device == GPU.native()
    twin = ds.copy(net, "gpu:0")
    assert (devices(twin), devices(net)) == ({ds.gpu(0)}, {GPU})
    assert (twin.mean.device, net.mean.device) == (ds.gpu(0).native(), GPU.native())


def test_a_placement_gives_a_metric_its_own_device():
    net = ds.place(Net(), ds.Placement({"line": "gpu:0", "mean": "gpu:1"}))
    assert devices(net.line) == {ds.gpu(0)}
    assert devices(net.mean) == {GPU}
    assert net.mean.device == GPU.native()


def test_a_module_that_notes_its_device_is_notified():
    model = Noting()
    ds.place(nn.Sequential(model), GPU)
    assert model.device == GPU.native()
    assert ds.copy(model, "gpu:0").device == ds.gpu(0).native()
    assert model.device == GPU.native()


@pytest.mark.parametrize("kind", [Noting, Mean])
def test_a_split_module_stays_split(kind):
    """Its own method would move everything to one device."""
    model = kind()
    model.first, model.second = nn.Linear(2, 2), nn.Linear(2, 2)
    ds.place(model, ds.Placement({"first": "gpu:0", "second": "gpu:1", "*": "gpu:1"}))
    assert (devices(model.first), devices(model.second)) == ({ds.gpu(0)}, {GPU})


def test_the_guard_allows_a_metric_to_move():
    with ds.guard("error"):
        metric = ds.place(Mean(), GPU)
    assert metric.device == GPU.native()


def test_a_tensor_with_a_graph_moves_and_keeps_it():
    """The module gets another tensor, everywhere, because the data of this one cannot be replaced."""
    metric, weight = Mean(), torch.ones(2, requires_grad=True)
    total = weight.sum()
    metric.last, metric.values, metric.cache = total, [total], {"last": total}
    ds.place(metric, GPU)
    assert metric.last is metric.values[0] is metric.cache["last"]
    assert metric.last.device == GPU.native()
    metric.last.backward()
    assert weight.grad.tolist() == [1.0, 1.0]


def test_a_tensor_with_a_graph_in_a_tuple_moves():
    metric, weight = Mean(), torch.ones(2, requires_grad=True)
    metric.pair = Pair(1, weight.sum())
    metric.pair.note = "kept"
    ds.place(metric, GPU)
    assert (type(metric.pair), metric.pair.note) == (Pair, "kept")
    assert metric.pair.value.device == GPU.native()
    metric.pair.value.backward()
    assert weight.grad.tolist() == [1.0, 1.0]


def test_a_failure_after_the_move_gives_the_module_its_tensors_back():
    metric, line = Mean(), nn.Linear(2, 2)
    metric.last = last = torch.ones(2, requires_grad=True).sum()
    metric.pair = pair = (metric.total, [(last, 1)])
    inner, values = pair[1], metric.values
    line._hf_hook = object()  # refused when the hooks are installed
    with pytest.raises(ds.UnsupportedError, match="accelerate"):
        ds.place([metric, line], GPU)
    assert metric.last is last
    assert metric.pair is pair
    assert metric.pair[1] is inner
    assert metric.values is values


def test_other_kinds_of_tensors_move():
    class Named(torch.Tensor):
        pass

    metric = Mean()
    metric.named, metric.shape = torch.ones(2).as_subclass(Named), torch.empty(2, device="meta")
    ds.place(metric, GPU)
    assert (type(metric.named), metric.named.device) == (Named, GPU.native())
    assert metric.shape.is_meta


def test_tuples_and_lists_may_be_deep():
    metric = Mean()
    metric.deep = x = torch.ones(1)
    for _ in range(5000):
        metric.deep = (metric.deep,)
    ds.place(metric, GPU)
    deep = metric.deep
    while isinstance(deep, tuple):
        (deep,) = deep
    assert (deep.device, x.device) == (GPU.native(), torch.device("cpu"))


def test_a_recurrent_module_that_moves_more():
    class Masked(nn.LSTM):
        def __init__(self):
            super().__init__(2, 2)
            self.mask = torch.ones(2)

        def _apply(self, fn, recurse=True):
            self.mask = fn(self.mask)
            return super()._apply(fn, recurse)

    model = ds.place(Masked(), GPU)
    assert model.mask.device == GPU.native()


def test_a_parameter_in_a_list_is_moved_once():
    """Recurrent modules of other libraries keep their parameters in a list besides."""
    metric = Mean()
    metric.weight = nn.Parameter(torch.ones(4))
    metric.flat, metric.loop = [metric.weight], []
    metric.loop.append(metric.loop)
    with ds.transfers() as log:
        ds.place(metric, GPU)
    assert sum(each.bytes for each in log.records) == 4 * 4 + 2 * 4  # the weight, total and first
    assert metric.flat[0] is metric.weight
    assert metric.flat[0].device == GPU.native()


def test_a_placement_that_names_other_leaves_moves_the_rest_along():
    metric = Mean()
    metric.weight = nn.Parameter(torch.ones(4))
    ds.place(metric, ds.Placement({"weight": "gpu:1"}))
    assert devices(metric) == {GPU}
    found = ds.placement_of(metric)
    metric(torch.ones(2, device=GPU.native()))
    assert ds.place(metric, found) is metric
    assert devices(metric) == {GPU}


def test_the_modules_own_methods_do_not_run():
    class Failing(Mean):
        def _apply(self, fn, recurse=True):
            raise AssertionError

        def to(self, *args):
            raise AssertionError

    metric = ds.place(Failing(), GPU)
    assert devices(metric) == {GPU}
    assert metric.device == GPU.native()


def test_a_failure_after_the_move_undoes_it():
    net = Net()
    net.line._hf_hook = object()  # refused when the hooks are installed, after the tensors have moved
    with pytest.raises(ds.UnsupportedError, match="accelerate"):
        ds.place([net.mean, net.line], GPU)
    assert devices(net) == {ds.cpu()}
    assert net.mean.device == torch.device("cpu")


def test_a_checkpoint_has_the_state_dict(tmp_path):
    """The tensors in plain attributes are not in ``state_dict``, and not in a checkpoint."""
    net = Net()
    ds.save(net, tmp_path / "net.safetensors")
    net.mean(torch.ones(2))
    weight = net.line.weight.detach().clone()
    net.line.weight.data.zero_()
    ds.load(tmp_path / "net.safetensors", into=net)
    assert torch.equal(net.line.weight, weight)
    assert float(net.mean.total) == 2.0
    assert list(ds.leaves(net)) == ["line.weight", "line.bias"]
    assert "mean.values.0" in leaves(net)

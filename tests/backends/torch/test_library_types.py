"""Tests of objects of other libraries that hold tensors: graphs, dictionaries of tensors, and metrics."""

from __future__ import annotations

import pytest
import torch

import devshim as ds

data = pytest.importorskip("torch_geometric.data", reason="library: torch_geometric is not installed")
loader = pytest.importorskip("torch_geometric.loader", reason="library: torch_geometric is not installed")
tensordict = pytest.importorskip("tensordict", reason="library: tensordict is not installed")
torchmetrics = pytest.importorskip("torchmetrics", reason="library: torchmetrics is not installed")

GPU = ds.gpu(1)


@pytest.fixture(autouse=True)
def _cards(three_cards):
    pass


def graph(number=1.0):
    edges = torch.tensor([[0, 1], [1, 2]])
    return data.Data(x=torch.full((3, 2), number), edge_index=edges, name=f"graph {number}", extra={"y": torch.ones(1)})


def batch(number=1.0):
    return data.Batch.from_data_list([graph(number), graph(number)])


# ---------------------------------------------------------------- graphs of PyTorch Geometric
def test_a_graph_is_a_container():
    before = graph()
    after = ds.place({"graph": before, "y": torch.ones(2)}, GPU)["graph"]
    assert type(after) is data.Data
    assert {ds.device_of(x) for x in (after.x, after.edge_index, after.extra["y"])} == {GPU}
    assert {ds.device_of(x) for x in (before.x, before.edge_index, before.extra["y"])} == {ds.cpu()}
    assert (after.name, after.num_nodes) == ("graph 1.0", 3)
    assert set(ds.leaves(after)) == {"x", "edge_index", "extra.y"}
    assert ds.place(after, GPU) is after


def test_a_graph_with_types_of_nodes_and_edges():
    before = data.HeteroData()
    before["user"].x = torch.ones(2, 2)
    before["film"].x = torch.zeros(1)
    before["user", "rates", "film"].edge_index = torch.tensor([[0], [0]])
    after = ds.place(before, GPU)
    assert {ds.device_of(x) for x in ds.leaves(after).values()} == {GPU}
    assert ds.device_of(after["user", "rates", "film"].edge_index) is GPU
    assert ds.device_of(before["user"].x) is ds.cpu()
    assert after.metadata() == before.metadata()


def test_batches_of_graphs_are_prefetched():
    found = list(ds.prefetch(loader.DataLoader([graph(i) for i in range(4)], batch_size=2), GPU))
    assert [batch.num_graphs for batch in found] == [2, 2]
    for batch in found:
        assert {ds.device_of(x) for x in (batch.x, batch.edge_index, batch.batch, batch.ptr)} == {GPU}
    assert [each.name for each in found[1].to_data_list()] == ["graph 2", "graph 3"]


@pytest.mark.parametrize("make", [graph, batch])
def test_a_graph_is_not_cut_joined_or_summed(make):
    """Its edges are indices of its nodes."""
    small = make()
    before = small.edge_index.clone()
    for call in (
        lambda: ds.split([small], [GPU, "cpu"]),
        lambda: ds.gather([small, small], "cpu"),
        lambda: ds.all_reduce_([small, small.clone()]),
    ):
        with pytest.raises(ds.UnsupportedError, match="its edges are indices of its nodes"):
            call()
    assert torch.equal(small.edge_index, before)
    assert [ds.device_of(each.x) for each in ds.broadcast(small, [GPU, "cpu"])] == [GPU, ds.cpu()]


@pytest.mark.parametrize("make", [graph, batch])
def test_a_graph_is_loaded_into_one_like_it(make, tmp_path):
    """The loader compares and rebuilds the graph around other objects than tensors."""
    ds.save({"graph": make(3.0)}, tmp_path / "graph.safetensors")
    into = make(3.0)
    into.x.zero_()
    loaded = ds.load(tmp_path / "graph.safetensors", GPU, into={"graph": into})["graph"]
    assert type(loaded) is type(into)
    assert {ds.device_of(x) for x in ds.leaves(loaded).values()} == {GPU}
    assert ds.to_numpy(loaded.x).tolist() == make(3.0).x.tolist()
    assert torch.equal(ds.place(loaded.edge_index, "cpu"), into.edge_index)


# ---------------------------------------------------------------- TensorDict
def test_a_tensordict_is_a_container():
    before = tensordict.TensorDict({"a": torch.ones(2, 3), "b": {"c": torch.zeros(2)}}, batch_size=[2])
    after = ds.place(before, GPU)
    assert {ds.device_of(after["a"]), ds.device_of(after["b", "c"])} == {GPU}
    assert ds.device_of(before["a"]) is ds.cpu()
    assert after.batch_size == before.batch_size
    assert after.device is None, "it did not have one before"


def test_a_tensordict_keeps_its_lock_and_names_its_new_device():
    """As after its own method `to`."""
    inner = tensordict.TensorDict({"c": torch.zeros(2)}, batch_size=[2])
    before = tensordict.TensorDict({"a": torch.ones(2, 3), "b": inner}, [2], names=["rows"], device="cpu").lock_()
    stack = tensordict.LazyStackedTensorDict(before, before.clone()).lock_()
    for given in (before, stack):
        after = ds.place([given], GPU)[0]
        assert (after.device, after.is_locked) == (GPU.native(), True)
        assert (given.device, given.is_locked) == (torch.device("cpu"), True)
    after = ds.copy(before, GPU)
    assert (after["b"].device, after["b"].is_locked, after.names) == (GPU.native(), True, ["rows"])
    split = ds.place(before, ds.Placement({"a": "gpu:0"}, default="cpu"))
    assert split.device is None, "its tensors are on two devices"


@pytest.mark.parametrize("noted", ["cpu", None])
def test_parameters_in_a_tensordict_note_their_new_device(noted):
    """As after their own method `to`; a dictionary that notes no device stays so."""
    inner = tensordict.TensorDict({"b": torch.zeros(2)}, [2], device="cpu")
    params = tensordict.TensorDictParams(tensordict.TensorDict({"a": torch.ones(2, 3), "n": inner}, [2], device=noted))
    model = torch.nn.Sequential()
    model.register_module("params", params)
    weight, before = params["a"], params["n"].device
    for place, device in ((GPU, GPU.native()), ("cpu", torch.device("cpu"))):
        ds.place(model, place)
        assert params["a"] is weight
        assert weight.device == params["n", "b"].device == device
        assert params.device == (None if noted is None else device)
        assert params["n"].device == (None if before is None else device)
        assert (params + 1).device == params.device
    alone = tensordict.TensorDictParams(tensordict.TensorDict({"a": torch.ones(2)}, [2], device=noted))
    assert ds.place(alone, GPU).device == (None if noted is None else GPU.native())


def test_parameters_in_a_tensordict_note_their_old_device_after_a_failed_move(monkeypatch):
    model, real = torch.nn.Sequential(), tensordict.TensorDict.auto_device_
    for name in ("first", "second"):
        params = tensordict.TensorDictParams(tensordict.TensorDict({"a": torch.ones(2)}, [2], device="cpu"))
        model.register_module(name, params)

    def fail_for_second(self):
        if self is model.second._param_td:
            raise MemoryError
        return real(self)

    monkeypatch.setattr(tensordict.TensorDict, "auto_device_", fail_for_second)
    with pytest.raises(MemoryError):
        ds.place(model, GPU)
    for params in model:
        assert params.device == params["a"].device == torch.device("cpu")


@tensordict.tensorclass
class Rows:
    a: torch.Tensor
    name: str


@tensordict.tensorclass
class Pair:
    """A tensorclass with tensors only."""

    a: torch.Tensor
    b: torch.Tensor


def test_a_tensorclass_of_tensors_notes_its_device_and_batch_size():
    before = Pair(a=torch.arange(6.0).view(3, 2), b=torch.ones(3), batch_size=[3], device="cpu")
    after = ds.place(before, GPU)
    assert type(after) is Pair
    assert after.device == after.a.device == GPU.native()
    assert before.device == before.a.device == torch.device("cpu")
    parts = ds.split(before, [GPU, "cpu"])
    assert [part.batch_size for part in parts] == [torch.Size([2]), torch.Size([1])]
    assert [part.device for part in parts] == [GPU.native(), torch.device("cpu")]
    assert (ds.gather(parts, "cpu") == before).all()


@pytest.mark.parametrize("length", [2, 4])
def test_a_tensordict_is_cut_and_joined(length, tmp_path):
    """The library's function for pytrees guesses the batch size from the shapes, and drops names."""
    inner = tensordict.TensorDict({"c": torch.zeros(length, 2)}, batch_size=[length])
    values = {"a": torch.arange(2.0 * length).reshape(length, 2), "b": inner}
    before = tensordict.TensorDict(values, batch_size=[length], names=["rows"], device="cpu").lock_()
    parts = ds.split(before, ["gpu:0", GPU])
    for part, device in zip(parts, ["gpu:0", GPU], strict=True):
        half = torch.Size([length // 2])
        assert (part.batch_size, part["b"].batch_size, part.names) == (half, half, ["rows"])
        assert (part.device, part.is_locked) == (ds.device(device).native(), True)
    whole = ds.gather(parts, "cpu")
    assert (whole.batch_size, whole.names, whole.device) == (before.batch_size, ["rows"], before.device)
    assert (whole == before).all()
    rows = Rows(a=torch.ones(length, length), name="n", batch_size=[length])
    halves = ds.split(rows, ["gpu:0", GPU])
    assert [(half.batch_size, half.a.shape, half.name) for half in halves] == [
        (torch.Size([length // 2]), (length // 2, length), "n")
    ] * 2
    ds.save(before, tmp_path / "a.safetensors")
    assert ds.load(tmp_path / "a.safetensors", GPU, into=before.clone()).device == GPU.native()


# ---------------------------------------------------------------- torchmetrics
METRICS = {
    "accuracy": lambda: torchmetrics.Accuracy("multiclass", num_classes=3),
    "auroc": lambda: torchmetrics.AUROC("multiclass", num_classes=3),  # it has lists, which are empty at first
    "confusion": lambda: torchmetrics.ConfusionMatrix("multiclass", num_classes=3),
}


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
def test_a_metric_moves_and_computes_there(make):
    outputs, labels = torch.eye(3)[[0, 1, 2, 2]] * 0.8 + 0.05, torch.tensor([0, 1, 1, 2])
    expected = make()(outputs, labels)
    metric = make()
    assert ds.place(metric, GPU) is metric
    found = metric(*ds.place((outputs, labels), GPU))
    assert ds.device_of(found) is GPU
    assert torch.equal(ds.place(found, "cpu"), expected)
    assert torch.equal(ds.place(ds.copy(metric, "gpu:0").compute(), "cpu"), expected)
    ds.place(metric, "cpu")
    assert metric.device.type == "cpu"
    assert torch.equal(metric.compute(), expected)
    metric.reset()
    assert torch.equal(metric(outputs, labels), expected)


def test_a_collection_of_metrics_in_a_model_moves_with_it():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.metrics = torchmetrics.MetricCollection([torchmetrics.MeanMetric(), torchmetrics.CatMetric()])
    model.metrics.update(torch.ones(2))
    ds.place(model, GPU)
    assert {each.device for each in model.metrics.values()} == {GPU.native()}
    model.metrics.update(ds.full((2,), 4.0, device=GPU))
    found = {name: ds.to_numpy(x).tolist() for name, x in model.metrics.compute().items()}
    assert found == {"MeanMetric": 2.5, "CatMetric": [1.0, 1.0, 4.0, 4.0]}

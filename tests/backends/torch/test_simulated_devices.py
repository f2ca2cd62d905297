"""Tests of simulated GPUs in PyTorch as devices: names, the current one, ``torch.accelerator``, streams, off and on
again.
"""

from __future__ import annotations

import threading

import pytest
import torch

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_cards")

ACC = torch.accelerator


def sim(index):
    """Return a GPU's name; PyTorch accepts it after the first simulation."""
    return torch.device("sim", index)


# ---------------------------------------------------------------- names


def test_devshim_and_torch_name_the_same_gpu():
    assert ds.gpu(1).native() == sim(1)
    assert ds.device(sim(1)) is ds.gpu(1)
    assert ds.device_of(torch.zeros(1, device="sim:1")) is ds.gpu(1)
    assert ds.describe("gpu:1").simulated


@pytest.mark.parametrize("form", [str, torch.device, lambda name: torch.device("sim", 1)])
def test_every_form_of_a_device_name(form):
    named = form("sim:1")
    x = torch.zeros(2, device=named)
    assert x.device == sim(1)
    assert str(x.device) == "sim:1"
    assert (x.device.type, x.device.index) == ("sim", 1)
    assert x.get_device() == 1
    assert torch.ones(2).to(named).device == sim(1)


def test_an_integer_names_a_gpu():
    assert torch.zeros(2, device=1).device == sim(1)
    assert torch.ones(2).to(1).device == sim(1)
    assert torch.device(1) == sim(1)


def test_a_name_without_an_index_is_the_current_gpu():
    assert torch.zeros(1, device="sim").device == sim(0)
    ACC.set_device_index(1)
    try:
        assert torch.zeros(1, device="sim").device == sim(1)
        assert torch.zeros(1).to("sim").device == sim(1)
        assert torch.zeros(1).to(torch.device("sim")).device == sim(1)
        assert torch.tensor([1], device="sim").device == sim(1)
        assert torch.zeros(1).to(device="sim", dtype=torch.int8).device == sim(1)
        assert torch.nn.Linear(1, 1, device="sim").weight.device == sim(1)
    finally:
        ACC.set_device_index(0)
    assert torch.zeros(1, device="sim").device == sim(0)


def test_to_without_an_index_returns_a_tensor_on_the_current_gpu():
    x = torch.zeros(1, device="sim:0")
    assert x.to("sim") is x
    assert x.to("sim:0") is x
    y = torch.zeros(1, device="sim:1")
    assert y.to("sim").device == sim(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1, device="sim:2"),
        lambda: torch.empty(1, device="sim:7"),
        lambda: torch.ones(1).to("sim:2"),
        lambda: torch.tensor([1.0], device="sim:2"),
        lambda: torch.zeros(1, device="sim:0").to("sim:5"),
        lambda: torch.nn.Linear(1, 1).to("sim:2"),
        lambda: ACC.set_device_index(2),
        lambda: torch.rand(1, device="sim:3"),
        lambda: torch.Generator(device="sim:2"),
    ],
)
def test_a_gpu_that_does_not_exist_is_refused(make):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        make()
    assert torch.ones(1, device="sim:1").add(1).item() == 2  # and everything continues


def test_a_device_that_does_not_exist_can_be_named():
    assert torch.device("sim:99").index == 99


@pytest.mark.parametrize("method", ["sim", "to"])
def test_moving_by_method(method):
    x = torch.arange(3.0)
    there = x.sim(1) if method == "sim" else x.to(sim(1))
    assert there.device == sim(1)
    assert there.cpu().tolist() == [0, 1, 2]
    assert torch.nn.Linear(2, 2).to(sim(1)).weight.device == sim(1)


def test_attributes_of_tensors():
    x = torch.zeros(2, device="sim:1")
    assert x.is_sim
    assert not torch.zeros(2).is_sim
    assert not any((x.is_cpu, x.is_cuda, x.is_meta, x.is_sparse, x.is_quantized))
    assert x.layout == torch.strided
    assert type(x) is torch.Tensor


# ---------------------------------------------------------------- the current GPU


def test_each_thread_has_its_own_current_gpu():
    seen = []

    def other():
        seen.append(ACC.current_device_index())
        ACC.set_device_index(1)
        seen.append(torch.zeros(1, device="sim").device)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [0, sim(1)]
    assert ACC.current_device_index() == 0


def test_the_current_gpu_of_a_with_block():
    with ACC.device_index(1):
        assert ACC.current_device_index() == 1
        assert torch.zeros(1, device="sim").device == sim(1)
        with ACC.device_index(0):
            assert ACC.current_device_index() == 0
        assert ACC.current_device_index() == 1
        with ACC.device_index(None):
            assert ACC.current_device_index() == 1
    with pytest.raises(ValueError, match="out of the block"), ACC.device_index(1):
        raise ValueError("out of the block")
    assert ACC.current_device_index() == 0


def test_the_module_of_the_device():
    module = torch.sim
    assert torch.get_device_module("sim") is torch.get_device_module(sim(1)) is module
    assert module.is_available()
    assert module.device_count() == 2
    assert module.current_device() == 0
    with module.device(1):
        assert module.current_device() == 1
        assert torch.zeros(1, device="sim").device == sim(1)
    with module.device("sim:1"):
        assert module.current_device() == 1
    module.set_device(1)
    assert module.current_device() == ACC.current_device_index() == 1
    module.set_device("sim:0")
    assert module.current_device() == 0
    assert "imulated" in module.get_device_name(1)
    assert "imulated" in module.get_device_properties(1).name
    module.synchronize()
    module.synchronize(1)
    module.empty_cache()


def test_default_device():
    torch.set_default_device("sim:1")
    try:
        assert torch.get_default_device() == sim(1)
        made = [torch.zeros(2), torch.rand(2), torch.tensor([1]), torch.arange(3), torch.eye(2), torch.randperm(3)]
        made += [torch.nn.Linear(2, 2).weight, torch.empty(2), torch.linspace(0, 1, 3), torch.full((2,), 1)]
        made += [
            torch.as_tensor([1.0]),
            torch.zeros_like(torch.zeros(1)),
            torch.from_numpy(torch.ones(1).cpu().numpy()),
        ]
        assert [x.device for x in made] == [sim(1)] * (len(made) - 1) + [torch.device("cpu")]
    finally:
        torch.set_default_device(None)
    assert torch.zeros(1).device.type == "cpu"


def test_a_device_as_a_context_manager():
    with torch.device("sim:1"):
        assert torch.zeros(1).device == sim(1)
        with torch.device("cpu"):
            assert torch.zeros(1).device.type == "cpu"
        assert torch.nn.LSTM(1, 1).weight_ih_l0.device == sim(1)
    assert torch.zeros(1).device.type == "cpu"


# ---------------------------------------------------------------- torch.accelerator


def test_the_accelerator():
    assert ACC.is_available()
    assert ACC.device_count() == 2
    assert ACC.current_accelerator() == torch.device("sim")
    assert ACC.current_accelerator(check_available=True) == torch.device("sim")
    ACC.set_device_index("sim:1")
    assert ACC.current_device_index() == 1
    ACC.set_device_index(0)
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert ACC.current_device_idx() == 0
    ACC.synchronize()
    ACC.synchronize(1)
    ACC.synchronize("sim:1")


def test_streams_and_events():
    stream = torch.Stream(device="sim:1")
    assert stream.device == sim(1)
    with stream:
        x = torch.ones(3, device="sim:1") * 2
    event = stream.record_event()
    stream.wait_event(event)
    event.synchronize()
    assert event.query()
    assert stream.query()
    stream.synchronize()
    assert x.tolist() == [2, 2, 2]
    current = ACC.current_stream()
    assert current.device.type == "sim"
    ACC.set_stream(current)
    current.wait_stream(stream)
    begin, end = torch.Event("sim", enable_timing=True), torch.Event("sim", enable_timing=True)
    begin.record()
    (torch.ones(100, 100, device="sim") @ torch.ones(100, 100, device="sim")).sum()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0
    x.record_stream(stream)


def test_streams_of_the_device_module():
    module = torch.sim
    stream = module.Stream()
    with module.stream(stream):
        x = torch.ones(2, device="sim") + 1
    stream.synchronize()
    module.current_stream().wait_stream(stream)
    event = module.Event(enable_timing=True)
    event.record()
    event.synchronize()
    assert event.query()
    assert x.tolist() == [2, 2]


# ---------------------------------------------------------------- on and off


def test_simulation_restarts_with_another_number_of_gpus():
    for gpus in (1, 3, 2):
        ds.simulate(gpus=gpus)
        assert ACC.device_count() == torch.sim.device_count() == gpus
        x = torch.ones(2, device=f"sim:{gpus - 1}", requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2, 2]
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(2, device=f"sim:{gpus}")
        ds.simulate(gpus=0)
        assert not ACC.is_available()
        with pytest.raises((RuntimeError, AssertionError)):
            torch.ones(2, device="sim:0")
    assert torch.ones(2).add(1).tolist() == [2, 2]


def test_a_tensor_on_a_removed_gpu_is_refused():
    left = torch.ones(2, device="sim:1")
    ds.simulate(gpus=1)
    with pytest.raises(RuntimeError):
        left + 1
    assert ds.memory("gpu:0").used == 0
    ds.simulate(gpus=2)
    del left
    assert ds.memory("gpu:1").used == 0
    assert torch.ones(2, device="sim:1").sum().item() == 2


def test_switching_off_restores_pytorch():
    names = [(torch.nn.Module, "_apply"), (torch.Tensor, "to"), (torch.Tensor, "new_tensor"), (torch, "Generator")]
    names += [(torch.autograd, "backward"), (torch.UntypedStorage, "clone"), (ACC, "device_count")]
    ds.simulate(gpus=0)
    before = [getattr(owner, name) for owner, name in names]
    ds.simulate(gpus=2)
    torch.nn.Linear(2, 2).to("sim:1")(torch.ones(1, 2, device="sim:1")).sum().backward()
    ds.simulate(gpus=0)
    assert [getattr(owner, name) for owner, name in names] == before
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None

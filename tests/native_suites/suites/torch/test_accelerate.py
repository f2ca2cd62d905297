"""Programs with accelerate, written for two CUDA GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate import Accelerator
from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module
from accelerate.utils import find_executable_batch_size, get_max_memory, send_to_device, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SUITE = "programs: accelerate"
TESTED = ("accelerate", "torch")


class Block(nn.Module):
    """A residual block, which has to stay on one GPU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Blocks(nn.Module):
    """A net of four blocks, which a device map can divide."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.last = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


@pytest.fixture
def accelerator() -> Any:
    made = Accelerator()
    yield made
    made.free_memory()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def batches() -> DataLoader[Any]:
    x = torch.randn(64, 8)
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16, shuffle=True)


def train(accelerator: Accelerator, **options: Any) -> tuple[nn.Module, list[float]]:
    set_seed(1)
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, batches(), schedule)
    losses = []
    for _ in range(4):
        for x, target in loader:
            assert x.device.type == accelerator.device.type == "cuda"
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = nn.functional.cross_entropy(model(x).float(), target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return model, losses


def test_the_accelerator_chooses_the_first_gpu(accelerator: Accelerator) -> None:
    assert str(accelerator.device) == "cuda"
    assert accelerator.state.device.type == "cuda"
    assert accelerator.num_processes == 1
    assert accelerator.is_main_process


def test_a_model_trains_on_a_gpu(accelerator: Accelerator) -> None:
    model, losses = train(accelerator)
    assert losses[-1] < losses[0]
    assert next(model.parameters()).is_cuda
    assert accelerator.unwrap_model(model) is model


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_model_trains_in_mixed_precision(precision: str) -> None:
    accelerator = Accelerator(mixed_precision=precision)
    try:
        _, losses = train(accelerator)
        assert (accelerator.scaler is not None) == (precision == "fp16")
        assert losses[-1] < losses[0]
        with accelerator.autocast():
            x = torch.ones(2, 8, device=accelerator.device)
            expected = torch.bfloat16 if precision == "bf16" else torch.float16
            assert nn.functional.linear(x, torch.ones(2, 8, device="cuda")).dtype == expected
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_gradients_accumulate_over_batches() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    try:
        _, losses = train(accelerator)
        assert losses[-1] < losses[0]
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_a_state_is_saved_and_loaded(accelerator: Accelerator, tmp_path: Path) -> None:
    model, _ = train(accelerator)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    accelerator.save_state(str(tmp_path))
    with torch.no_grad():
        for each in model.parameters():
            each.zero_()
    accelerator.load_state(str(tmp_path))
    for name, value in model.state_dict().items():
        assert value.is_cuda
        assert torch.equal(value, before[name])


def test_metrics_are_gathered(accelerator: Accelerator) -> None:
    x = torch.arange(3, device=accelerator.device)
    assert torch.equal(accelerator.gather(x), x)
    assert accelerator.gather_for_metrics(x).is_cuda
    assert accelerator.reduce(x.float(), "mean").device.type == "cuda"
    assert accelerator.pad_across_processes(x).is_cuda


def test_trees_are_sent_to_a_gpu() -> None:
    tree = send_to_device({"a": torch.ones(2), "b": [torch.zeros(3), "text"]}, "cuda:1")
    assert tree["a"].device == torch.device("cuda:1")
    assert tree["b"][0].device == torch.device("cuda", 1)
    assert tree["b"][1] == "text"


def test_memory_of_all_gpus_is_found() -> None:
    found = get_max_memory()
    assert set(found) == {0, 1, "cpu"}
    assert 0 < found[1] <= torch.cuda.get_device_properties(1).total_memory


def test_a_device_map_is_inferred() -> None:
    model = Blocks()
    size = accelerate.utils.compute_module_sizes(model)[""]
    found = accelerate.infer_auto_device_map(
        model, max_memory={0: size // 2, 1: size}, no_split_module_classes=["Block"]
    )
    assert set(found.values()) == {0, 1}


def test_a_model_is_dispatched_over_two_gpus() -> None:
    model = Blocks().eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        expected = model(x)
    size = accelerate.utils.compute_module_sizes(model)[""]
    plan = accelerate.infer_auto_device_map(
        model, max_memory={0: size // 2, 1: size}, no_split_module_classes=["Block"]
    )
    model = accelerate.dispatch_model(model, device_map=plan)
    assert {str(each.device) for each in model.parameters()} == {"cuda:0", "cuda:1"}
    assert model.hf_device_map == plan
    with torch.no_grad():
        result = model(x)
    torch.testing.assert_close(result.cpu(), expected)


def test_a_dispatched_model_offloads_to_the_host() -> None:
    model = Blocks().eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        expected = model(x)
    plan = {"first": 0, "blocks.0": 0, "blocks.1": "cpu", "blocks.2": 1, "blocks.3": "cpu", "last": 1}
    model = accelerate.dispatch_model(model, device_map=plan, main_device=0)
    assert model.blocks[1].inner[0].weight.device.type == "meta"
    with pytest.raises(RuntimeError, match="can't move a model"):
        model.to("cuda:1")
    with torch.no_grad():
        torch.testing.assert_close(model(x).cpu(), expected)


def test_a_dispatched_model_offloads_to_disk(tmp_path: Path) -> None:
    model = Blocks().eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        expected = model(x)
    plan = {"first": 0, "blocks": "disk", "last": 1}
    model = accelerate.dispatch_model(model, device_map=plan, offload_dir=str(tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(model(x).cpu(), expected)


@pytest.mark.parametrize("plan", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_a_checkpoint_is_loaded_over_the_gpus(plan: str, tmp_path: Path) -> None:
    source = Blocks().eval()
    torch.save(source.state_dict(), tmp_path / "model.bin")
    with accelerate.init_empty_weights():
        model = Blocks()
    assert next(model.parameters()).device.type == "meta"
    model = accelerate.load_checkpoint_and_dispatch(
        model.eval(), str(tmp_path / "model.bin"), device_map=plan, no_split_module_classes=["Block"]
    )
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x.to(model.first.weight.device)).cpu(), source(x))
    assert all(each.is_cuda for each in model.parameters())


def test_a_safetensors_checkpoint_is_loaded_on_a_gpu(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    source = Blocks()
    save_file({name: value.cuda(1) for name, value in source.state_dict().items()}, tmp_path / "model.safetensors")
    loaded = load_file(tmp_path / "model.safetensors", device="cuda:1")
    assert loaded["last.bias"].device == torch.device("cuda:1")
    with accelerate.init_empty_weights():
        model = Blocks()
    model = accelerate.load_checkpoint_and_dispatch(model, str(tmp_path), device_map={"": 1})
    assert model.last.bias.device == torch.device("cuda:1")
    assert torch.equal(model.last.bias.cpu(), source.last.bias)


def test_a_model_is_offloaded_between_calls() -> None:
    model = accelerate.cpu_offload(Blocks(), execution_device=torch.device("cuda:1"))
    result = model(torch.randn(2, 8))
    assert result.device == torch.device("cpu")  # where its argument was
    assert {each.device.type for each in model.parameters()} == {"meta"}
    first, hook = accelerate.cpu_offload_with_hook(Blocks(), execution_device=1)
    assert first(torch.randn(2, 8)).device == torch.device("cuda:1")
    assert first.last.weight.device == torch.device("cuda:1")
    hook.offload()
    assert first.last.weight.device == torch.device("cpu")


def test_a_hook_aligns_the_devices_of_a_module() -> None:
    module = nn.Linear(3, 2)
    add_hook_to_module(module, AlignDevicesHook(execution_device=1, io_same_device=True))
    assert module.weight.device == torch.device("cuda:1")
    assert module(torch.ones(1, 3, device="cuda:0")).device == torch.device("cuda:0")
    remove_hook_from_module(module)


def test_tensors_are_created_on_a_gpu() -> None:
    with accelerate.init_on_device(torch.device("cuda:1")):
        model = nn.Linear(2, 2)
    assert model.weight.device == torch.device("cuda:1")


def test_a_batch_size_that_fits_is_found() -> None:
    sizes: list[int] = []

    @find_executable_batch_size(starting_batch_size=64)
    def run(batch_size: int) -> int:
        sizes.append(batch_size)
        if batch_size > 16:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return batch_size

    assert run() == sizes[-1] <= 16
    assert sizes[0] == 64
    assert sizes == sorted(sizes, reverse=True)


def step_in_notebook() -> None:
    accelerator = Accelerator()
    assert accelerator.device.type == "cuda"
    train(accelerator)


def test_a_notebook_launches_a_function() -> None:
    accelerate.notebook_launcher(step_in_notebook, num_processes=1)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_big_modules_compute_across_gpus_with_a_tied_weight() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.mid = nn.Linear(16, 16)
            self.head = nn.Linear(16, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.mid(self.embed(ids)))

    model = Tied().eval()
    ids = torch.arange(6)
    with torch.no_grad():
        expected = model(ids)
    model = accelerate.dispatch_model(model, {"embed": 0, "mid": 1, "head": 0})
    with torch.no_grad():
        torch.testing.assert_close(model(ids).cpu(), expected)
    assert model.head.weight is model.embed.weight

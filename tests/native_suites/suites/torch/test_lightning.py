"""Programs with Lightning and its Fabric, written for two CUDA GPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning_fabric
import pytest
import pytorch_lightning as pl
import torch
import torchmetrics
from lightning_fabric import Fabric
from pytorch_lightning.callbacks import DeviceStatsMonitor, EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SUITE = "programs: Lightning and torchmetrics"
TESTED = ("pytorch-lightning", "torchmetrics")


def rows() -> TensorDataset:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x.sum(1) > 0).long())


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=2)
        self.losses: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, target = batch
        assert x.device == self.device
        assert x.is_cuda
        loss = nn.functional.cross_entropy(self(x), target)
        self.log("loss", loss, prog_bar=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, target = batch
        self.accuracy(self(x), target)
        self.log("accuracy", self.accuracy, on_epoch=True)

    test_step = validation_step

    def predict_step(self, batch: Any, index: int) -> torch.Tensor:
        return self(batch[0]).argmax(1)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        default_root_dir=folder,
        max_epochs=options.pop("max_epochs", 3),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


@pytest.mark.parametrize("options", [{}, {"devices": [1]}, {"devices": 1}, {"devices": "1,"}], ids=str)
def test_the_trainer_fits_on_one_gpu(options: dict[str, Any], tmp_path: Path) -> None:
    pl.seed_everything(0)
    made = trainer(tmp_path, accelerator="gpu", **({"devices": 1} | options))
    net = Net()
    loader = DataLoader(rows(), batch_size=16)
    made.fit(net, loader, loader)
    assert net.losses[-1] < net.losses[0]
    expected = torch.device("cuda", 1 if options.get("devices") in ([1], "1,") else 0)
    assert made.strategy.root_device == expected
    assert made.num_devices == 1
    assert 0 <= made.test(net, loader, verbose=False)[0]["accuracy"] <= 1
    assert torch.cat(made.predict(net, loader)).shape == (64,)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true", "64-true"])
def test_the_trainer_fits_in_a_precision(precision: str, tmp_path: Path) -> None:
    made = trainer(tmp_path, accelerator="cuda", devices=1, precision=precision, gradient_clip_val=1.0)
    net = Net()
    made.fit(net, DataLoader(rows(), batch_size=16))
    assert net.losses[-1] < net.losses[0]


def test_checkpoints_come_back_on_another_gpu(tmp_path: Path) -> None:
    saved = ModelCheckpoint(tmp_path, monitor="accuracy", mode="max")
    stop = EarlyStopping("accuracy", mode="max", patience=5)
    made = trainer(tmp_path, accelerator="gpu", devices=1, callbacks=[saved, stop])
    net, loader = Net(), DataLoader(rows(), batch_size=16)
    made.fit(net, loader, loader)
    again = Net.load_from_checkpoint(saved.best_model_path, map_location="cuda:1")
    assert again.device == torch.device("cuda:1")
    more = trainer(tmp_path, accelerator="gpu", devices=[1], max_epochs=4)
    more.fit(Net(), loader, loader, ckpt_path=saved.best_model_path)
    assert more.current_epoch == 4


def test_batches_are_loaded_by_workers_and_pinned(tmp_path: Path) -> None:
    loader = DataLoader(rows(), batch_size=16, num_workers=1, pin_memory=True, persistent_workers=True)
    net = Net()
    trainer(tmp_path, accelerator="gpu", devices=1, max_epochs=2).fit(net, loader)
    assert net.losses[-1] < net.losses[0]


def test_statistics_of_a_gpu_are_logged(tmp_path: Path) -> None:
    seen: dict[str, float] = {}

    class Log(pl.loggers.Logger):
        name, version = "log", 0

        def log_metrics(self, metrics: dict[str, float], step: Any = None) -> None:
            seen.update(metrics)

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            pass

    made = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=1,
        accelerator="gpu",
        devices=1,
        logger=Log(),
        log_every_n_steps=1,
        callbacks=[DeviceStatsMonitor()],
        enable_progress_bar=False,
    )
    made.fit(Net(), DataLoader(rows(), batch_size=16))
    assert any("allocated_bytes.all.current" in name for name in seen)


def test_a_batch_size_and_a_rate_are_found(tmp_path: Path) -> None:
    class Tuned(Net):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size, self.lr = 2, 1e-3

        def train_dataloader(self) -> Any:
            return DataLoader(rows(), batch_size=self.batch_size)

        val_dataloader = train_dataloader

    made = trainer(tmp_path, accelerator="gpu", devices=1)
    tuner = pl.tuner.Tuner(made)
    assert tuner.scale_batch_size(Tuned(), max_trials=3, steps_per_trial=1) >= 2
    assert tuner.lr_find(Tuned(), num_training=10).results


def test_accelerators_are_found() -> None:
    assert pl.accelerators.CUDAAccelerator.is_available()
    assert pl.accelerators.CUDAAccelerator.auto_device_count() == 2
    assert lightning_fabric.accelerators.cuda.num_cuda_devices() == 2
    assert pl.accelerators.CUDAAccelerator.get_parallel_devices([0, 1]) == [
        torch.device("cuda:0"),
        torch.device("cuda:1"),
    ]
    with pytest.raises(Exception, match="You requested gpu: \\[0, 1, 2\\]"):
        pl.Trainer(accelerator="gpu", devices=3)
    assert Fabric(accelerator="auto", devices=1).device == torch.device("cuda:0")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("devices", [1, [1]], ids=str)
def test_fabric_trains_on_one_gpu(precision: str, devices: Any) -> None:
    fabric = Fabric(accelerator="cuda", devices=devices, precision=precision)
    fabric.launch()
    fabric.seed_everything(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    net, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(DataLoader(rows(), batch_size=16))
    losses = []
    for _ in range(4):
        for x, target in loader:
            assert x.device == fabric.device
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), target)
            fabric.backward(loss)
            fabric.clip_gradients(net, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert fabric.device == torch.device("cuda", 0 if devices == 1 else 1)


def test_fabric_trains_on_two_gpus_in_one_process() -> None:
    fabric = Fabric(accelerator="cuda", devices=2, strategy="dp")
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(DataLoader(rows(), batch_size=16))
    losses = []
    for _ in range(4):
        for x, target in loader:
            loss = nn.functional.cross_entropy(net(x), target)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_fabric_creates_saves_and_loads_on_a_gpu(tmp_path: Path) -> None:
    fabric = Fabric(accelerator="cuda", devices=[1])
    with fabric.init_module():
        net = nn.Linear(3, 2)
    assert net.weight.device == torch.device("cuda:1")
    assert fabric.to_device({"a": [torch.ones(2)]})["a"][0].device == torch.device("cuda:1")
    fabric.save(tmp_path / "state.ckpt", {"net": net, "step": 3})
    other = nn.Linear(3, 2)
    state = {"net": other, "step": 0}
    fabric.load(tmp_path / "state.ckpt", state)
    assert state["step"] == 3
    assert torch.equal(other.weight, net.weight.cpu())


DDP = """
import sys, torch, warnings
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from lightning_fabric import Fabric

if __name__ == "__main__":
    fabric = Fabric(accelerator="cuda", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(1)
    net = nn.Linear(8, 2)
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    x = torch.arange(256.0).reshape(32, 8) / 256
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, (x.sum(1) > 4).long()), batch_size=4))
    for x, target in loader:
        assert x.device == fabric.device == torch.device("cuda", fabric.local_rank)
        loss = nn.functional.cross_entropy(net(x), target)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
    total = fabric.all_reduce(torch.ones(1, device=fabric.device), reduce_op="sum")
    every = fabric.all_gather(net.module.weight.detach())
    assert every.shape[0] == 2 and torch.equal(every[0], every[1])
    fabric.barrier()
    if fabric.is_global_zero:
        print("ranks", fabric.world_size, "sum", total.item(), "batches", len(loader))
"""

TRAINER = """
import torch, pytorch_lightning as pl
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
    def training_step(self, batch, index):
        x, target = batch
        assert x.device == torch.device("cuda", self.trainer.local_rank)
        loss = nn.functional.cross_entropy(self.net(x), target)
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    x = torch.randn(32, 8)
    trainer = pl.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4))
    if trainer.is_global_zero:
        print("ranks", trainer.world_size, "steps", trainer.global_step)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [(DDP, "ranks 2 sum 2.0 batches 4"), (TRAINER, "ranks 2 steps 8")],
    ids=["fabric", "trainer"],
)
def test_two_processes_train_with_ddp(code: str, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert expected in done.stdout


def test_metrics_are_computed_on_a_gpu() -> None:
    metric = torchmetrics.Accuracy("multiclass", num_classes=3).to("cuda:1")
    scores = torch.randn(10, 3, device="cuda:1")
    metric.update(scores, scores.argmax(1))
    assert metric.compute().device == torch.device("cuda:1")
    assert metric.compute().item() == 1.0
    assert metric.device == torch.device("cuda:1")
    group = torchmetrics.MetricCollection(
        [torchmetrics.F1Score("multiclass", num_classes=3), torchmetrics.ConfusionMatrix("multiclass", num_classes=3)]
    ).cuda(0)
    found = group(torch.randn(6, 3, device="cuda"), torch.randint(0, 3, (6,), device="cuda"))
    assert all(each.is_cuda for each in found.values())


METRICS: dict[str, tuple[Any, Any]] = {
    "auroc": (lambda: torchmetrics.AUROC("binary"), lambda: (torch.rand(9), torch.arange(9) % 2)),
    "precision": (lambda: torchmetrics.AveragePrecision("binary"), lambda: (torch.rand(9), torch.arange(9) % 2)),
    "kappa": (
        lambda: torchmetrics.CohenKappa("multiclass", num_classes=3),
        lambda: (torch.arange(9) % 3, torch.arange(9) // 3),
    ),
    "mse": (torchmetrics.MeanSquaredError, lambda: (torch.rand(9), torch.rand(9))),
    "r2": (torchmetrics.R2Score, lambda: (torch.rand(9), torch.rand(9))),
    "spearman": (torchmetrics.SpearmanCorrCoef, lambda: (torch.rand(9), torch.rand(9))),
    "pearson": (torchmetrics.PearsonCorrCoef, lambda: (torch.rand(9), torch.rand(9))),
    "kl": (torchmetrics.KLDivergence, lambda: (torch.rand(4, 3).softmax(1), torch.rand(4, 3).softmax(1))),
    "ssim": (
        torchmetrics.image.StructuralSimilarityIndexMeasure,
        lambda: (torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)),
    ),
    "psnr": (
        lambda: torchmetrics.image.PeakSignalNoiseRatio(1.0),
        lambda: (torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)),
    ),
    "ndcg": (
        torchmetrics.retrieval.RetrievalNormalizedDCG,
        lambda: (torch.rand(8), torch.arange(8) % 2, torch.arange(8) // 4),
    ),
    "perplexity": (torchmetrics.text.Perplexity, lambda: (torch.rand(2, 4, 5), torch.randint(0, 5, (2, 4)))),
    "mean": (torchmetrics.MeanMetric, lambda: (torch.rand(3),)),
    "si_sdr": (torchmetrics.audio.ScaleInvariantSignalDistortionRatio, lambda: (torch.rand(16), torch.rand(16))),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_the_same_on_a_gpu(name: str) -> None:
    make, inputs = METRICS[name]
    given = inputs()
    expected = make()
    expected.update(*given)
    metric = make().to("cuda:1")
    metric.update(*[each.cuda(1) for each in given])
    found = metric.compute()
    assert found.device == torch.device("cuda:1")
    torch.testing.assert_close(found.cpu(), expected.compute())

"""Programs with smaller libraries of PyTorch, written for two CUDA GPUs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SUITE = "programs: smaller libraries"
TESTED = (
    "captum",
    "einops",
    "fairscale",
    "gpytorch",
    "keras",
    "opacus",
    "pytorch-ignite",
    "pytorch-metric-learning",
    "skorch",
    "torch-ema",
    "torchdiffeq",
)

GPU = torch.device("cuda:1")


def rows(width: int = 8) -> TensorDataset:
    x = torch.randn(64, width, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x.sum(1) > 0).long())


def net(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))


class TestSkorch:
    def test_a_classifier_fits_and_predicts(self) -> None:
        import skorch

        x, target = (each.numpy() for each in rows().tensors)
        made = skorch.NeuralNetClassifier(
            net(), criterion=nn.CrossEntropyLoss, max_epochs=4, lr=0.1, device="cuda:1", verbose=0
        )
        made.fit(x, target)
        assert next(made.module_.parameters()).device == GPU
        assert made.history[-1, "train_loss"] < made.history[0, "train_loss"]
        assert made.predict(x).shape == (64,)
        assert made.predict_proba(x).dtype == np.float32

    def test_a_net_is_pickled_and_its_parameters_loaded(self, tmp_path: Path) -> None:
        import pickle

        import skorch

        x, target = (each.numpy() for each in rows().tensors)
        made = skorch.NeuralNetClassifier(net(), criterion=nn.CrossEntropyLoss, max_epochs=1, device="cuda", verbose=0)
        made.fit(x, target)
        made.save_params(f_params=str(tmp_path / "net.pt"))
        again = pickle.loads(pickle.dumps(made))
        assert next(again.module_.parameters()).is_cuda
        np.testing.assert_array_equal(again.predict(x), made.predict(x))
        other = skorch.NeuralNetClassifier(net(), criterion=nn.CrossEntropyLoss, device="cpu").initialize()
        other.load_params(f_params=str(tmp_path / "net.pt"))
        np.testing.assert_array_equal(other.predict(x), made.predict(x))

    def test_a_grid_search_runs_on_a_gpu(self) -> None:
        import skorch
        from sklearn.model_selection import GridSearchCV

        x, target = (each.numpy() for each in rows().tensors)
        made = skorch.NeuralNetClassifier(
            net(), criterion=nn.CrossEntropyLoss, max_epochs=1, device="cuda", verbose=0, train_split=None
        )
        search = GridSearchCV(made, {"lr": [0.01, 0.1]}, cv=2, scoring="accuracy").fit(x, target)
        assert search.best_params_["lr"] in (0.01, 0.1)


class TestIgnite:
    def test_a_trainer_and_an_evaluator_run(self) -> None:
        from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
        from ignite.metrics import Accuracy, Loss

        model = net().to("cuda:1")
        loader = DataLoader(rows(), batch_size=16, pin_memory=True)
        trainer = create_supervised_trainer(
            model, torch.optim.Adam(model.parameters(), lr=0.01), nn.functional.cross_entropy, device="cuda:1"
        )
        metrics = {"accuracy": Accuracy(device="cuda:1"), "loss": Loss(nn.functional.cross_entropy, device="cuda:1")}
        evaluator = create_supervised_evaluator(model, metrics, device="cuda:1")
        losses: list[float] = []

        @trainer.on(Events.EPOCH_COMPLETED)
        def evaluate(engine: Any) -> None:
            evaluator.run(loader)
            losses.append(evaluator.state.metrics["loss"])

        trainer.run(loader, max_epochs=3)
        assert losses[-1] < losses[0]

    @pytest.mark.parametrize("mode", ["amp", None])
    def test_mixed_precision_with_a_scaler(self, mode: Any) -> None:
        from ignite.engine import create_supervised_trainer

        model = net().cuda()
        trainer = create_supervised_trainer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            nn.functional.cross_entropy,
            device="cuda",
            amp_mode=mode,
            scaler=mode == "amp",
        )
        state = trainer.run(DataLoader(rows(), batch_size=16), max_epochs=2)
        assert state.output < 1

    def test_the_distributed_helpers_know_the_gpu(self) -> None:
        import ignite.distributed as idist

        assert idist.device().type == "cuda"
        assert next(idist.auto_model(net()).parameters()).is_cuda
        assert idist.all_reduce(torch.ones(1, device="cuda")).is_cuda

    def test_memory_of_gpus_is_a_metric(self) -> None:
        from ignite.engine import Engine, Events
        from ignite.handlers import EpochOutputStore, TerminateOnNan
        from ignite.metrics import ConfusionMatrix, RunningAverage

        matrix = ConfusionMatrix(num_classes=2, device=GPU)
        matrix.update((torch.rand(4, 2, device=GPU), torch.tensor([0, 1, 0, 1], device=GPU)))
        assert matrix.compute().sum() == 4
        engine = Engine(lambda engine, batch: batch.to(GPU).sum())
        RunningAverage(output_transform=lambda x: x).attach(engine, "mean")
        store = EpochOutputStore()
        store.attach(engine)
        engine.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
        engine.run([torch.ones(2), torch.ones(2)])
        assert engine.state.metrics["mean"] == pytest.approx(2.0)
        assert all(each.device == GPU for each in store.data)


class TestOpacus:
    def test_training_with_privacy(self) -> None:
        from opacus import PrivacyEngine

        model = net().cuda(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = PrivacyEngine(accountant="rdp")
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=DataLoader(rows(), batch_size=16),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for x, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to("cuda:1")), target.to("cuda:1"))
            loss.backward()
            assert next(model.parameters()).grad_sample.device == GPU
            optimizer.step()
        assert engine.get_epsilon(1e-5) > 0

    @pytest.mark.parametrize("mode", ["hooks", "ew", "functorch"])
    def test_gradients_of_each_sample(self, mode: str) -> None:
        from opacus.grad_sample import wrap_model

        model = wrap_model(nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(18, 2)).cuda(1), mode)
        x = torch.randn(5, 2, 8, device=GPU)
        model(x).sum(1).mean().backward()
        found = [each.grad_sample for each in model.parameters()]
        assert all(each.shape[0] == 5 and each.device == GPU for each in found)

    def test_the_generator_of_the_noise_is_a_gpu_s(self) -> None:
        from opacus.optimizers import DPOptimizer

        model = net().cuda()
        DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=4,
            generator=torch.Generator("cuda").manual_seed(1),
        )


class TestCaptum:
    @pytest.mark.parametrize(
        "name",
        [
            "IntegratedGradients",
            "Saliency",
            "DeepLift",
            "InputXGradient",
            "FeatureAblation",
            "GradientShap",
            "Occlusion",
        ],
    )
    def test_attributions_are_the_same_on_a_gpu(self, name: str) -> None:
        from captum import attr

        model = net().eval()
        x = torch.randn(3, 8)
        options: dict[str, Any] = {"target": 1}
        if name == "GradientShap":
            options |= {"baselines": torch.zeros(1, 8), "stdevs": 0.0}
        if name == "Occlusion":
            options |= {"sliding_window_shapes": (2,)}
        torch.manual_seed(0)
        expected = getattr(attr, name)(model).attribute(x.clone(), **options)
        model.to(GPU)
        if "baselines" in options:
            options["baselines"] = options["baselines"].to(GPU)
        found = getattr(attr, name)(model).attribute(x.to(GPU), **options)
        assert found.device == GPU
        if name != "GradientShap":
            torch.testing.assert_close(found.cpu(), expected.float(), atol=1e-5, rtol=1e-4)

    def test_layers_and_neurons_of_data_parallel(self) -> None:
        from captum.attr import LayerConductance, LayerGradCam, NeuronConductance

        model = net().cuda()
        x = torch.randn(4, 8, device="cuda")
        assert LayerConductance(model, model[1]).attribute(x, target=1).is_cuda
        assert LayerGradCam(model, model[0]).attribute(x, target=1).is_cuda
        assert NeuronConductance(model, model[1]).attribute(x, neuron_selector=2, target=1).is_cuda
        both = nn.DataParallel(model)
        found = LayerConductance(both, both.module[1], device_ids=[0, 1]).attribute(x, target=1)
        assert found.shape == (4, 16)


class TestGpytorch:
    def test_a_gaussian_process_is_fitted(self) -> None:
        import gpytorch

        class Model(gpytorch.models.ExactGP):
            def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
                super().__init__(x, y, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, x: torch.Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        x = torch.linspace(0, 1, 20).cuda()
        y = torch.sin(6 * x)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
        model = Model(x, y, likelihood).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = -bound(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        model.eval()
        likelihood.eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            found = likelihood(model(torch.linspace(0, 1, 7, device="cuda")))
        assert found.mean.is_cuda
        assert found.confidence_region()[0].is_cuda
        assert found.sample().device.type == "cuda"

    def test_a_variational_process_and_a_multi_device_kernel(self) -> None:
        import gpytorch

        x = torch.rand(6, 2, device="cuda")
        kernel = gpytorch.kernels.MultiDeviceKernel(
            gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).cuda(), device_ids=[0, 1], output_device="cuda:0"
        )
        found = kernel(x).matmul(torch.ones(6, 1, device="cuda"))
        assert found.device == torch.device("cuda:0")


class TestMetricLearning:
    @pytest.mark.parametrize(
        "name", ["TripletMarginLoss", "ContrastiveLoss", "NTXentLoss", "MultiSimilarityLoss", "CircleLoss"]
    )
    def test_a_loss_is_the_same_on_a_gpu(self, name: str) -> None:
        from pytorch_metric_learning import losses

        x, target = torch.randn(12, 4), torch.arange(12) % 3
        expected = getattr(losses, name)()(x, target)
        found = getattr(losses, name)()(x.to(GPU), target.to(GPU))
        assert found.device == GPU
        torch.testing.assert_close(found.cpu(), expected)

    def test_a_loss_with_weights_and_a_miner(self) -> None:
        from pytorch_metric_learning import losses, miners

        x, target = torch.randn(12, 4, device=GPU), torch.arange(12, device=GPU) % 3
        found = losses.ArcFaceLoss(3, 4).to(GPU)(x, target)
        assert found.device == GPU
        pairs = miners.MultiSimilarityMiner()(x, target)
        assert all(each.device == GPU for each in pairs)
        memory = losses.CrossBatchMemory(losses.NTXentLoss(), 4, memory_size=24)
        assert memory(x, target).device == GPU


class TestOthers:
    def test_an_average_of_parameters_follows_the_model(self) -> None:
        from torch_ema import ExponentialMovingAverage

        model = net().cuda(1)
        average = ExponentialMovingAverage(model.parameters(), decay=0.9)
        before = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            for each in model.parameters():
                each.add_(1)
        average.update()
        with average.average_parameters():
            assert not torch.equal(next(model.parameters()), before["0.weight"] + 1)
            assert next(model.parameters()).device == GPU
        average.to("cuda:0")
        assert average.state_dict()["shadow_params"][0].device == torch.device("cuda:0")

    @pytest.mark.parametrize("method", ["dopri5", "rk4", "adaptive_heun", "euler"])
    def test_a_differential_equation_is_solved(self, method: str) -> None:
        from torchdiffeq import odeint, odeint_adjoint

        class Decay(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rate = nn.Parameter(torch.tensor(0.5))

            def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return -self.rate * y

        rate = Decay().to(GPU)
        start, times = torch.ones(2, device=GPU), torch.linspace(0, 1, 11, device=GPU)
        found = odeint(rate, start, times, method=method, rtol=1e-3, atol=1e-4)
        assert found.device == GPU
        torch.testing.assert_close(found[-1].cpu(), torch.full((2,), 0.6065), atol=0.02, rtol=0.02)
        odeint_adjoint(rate, start, times, method=method, rtol=1e-3, atol=1e-4)[-1].sum().backward()
        assert rate.rate.grad is not None
        assert rate.rate.grad.device == GPU

    def test_einops_layers_and_functions(self) -> None:
        from einops import pack, rearrange, reduce, repeat, unpack
        from einops.layers.torch import EinMix, Rearrange

        x = torch.arange(48.0, device=GPU).reshape(2, 3, 2, 4)
        assert reduce(rearrange(x, "b c h w -> b (h w) c"), "b n c -> b c", "mean").device == GPU
        assert repeat(x, "b c h w -> r b c h w", r=2).device == GPU
        packed, shapes = pack([x, x[:, 0]], "b * w")
        assert unpack(packed, shapes, "b * w")[0].device == GPU
        mix = EinMix("b c h w -> b h w d", weight_shape="c d", bias_shape="d", c=3, d=5).to(GPU)
        assert nn.Sequential(mix, Rearrange("b h w d -> b d h w"))(x).device == GPU

    def test_fairscale_checkpoints_and_pipelines(self) -> None:
        from fairscale.nn import checkpoint_wrapper
        from fairscale.nn.pipe import Pipe

        model = checkpoint_wrapper(net()).cuda(1)
        model(torch.randn(4, 8, device=GPU, requires_grad=True)).sum().backward()
        assert next(model.parameters()).grad.device == GPU
        pipe = Pipe(net(), balance=[2, 1], devices=[0, 1], chunks=2)
        found = pipe(torch.randn(4, 8, device="cuda:0"))
        assert found.device == GPU
        found.sum().backward()
        assert next(pipe.parameters()).grad.device == torch.device("cuda:0")

    def test_keras_on_pytorch(self) -> None:
        import os

        os.environ["KERAS_BACKEND"] = "torch"
        import keras

        assert keras.backend.backend() == "torch"
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
        assert model.layers[0].kernel.value.device == torch.device("cuda:0")
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        x, target = (each.numpy() for each in rows().tensors)
        found = model.fit(x, target, epochs=3, verbose=0).history["loss"]
        assert found[-1] < found[0]
        assert model(torch.ones(2, 8, device="cuda")).is_cuda
        with keras.device("cuda:1"):
            assert keras.ops.ones((2,)).device == GPU
        assert "cuda" in keras.src.backend.torch.core.get_device()

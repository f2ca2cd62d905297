"""Every optimizer in the database of PyTorch, on a GPU: for-loop, foreach, fused and capturable steps, and files."""

from __future__ import annotations

import copy
import io

import torch
from torch.testing._internal.common_device_type import deviceCountAtLeast, instantiate_device_type_tests, onlyCUDA
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
    optims,
)
from torch.testing._internal.common_utils import TestCase

SUITE = "optimizers (OptimizerInfo): for-loop, foreach, fused, capturable, states, files"
TESTED = ("torch",)

STEPS = 3


class TestOptimizers(TestCase):
    def parameters(self, info, device, dtype=torch.float32, second=None):
        """Return parameters, the same numbers on every device."""
        generator = torch.Generator().manual_seed(3)
        shapes = [(4, 3), (3, 2)] if info.name == "Muon" else [(4, 3), (5,), (1,)]
        where = [device, second or device, device]
        return [
            torch.randn(shape, generator=generator, dtype=dtype).to(place).requires_grad_()
            for shape, place in zip(shapes, where, strict=False)
        ]

    def set_gradients(self, info, parameters, step):
        generator = torch.Generator().manual_seed(10 + step)
        for each in parameters:
            gradient = torch.randn(each.shape, generator=generator, dtype=each.dtype).to(each.device)
            each.grad = gradient.to_sparse() if info.only_supports_sparse_grads else gradient

    def train(self, info, parameters, optimizer, steps=STEPS):
        for step in range(steps):
            self.set_gradients(info, parameters, step)
            optimizer.step(self.closure) if info.step_requires_closure else optimizer.step()

    def closure(self):
        return torch.zeros((), device="cuda")

    def make_optimizer(self, info, parameters, kwargs):
        kwargs = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
        return info.optim_cls(parameters, **kwargs)

    def options_on_cpu(self, kwargs, without):
        """Return an optimizer's options with its tensors on the CPU, except for some options."""
        kept = {name: value for name, value in kwargs.items() if name not in without}
        return {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in kept.items()}

    def variants(self, info, device, dtype, skip=("differentiable",)):
        return _get_optim_inputs_including_global_cliquey_kwargs(device, dtype, info, skip=skip)

    @optims(optim_db, dtypes=[torch.float32, torch.float64])
    def test_steps_are_those_of_the_cpu(self, device, dtype, optim_info):
        for each in self.variants(optim_info, device, dtype):
            ends = []
            for where in (device, "cpu"):
                parameters = self.parameters(optim_info, where, dtype)
                kwargs = each.kwargs
                if where == "cpu":  # capturable is only for GPUs, and these are the plain steps
                    kwargs = self.options_on_cpu(kwargs, without=("capturable", "fused", "foreach"))
                self.train(optim_info, parameters, self.make_optimizer(optim_info, parameters, kwargs))
                ends.append(parameters)
            self.assertEqual(
                *ends, exact_device=False, atol=1e-5, rtol=1e-4, msg=lambda text, d=each.desc: f"{d}: {text}"
            )

    @optims([each for each in optim_db if each.supports_complex], dtypes=[torch.complex64])
    def test_complex_parameters(self, device, dtype, optim_info):
        for each in self.variants(optim_info, device, dtype, skip=("differentiable", "fused")):
            ends = []
            for where, foreach in ((device, each.kwargs.get("foreach")), ("cpu", False)):
                parameters = self.parameters(optim_info, where, dtype)
                kwargs = {**each.kwargs, **({"foreach": foreach} if "foreach" in each.kwargs else {})}
                if where == "cpu":
                    kwargs = self.options_on_cpu(kwargs, without=("capturable",))
                self.train(optim_info, parameters, self.make_optimizer(optim_info, parameters, kwargs))
                ends.append(parameters)
            self.assertEqual(*ends, exact_device=False, atol=1e-4, rtol=1e-3)

    @onlyCUDA
    @deviceCountAtLeast(2)
    @optims([each for each in optim_db if each.supports_multiple_devices])
    def test_parameters_on_two_gpus(self, devices, dtype, optim_info):
        for each in self.variants(optim_info, devices[0], dtype):
            if isinstance(each.kwargs.get("lr"), torch.Tensor) or isinstance(
                each.kwargs.get("betas", (0,))[0], torch.Tensor
            ):
                continue
            ends = []
            for second in (devices[0], devices[1]):
                parameters = self.parameters(optim_info, devices[0], dtype, second)
                self.train(optim_info, parameters, self.make_optimizer(optim_info, parameters, each.kwargs))
                ends.append([x.cpu() for x in parameters])
                self.assertEqual(parameters[1].device, torch.device(second))
            self.assertEqual(*ends)

    @optims(optim_db)
    def test_states_are_on_the_device(self, device, dtype, optim_info):
        for each in self.variants(optim_info, device, dtype):
            parameters = self.parameters(optim_info, device, dtype)
            optimizer = self.make_optimizer(optim_info, parameters, each.kwargs)
            self.train(optim_info, parameters, optimizer, 1)
            on_gpu = each.kwargs.get("capturable") or each.kwargs.get("fused")
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and (name not in ("step", "mu_product") or on_gpu):
                        self.assertEqual(value.device, torch.device(device), msg=f"{each.desc}: {name}")

    @optims(optim_db)
    def test_state_dicts_continue(self, device, dtype, optim_info):
        for each in self.variants(optim_info, device, dtype):
            one = self.parameters(optim_info, device, dtype)
            first = self.make_optimizer(optim_info, one, each.kwargs)
            self.train(optim_info, one, first)
            other = [x.detach().clone().requires_grad_() for x in one]
            second = self.make_optimizer(optim_info, other, each.kwargs)
            file = io.BytesIO()
            torch.save(first.state_dict(), file)
            file.seek(0)
            second.load_state_dict(torch.load(file, map_location=device, weights_only=True))
            self.train(optim_info, one, first)
            self.train(optim_info, other, second)
            self.assertEqual(one, other)

    @optims(optim_db)
    def test_state_dict_of_the_cpu_is_loaded_to_the_gpu(self, device, dtype, optim_info):
        host = self.parameters(optim_info, "cpu", dtype)
        plain = optim_info.optim_inputs_func("cpu")[0].kwargs
        first = self.make_optimizer(optim_info, host, plain)
        self.train(optim_info, host, first)
        moved = [x.detach().to(device).requires_grad_() for x in host]
        second = self.make_optimizer(optim_info, moved, plain)
        second.load_state_dict(copy.deepcopy(first.state_dict()))  # the step would be shared
        if not optim_info.step_requires_closure:
            self.train(optim_info, host, first)
            self.train(optim_info, moved, second)
            self.assertEqual(moved, host, exact_device=False, atol=1e-5, rtol=1e-4)
        for state in second.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and name not in ("step", "mu_product"):
                    self.assertEqual(value.device, torch.device(device))

    @optims(optim_db)
    def test_deepcopy(self, device, dtype, optim_info):
        for each in self.variants(optim_info, device, dtype):
            parameters = self.parameters(optim_info, device, dtype)
            optimizer = self.make_optimizer(optim_info, parameters, each.kwargs)
            self.train(optim_info, parameters, optimizer, 1)
            copied = copy.deepcopy(optimizer)
            self.assertEqual(copied.state_dict(), optimizer.state_dict())

    @optims([each for each in optim_db if each.optim_error_inputs_func is not None])
    def test_errors(self, device, dtype, optim_info):
        for each in optim_info.optim_error_inputs_func(device=device, dtype=dtype):
            given = each.optimizer_error_input
            with self.assertRaisesRegex(each.error_type, each.error_regex):
                optimizer = optim_info.optim_cls(given.params, **given.kwargs)
                if each.error_on == OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()

    @optims([each for each in optim_db if not each.step_requires_closure])
    def test_schedulers(self, device, dtype, optim_info):
        for schedulers in optim_info.scheduler_inputs:
            parameters = self.parameters(optim_info, device, dtype)
            optimizer = self.make_optimizer(optim_info, parameters, optim_info.optim_inputs_func(device)[0].kwargs)
            started = [each(optimizer) for each in schedulers]
            for step in range(3):
                self.train(optim_info, parameters, optimizer, 1)
                for scheduler in started:
                    plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                    scheduler.step(torch.tensor(1.0 / (step + 1), device=device)) if plateau else scheduler.step()

    @optims([each for each in optim_db if "fused" in each.supported_impls])
    def test_scaled_gradients(self, device, dtype, optim_info):
        for fused in (False, True):
            for bad in (False, True):
                parameters = self.parameters(optim_info, device, dtype)
                before = copy.deepcopy(parameters)
                optimizer = optim_info.optim_cls(parameters, lr=0.1, fused=fused)
                scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
                loss = sum((x * x).sum() for x in parameters) * (float("inf") if bad else 1)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                self.assertEqual(scaler.get_scale(), 2.0 if bad else 4.0)
                (self.assertEqual if bad else self.assertNotEqual)(parameters[0], before[0])

    @optims([each for each in optim_db if each.has_capturable_arg and not each.step_requires_closure])
    def test_capturable_steps_stay_on_the_device(self, device, dtype, optim_info):
        parameters = self.parameters(optim_info, device, dtype)
        optimizer = optim_info.optim_cls(parameters, capturable=True)
        self.train(optim_info, parameters, optimizer, 2)
        for state in optimizer.state.values():
            self.assertEqual((state["step"].device, state["step"].item()), (torch.device(device), 2))


instantiate_device_type_tests(TestOptimizers, globals(), only_for="cuda")

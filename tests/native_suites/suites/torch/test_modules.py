"""Every module in the database of PyTorch, on a GPU."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import nn
from torch.testing._internal.common_device_type import deviceCountAtLeast, instantiate_device_type_tests, onlyCUDA
from torch.testing._internal.common_modules import TrainEvalMode, module_db, modules
from torch.testing._internal.common_utils import TestCase, freeze_rng_state
from torch.utils._pytree import tree_flatten, tree_map

SUITE = "modules (ModuleInfo): forward, backward, moves, copies, files"
TESTED = ("torch",)
PARTS = 2

INPUTS = 4
"""The most inputs of a module in one test."""


def tensors(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def moved(tree, device):
    """Return a copy of a tree on a device; what requires a gradient is a leaf there."""

    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to(device, copy=True).requires_grad_(leaf.requires_grad)

    return tree_map(move, tree)


class TestModules(TestCase):
    def made(self, module_info, device, dtype, training, requires_grad=False):
        """Yield a module on a device, and the arguments of its ``forward``."""
        found = module_info.module_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=requires_grad, training=training
        )
        for each in found[:INPUTS]:
            if each.forward_input is None:
                continue
            made, forward = each.constructor_input, each.forward_input
            torch.manual_seed(1)
            module = module_info.module_cls(*made.args, **made.kwargs).to(device).to(dtype)
            module.train(training)
            yield module, forward.args, forward.kwargs

    def run_seeded(self, module, args, kwargs):
        """Return the result; random numbers of two devices differ, so dropout is not compared."""
        with freeze_rng_state():
            torch.manual_seed(2)
            return module(*args, **kwargs)

    def is_certain(self, module):
        drops = any("Dropout" in type(each).__name__ or isinstance(each, nn.RReLU) for each in module.modules())
        fraction = "FractionalMaxPool" in type(module).__name__
        return not (module.training and (drops or getattr(module, "dropout", 0))) and not fraction

    @modules(module_db)
    def test_forward(self, device, dtype, module_info, training):
        for module, args, kwargs in self.made(module_info, device, dtype, training):
            host = copy.deepcopy(module).cpu()
            result = self.run_seeded(module, args, kwargs)
            for each in tensors(result):
                self.assertEqual(each.device, torch.device(device))
            expected = self.run_seeded(host, *moved((args, kwargs), "cpu"))
            if self.is_certain(module):
                self.assertEqual(result, expected, exact_device=False, atol=1e-4, rtol=1e-3)

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_backward(self, device, dtype, module_info, training):
        for module, args, kwargs in self.made(module_info, device, dtype, training, requires_grad=True):
            gradients = []
            for where, net in ((device, module), ("cpu", copy.deepcopy(module).cpu())):
                inputs = moved((args, kwargs), where)
                ends = [x for x in tensors(self.run_seeded(net, *inputs)) if x.requires_grad]
                leaves = [*net.parameters(), *(x for x in tensors(inputs) if x.requires_grad)]
                if not ends or not leaves:
                    break
                ones = [torch.ones_like(x) for x in ends]
                gradients.append(torch.autograd.grad(ends, leaves, ones, allow_unused=True))
            if gradients and self.is_certain(module):
                self.assertEqual(*gradients, exact_device=False, atol=1e-3, rtol=1e-3)

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_moves(self, device, dtype, module_info, training):
        for module, _, _ in self.made(module_info, device, dtype, training):
            parameters = list(module.parameters())
            for target in ("cpu", "cuda:1", device):
                self.assertIs(module.to(target), module)
                kept = [*module.parameters(), *module.buffers()]
                self.assertEqual({x.device for x in kept}, {torch.device(target)} if kept else set())
            self.assertTrue(all(a is b for a, b in zip(parameters, module.parameters(), strict=True)))
            self.assertEqual([x.device.index for x in module.cuda(1).parameters()], [1] * len(parameters))

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_created_on_the_device(self, device, dtype, module_info, training):
        inputs = module_info.module_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=False, training=training
        )
        for each in inputs[:INPUTS]:
            made = each.constructor_input
            with torch.device(device):
                module = module_info.module_cls(*made.args, **made.kwargs)
            for kept in [*module.parameters(), *module.buffers()]:
                self.assertEqual(kept.device, torch.device(device))

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_deepcopy_and_pickle(self, device, dtype, module_info, training):
        for module, args, kwargs in self.made(module_info, device, dtype, training):
            expected = self.run_seeded(module, args, kwargs)
            for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
                self.assertEqual([x.device for x in copied.parameters()], [x.device for x in module.parameters()])
                result = self.run_seeded(copied, args, kwargs)
                if self.is_certain(module):
                    self.assertEqual(result, expected)

    @modules(module_db, allowed_dtypes=(torch.float32,), train_eval_mode=TrainEvalMode.train_only)
    def test_files(self, device, dtype, module_info, training):
        for module, _, _ in self.made(module_info, device, dtype, training):
            file = io.BytesIO()
            torch.save(module.state_dict(), file)
            for target in (None, "cpu", "cuda:1", {"cuda:0": "cuda:1"}, lambda storage, location: storage.cuda(1)):
                file.seek(0)
                loaded = torch.load(file, map_location=target)
                where = device if target is None else "cpu" if target == "cpu" else "cuda:1"
                for name, value in module.state_dict().items():
                    if isinstance(value, torch.Tensor):
                        self.assertEqual(loaded[name].device, torch.device(where))
                        self.assertEqual(loaded[name], value, exact_device=False)

    @onlyCUDA
    @deviceCountAtLeast(2)
    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_second_gpu(self, devices, dtype, module_info, training):
        for module, args, kwargs in self.made(module_info, devices[1], dtype, training):
            for each in tensors(module(*args, **kwargs)):
                self.assertEqual(each.device, torch.device(devices[1]))

    @modules(module_db, allowed_dtypes=(torch.float16,))
    def test_autocast(self, device, dtype, module_info, training):
        for module, args, kwargs in self.made(module_info, device, torch.float32, training):
            with torch.autocast("cuda", dtype=dtype):
                for each in tensors(module(*args, **kwargs)):
                    self.assertEqual(each.device, torch.device(device))

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_description_and_gradients_to_none(self, device, dtype, module_info, training):
        for module, _, _ in self.made(module_info, device, dtype, training):
            self.assertIn(type(module).__name__, repr(module))
            for parameter in module.parameters():
                parameter.grad = torch.zeros_like(parameter)
            module.zero_grad()
            self.assertTrue(all(x.grad is None for x in module.parameters()))


instantiate_device_type_tests(TestModules, globals(), only_for="cuda")

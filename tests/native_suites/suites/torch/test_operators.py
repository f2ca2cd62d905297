"""Every operator in the database of PyTorch, on a GPU as in its own tests of CUDA: compared with the CPU."""

from __future__ import annotations

from itertools import islice

import torch
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_flatten, tree_map

SUITE = "operators (OpInfo): forward, backward, in place, `out=`"
TESTED = ("torch",)
PARTS = 2

SAMPLES = 2
"""The most samples of an operator in one test; `nox -s opinfo -- --native-names` runs all."""
SEED = 20
CERTAIN = {}
"""Operator -> True if it has the same result twice: it draws no random numbers, and fills what it creates."""
DIFFERENTIABLE = [op for op in op_db if op.supports_autograd]
WITH_OUT = [op for op in op_db if op.supports_out]
IN_PLACE = [op for op in op_db if op.get_inplace() is not None]
a_common_dtype = OpDTypes.any_common_cpu_cuda_one


def tensors(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def on_cpu(leaf):
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().requires_grad_(leaf.requires_grad)
    is_card = isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith("cuda"))
    return torch.device("cpu") if is_card and torch.device(leaf).type == "cuda" else leaf


def call(op, sample, **more):
    return op(sample.input, *sample.args, **sample.kwargs, **more)


class TestOperators(TestCase):
    def samples(self, op, device, dtype, requires_grad=False):
        torch.manual_seed(SEED)
        return islice(op.sample_inputs(device, dtype, requires_grad=requires_grad), SAMPLES)

    def require_same(self, op, gpu, cpu, device):
        """Compare a result with the CPU's; two draws of random numbers have the same shapes only."""
        for one, other in zip(tensors(gpu), tensors(cpu), strict=True):
            self.assertEqual(one.device, torch.device(device))
            self.assertEqual((one.shape, one.dtype, one.layout), (other.shape, other.dtype, other.layout))
        if self.is_certain(op):
            self.assertEqual(gpu, cpu, exact_device=False, atol=1e-4, rtol=1e-3)

    def is_certain(self, op):
        """Return True if an operator on the CPU has the same result twice."""
        if op.formatted_name not in CERTAIN:
            dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
            sample = next(iter(op.sample_inputs("cpu", dtype)))
            try:
                self.assertEqual(call(op, sample), call(op, sample))
                CERTAIN[op.formatted_name] = not op.name.startswith(("empty", "new_empty"))
            except AssertionError:
                CERTAIN[op.formatted_name] = False
        return CERTAIN[op.formatted_name]

    @ops(op_db, dtypes=a_common_dtype)
    def test_forward(self, device, dtype, op):
        for sample in self.samples(op, device, dtype):
            result = call(op, sample)
            target = sample.kwargs.get("device") or (device if tensors([sample.input, sample.args]) else None)
            host = sample.transform(on_cpu)
            if target is not None:
                self.require_same(op, result, call(op, host), torch.device(target))

    @ops(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float32,))
    def test_backward(self, device, dtype, op):
        for sample in self.samples(op, device, dtype, requires_grad=True):
            host = sample.transform(on_cpu)
            gradients = []
            for each in (sample, host):
                torch.manual_seed(SEED)
                parts = tree_map(
                    lambda leaf: (
                        leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
                    ),
                    (each.input, each.args, each.kwargs),
                )
                result = each.output_process_fn_grad(op(parts[0], *parts[1], **parts[2]))
                ends = [x for x in tensors(result) if x.requires_grad]
                leaves = [x for x in tensors(parts) if x.requires_grad]
                ones = [torch.ones_like(x) for x in ends]
                gradients.append(torch.autograd.grad(ends, leaves, ones, allow_unused=True) if ends and leaves else ())
            for one in tensors(gradients[0]):
                self.assertEqual(one.device, torch.device(device))
            if self.is_certain(op):
                self.assertEqual(*gradients, exact_device=False, atol=1e-3, rtol=1e-3)

    @ops(IN_PLACE, dtypes=a_common_dtype)
    def test_in_place(self, device, dtype, op):
        for sample in self.samples(op, device, dtype):
            if sample.broadcasts_input:
                continue
            expected = call(op, sample)
            target = sample.input.clone()
            if expected.dtype != target.dtype:
                continue
            self.assertIs(op.get_inplace()(target, *sample.args, **sample.kwargs), target)
            if self.is_certain(op):
                self.assertEqual(target, expected)

    @ops(WITH_OUT, dtypes=a_common_dtype)
    def test_out(self, device, dtype, op):
        for sample in self.samples(op, device, dtype):
            expected = call(op, sample)
            if not tensors([sample.input, sample.args]) or len(tensors(expected)) == 0:
                continue
            out = tree_map(torch.empty_like, expected)
            addresses = [x.data_ptr() for x in tensors(out)]
            call(op, sample, out=out)
            self.assertEqual([x.data_ptr() for x in tensors(out)], addresses)
            if self.is_certain(op):
                self.assertEqual(tree_map(lambda x: x, tensors(out)), tensors(expected))


instantiate_device_type_tests(TestOperators, globals(), only_for="cuda")

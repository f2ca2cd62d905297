"""PyTorch's own tools for device-generic tests, which its tests of CUDA are made with."""

from __future__ import annotations

import torch
from torch.testing._internal.common_cuda import TEST_CUDA, TEST_MULTIGPU
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    largeTensorTest,
    onlyCUDA,
    onlyNativeDeviceTypes,
    skipCUDAIf,
    skipCUDAIfNoMagma,
    skipCUDAIfRocm,
)
from torch.testing._internal.common_utils import TestCase

SUITE = "device-generic tests: the test classes of PyTorch"
TESTED = ("torch",)


class TestDecorators(TestCase):
    @dtypes(torch.float16, torch.float32, torch.complex64, torch.int64, torch.bool)
    def test_a_dtype(self, device, dtype):
        ones = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(ones.to(dtype).sum().item(), 3)
        self.assertEqual((ones.device.type, ones.dtype), ("cuda", dtype))

    @onlyCUDA
    @deviceCountAtLeast(2)
    def test_two_devices(self, devices):
        first, second = devices[:2]
        moved = torch.arange(4, device=first).to(second)
        self.assertEqual(moved.device, torch.device(second))
        self.assertEqual(moved, torch.arange(4, device=second))
        with self.assertRaisesRegex(RuntimeError, "same device"):
            moved + torch.ones(4, device=first)

    @onlyNativeDeviceTypes
    @largeTensorTest(1 << 20)
    def test_a_large_tensor(self, device):
        self.assertEqual(torch.ones(1 << 18, device=device).sum(), 1 << 18)

    @largeTensorTest("1000000GB")
    def test_a_tensor_that_is_too_large_is_skipped(self, device):
        self.fail("no device has so much memory")

    @skipCUDAIf(True, "never runs")
    def test_a_condition_is_read(self, device):
        self.fail("the decorator has no effect")

    @skipCUDAIfNoMagma
    @skipCUDAIfRocm
    def test_linear_algebra(self, device):
        matrix = torch.eye(3, device=device) * 2
        self.assertEqual(torch.linalg.solve(matrix, matrix), torch.eye(3, device=device))

    @onlyCUDA
    def test_the_questions_about_the_machine(self, device):
        self.assertTrue(TEST_CUDA)
        self.assertTrue(TEST_MULTIGPU)
        self.assertEqual(self.device_type, "cuda")
        self.assertEqual(self.get_primary_device(), "cuda:0")


instantiate_device_type_tests(TestDecorators, globals(), only_for="cuda")

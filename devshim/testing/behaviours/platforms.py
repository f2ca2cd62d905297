"""Tests of simulated GPUs that imitate another platform than CUDA: ``ds.simulate(1, like="mps")``.

The GPU accepts the names of its platform, and refuses the dtypes that GPUs of the platform cannot hold, in every call
that would make a tensor of this dtype.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.devices.device import Device
    from devshim.testing.base import Kit

LIKE = {"mps": "the MPS framework doesn't support float64", "xpu": "Required aspect fp64 is not supported"}
"""The platforms other than CUDA -> the words in which they refuse float64."""

WIDE: Mapping[str, Callable[[Kit], object]] = {
    "zeros": lambda kit: ds.zeros(3, dtype="float64", device="gpu"),
    "full": lambda kit: ds.full(3, 1.5, dtype="float64", device="gpu"),
    "arange": lambda kit: ds.arange(3, dtype="float64", device="gpu"),
    "eye": lambda kit: ds.eye(3, dtype="float64", device="gpu"),
    "native dtype": lambda kit: ds.ones(3, dtype=kit.adapter.dtype("float64"), device="gpu"),
    "zeros_like": lambda kit: ds.zeros_like(kit.tensor("gpu"), dtype="float64"),
    "on": lambda kit: _within(lambda: ds.empty(3, dtype="float64")),
    "asarray": lambda kit: ds.asarray([1.5, 2.5], dtype="float64", device="gpu"),
    "asarray of a tensor": lambda kit: ds.asarray(kit.tensor("gpu"), dtype="float64"),
    "asarray of an array": lambda kit: ds.asarray(np.ones(3), device="gpu"),
    "from_numpy": lambda kit: ds.from_numpy(np.ones(3), "gpu"),
    "convert": lambda kit: ds.convert(ds.zeros(3, dtype="float64"), kit.backend, "gpu"),
    "place": lambda kit: ds.place(ds.zeros(3, dtype="float64"), "gpu"),
    "place an empty one": lambda kit: ds.place(ds.zeros((0, 3), dtype="float64"), "gpu"),
    "copy": lambda kit: ds.copy(ds.zeros((), dtype="float64"), "gpu"),
    "broadcast": lambda kit: ds.broadcast(ds.zeros(3, dtype="float64"), ["gpu"]),
    "split": lambda kit: ds.split(ds.zeros(3, dtype="float64"), ["gpu"]),
    "gather": lambda kit: ds.gather([ds.zeros(3, dtype="float64")] * 2, "gpu"),
    "uniform": lambda kit: ds.random.uniform(size=3, dtype="float64", device="gpu"),
    "normal": lambda kit: ds.random.normal(size=3, dtype="float64", device="gpu"),
    "cast": lambda kit: kit.adapter.cast(kit.tensor("gpu"), kit.adapter.dtype("float64")),
}
"""A way to make a float64 tensor on the GPU -> the call."""
DISCRETE: Mapping[str, Callable[[], Any]] = {
    "randint": lambda: ds.random.randint(0, 4, size=5, device="gpu"),
    "permutation": lambda: ds.random.permutation(4, device="gpu"),
    "bernoulli": lambda: ds.random.bernoulli(0.5, size=5, device="gpu"),
}
"""A random function whose results are not floats -> a draw of the numbers 0 to 3 on the GPU."""
COLLECTIVE = {"broadcast", "split", "gather"}
NATIVE = {"cast"}
"""The calls of the framework itself, which are intercepted where memory is counted."""


def _within(fn: Callable[[], Any]) -> Any:
    with ds.on("gpu"):
        return fn()


class PlatformTests(SubprocessKit):
    """`simulate` with ``like=``: names, dtypes, and the number of GPUs."""

    @pytest.fixture(params=LIKE)
    def like(self, request: pytest.FixtureRequest, other_device: Device) -> Iterator[str]:
        """Simulate one GPU of a platform; ``other_device`` requests simulated GPUs."""
        if not self.adapter.simulated:
            pytest.skip("hardware: a real GPU has its own platform")
        with ds.simulate(1, like=request.param):
            yield str(request.param)

    @feature("simulate")
    def test_the_gpu_has_the_names_of_its_platform(self, like: str) -> None:
        """The names of the platform are accepted, and those of others are refused with the platform that is there."""
        assert ds.device_count() == ds.device_count(like) == 1
        assert ds.device_count("cuda") == 0
        assert ds.require(like) is ds.require(f"{like}:0") is ds.try_gpu() is ds.gpu()
        assert ds.device_of(ds.zeros(3, dtype="float32", device=like)) is ds.gpu()
        for name in {"cuda:0", "rocm", "mps", "xpu"} - {like}:
            with pytest.raises(ds.DeviceNotFoundError, match=f"platform {like}"):
                ds.place(self.tensor(), name)

    @feature("simulate")
    def test_describe_names_the_platform_and_its_dtypes(self, like: str) -> None:
        """`describe` gives the platform, and the dtypes without those that the GPU refuses; the CPU has them all."""
        info = ds.describe("gpu")
        assert (info.platform, info.simulated) == (like, True)
        assert set(ds.describe("cpu").dtypes) - set(info.dtypes) == {
            name for name in ("float64", "complex128") if name in ds.describe("cpu").dtypes
        }
        assert "float32" in info.dtypes

    @feature("simulate")
    @pytest.mark.parametrize("call", WIDE)
    def test_float64_is_refused(self, like: str, call: str) -> None:
        """Each way to make a float64 tensor on the GPU raises `ConversionError` in the words of the platform."""
        if (call in COLLECTIVE and "several" in self.adapter.gaps) or (
            call in NATIVE and "simulate_memory" in self.adapter.gaps
        ):
            return
        with pytest.raises(ds.ConversionError, match=LIKE[like]) as caught:
            WIDE[call](self)
        assert "gpu:0 cannot hold float64" in caught.value.problem
        assert "float32" in str(caught.value.hint)

    @feature("simulate", "simulate_memory")
    @pytest.mark.parametrize("call", ["zeros", "place", "from_numpy", "cast"])
    def test_a_refused_tensor_takes_no_memory(self, like: str, call: str) -> None:
        """Nothing is left on the GPU."""
        gc.collect()
        before = ds.memory("gpu").used
        with pytest.raises(ds.ConversionError):
            WIDE[call](self)
        gc.collect()
        assert ds.memory("gpu").used == before

    @feature("simulate", "random")
    @pytest.mark.parametrize("call", DISCRETE)
    def test_draws_that_are_not_floats(self, like: str, call: str) -> None:
        """A framework that draws such numbers from float64 fractions draws them elsewhere."""
        drawn = DISCRETE[call]()
        assert ds.device_of(drawn) is ds.gpu()
        assert set(ds.to_numpy(drawn).tolist()) <= set(range(4))

    @feature("simulate")
    @pytest.mark.parametrize("dtype", ["float32", "int32"])
    def test_a_tensor_is_printed(self, like: str, dtype: str) -> None:
        """The text of a tensor has its numbers, though some frameworks format floats as float64."""
        assert "7" in repr(ds.full(3, 7, dtype=dtype, device=like))

    @feature("simulate")
    def test_a_tree_with_float64_is_not_moved(self, like: str) -> None:
        """The error names the leaf, and no leaf has moved."""
        tree = {"a": self.tensor(), "b": [self.tensor(), ds.zeros(2, dtype="float64")]}
        with pytest.raises(ds.ConversionError, match=r"leaf \['b'\]\[1\] of the tree, which is unchanged"):
            ds.place(tree, "gpu")
        assert ds.placement_of(tree).devices == {ds.cpu()}

    @feature("simulate", "checkpoints")
    def test_a_checkpoint_with_float64_is_not_loaded(self, like: str, tmp_path: Path) -> None:
        """`load` raises an error that names the leaf, and the tree to load into is unchanged."""
        ds.save({"a": self.tensor(), "b": ds.zeros(2, dtype="float64")}, tmp_path / "x")
        with pytest.raises(ds.ConversionError, match=LIKE[like]) as caught:
            ds.load(tmp_path / "x", "gpu")
        assert "b" in caught.value.problem.rpartition("leaf")[2]
        loaded = ds.load(tmp_path / "x", "cpu")
        assert ds.placement_of(loaded).devices == {ds.cpu()}

    @feature("simulate", "models")
    @hook("model", "optimizer")
    def test_a_float32_model_trains(self, like: str) -> None:
        """A model and an optimizer without float64 move there, and train."""
        model = self.model()
        optimizer = self.optimizer(model)
        ds.place([model, optimizer], like)
        x, y = self.tensor(like), self.tensor(like, (3, 3))
        self.train_step(model, optimizer, x, y, lambda: None)
        assert ds.placement_of(model).devices == {ds.gpu()}
        assert ds.device_of(self.forward(model, x)) is ds.gpu()

    @feature("simulate")
    def test_the_number_of_gpus_is_that_of_the_platform(self, like: str) -> None:
        """A Mac has one GPU, so ``like="mps"`` refuses two; unknown platforms are refused."""
        if like == "mps":
            with pytest.raises(ds.ArgumentError, match="has 1"):
                ds.simulate(2, like="mps")
        for wrong in ("apple", "", None, 1):
            with pytest.raises(ds.ArgumentError, match="it must be one of 'cuda', 'mps', 'xpu'"):
                ds.simulate(1, like=wrong)  # type: ignore[arg-type]
        assert ds.describe("gpu").platform == like

    @feature("simulate")
    def test_float64_works_again_on_cuda(self, like: str) -> None:
        """The end of the block, or another call, restores CUDA's rules."""
        with ds.simulate(1):
            assert ds.describe("gpu").platform == "cuda"
            assert ds.device_of(ds.zeros(3, dtype="float64", device="cuda:0")) is ds.gpu()
        with pytest.raises(ds.ConversionError):
            ds.zeros(3, dtype="float64", device="gpu")

    @pytest.mark.fresh
    @feature("simulate")
    def test_the_environment_names_the_platform(self) -> None:
        """``DEVSHIM_SIMULATE_LIKE`` does the same for a whole process."""
        code = """
ds.use(name)
assert ds.describe("mps").platform == "mps"
expect(ds.ConversionError, lambda: ds.zeros(3, dtype="float64", device="gpu"))
"""
        self.without_gpus(code, DEVSHIM_SIMULATE_GPUS="1", DEVSHIM_SIMULATE_LIKE="mps")

"""Tests of simulated GPUs under the framework's own names: ``ds.simulate(2, native_names=True)``.

A program that is written for real GPUs counts them, creates tensors on them and moves tensors to them in the
framework's own terms. With native names it gets the simulated GPUs. Without them, no change to the framework remains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["NativeGpus", "NativeNameTests"]


@dataclass(frozen=True)
class NativeGpus:
    """The framework's own names for GPUs.

    Attributes:
        count: Returns the number of GPUs.
        ones: Creates a float32 tensor of ones, of shape (3, 4), on the GPU with this index.
        moved: Copies a tensor to the GPU with this index.
        name: Returns the name of a tensor's device, as a program would print it.
        names: The expected names of the first two GPUs.
        packages: The top-level packages whose attributes may be replaced.
        computes_on: Returns the index of the GPU that computes with a tensor on the GPU of an index, without a scope.
            Most frameworks follow their data; TensorFlow copies to the first GPU.
        failure: The framework's own class of errors for memory that a GPU cannot access.
    """

    count: Callable[[], int]
    ones: Callable[[int], Tensor]
    moved: Callable[[Tensor, int], Tensor]
    name: Callable[[Tensor], str]
    names: tuple[str, str]
    packages: tuple[str, ...]
    computes_on: Callable[[int], int] = int
    failure: type[Exception] = RuntimeError


class NativeNameTests(Kit):
    """`simulate` with ``native_names=True``."""

    @pytest.fixture
    def named(self, other_device: Device) -> Iterator[NativeGpus]:
        """Simulate two GPUs under native names; ``other_device`` requests simulated GPUs."""
        if not self.adapter.simulated:
            pytest.skip("hardware: a real GPU has its own name")
        with ds.simulate(2, native_names=True):
            yield self.native_gpus()

    @feature("native_names")
    @hook("native_gpus")
    def test_the_framework_counts_the_simulated_gpus(self, named: NativeGpus) -> None:
        """The framework's own count equals devshim's, even after another `simulate` with native names."""
        assert named.count() == ds.device_count() == 2
        with ds.simulate(1, native_names=True):
            assert named.count() == ds.device_count() == 1
        assert named.count() == 2

    @feature("native_names")
    @hook("native_gpus")
    @pytest.mark.parametrize("index", [0, 1])
    def test_native_calls_create_and_move_tensors(self, named: NativeGpus, index: int) -> None:
        """A tensor is on the simulated GPU of this index, for devshim and for the framework, and its results too."""
        for x in (named.ones(index), named.moved(self.tensor(), index), named.moved(named.ones(1 - index), index)):
            assert ds.device_of(x) is ds.gpu(index)
            assert named.name(x) == named.names[index]
            assert ds.device_of(x + x) is ds.gpu(named.computes_on(index))
        assert self.same_numbers(named.ones(index) + named.ones(index), 2 * ds.to_numpy(named.ones(index)))

    @feature("native_names")
    @hook("native_gpus")
    def test_tensors_of_devshim_have_the_native_name(self, named: NativeGpus) -> None:
        """A tensor that devshim made, or that was made before, prints the framework's name for its GPU."""
        assert named.name(ds.ones(3, device="gpu:1")) == named.names[1]
        assert ds.device_of(ds.place(named.ones(0), named.names[1])) is ds.gpu(1)

    @feature("native_names", "simulate_memory")
    @hook("native_gpus")
    def test_native_tensors_take_memory(self, named: NativeGpus) -> None:
        """The simulated GPU counts a tensor that the framework's own call made."""
        before = ds.memory("gpu:1").used or 0
        x = named.ones(1)
        assert (ds.memory("gpu:1").used or 0) >= before + 48
        del x

    @feature("native_names", "refuse_mixing")
    @hook("native_gpus")
    def test_two_gpus_do_not_mix(self, named: NativeGpus) -> None:
        """An operator of the framework with tensors on two GPUs raises the error that it raises on real ones."""
        with pytest.raises(self.mixing_error()):
            named.ones(0) + named.ones(1)

    @feature("native_names")
    @hook("native_gpus")
    def test_a_missing_gpu_is_an_error(self, named: NativeGpus) -> None:
        """A GPU that is not there is refused with the framework's own error; nothing is computed on the CPU."""
        with pytest.raises(Exception, match=r".") as caught:
            named.ones(5)
        assert not isinstance(caught.value, AttributeError)

    @feature("native_names")
    @hook("native_gpus")
    def test_other_threads_have_the_names(self, named: NativeGpus) -> None:
        """A thread that starts afterwards sees the same GPUs."""
        assert in_thread(lambda: (named.count(), ds.device_of(named.ones(1)))) == (2, ds.gpu(1))

    @feature("native_names")
    @hook("native_gpus")
    def test_tensors_survive_switching(self, named: NativeGpus) -> None:
        """Names go off and on again three times, and tensors stay where they are, even for another thread."""
        kept = [named.ones(0), named.ones(1)]

        def check() -> None:
            for index, x in enumerate(kept):
                assert ds.device_of(x) is ds.gpu(index)
                assert self.same_numbers(x, np.ones((3, 4), "float32"))

        for _ in range(3):
            with ds.simulate(2):
                check()
                in_thread(check)
                kept[1] = ds.copy(kept[1], "gpu:1")
            check()
            in_thread(check)
            assert [named.name(x) for x in kept] == list(named.names)
            kept[0] = named.moved(kept[0], 0)

    @feature("native_names")
    @hook("native_gpus")
    def test_a_removed_gpu_fails_as_the_framework_does(self, named: NativeGpus) -> None:
        """A tensor whose GPU was removed raises devshim's error, which is also the framework's own."""
        x = named.ones(1)
        with ds.simulate(1, native_names=True), pytest.raises(ds.SimulationError, match="gpu:1 was removed") as caught:
            x + x
        assert isinstance(caught.value, named.failure)
        assert self.same_numbers(x, np.ones((3, 4), "float32"))

    @feature("native_names")
    @hook("native_gpus")
    def test_hidden_gpus_leave_their_names(self, named: NativeGpus) -> None:
        """While ``CUDA_VISIBLE_DEVICES`` hides all GPUs, the framework counts none, and the host still computes."""
        x = named.ones(1)
        with ds.simulate(2, native_names=True), pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
            ds.simulate(2, native_names=True)
            assert self.adapter.native_names
            assert named.count() == ds.device_count() == 0
            assert ds.device_of(self.tensor() + self.tensor()) is ds.cpu()
            with pytest.raises(ds.SimulationError, match="gpu:1 was removed"):
                x + x
            with pytest.raises(ds.DeviceNotFoundError, match="'-1' hides all 2 simulated GPUs"):
                ds.place(self.tensor(), "gpu")
        assert named.count() == 2
        assert named.name(x) == named.names[1]
        assert ds.device_of(named.ones(1)) is ds.gpu(1)

    @feature("native_names")
    @hook("native_gpus")
    def test_without_native_names_nothing_is_left(self, other_device: Device) -> None:
        """After the block, every function, class and method of the framework is the one from before."""
        if not self.adapter.simulated:
            pytest.skip("hardware: a real GPU has its own name")
        with ds.simulate(2):  # the whole run may have native names
            self._check_that_nothing_is_left()

    def _check_that_nothing_is_left(self) -> None:
        native = self.native_gpus()
        without = native.count()
        with ds.simulate(2, native_names=True):  # it imports what is only needed with native names
            native.ones(1)
        before = _callables(native.packages)
        with ds.simulate(2, native_names=True):
            native.ones(1)
        with pytest.raises(ZeroDivisionError), ds.simulate(2, native_names=True):
            raise ZeroDivisionError
        after = _callables(native.packages)
        assert [name for name, value in before.items() if after.get(name) is not value] == []
        assert [name for name in after if name not in before] == []
        assert native.count() == without
        assert self.adapter.native_names is False

    @feature("native_names")
    @hook("native_gpus")
    def test_names_are_off_unless_asked(self, named: NativeGpus) -> None:
        """`simulate` without ``native_names`` inside a block with them switches them off, and its end on again."""
        with ds.simulate(2):
            assert self.adapter.native_names is False
            assert named.count() != 2
            assert ds.device_of(ds.ones(3, device="gpu:1")) is ds.gpu(1)
        assert named.count() == 2


def _callables(packages: tuple[str, ...]) -> dict[str, Any]:
    """Return the functions, classes and methods in the imported modules of some packages, by their full name."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in packages and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                kind = type(value)  # `isinstance` would ask `value.__class__`, and deprecated objects warn of that
                if callable(value) or issubclass(kind, ModuleType):
                    found[f"{name}.{key}"] = value
                if issubclass(kind, type) and str(getattr(value, "__module__", "")).split(".")[0] in packages:
                    found.update({f"{name}.{key}.{inner}": each for inner, each in _members(value)})
    return found


def _members(cls: type) -> list[tuple[str, Any]]:
    """Return the methods and properties of a class; those that Python adds are left out."""
    added = ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__slotnames__", "__annotations__")
    return [
        (name, value)
        for name, value in list(vars(cls).items())
        if name not in added and (callable(value) or hasattr(value, "__get__"))
    ]

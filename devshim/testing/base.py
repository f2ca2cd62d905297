"""`Kit`, the base class of every test class of the kit: the hooks, the fixtures, and the checks around each test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.testing.threads import in_thread
from devshim.testing.values import numbers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.testing.behaviours.native_names import NativeGpus

__all__ = ["GAP", "HARDWARE", "Kit", "in_thread"]

GAP = "declared gap: "
"""The start of a skip's reason when the skip reports a declared gap."""
HARDWARE = "hardware: "
"""The start of a skip's reason when the machine has too few real GPUs."""


class Kit:
    """The hooks that an adapter's author writes, and the fixtures that the tests use.

    Attributes:
        backend: The framework's root import name.
    """

    backend: ClassVar[str]

    # ------------------------------------------------------------------ hooks: only a framework's expert can write them
    def gradient(self, fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the gradient of ``sum(y * y)`` for ``y = fn(x)`` with respect to ``x``; None if none arrives.

        Not needed with the gap ``gradient``.
        """
        msg = f"write {type(self).__name__}.gradient, or declare the gap"
        raise NotImplementedError(msg)

    def compiled(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``fn`` compiled by the framework. Not needed if all ``trace_...`` gaps are of kind never."""
        msg = f"write {type(self).__name__}.compiled, or declare the gaps"
        raise NotImplementedError(msg)

    def compilers(self) -> dict[str, tuple[Callable[..., Any], bool]]:
        """Return every compiler of the framework, each with True if it traces a function once for all calls.

        False means that the compiler reads the code each time the function runs. Optional: the default is `compiled`
        alone.
        """
        return {"compiled": (self.compiled, True)}

    def unless_refused(self, device: Device, fn: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a compiled function, or None if its compiler has no simulated GPUs and says so."""
        try:
            return fn(*args)
        except ds.TracingError as error:
            if device is ds.cpu() or "simulated GPU" not in str(error):
                raise
            return None

    compiler_refuses: ClassVar[Mapping[str, Collection[str]]] = {}
    """Compiler -> the calls of ``compiled_calls`` that it may refuse, besides those that all compilers refuse."""
    compiler_fails: ClassVar[dict[str, type[Exception]]] = {}
    """Public calls in which a compiler of the framework fails through its own bug, and the error it raises."""

    def mutate(self, x: Tensor) -> None:
        """Overwrite ``x`` in place with the framework's own operations. Not used if the backend is immutable."""
        x[...] = 77

    def memory_of(self, x: Tensor) -> tuple[int, int]:
        """Return the address and the number of bytes of an immutable tensor's values in host memory.

        The kit writes to this memory without the framework's knowledge, which proves that a copy is a copy. It does
        this for tensors on simulated GPUs, too.
        """
        view = self.adapter.to_numpy(x, copy=False)
        return view.ctypes.data, view.nbytes

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the framework's own matrix product."""
        return x @ y

    def trainable(self, x: Tensor) -> Tensor:
        """Return ``x`` with the framework's flag that requests its gradient. Optional: some have no such flag."""
        raise NotImplementedError

    def is_trainable(self, x: Tensor) -> bool:
        """Return True if the flag is set. Required with `trainable`."""
        raise NotImplementedError

    def native_zeros(self) -> Tensor:
        """Return a new tensor made by the framework without a device, such as ``torch.zeros(2, 2)``. Optional."""
        raise NotImplementedError

    def containers(self, x: Tensor) -> dict[str, tuple[Any, Callable[[Any], Tensor]]]:
        """Return containers around a tensor, each with a function that gets the tensor back. Optional.

        They are the framework's own, or classes registered with it: at least one for each of its registration calls.
        """
        raise NotImplementedError

    def loaders(self, values: np.ndarray) -> dict[str, Any]:
        """Return loaders, by name, whose batches are, or begin with, an array's rows in order. Optional."""
        raise NotImplementedError

    def model(self) -> Any:
        """Return a small model in training mode, always with the same weights: (n, 4) to (n, 3), float32.

        The model is built, and has at least two layers with weights that run one after the other, such as linear, batch
        norm, ReLU, linear. A layer before a normalization has no bias: the gradient of that bias would be zero except
        for rounding, which differs between processors, and which Adam and others enlarge to whole steps. Optional.
        """
        raise NotImplementedError

    def unbuilt_model(self) -> Any:
        """Return the model with weights that have no shape yet. Optional: some frameworks build models immediately."""
        raise NotImplementedError

    def tied_model(self) -> Any:
        """Return a model in which two layers share one weight. Optional."""
        raise NotImplementedError

    def optimizer(self, model: Any) -> Any:
        """Return a new optimizer with state, such as Adam, for a model of `model`. Optional."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, Callable[[Any], Any]]:
        """Return a factory for every optimizer class that the framework ships, by class name. Optional."""
        raise NotImplementedError

    def forward(self, model: Any, x: Tensor) -> Tensor:
        """Return ``model(x)``, outside any scope."""
        return model(x)

    def train_step(self, model: Any, optimizer: Any, x: Tensor, y: Tensor, between: Callable[[], object]) -> None:
        """Run one training step on the mean squared error to ``y``: forward, backward, ``between()``, step. Optional.

        If the framework stores gradients apart from its parameters, ``between`` is called before the forward pass.
        """
        raise NotImplementedError

    def mixing_error(self) -> type[Exception]:
        """Return the error class that the framework's operators raise when they refuse tensors on several devices."""
        return ValueError

    training_tolerance: ClassVar[float] = 1e-5
    """The allowed difference between weights trained on a simulated GPU and on the CPU, relative to the largest one."""

    def train(self, device: Device, inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        """Return the weights of a small network after three steps of Adam on a device. Optional: some have no layers.

        The network has a convolution, batch normalization, dropout (with the same numbers on every device) and a linear
        layer, and always starts from the same weights.

        Args:
            device: The device on which everything runs.
            inputs: float32, of shape (8, 1, 8, 8).
            labels: int64 classes below 4, of shape (8,).
        """
        raise NotImplementedError

    def native_gpus(self) -> NativeGpus:
        """Return the framework's own names for GPUs, which ``simulate(native_names=True)`` must obey. Optional."""
        raise NotImplementedError

    def global_state(self) -> object:
        """Return what no devshim call may change: the framework's default dtype, current device, flags. Optional."""
        return None

    # ------------------------------------------------------------------ fixtures
    @pytest.fixture(autouse=True)
    def _around(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Select the backend, report declared gaps, and check afterwards that no global state has changed."""
        ds.use(self.backend)
        try:
            self._report_gaps(request)
            before = self.global_state()
            yield
            assert self.global_state() == before, "the calls of this test changed global state"
        finally:
            ds.use(None)

    def _report_gaps(self, request: pytest.FixtureRequest) -> None:
        names = [name for mark in request.node.iter_markers("feature") for name in mark.args]
        for name in names:
            gap = self.adapter.gaps.get(name)
            if gap is not None:
                pytest.skip(f"{GAP}{name} ({gap.kind}): {gap.reason}")
        needs = {"bfloat16": lambda: self.adapter.dtype("bfloat16"), "namespace": ds.namespace}
        for name in needs.keys() & set(names):
            try:
                needs[name]()
            except (ds.ConversionError, ds.UnsupportedError) as error:
                if "pip install" in str(error.hint):  # ml_dtypes, or array-api-compat
                    pytest.skip(f"{HARDWARE}{error.problem}")

    @pytest.fixture
    def device(self, request: pytest.FixtureRequest) -> Device:
        """Return each device of the backend in turn, the host first."""
        return self._existing(request.param)

    @pytest.fixture
    def other_device(self, request: pytest.FixtureRequest) -> Device:
        """Return the last GPU, which is not the default device."""
        return self._nearest(request.param)

    @pytest.fixture
    def journey(self, request: pytest.FixtureRequest) -> tuple[Device, Device]:
        """Return a source and a target device, for each kind of pair; both may be the same device."""
        return self._nearest(request.param[0]), self._nearest(request.param[1])

    @pytest.fixture
    def away(self, request: pytest.FixtureRequest) -> tuple[Device, Device]:
        """Return a source and a different target device, for each kind of pair."""
        source, target = self._nearest(request.param[0]), self._nearest(request.param[1])
        if source is target:
            pytest.skip(f"{HARDWARE}this machine has one GPU, and the test needs two")
        return source, target

    @pytest.fixture(params=["next", "far"])
    def missing_device(self, request: pytest.FixtureRequest) -> Device:
        """Return a GPU that does not exist: the first index after the existing ones, and a much larger one."""
        return ds.gpu(ds.device_count("gpu") if request.param == "next" else 99)

    def _existing(self, text: str) -> Device:
        device = ds.device(text)
        count = ds.device_count(device.kind)
        if device.index < count:
            return device
        if "gpu" not in self.adapter.kinds() and not self.adapter.simulated:
            pytest.skip(f"{HARDWARE}{self.adapter.title} has no GPUs")
        if count == 0 or self.adapter.simulated:
            pytest.fail(f"{device} was asked for: {self.adapter.why_unavailable('gpu')}")
        have = f"{count} GPU{'s' if count != 1 else ''}"
        pytest.skip(f"{HARDWARE}this machine has {have}, and the test needs {device.index + 1}")

    def _nearest(self, text: str) -> Device:
        """Return the named device; if it is the second GPU and there is only one real GPU, return that one."""
        one = text == "gpu:1" and not self.adapter.simulated and ds.device_count("gpu") == 1
        return self._existing("gpu:0" if one else text)

    # ------------------------------------------------------------------ helpers
    @property
    def adapter(self) -> Backend:
        """The adapter under test."""
        return registry.load(self.backend)

    def tensor(self, device: Device | str = "cpu", shape: tuple[int, ...] = (3, 4), dtype: str = "float32") -> Tensor:
        """Return a new tensor of small distinct numbers on a device."""
        return ds.from_numpy(numbers(shape, dtype), device)

    def scribble(self, x: Tensor) -> None:
        """Overwrite the memory of ``x``: natively if possible, otherwise without the framework's knowledge."""
        if not self.adapter.immutable:
            self.mutate(x)
            ds.synchronize()  # the write may be asynchronous
            return
        ds.synchronize()  # an operation that relies on an immutable tensor may still be reading it
        address, nbytes = self.memory_of(x)
        ctypes.memset(address, 0x2A, nbytes)

    def scope_of(self, device: Device) -> AbstractContextManager[object]:
        """Return a scope in which operators compute where their tensors are; empty if they do so without one.

        TensorFlow's compute on ``/GPU:0`` outside scopes, if native names are on or the GPUs are real.
        """
        return nullcontext() if self.adapter.operators_follow_tensors else ds.on(device)

    def part(self, x: Tensor, index: Any) -> Tensor:
        """Return ``x[index]``, computed on the device of ``x``: a view if the framework has views."""
        return ds.run(lambda t: t[index], x)

    def can_scribble(self, device: Device) -> bool:
        """Return True if memory on a device can be overwritten; False for immutable tensors on real GPUs."""
        return not self.adapter.immutable or device.kind == "cpu" or self.adapter.simulated > 0

    def alike(self, x: Tensor, y: Tensor) -> bool:
        """Return True if two tensors have the framework's same type.

        The GPU type may be a subclass of the host type.
        """
        both = self.adapter.is_tensor(type(x)) and self.adapter.is_tensor(type(y))
        return both and (isinstance(x, type(y)) or isinstance(y, type(x)))

    def same_numbers(self, x: Tensor, expected: Any) -> bool:
        """Return True if a tensor contains exactly these numbers, in this shape."""
        found = ds.to_numpy(x)
        return found.shape == np.shape(expected) and bool(np.array_equal(found, np.asarray(expected)))

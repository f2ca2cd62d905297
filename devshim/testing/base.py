"""`Kit`: what every room of the kit stands on: the hooks, the fixtures, and what happens around each test."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.testing.values import numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["GAP", "HARDWARE", "Kit", "in_thread"]

GAP = "declared gap: "
"""How the reason of a skip begins that stands for a declared gap."""
HARDWARE = "hardware: "
"""How the reason of a skip begins that stands for too few real cards."""


def in_thread(fn: Callable[[], Any]) -> Any:
    """Run a function in a thread of its own, with a context of its own, and return or raise what it does."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.extend((fn(), None))
        except BaseException as error:
            outcome.extend((None, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


class Kit:
    """Hooks an adapter's owner writes, and the fixtures the rooms use.

    Attributes:
        backend: The framework's root import name.
    """

    backend: ClassVar[str]

    # ------------------------------------------------------------------ hooks: only a framework's owner can write them
    def gradient(self, fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the gradient of ``sum(y * y)`` for ``y = fn(x)``, with respect to ``x``; None where none arrives.

        Not needed with the gap ``gradient``.
        """
        raise NotImplementedError(f"write {type(self).__name__}.gradient, or declare the gap")

    def compiled(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``fn`` compiled by the framework. Not needed where all ``trace_...`` gaps are of kind never."""
        raise NotImplementedError(f"write {type(self).__name__}.compiled, or declare the gaps")

    def compilers(self) -> dict[str, tuple[Callable[..., Any], bool]]:
        """Return every way the framework has to compile a function, and whether its code is then looked at only once.

        Once for all calls, that is, and not each time the function runs. Optional: `compiled`, without it.
        """
        return {"compiled": (self.compiled, True)}

    compiler_fails: ClassVar[dict[str, type[Exception]]] = {}
    """Public calls inside which a compiler of the framework fails by a fault of its own, and the error it raises."""

    def mutate(self, x: Tensor) -> None:
        """Overwrite ``x`` in place with the framework's own means. Not used where the backend is immutable."""
        x[...] = 77

    def memory_of(self, x: Tensor) -> tuple[int, int]:
        """Return where in host memory the values of an immutable tensor are, as address and bytes.

        Used to write behind the framework's back, which is how a copy is proven; for tensors on simulated cards, too.
        """
        view = self.adapter.to_numpy(x, copy=False)
        return view.ctypes.data, view.nbytes

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the framework's own matrix product."""
        return x @ y

    def trainable(self, x: Tensor) -> Tensor:
        """Return ``x`` with the framework's flag that asks for its gradient. Optional: some have no such flag."""
        raise NotImplementedError

    def is_trainable(self, x: Tensor) -> bool:
        """Return whether the flag is set. Goes with `trainable`."""
        raise NotImplementedError

    def native_zeros(self) -> Tensor:
        """Return a new tensor the framework's own way, no device named, such as ``torch.zeros(2, 2)``. Optional."""
        raise NotImplementedError

    def containers(self, x: Tensor) -> dict[str, tuple[Any, Callable[[Any], Tensor]]]:
        """Return containers registered with the framework, or its own, around a tensor, each with the way to it.

        At least a class registered by each of the framework's calls for that. Optional: some have no registry.
        """
        raise NotImplementedError

    def model(self) -> Any:
        """Return a small model in training mode, always with the same weights: (n, 4) to (n, 3), float32.

        Built, and of at least two layers with weights that run one after the other, such as linear, batch norm, ReLU,
        linear. Optional.
        """
        raise NotImplementedError

    def unbuilt_model(self) -> Any:
        """Return such a model whose weights have no shape yet. Optional: some frameworks build at once."""
        raise NotImplementedError

    def tied_model(self) -> Any:
        """Return a model in which two layers share one weight. Optional."""
        raise NotImplementedError

    def optimizer(self, model: Any) -> Any:
        """Return a fresh optimizer with a state, such as Adam, for a model of `model`. Optional."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, Callable[[Any], Any]]:
        """Return a maker for every optimizer class the framework ships, by its name. Optional."""
        raise NotImplementedError

    def forward(self, model: Any, x: Tensor) -> Tensor:
        """Return ``model(x)``, without a scope."""
        return model(x)

    def train_step(self, model: Any, optimizer: Any, x: Tensor, y: Tensor, between: Callable[[], object]) -> None:
        """Do one step of training on the mean squared error to ``y``: forward, backward, ``between()``, step. Optional.

        Where the framework keeps gradients apart from its parameters, ``between`` comes before the forward pass.
        """
        raise NotImplementedError

    def mixing_error(self) -> type[Exception]:
        """Return the class of what the framework's own operators raise where they refuse tensors on several devices."""
        return ValueError

    training_tolerance: ClassVar[float] = 1e-5
    """How far weights trained on a simulated card may be from those trained on the CPU, relative to the largest."""

    def train(self, device: Device, inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        """Return the weights of a small network after three steps of Adam on a device. Optional: some have no layers.

        Convolution, batch normalisation, dropout (its numbers the same on every device) and a linear layer, always from
        the same first weights.

        Args:
            device: Where everything is to happen.
            inputs: float32, of shape (8, 1, 8, 8).
            labels: int64 classes below 4, of shape (8,).
        """
        raise NotImplementedError

    def global_state(self) -> object:
        """Return what no devshim call may change: the framework's default dtype, current device, flags. Optional."""
        return None

    # ------------------------------------------------------------------ fixtures
    @pytest.fixture(autouse=True)
    def _around(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Choose the backend, report declared gaps, and see that nothing global has changed afterwards."""
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
        if "bfloat16" in names:
            try:
                self.adapter.dtype("bfloat16")
            except ds.ConversionError as error:
                if "ml_dtypes" in str(error.hint):
                    pytest.skip(f"{HARDWARE}{error.problem}")

    @pytest.fixture
    def device(self, request: pytest.FixtureRequest) -> Device:
        """Each device of the backend, the host first."""
        return self._existing(request.param)

    @pytest.fixture
    def other_device(self, request: pytest.FixtureRequest) -> Device:
        """A device that is not the default one: the last card."""
        return self._nearest(request.param)

    @pytest.fixture
    def journey(self, request: pytest.FixtureRequest) -> tuple[Device, Device]:
        """Each kind of way from a device to a device, staying included."""
        return self._nearest(request.param[0]), self._nearest(request.param[1])

    @pytest.fixture
    def away(self, request: pytest.FixtureRequest) -> tuple[Device, Device]:
        """Each kind of way from a device to another."""
        source, target = self._nearest(request.param[0]), self._nearest(request.param[1])
        if source is target:
            pytest.skip(f"{HARDWARE}this machine has one card, and the test needs two")
        return source, target

    @pytest.fixture(params=["next", "far"])
    def missing_device(self, request: pytest.FixtureRequest) -> Device:
        """A GPU that does not exist: the first beyond those that do, and one far out."""
        return ds.gpu(ds.device_count("gpu") if request.param == "next" else 99)

    def _existing(self, text: str) -> Device:
        device = ds.device(text)
        count = ds.device_count(device.kind)
        if device.index < count:
            return device
        if "gpu" not in self.adapter.kinds() and not self.adapter.simulated:
            pytest.skip(f"{HARDWARE}{self.adapter.title} has no cards")
        if count == 0 or self.adapter.simulated:
            pytest.fail(f"{device} was asked for: {self.adapter.absence('gpu')}")
        pytest.skip(f"{HARDWARE}this machine has {count} card(s), and the test needs {device.index + 1}")

    def _nearest(self, text: str) -> Device:
        """The device named, or the only real card where it is the second that was named."""
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
        """Overwrite the memory of ``x``: natively where tensors can be written, else behind the framework's back."""
        if not self.adapter.immutable:
            self.mutate(x)
            ds.synchronize()  # a write may be done later than it is asked for
            return
        ds.synchronize()  # whoever believes it immutable may still be reading it
        address, nbytes = self.memory_of(x)
        ctypes.memset(address, 0x2A, nbytes)

    def part(self, x: Tensor, index: Any) -> Tensor:
        """Return ``x[index]``, computed where ``x`` is: a view where the framework has views."""
        return ds.run(lambda t: t[index], x)

    def can_scribble(self, device: Device) -> bool:
        """Whether memory on a device can be overwritten: not that of immutable tensors on real cards."""
        return not self.adapter.immutable or device.kind == "cpu" or self.adapter.simulated > 0

    def alike(self, x: Tensor, y: Tensor) -> bool:
        """Whether two tensors are of one type of the framework's; that of a card may be a kind of that of the host."""
        both = self.adapter.is_tensor(type(x)) and self.adapter.is_tensor(type(y))
        return both and (isinstance(x, type(y)) or isinstance(y, type(x)))

    def same_numbers(self, x: Tensor, expected: Any) -> bool:
        """Whether a tensor holds exactly these numbers, in this shape."""
        found = ds.to_numpy(x)
        return found.shape == np.shape(expected) and bool(np.array_equal(found, np.asarray(expected)))

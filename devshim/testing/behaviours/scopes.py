"""Tests of default devices: `on` and `set_device` in one thread, `using` and `use`. `threads` tests several threads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.registry import current
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device


def default() -> Device:
    """Return the device of a new tensor."""
    return ds.device_of(ds.zeros(1))


def scaled_and_moved(x: Any, number: float) -> tuple[Any, Any]:
    """Return the results of two operators with a number."""
    return number * x, number + x


class ScopeTests(Kit):
    """Scopes can be nested in any way, and are always restored."""

    @feature("create")
    def test_on_yields_the_device(self, device: Device) -> None:
        """`on` takes any spelling, yields the `Device`, and makes it the default until the block ends."""
        with ds.on(str(device).upper()) as inside:
            assert inside is device
            assert default() is device
        assert default() is ds.cpu()

    @feature("create")
    def test_scopes_nest(self, journey: tuple[Device, Device]) -> None:
        """The innermost scope applies; leaving it restores the outer one."""
        outer, inner = journey
        with ds.on(outer):
            with ds.on(inner):
                assert default() is inner
                with ds.on("cpu"):
                    assert default() is ds.cpu()
                assert default() is inner
            assert default() is outer
        assert default() is ds.cpu()

    @feature("create")
    def test_an_exception_leaves_the_scope(self, journey: tuple[Device, Device]) -> None:
        """An exception passes through `on` unchanged, and the default is restored."""
        error = KeyError("mine")

        def fail() -> None:
            with ds.on(journey[1]):
                raise error

        with ds.on(journey[0]):
            with pytest.raises(KeyError) as caught:
                fail()
            assert caught.value is error
            assert default() is journey[0]
        assert default() is ds.cpu()

    @feature("create")
    def test_a_scope_can_be_entered_again(self, device: Device) -> None:
        """The same `on` object can be entered again, even inside itself."""
        scope = ds.on(device)
        for _ in range(2):
            with scope, ds.on("cpu"):
                with scope:
                    assert default() is device
                assert default() is ds.cpu()
        assert default() is ds.cpu()

    @feature("create")
    def test_a_device_is_a_scope(self, journey: tuple[Device, Device]) -> None:
        """``with device:`` is ``with ds.on(device):``: it nests, even in itself, and is restored after an exception."""
        outer, inner = journey
        error = KeyError("mine")

        def fail() -> None:
            with inner, outer, inner:
                assert default() is inner
                raise error

        with outer as entered:
            assert entered is outer
            with ds.on("cpu"), inner, inner:
                assert default() is inner
            assert default() is outer
            with pytest.raises(KeyError) as caught:
                fail()
            assert caught.value is error
            assert default() is outer
        assert default() is ds.cpu()

    @feature("op_scope")
    @hook("native_zeros")
    def test_operators_follow_a_device(self, other_device: Device) -> None:
        """Inside ``with device:``, operators compute there, and afterwards where they did before."""
        before = ds.device_of(self.native_zeros())  # on JAX with a real GPU, its first one
        with other_device:
            assert ds.device_of(self.native_zeros() + self.native_zeros()) is other_device
        assert ds.device_of(self.native_zeros()) is before
        assert before is ds.cpu() or not self.adapter.simulated

    @feature("create")
    @hook("native_zeros")
    def test_the_frameworks_own_default_is_restored(self, device: Device) -> None:
        """After `on`, even after an exception, the framework creates on the same device as before."""
        before = ds.device_of(self.native_zeros())
        with ds.on(device):
            assert ds.device_of(self.native_zeros()) is device
        assert ds.device_of(self.native_zeros()) is before
        with pytest.raises(KeyError), ds.on(device), ds.on("cpu"):
            raise KeyError
        assert ds.device_of(self.native_zeros()) is before

    @feature("create")
    def test_numbers_in_functions_on_two_devices(self, journey: tuple[Device, Device]) -> None:
        """A number in a function of `run` is used where the tensors are, also if it was used on another device before.

        A framework may keep a number for each device; meanwhile, new objects get the memory of those that were freed.
        """
        order = random.Random(0)
        tensors = [ds.ones(3, device=device) for device in journey]
        others: list[str] = []
        for count in range(700):
            number = count % 7 + 0.25
            for x in order.sample(tensors, 2):
                for y in ds.run(scaled_and_moved, x, number):
                    assert ds.device_of(y) is ds.device_of(x)
            others = [*others, str(count) * 7] if count % 50 else []

    @feature("op_scope")
    def test_operators_follow_the_scope(self, other_device: Device) -> None:
        """Inside `on`, the framework's operators compute there, on tensors that were not placed explicitly."""
        x = self.native_zeros()
        with ds.on(other_device):
            assert ds.device_of(x + x) is other_device

    @feature("create")
    def test_set_device_lasts_until_changed(self, device: Device) -> None:
        """`set_device` applies for the rest of the thread; the next call replaces it."""

        def body() -> list[Device]:
            ds.set_device(device)
            found = [default()]
            ds.set_device("cpu")
            return [*found, default()]

        assert in_thread(body) == [device, ds.cpu()]
        assert default() is ds.cpu()

    @feature("create")
    def test_set_device_ends_with_its_scope(self, device: Device) -> None:
        """Inside `on`, `set_device` applies until the scope ends."""

        def body() -> list[Device]:
            with ds.on("cpu"):
                ds.set_device(device)
                inside = default()
            after = default()
            ds.set_device(device)
            with ds.on("cpu"):
                nested = default()
            return [inside, after, nested, default()]

        assert in_thread(body) == [device, ds.cpu(), ds.cpu(), device]

    @feature("create")
    @hook("native_zeros")
    def test_the_frameworks_own_creation_follows_set_device(self, other_device: Device) -> None:
        """`set_device` also sets the framework's own default, like ``torch.cuda.set_device`` in textbooks."""

        def body() -> Device:
            ds.set_device(other_device)
            return ds.device_of(self.native_zeros())

        before = ds.device_of(self.native_zeros())
        assert in_thread(body) is other_device
        assert ds.device_of(self.native_zeros()) is before

    @feature("create")
    def test_the_environment_sets_the_default_device(
        self, journey: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``DEVSHIM_DEVICE`` is the default device, in every thread; `on`, `set_device` and ``device=`` come first."""
        chosen, other = journey
        monkeypatch.setenv("DEVSHIM_DEVICE", str(chosen).upper())
        assert default() is chosen
        assert in_thread(default) is chosen
        assert ds.device_of(ds.from_numpy(numbers())) is chosen
        assert ds.device_of(ds.zeros(1, device=other)) is other
        with other:
            assert default() is other

        def sets() -> Device:
            ds.set_device(other)
            return default()

        assert in_thread(sets) is other
        assert default() is chosen
        monkeypatch.setenv("DEVSHIM_DEVICE", "gpu:99")
        with pytest.raises(ds.DeviceNotFoundError, match="DEVSHIM_DEVICE is 'gpu:99', but gpu:99 was asked for"):
            default()

    def test_local_gpu_is_the_gpu_of_this_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`local_gpu` is the GPU with the launcher's number of this process, or the CPU without GPUs."""
        monkeypatch.setenv("LOCAL_RANK", "0")
        assert ds.local_gpu() is ds.try_gpu()
        count = ds.device_count()
        monkeypatch.setenv("LOCAL_RANK", str(count))
        if count > 1:
            with pytest.raises(ds.DeviceNotFoundError, match="LOCAL_RANK"):
                ds.local_gpu()
            monkeypatch.setenv("LOCAL_RANK", str(count - 1))
            assert ds.local_gpu() is ds.gpu(count - 1)
        else:
            assert ds.local_gpu() is ds.try_gpu()

    def test_using_chooses_the_framework(self) -> None:
        """`using` applies to its block, also nested and after an exception, and overrides `use`."""
        with ds.using("numpy"):
            assert current.current().name == "numpy"
            with ds.using(self.backend):
                assert current.current().name == self.backend
            with pytest.raises(KeyError), ds.using(self.backend):
                raise KeyError
            assert current.current().name == "numpy"
        assert current.current().name == self.backend

    def test_a_tensor_determines_its_framework(self, device: Device) -> None:
        """A tensor is handled by its own framework, regardless of the current framework."""
        x = self.tensor(device)
        with ds.using("numpy"):
            assert ds.device_of(x) is device
            assert ds.place(x, device) is x
            assert self.alike(ds.copy(x, device), x)
            assert self.alike(ds.zeros_like(x), x)
            assert ds.device_of(ds.run(lambda t: t + t, x)) is device

    def test_an_unknown_framework_is_refused(self) -> None:
        """An unknown name raises `BackendNotFoundError`, which lists what is installed, and changes nothing."""
        for call in (ds.use, ds.using):
            with pytest.raises(ds.BackendNotFoundError, match=self.backend):
                call("framework_of_nobody")
        assert current.current().name == self.backend

    def test_the_framework_lists_itself(self) -> None:
        """`backends` shows the framework with its version, and `framework` returns its module."""
        assert ds.backends()[self.backend].imported
        assert ds.framework().__name__ == ds.framework(self.backend).__name__ == self.backend

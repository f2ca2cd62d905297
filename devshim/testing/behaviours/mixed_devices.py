"""Tests of arguments on different devices: queries, an error with the same text on each framework, and `run`."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.devices.device import CPU
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


def _nothing(*args: object, **kwargs: object) -> None:
    """Accept any arguments."""


NATIVE = ("sim:", "sim_gpu", "cpu(", "CPU:", "platform CPU", "CpuDevice")
"""The frameworks' own names for the device that implements a simulated GPU."""


class MixedDeviceTests(Kit):
    """`same_device`, `require_same_device`, `run`."""

    @feature("follow_data")
    def test_same_device_compares_devices(self, device: Device) -> None:
        """`same_device` is True if all tensors, also those in trees, are on one device; other values do not count."""
        x, y = self.tensor(device), self.tensor(device)
        assert ds.same_device(x, y, {"z": [x, 3]}) is True
        assert ds.same_device() is True
        assert ds.same_device(x) is True
        assert ds.same_device(3, "text") is True
        assert ds.require_same_device(x=x, y=[y]) is device
        assert ds.require_same_device(x=3) is None

    @feature("follow_data")
    def test_same_device_is_false_across_devices(self, away: tuple[Device, Device]) -> None:
        """`same_device` is False across devices, even if one of the tensors is deep in a tree."""
        x, y = self.tensor(away[0]), self.tensor(away[1])
        assert ds.same_device(x, y) is False
        assert ds.same_device({"a": x, "b": (1, [y])}) is False

    @feature("follow_data")
    def test_the_mismatch_text_is_the_same_on_every_framework(self, other_device: Device) -> None:
        """`DeviceMismatchError` names each argument, its device, and the line that fixes it, word for word."""
        x, y = self.tensor(), self.tensor(other_device)
        d = str(other_device)
        mismatch = f"needs its tensors on one device: x is on cpu, y is on {d}\n\nHint: x = ds.place(x, '{d}')"
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.require_same_device(x=x, y=y)
        assert str(caught.value) == f"ds.require_same_device {mismatch}"
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.run(_nothing, x=x, y=y)
        assert str(caught.value) == f"ds.run {mismatch}"
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.run(_nothing, x, [y, y])
        assert caught.value.problem.endswith(f"args[0] is on cpu, args[1][0] is on {d}, args[1][1] is on {d}")

    @feature("follow_data")
    def test_the_hint_of_a_mismatch_works(self, away: tuple[Device, Device]) -> None:
        """Running the hint's line makes the refused call work."""
        names: dict[str, Any] = {"ds": ds, "x": self.tensor(away[0]), "y": self.tensor(away[1])}
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.require_same_device(x=names["x"], y=names["y"])
        exec(str(caught.value.hint), names)
        assert ds.require_same_device(x=names["x"], y=names["y"]) in away

    @feature("follow_data")
    def test_run_computes_where_its_arguments_live(self, device: Device) -> None:
        """`run` computes with the framework's own operator on the device of its arguments."""
        x, y = self.tensor(device, (2, 3)), self.tensor(device, (3, 2))
        z = ds.run(self.matmul, x, y)
        assert ds.device_of(z) is device
        assert self.same_numbers(z, numbers((2, 3)) @ numbers((3, 2)))

        def scaled(pair: dict[str, Tensor], *, scale: int) -> Tensor:
            return self.matmul(pair["x"], pair["y"]) * scale

        assert ds.device_of(ds.run(scaled, {"x": x, "y": y}, scale=2)) is device

    @feature("follow_data")
    def test_run_keeps_a_chain_on_its_device(self, device: Device) -> None:
        """Every step inside `run` is on the device of the arguments, not only the last one."""
        seen: list[Device] = []

        def chain(x: Tensor) -> Tensor:
            for _ in range(3):
                x = x + x
                seen.append(ds.device_of(x))
            return x

        z = ds.run(chain, self.tensor(device))
        assert seen == [device] * 3
        assert self.same_numbers(z, 8 * numbers())

    @feature("follow_data")
    def test_run_refuses_before_it_calls(self, away: tuple[Device, Device]) -> None:
        """If the arguments are on different devices, the function is not called."""
        called: list[object] = []

        def note(*args: object, **kwargs: object) -> None:
            called.append(args)

        with pytest.raises(ds.DeviceMismatchError):
            ds.run(note, self.tensor(away[0]), key=self.tensor(away[1]))
        assert called == []

    @feature("follow_data")
    def test_run_without_tensors_just_calls(self) -> None:
        """Arguments and result pass through unchanged; an error of the function itself is raised unchanged."""

        def pair(a: int, *, b: str) -> tuple[int, str]:
            return a, b

        def fail(x: Tensor) -> float:
            return 1 / 0

        assert ds.run(pair, 1, b="x") == (1, "x")
        with pytest.raises(ZeroDivisionError):
            ds.run(fail, self.tensor())

    @feature("refuse_mixing")
    def test_the_frameworks_operators_refuse_mixing(self, away: tuple[Device, Device]) -> None:
        """The framework's own operators raise instead of moving an argument silently."""
        x, y = self.tensor(away[0], (2, 2)), self.tensor(away[1], (2, 2))
        mixes: list[Callable[[], Tensor]] = [lambda: self.matmul(x, y), lambda: x + y, lambda: y * x]
        for mix in mixes:
            with pytest.raises(Exception):  # noqa: B017, PT011 - each framework has its own error for this
                ds.to_numpy(mix())

    @feature("simulate")
    def test_a_refused_operator_raises_device_mismatch_error(self, away: tuple[Device, Device]) -> None:
        """On simulated GPUs the error is a `ds.DeviceMismatchError` and the framework's own, with a ``ds`` name."""
        if not self.adapter.simulated:
            pytest.skip("hardware: on real GPUs the framework raises its own error")
        x, y = self.tensor(away[0], (2, 2)), self.tensor(away[1], (2, 2))
        mixes: list[Callable[[], Tensor]] = [lambda: x + y, lambda: self.matmul(x, y)]
        for mix in mixes:
            with pytest.raises(ds.DeviceMismatchError) as caught, self.scope_of(away[0]):
                mix()
            error = caught.value
            assert isinstance(error, self.mixing_error())
            assert error.hint
            assert all(self._is_named(place, error.problem) for place in {*away} - {CPU})
            if not self.adapter.native_names:
                assert not any(name in error.problem for name in NATIVE), "a simulated GPU by its native name"
            assert type(error).__qualname__ == "DeviceMismatchError"
            assert traceback.format_exception_only(error)[0].startswith("devshim.DeviceMismatchError: ")
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.hint) == (type(error), str(error), error.hint)

    @feature("models")
    @hook("model")
    def test_a_model_names_simulated_gpus_as_devshim_does(self, away: tuple[Device, Device]) -> None:
        """The error of a model whose input is elsewhere names both devices, and no native name of a simulated GPU."""
        if not self.adapter.simulated:
            pytest.skip("hardware: on real GPUs the framework raises its own error")
        model = ds.place(self.model(), away[0])
        x = ds.full((6, 4), 0.5, dtype="float32", device=away[1])
        with pytest.raises(ds.DeviceMismatchError) as caught:
            self.forward(model, x)
        assert all(self._is_named(place, str(caught.value)) for place in {*away} - {CPU})
        assert self.adapter.native_names or not any(name in str(caught.value) for name in NATIVE)

    def _is_named(self, place: Device, text: str) -> bool:
        """Return True if a text has devshim's name of a device, or the framework's own while it may use its own."""
        return str(place) in text or (self.adapter.native_names and str(place.native()) in text)

    @feature("follow_data")
    def test_python_numbers_mix_with_anything(self, device: Device) -> None:
        """A Python number has no device, so it works with every device."""

        def grown(x: Tensor, a: int) -> Tensor:
            return x * a + 1

        y = ds.run(grown, self.tensor(device), 2)
        assert ds.device_of(y) is device
        assert np.array_equal(ds.to_numpy(y), numbers() * 2 + 1)

"""Tests of `device_of`, `place`, `run` and `on` when compiled: they work as outside, or raise `TracingError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device

    Compiled = Callable[[Any], Any]


def _within(device: Device, fn: Compiled) -> Compiled:
    """Return a function that calls another inside ``on(device)``."""

    def scope(x: Any) -> Any:
        with ds.on(device):
            return fn(x)

    return scope


def _cube(x: Any) -> Any:
    return (x * x * x)[1, 2]


def _of_first(found: Any) -> Any:
    """Return the value, and the gradient of the used tensor plus that of the unused one."""
    value, grads = found
    return value, ds.run(lambda a, b: a + b, grads["x"], grads["unused"])


LOCATING: dict[str, Callable[[Device], Compiled]] = {
    "device_of": lambda device: lambda x: x + x if ds.device_of(x) is device else x,
    "same_device": lambda device: lambda x: x + x if ds.same_device(x, {"x": [x]}, 1) else x,
    "require_same_device": lambda device: lambda x: x + x if ds.require_same_device(x=x, y=(x, x)) is device else x,
}
"""Functions to compile that query a tensor's device; each doubles its argument if the answer is right."""

PLACING: dict[str, Callable[[Device], Compiled]] = {
    "place": lambda device: lambda x: ds.place(x + x, device),
    "copy": lambda device: lambda x: ds.copy(x + x, device),
    "not blocking": lambda device: lambda x: ds.place(x + x, device, non_blocking=True),
    "a tree": lambda device: lambda x: ds.place({"a": [x + x, 1], "b": (None, "text")}, device)["a"][0],
    "a copied tree": lambda device: lambda x: ds.copy([(x + x,)], device)[0][0],
    "a placement": lambda device: lambda x: ds.place({"a": x + x}, ds.Placement({"a": device}))["a"],
}
"""Functions to compile that move a tensor's double to a device."""

RUNNING: dict[str, Callable[[Device], Compiled]] = {
    "run": lambda device: lambda x: ds.run(lambda t: t + t, x),
    "a tree": lambda device: lambda x: ds.run(lambda tree, more: tree["x"][0] + more, {"x": [x]}, more=x),
    "run in run": lambda device: lambda x: ds.run(lambda t: ds.run(lambda u: u + u, t), x),
}
"""Functions to compile that compute on their argument's device."""

DIFFERENTIATING: dict[str, Callable[[], Compiled]] = {
    "value_and_grad": lambda: ds.value_and_grad(_cube),
    "in run": lambda: lambda x: ds.run(ds.value_and_grad(_cube), x),
    "in a tree": lambda: lambda x: _of_first(ds.value_and_grad(lambda tree: _cube(tree["x"]))({"x": x, "unused": x})),
}
"""Functions to compile that return one element's cube and the gradient of that."""

SCOPES: dict[str, Callable[[Device], Compiled]] = {
    "on": lambda device: _within(device, lambda x: x + x),
    "on in on": lambda device: _within(ds.cpu(), _within(device, lambda x: x + x)),
}
"""Functions to compile that compute inside `on`."""

FEATURES = {"trace_device_of": LOCATING, "trace_place": PLACING, "trace_run": RUNNING, "trace_on": SCOPES}


class CompiledTests(Kit):
    """`device_of`, `place`, `run` and `on` under the framework's own compiler."""

    @feature("trace_device_of")
    @pytest.mark.parametrize("how", LOCATING)
    def test_device_of(self, device: Device, how: str) -> None:
        """A compiled function can query the device of its argument, and whether several are on the same device."""
        y = self.compiled(LOCATING[how](device))(self.tensor(device))
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    def test_place(self, journey: tuple[Device, Device]) -> None:
        """A compiled function's result is on the device to which `place` moved it inside."""
        y = self.compiled(PLACING["place"](journey[1]))(self.tensor(journey[0]))
        assert ds.device_of(y) is journey[1]
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    @pytest.mark.parametrize("how", PLACING)
    def test_place_in_every_way(self, away: tuple[Device, Device], how: str) -> None:
        """Copies and trees are also on the requested device, with any keyword."""
        y = self.compiled(PLACING[how](away[1]))(self.tensor(away[0]))
        assert ds.device_of(y) is away[1]
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    def test_public_names_may_be_first_used_in_a_compiled_function(
        self, away: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A public name is loaded at its first use, even if the compiler is the one that reads it."""
        for name in ("place", "Placement"):
            monkeypatch.delitem(vars(ds), name, raising=False)
        y = self.compiled(PLACING["a placement"](away[1]))(self.tensor(away[0]))
        assert ds.device_of(y) is away[1]
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    def test_compiled_place_returns_a_tensor_that_is_there_already(self, device: Device) -> None:
        """Inside a compiled function, `place` of a tensor that is already there changes nothing."""
        y = self.compiled(lambda x: ds.place(ds.place([ds.place(x + x, device)], device)[0], device))(
            self.tensor(device)
        )
        assert ds.device_of(y) is device
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    @pytest.mark.parametrize("how", ["place", "a tree"])
    def test_observers_do_not_change_compiled_calls(self, away: tuple[Device, Device], how: str) -> None:
        """A function also compiles under a ledger and a guard, and gives the same result."""
        fn = self.compiled(PLACING[how](away[1]))
        with ds.transfers(), ds.guard("error"):
            y = fn(self.tensor(away[0]))
        assert ds.device_of(y) is away[1]
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_run")
    @pytest.mark.parametrize("how", RUNNING)
    def test_run(self, device: Device, how: str) -> None:
        """`run` inside a compiled function computes on its argument's device."""
        y = self.compiled(RUNNING[how](device))(self.tensor(device))
        assert ds.device_of(y) is device
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_on")
    @pytest.mark.parametrize("how", SCOPES)
    def test_on(self, device: Device, how: str) -> None:
        """`on` inside a compiled function changes no values, and restores the default at its end."""
        y = self.compiled(SCOPES[how](device))(self.tensor(device))
        assert self.same_numbers(y, 2 * numbers())
        assert ds.device_of(ds.zeros(1)) is ds.cpu()

    @feature("trace_gradient", "value_and_grad", "trace_run")
    @pytest.mark.parametrize("how", DIFFERENTIATING)
    def test_value_and_grad(self, device: Device, other_device: Device, how: str) -> None:
        """`value_and_grad` inside a compiled function gives the gradient, on its argument's device, at each call."""
        expected = np.zeros((3, 4))
        expected[1, 2] = 3 * numbers()[1, 2] ** 2
        fn = self.compiled(DIFFERENTIATING[how]())
        for at in (device, other_device, device):
            value, gradient = fn(self.tensor(at))
            assert {ds.device_of(value), ds.device_of(gradient)} == {at}
            assert self.same_numbers(value, numbers()[1, 2] ** 3)
            assert self.same_numbers(gradient, expected)

    @feature("trace_gradient", "value_and_grad", "trace_run", "higher_order")
    def test_compiled_gradients_of_gradients(self, device: Device) -> None:
        """Second derivatives inside a compiled function are right, on its argument's device."""

        def slope(x: Any) -> Any:
            return ds.value_and_grad(_cube)(x)[1][1, 2]

        expected = np.zeros((3, 4))
        expected[1, 2] = 6 * numbers()[1, 2]
        _, gradient = self.compiled(lambda x: ds.value_and_grad(slope)(x))(self.tensor(device))
        assert ds.device_of(gradient) is device
        assert self.same_numbers(gradient, expected)

    @feature("trace_place")
    @pytest.mark.parametrize("how", ["place", "copy", "a tree"])
    def test_compiled_calls_refuse_a_missing_device(self, how: str) -> None:
        """A device that does not exist is refused while compiling, not ignored."""
        fn = self.compiled(PLACING[how](ds.gpu(99)))
        with pytest.raises(ds.DeviceNotFoundError):
            fn(self.tensor())

    @pytest.mark.parametrize(("name", "how"), [(name, how) for name, ways in FEATURES.items() for how in ways])
    def test_a_gap_is_refused(self, name: str, how: str, device: Device) -> None:
        """If a backend declares a gap, the call inside a compiled function works as outside, or raises `TracingError`.

        A backend without a compiler (a gap of kind never) has no compiled functions to test.
        """
        gap = self.adapter.gaps.get(name)
        if gap is None or gap.kind == "never":
            return
        fn = FEATURES[name][how](device)
        outside = fn(self.tensor())
        try:
            inside = self.compiled(fn)(self.tensor())
        except Exception as error:
            if not any(cause.startswith("TracingError: ds.") for cause in _causes(error)):
                raise
        else:
            assert ds.device_of(inside) is ds.device_of(outside), "it was silently ignored"
            assert self.same_numbers(inside, ds.to_numpy(outside))


def _causes(error: BaseException | None) -> list[str]:
    """Return the types and texts of an error and of its causes."""
    found = []
    while error is not None:
        found.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return found

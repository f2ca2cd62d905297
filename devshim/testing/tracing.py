"""Inside a compiled function devshim does what it does outside, or raises `TracingError`: it is never ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.device import Device


def _calls(device: Device) -> dict[str, Callable[[Any], Any]]:
    """A function to compile for each feature; each doubles its argument if the call keeps its promise."""

    def where(x: Any) -> Any:
        return x + x if ds.device_of(x) is device else x

    def move(x: Any) -> Any:
        return ds.place(x + x, device)

    def run(x: Any) -> Any:
        return ds.run(lambda t: t + t, x)

    def scope(x: Any) -> Any:
        with ds.on(device):
            return x + x

    return {"trace_device_of": where, "trace_place": move, "trace_run": run, "trace_on": scope}


class Tracing(Kit):
    """`device_of`, `place`, `run` and `on` under the framework's own compiler."""

    @feature("trace_device_of")
    def test_device_of(self, device: Device) -> None:
        """A compiled function learns where its argument is."""
        y = self.compiled(_calls(device)["trace_device_of"])(self.tensor(device))
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_place")
    def test_place(self, journey: tuple[Device, Device]) -> None:
        """A compiled function's result is where `place` put it inside."""
        y = self.compiled(_calls(journey[1])["trace_place"])(self.tensor(journey[0]))
        assert ds.device_of(y) is journey[1]
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_run")
    def test_run(self, device: Device) -> None:
        """`run` inside a compiled function computes where its argument is."""
        y = self.compiled(_calls(device)["trace_run"])(self.tensor(device))
        assert ds.device_of(y) is device
        assert self.same_numbers(y, 2 * numbers())

    @feature("trace_on")
    def test_on(self, device: Device) -> None:
        """`on` inside a compiled function changes no values, and where it is left the default is what it was."""
        y = self.compiled(_calls(device)["trace_on"])(self.tensor(device))
        assert self.same_numbers(y, 2 * numbers())
        assert ds.device_of(ds.zeros(1)) is ds.cpu()

    @feature("trace_place")
    def test_a_missing_device_is_refused_inside(self) -> None:
        """A device that does not exist is refused while compiling, not ignored."""
        fn = self.compiled(_calls(ds.gpu(99))["trace_place"])
        with pytest.raises(Exception):  # noqa: B017, PT011 - a compiler may wrap what was raised while it compiled
            fn(self.tensor())

    @pytest.mark.parametrize("name", ["trace_device_of", "trace_place", "trace_run", "trace_on"])
    def test_a_gap_is_refused(self, name: str, device: Device) -> None:
        """Where a backend cannot follow, the call inside does what it does outside, or raises `TracingError`.

        A backend that has no compiler at all (a gap of kind never) has nothing to be called inside of.
        """
        gap = self.adapter.gaps.get(name)
        if gap is None or gap.kind == "never":
            return
        fn = _calls(device)[name]
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
    """The types and texts of an error and of those behind it."""
    found = []
    while error is not None:
        found.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return found

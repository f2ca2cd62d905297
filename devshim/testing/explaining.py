"""`explain`: every public call shows the native line it stands for, to the thread that asked, and to no other."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import numbers

if TYPE_CHECKING:
    from devshim.device import Device


def _scoped(device: Any) -> None:
    with ds.on(device):
        pass


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "device_count": lambda x, d: ds.device_count(),
    "try_gpu": lambda x, d: ds.try_gpu(),
    "device_of": lambda x, d: ds.device_of(x),
    "place": lambda x, d: ds.place(x, d),
    "place_tree": lambda x, d: ds.place([ds.copy(x, "cpu")], d, copy=True),
    "copy": lambda x, d: ds.copy(x, d),
    "to_numpy": lambda x, d: ds.to_numpy(x),
    "from_numpy": lambda x, d: ds.from_numpy(numbers(), d),
    "asarray": lambda x, d: ds.asarray([1, 2], device=d),
    "asarray_dtype": lambda x, d: ds.asarray([1, 2], device=d, dtype="float32"),
    "asarray_array": lambda x, d: ds.asarray(numbers(), device=d),
    "zeros": lambda x, d: ds.zeros((2, 3), device=d, dtype="int32"),
    "ones": lambda x, d: ds.ones(2, device=d),
    "full": lambda x, d: ds.full(2, 7, device=d),
    "empty": lambda x, d: ds.empty(2, device=d),
    "arange": lambda x, d: ds.arange(3, device=d),
    "linspace": lambda x, d: ds.linspace(0, 1, 3, device=d),
    "eye": lambda x, d: ds.eye(2, device=d),
    "zeros_like": lambda x, d: ds.zeros_like(x, device=d),
    "uniform": lambda x, d: ds.random.uniform(size=2, device=d),
    "normal": lambda x, d: ds.random.normal(size=2, device=d),
    "seed": lambda x, d: ds.random.seed(1),
    "on": lambda x, d: _scoped(d),
    "set_device": lambda x, d: ds.set_device(d),
    "run": lambda x, d: ds.run(lambda t: t + t, x),
    "synchronize": lambda x, d: ds.synchronize(d),
    "memory": lambda x, d: ds.memory(d),
    "empty_cache": lambda x, d: ds.empty_cache(d),
}


class Explaining(Kit):
    """What a tutorial's author shows."""

    @pytest.mark.parametrize("call", CALLS)
    def test_every_call_has_its_line(self, call: str, device: Device) -> None:
        """Each public call gives at least one line, printed as it is recorded, and names the device it is about."""

        def body() -> tuple[list[str], str]:
            x = self.tensor()
            printed = io.StringIO()
            with ds.explain(printed) as lines:
                CALLS[call](x, device)
            return lines, printed.getvalue()

        lines, printed = in_thread(body)
        assert lines
        assert all(line.strip() for line in lines)
        assert printed == "".join(f"{line}\n" for line in lines)

    def test_the_device_is_in_the_line(self, device: Device) -> None:
        """The line for a copy names the device as the framework's users write it, where it has more than one."""
        if "gpu" not in self.adapter.kinds() or self.backend == "numpy":
            return
        with ds.explain(file=None) as lines:
            ds.copy(self.tensor(), device)
        assert self.adapter.native_text(device) in lines[-1] or f"{device.index}" in lines[-1]

    def test_outside_nothing_is_recorded(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Before, after, and in other threads, nothing is recorded nor printed; by default lines are printed."""
        x = self.tensor()
        with ds.explain() as lines:
            in_thread(lambda: ds.copy(x, "cpu"))
            assert lines == []
            ds.copy(x, "cpu")
        recorded = list(lines)
        ds.copy(x, "cpu")
        assert lines == recorded
        assert capsys.readouterr().out.splitlines() == recorded

    def test_explanations_nest(self) -> None:
        """An outer block hears what an inner one hears."""
        x = self.tensor()
        with ds.explain(file=None) as outer:
            ds.copy(x, "cpu")
            with ds.explain(file=None) as inner:
                ds.copy(x, "cpu")
        assert len(outer) == 2 * len(inner) > 0

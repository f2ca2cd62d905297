"""Tests of `explain`: every public call shows its native equivalent, only to the thread that opened the block."""

from __future__ import annotations

import ast
import inspect
import io
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device


def _enter_scope(device: Any) -> None:
    with ds.on(device):
        pass


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "device_count": lambda x, d: ds.device_count(),
    "try_gpu": lambda x, d: ds.try_gpu(),
    "local_gpu": lambda x, d: ds.local_gpu(),
    "device_of": lambda x, d: ds.device_of(x),
    "dtype_of": lambda x, d: ds.dtype_of(x),
    "place": lambda x, d: ds.place(x, d),
    "place_tree": lambda x, d: ds.place([ds.copy(x, "cpu")], d, copy=True),
    "copy": lambda x, d: ds.copy(x, d),
    "to_numpy": lambda x, d: ds.to_numpy(x),
    "from_numpy": lambda x, d: ds.from_numpy(numbers(), d),
    "asarray": lambda x, d: ds.asarray([1, 2], device=d),
    "asarray_dtype": lambda x, d: ds.asarray([1, 2], device=d, dtype="float32"),
    "asarray_array": lambda x, d: ds.asarray(numbers(), device=d),
    "asarray_list": lambda x, d: ds.asarray([x, x], device=d),
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
    "randint": lambda x, d: ds.random.randint(1, 7, 3, device=d),
    "permutation": lambda x, d: ds.random.permutation(4, device=d),
    "bernoulli": lambda x, d: ds.random.bernoulli(0.5, 3, device=d),
    "Generator": lambda x, d: ds.random.Generator(0, d).randint(9, size=3),
    "portable Generator": lambda x, d: ds.random.Generator(0, d, portable=True).normal(size=3),
    "seed": lambda x, d: ds.random.seed(1),
    "on": lambda x, d: _enter_scope(d),
    "set_device": lambda x, d: ds.set_device(d),
    "run": lambda x, d: ds.run(lambda t: t + t, x),
    "synchronize": lambda x, d: ds.synchronize(d),
    "memory": lambda x, d: ds.memory(d),
    "prefetch": lambda x, d: list(ds.prefetch([x], d)),
    "timer": lambda x, d: ds.timer(d).__enter__(),
    "empty_cache": lambda x, d: ds.empty_cache(d),
    "place_dict": lambda x, d: ds.place({"a": x, "b": [x, x]}, d),
    "place_placement": lambda x, d: ds.place({"a": x}, ds.Placement({"a": d})),
    "copy_tree": lambda x, d: ds.copy([x], d),
    "broadcast": lambda x, d: ds.broadcast(x, [d, "cpu"]),
    "replicate": lambda x, d: ds.replicate({"w": x}, [d, "cpu"]),
    "split": lambda x, d: ds.split(x, [d, "cpu"]),
    "gather": lambda x, d: ds.gather([x, x], d),
    "all_reduce_": lambda x, d: ds.all_reduce_([ds.copy(x, d), ds.copy(x, d)]),
    "parallel": lambda x, d: ds.parallel([lambda t: t], [x]),
    "data_parallel": lambda x, d: ds.data_parallel(lambda p, t: t, [d])(x, x),
    "placement_of": lambda x, d: ds.placement_of([x]),
    "assign": lambda x, d: ds.assign([ds.copy(x, d)], {"0": x}),
    "same_device": lambda x, d: ds.same_device(x, x),
    "require_same_device": lambda x, d: ds.require_same_device(x=x),
    "devices": lambda x, d: ds.devices(),
    "try_all_gpus": lambda x, d: ds.try_all_gpus(),
    "describe": lambda x, d: ds.describe(d),
    "require": lambda x, d: ds.require(d),
    "convert": lambda x, d: ds.convert(numbers(), ds.framework().__name__.partition(".")[0], d),
    "MetricLog": lambda x, d: _log(d),
    "save": lambda x, d: _save(x, d),
    "load": lambda x, d: ds.load(_save(x, d), d),
    "load_into": lambda x, d: ds.load(_save(x, d), into={"x": x}),
}
NEEDS = {
    **dict.fromkeys(("split", "gather", "all_reduce_", "MetricLog", "asarray_list", "assign"), "several"),
    "data_parallel": "data_parallel",
    **dict.fromkeys(("save", "load", "load_into"), "checkpoints"),
    "empty_cache": "empty_cache",
    "Generator": "generator",
}
"""The feature that a call needs: if it is a declared gap, the call is refused."""


def run_calls(names: Iterable[str]) -> list[Any]:
    """Return names of calls as parameters, each with a mark for the feature that it needs."""
    return [pytest.param(name, marks=feature(NEEDS[name])) if name in NEEDS else name for name in names]


LIKE_OTHERS = {
    **dict.fromkeys(("empty_like", "full_like", "ones_like"), "zeros_like"),
    "using": "use",
}
"""Public functions that have the same lines as another one."""
WITHOUT = {
    **dict.fromkeys(("device", "cpu", "gpu"), "they name a device: nothing of a framework is called"),
    **dict.fromkeys(("use", "backends", "framework"), "they choose a framework, or import it"),
    **dict.fromkeys(("explain", "transfers", "guard"), "they watch what is called"),
    **dict.fromkeys(("simulate", "Fault"), "a real GPU needs no such line"),
    "launch": "it starts processes, and calls nothing of a framework in this one",
    "set_default_dtype": "the lines of the calls after it show their dtype",
    "namespace": "it returns functions of the framework",
    "shrink_batch": "it calls the function it is given",
    "leaves": "it reads what the framework's own accessors return",
    "world": "it reads the variables of a launcher",
    "is_out_of_memory": "it reads an error, and calls nothing of a framework",
    **dict.fromkeys(("value_and_grad", "stop_gradient"), "they concern a function's results, not where these are"),
    "memory_policy": "it is refused once a framework has started; tested for each framework in a fresh process",
    "set_visible_devices": "it is refused once a framework has started; tested on NumPy",
}
"""Public functions without a line, and why."""


def _log(device: Any) -> None:
    log = ds.MetricLog(device)
    log.append(ds.ones((), dtype="float32", device=device))
    log.flush()


def _save(x: Any, device: Any) -> str:
    path = str(Path(tempfile.mkdtemp()) / "x.safetensors")
    ds.save({"x": ds.copy(x, device)}, path)
    return path


def _parse(line: str) -> ast.Module:
    """Parse a line; a block's head gets a body."""
    return ast.parse(f"{line} pass" if line.endswith(":") else line)


class ExplainTests(Kit):
    """The lines that an author of a tutorial shows."""

    @pytest.mark.parametrize("call", run_calls(CALLS))
    @feature("explain")
    def test_explain_shows_a_native_line_for_every_call(self, call: str, device: Device) -> None:
        """Each public call gives at least one line, printed when it is recorded, that names the call's device."""

        def body() -> tuple[list[str], str]:
            x = self.tensor()
            printed = io.StringIO()
            with ds.explain(printed) as lines:
                CALLS[call](x, device)
            return lines, printed.getvalue()

        lines, printed = in_thread(body)
        assert lines
        assert all(line.strip() for line in lines)
        assert all(_parse(line) for line in lines), lines
        assert not any("sim:" in line or "sim_gpu" in line for line in lines), lines
        assert printed == "".join(f"{line}\n" for line in lines)

    def test_every_public_function_is_explained(self) -> None:
        """Each public function is called by the test of native lines, or has a reason why it is not."""
        public = {name for name in ds.__all__ if inspect.isfunction(getattr(ds, name))} | {"MetricLog", "on"}
        known = {*CALLS, *LIKE_OTHERS, *WITHOUT}
        assert public - known == set()
        assert all(name in CALLS or name in WITHOUT for name in LIKE_OTHERS.values())

    @feature("models")
    @hook("model")
    def test_explain_shows_native_lines_for_models(self, device: Device) -> None:
        """A model and its optimizer have one line each, in every call that takes them."""
        model = self.model()
        calls: dict[str, Callable[[], object]] = {
            "place": lambda: ds.place([model], device),
            "replicate": lambda: ds.replicate(model, [device, "cpu"]),
            "save": lambda: ds.save(model, path),
            "load": lambda: ds.load(path, into=model),
            "placement_of": lambda: ds.placement_of(model),
        }
        path = str(Path(tempfile.mkdtemp()) / "model.safetensors")
        for name, call in calls.items():
            with ds.explain(file=None) as lines:
                call()
            assert lines, name
            assert all("model" in line and _parse(line) for line in lines), lines
            assert not any(line.startswith("#") for line in lines), lines

    @feature("explain")
    def test_explain_abridges_large_trees(self) -> None:
        """A tree of many tensors shows the first ones by their keys, and how many more there are."""
        x = self.tensor()
        tree = {f"w{i}": ds.copy(x, "cpu") for i in range(20)}
        with ds.explain(file=None) as lines:
            ds.copy(tree, "cpu")
        assert "x['w0']" in lines[0]
        assert lines[-1] == "# and 12 more tensors"
        assert len(lines) == 9

    @feature("explain")
    def test_explain_names_the_device(self, device: Device) -> None:
        """The line for a copy names the device as users of the framework do, if the framework has several devices."""
        if "gpu" not in self.adapter.kinds() or self.backend == "numpy":
            return
        with ds.explain(file=None) as lines:
            ds.copy(self.tensor(), device)
        assert self.adapter.native_text(device) in lines[-1] or f"{device.index}" in lines[-1]

    def test_explain_records_nothing_outside_its_block(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Before, after and in other threads nothing is recorded or printed.

        Inside the block, lines are printed by default.
        """
        x = self.tensor()
        with ds.explain() as lines:
            in_thread(lambda: ds.copy(x, "cpu"))
            assert lines == []
            ds.copy(x, "cpu")
        recorded = list(lines)
        ds.copy(x, "cpu")
        assert lines == recorded
        assert capsys.readouterr().out.splitlines() == recorded

    def test_explain_blocks_nest(self) -> None:
        """An outer block records what an inner block records."""
        x = self.tensor()
        with ds.explain(file=None) as outer:
            ds.copy(x, "cpu")
            with ds.explain(file=None) as inner:
                ds.copy(x, "cpu")
        assert len(outer) == 2 * len(inner) > 0

    def test_explain_orders_the_lines_of_parallel_by_callable(self) -> None:
        """Lines of the calls inside `parallel` come in the order of its callables, in any order of threads."""
        x, second_ends = self.tensor(), threading.Event()

        def first(t: Any) -> None:
            assert second_ends.wait(30)
            ds.to_numpy(t)

        def second(t: Any) -> None:
            ds.device_of(t)
            second_ends.set()

        def alone(call: Callable[[Any], object]) -> list[str]:
            with ds.explain(file=None) as lines:
                ds.parallel([call], [x])
            return lines[1:]

        def failing(t: Any) -> None:
            second(t)
            raise ValueError("on purpose")

        order = alone(second) and [*alone(first), *alone(second)]
        for last in (second, failing):
            second_ends.clear()
            with ds.explain(file=None) as lines, suppress(ValueError):
                ds.parallel([first, last], [x, x])
            assert lines[1:] == order

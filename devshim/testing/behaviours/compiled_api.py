"""Tests that every public call inside a compiled function works as outside, or raises `TracingError`.

No call may do anything else: return the value of another call, return a random number frozen at compile time, leak a
tracer out of its function, or write a file while the function is compiled instead of when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.registry import current
from devshim.testing.base import Kit
from devshim.testing.behaviours.compiled_calls import (
    ANSWERS,
    CALLS,
    DRAWN,
    EFFECTS,
    FACTS,
    MADE,
    MODELS,
    NEEDS,
    OUTSIDE,
    PROCESS,
    VALUES,
    Around,
)
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devshim.testing.behaviours.compiled_calls import Compiled

_MOVED = ("asarray", "broadcast", "convert", "copy", "gather", "place", "split")
"""The calls whose result is on the requested device."""


def _each(*tables: dict[str, Any]) -> list[Any]:
    """Return the names of calls, each marked with the feature that an adapter may have declared a gap in."""
    names = [name for table in tables for name in table]
    return [pytest.param(name, marks=[feature(NEEDS[name])] if name in NEEDS else []) for name in names]


class CompiledApiTests(Kit):
    """Every public call, inside every kind of compiled function that the framework has."""

    @hook("compiled")
    @pytest.mark.parametrize("call", _each(ANSWERS, FACTS))
    def test_compiled_queries_answer_as_outside(self, call: str, tmp_path: Path) -> None:
        """Each call of the compiled function gives the same answer as outside, even with other arguments."""
        make = {**ANSWERS, **FACTS}[call]
        outside = self._twice(make(self._surroundings(tmp_path)))
        for inside in self._inside(make, tmp_path, call):
            for y, expected in zip(inside, outside, strict=False):
                assert self.same_numbers(y, ds.to_numpy(expected))
                assert call not in _MOVED or ds.device_of(y) is ds.device_of(expected)

    @hook("compiled")
    @pytest.mark.parametrize("call", _each(MADE))
    def test_compiled_creation_is_on_the_requested_device(self, call: str, tmp_path: Path) -> None:
        """A tensor created together with a result of the arguments has the requested device and values."""
        if call == "load":
            ds.save({"x": ds.from_numpy(numbers((2, 2)))}, tmp_path / "stored")
        outside = self._twice(_beside(MADE[call])(self._surroundings(tmp_path)))
        for inside in self._inside(_beside(MADE[call]), tmp_path, call):
            for (made, _), (expected, _) in zip(inside, outside, strict=False):
                assert ds.device_of(made) is ds.device_of(expected)
                assert call.startswith("empty") or self.same_numbers(made, ds.to_numpy(expected))

    @hook("compiled")
    @pytest.mark.parametrize("call", _each(DRAWN))
    def test_compiled_random_tensors_differ_in_each_call(self, call: str, tmp_path: Path) -> None:
        """Random numbers are different each time the function runs."""
        for inside in self._inside(_beside(DRAWN[call]), tmp_path, call):
            first, second = (made for made, _ in inside)
            assert not self.same_numbers(first, ds.to_numpy(second)), "drawn while the function was compiled"
            assert ds.device_of(second) is self._last()

    @hook("compiled")
    @pytest.mark.parametrize("call", _each(EFFECTS))
    def test_compiled_effects_happen_in_each_call(self, call: str, tmp_path: Path) -> None:
        """A side effect happens each time the function runs, or the call is refused and never happens."""
        make, seen = EFFECTS[call]
        outside, untouched = self._surroundings(tmp_path / "outside"), seen(self._surroundings(tmp_path / "none"))
        self._twice(make(outside))
        expected = seen(outside)
        for name, (compiled, _) in self.compilers().items():
            around = self._surroundings(tmp_path / name)
            done = self._run_compiled(name, compiled(make(around)), call)
            assert seen(around) == (untouched if done is None else expected)

    @hook("compiled")
    @pytest.mark.parametrize("call", _each(PROCESS))
    def test_compiled_calls_about_the_current_moment_are_refused(self, call: str, tmp_path: Path) -> None:
        """A call about the current process is refused if the compiler runs or reads the code once for all calls."""
        for name, (compiled, once) in self.compilers().items():
            if once:
                done = self._run_compiled(name, compiled(PROCESS[call](self._surroundings(tmp_path / name))), call)
                assert done is None, "it was done while the function was compiled"

    @hook("compiled", "model", "optimizer")
    @pytest.mark.parametrize("call", _each(MODELS))
    def test_models(self, call: str, tmp_path: Path) -> None:
        """A refused call leaves models where they are."""
        for name, (compiled, once) in self.compilers().items():
            if not once and call != "place a model":
                continue
            around = self._surroundings(tmp_path / name)
            around.model = self.model()
            around.optimizer = self.optimizer(around.model)
            done = self._run_compiled(name, compiled(MODELS[call](around)), call)
            assert not (done and once), "it was done while the function was compiled"
            assert ds.placement_of(around.model).devices == {around.device if done else ds.cpu()}
            assert not around.kept
            assert not around.path.exists()

    def test_declared_refusals_are_of_known_calls(self) -> None:
        """A misspelt call or compiler in ``compiler_refuses`` would declare nothing."""
        assert set().union(*self.compiler_refuses.values()) <= CALLS
        assert not self.compiler_refuses or self.compiler_refuses.keys() <= self.compilers().keys()

    def test_every_public_function_is_compiled(self) -> None:
        """A new public name must be added to the tables."""
        public = {name for name in ds.__all__ if not name.endswith(("Error", "Warning")) and name != "__version__"}
        assert public - VALUES - OUTSIDE == {call.partition(" ")[0].partition(".")[0] for call in CALLS}

    def _surroundings(self, path: Path) -> Around:
        path.mkdir(exist_ok=True)
        places = path / "saved", path / "stored"
        return Around(self.backend, self._last(), ds.device_count("gpu"), *places, array=numbers((2, 2)) + 3)

    def _last(self) -> ds.Device:
        """Return the last simulated GPU, or the host."""
        return ds.try_all_gpus()[-1] if self.adapter.simulated else ds.cpu()

    def _twice(self, fn: Compiled) -> list[Any]:
        return [fn(ds.from_numpy(numbers() + i, self._last())) for i in range(2)]

    def _inside(self, make: Callable[[Around], Compiled], path: Path, call: str) -> list[list[Any]]:
        """Return the results of two calls for each kind of compiled function that does not refuse."""
        tried = [
            self._run_compiled(name, compiled(make(self._surroundings(path))), call)
            for name, (compiled, _) in self.compilers().items()
        ]
        return [done for done in tried if done is not None]

    def _run_compiled(self, compiler: str, fn: Compiled, call: str) -> list[Any] | None:
        """Return the results of two calls, or None if they were refused, which the compiler must have declared."""
        text = "\n\nHint: "  # Paddle replaces it by another error of the same class and text
        try:
            done: list[Any] = self._twice(fn)
        except ds.TracingError as error:
            text, done = str(error), []
            expected = call in self.compiler_refuses.get(compiler, ()) or call in PROCESS or call in MODELS
            assert expected, f"{compiler} refused {call}, and compiler_refuses does not declare it: {text}"
        except self.compiler_fails.get(call, ()):
            done = []
        assert "\n\nHint: " in text, "it does not say what to do outside"
        assert not current.TRACED.devices
        assert ds.device_of(ds.zeros(1)) is ds.cpu()
        return done or None


def _beside(make: Callable[[Around, Any], Any]) -> Callable[[Around], Compiled]:
    """Return a function that returns a created tensor, and the double of its argument."""
    return lambda around: lambda x: (make(around, x), x + x)

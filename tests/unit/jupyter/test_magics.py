"""Tests of the magics of one line, and of loading the extension, with a stand-in for IPython's shell."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.jupyter import magics


class Shell:
    """A shell that has only magics."""

    def __init__(self) -> None:
        self.magics_manager = SimpleNamespace(magics={"line": {}, "cell": {}})

    def register_magic_function(self, function: Any, magic_kind: str, magic_name: str) -> None:
        self.magics_manager.magics[magic_kind][magic_name] = function


class UsageError(Exception):
    """The error that IPython shows without a traceback."""


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the line magics of a shell in which the extension is loaded."""
    error = ModuleType("IPython.core.error")
    error.UsageError = UsageError  # type: ignore[attr-defined]
    for name, module in {"IPython": ModuleType("IPython"), "IPython.core": ModuleType("IPython.core")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "IPython.core.error", error)
    shell = Shell()
    ds.load_ipython_extension(shell)
    return shell.magics_manager.magics["line"]


def test_devices_are_a_table_that_is_text_and_html() -> None:
    ds.simulate(2, memory="1GiB")
    held = ds.ones(256, dtype="float32", device="gpu:1")
    shown = magics.devices("")
    rows = repr(shown).splitlines()
    assert rows[0].startswith("NumPy ")
    assert rows[2].split() == ["device", "native", "name", "memory", "used"]
    assert re.match(r"cpu +cpu ", rows[3])
    assert re.match(r"gpu:1 \(simulated\) .* 1.0 GiB +1.0 KiB$", rows[5])
    assert shown._repr_html_().count("simulated</span>") == 2
    assert len(repr(magics.devices(" gpu ")).splitlines()) == 5
    del held


def test_devices_of_an_unknown_kind(line: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="warp"):
        line["devices"]("warp")


def test_use_chooses_the_framework(line: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    ds.use(None)
    line["use"](" 'numpy' ")
    assert re.fullmatch(r"NumPy \S+ is the current framework\n", capsys.readouterr().out)
    assert ds.framework().__name__ == "numpy"


@pytest.mark.parametrize("text", ["", "numpy torch", "numppy"])
def test_use_takes_the_name_of_a_framework(line: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match="numpy") as caught:
        line["use"](text)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_simulate_on_and_off(line: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for text, said, count in [("", "2 simulated GPUs", 2), ("3 1GiB", "3 simulated GPUs of 1,073,741,824 bytes", 3)]:
        line["simulate"](text)
        assert (capsys.readouterr().out, ds.device_count()) == (f"{said}\n", count)
    line["simulate"]("off")
    assert (capsys.readouterr().out, ds.device_count()) == ("no simulated GPUs\n", 0)


@pytest.mark.parametrize("text", ["two", "-1", "2 4GiB 3", "off 2", "2 many"])
def test_simulate_refuses_other_text(line: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError):
        line["simulate"](text)
    assert ds.device_count() == 0


def test_loading_twice_and_unloading_leave_only_what_is_not_ours(line: dict[str, Any]) -> None:
    shell = Shell()
    shell.magics_manager.magics["line"] = line
    ds.load_ipython_extension(shell)
    assert {"devices", "use", "simulate"} <= line.keys()
    line["use"] = mine = lambda text: text
    ds.unload_ipython_extension(shell)
    assert line == {"use": mine}
    ds.unload_ipython_extension(shell)


def test_importing_devshim_does_not_load_the_extension(python: Callable[..., str]) -> None:
    assert (
        python("""
        import sys
        import devshim as ds
        ds.use("numpy"), ds.zeros(2)
        print([name for name in sys.modules if "jupyter" in name or "IPython" in name])
        assert callable(ds.load_ipython_extension)
    """).strip()
        == "[]"
    )

"""Tests of import hooks: a framework's `import_context()` wraps its import once, for any code that imports it."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from devshim.registry import import_hooks


class CountingContext:
    """A context manager that counts how often it is entered, and records what it sees."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.events.append("in")
        try:
            yield
        except BaseException as error:
            self.events.append(type(error).__name__)
            raise
        finally:
            self.events.append("out")


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CountingContext]:
    """Yield a framework called `needyframe` whose import needs a context manager around it."""
    found = CountingContext()
    hooks = ModuleType("import_hooks")
    hooks.import_context = found  # type: ignore[attr-defined]
    monkeypatch.setattr(import_hooks, "load_hooks", lambda name: hooks)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(str(tmp_path / "fakes"))
    import_hooks.prepare_import("needyframe")
    yield found
    del import_hooks._WATCHED["needyframe"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "needyframe"]:
        del sys.modules[name]


def bring_in() -> Any:
    import needyframe  # type: ignore[import-not-found]

    return needyframe


def test_a_typed_import_gets_it_too(context: CountingContext, package: Any) -> None:
    package("needyframe", "from needyframe import part\nvalue = 3")
    package("needyframe/part.py", "")
    assert bring_in().value == 3
    assert bring_in().value == 3
    assert context.events == ["in", "out"]


@pytest.mark.parametrize("asked", [0, 2])
def test_simulated_cards_are_announced_only_where_they_are_asked_for(
    context: CountingContext, package: Any, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    announced = CountingContext()
    hooks = import_hooks.load_hooks("needyframe")
    hooks.simulated_import_context = announced  # type: ignore[union-attr]
    monkeypatch.setenv("DEVSHIM_SIMULATE_GPUS", str(asked))
    package("needyframe", "value = 3")
    assert bring_in().value == 3
    assert context.events == ["in", "out"]
    assert announced.events == (["in", "out"] if asked else [])


def test_looking_is_not_importing(context: CountingContext, package: Any) -> None:
    from importlib.util import find_spec

    package("needyframe", "value = 3")
    for _ in range(3):
        assert find_spec("needyframe") is not None
    assert context.events == []
    assert bring_in().value == 3
    assert context.events == ["in", "out"]


def test_an_error_passes_through_and_the_next_try_is_a_new_one(context: CountingContext, package: Any) -> None:
    folder = package("needyframe", "raise OSError('libfoo.so')")
    with pytest.raises(OSError, match=r"libfoo\.so"):
        bring_in()
    assert "needyframe" not in sys.modules
    (folder / "needyframe" / "__init__.py").write_text("value = 'mended'", encoding="utf-8")
    sys.path_importer_cache.clear()
    assert bring_in().value == "mended"
    assert context.events == ["in", "OSError", "out", "in", "out"]


def test_the_finder_of_an_editable_installation_is_asked(context: CountingContext, package: Any) -> None:
    """The framework is not on the path; its own finder knows where it is."""
    from importlib.util import spec_from_file_location

    folder = package("elsewhere.py", "value = 'editable'")

    class Editable:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> Any:
            return spec_from_file_location(name, folder / "elsewhere.py") if name == "needyframe" else None

    sys.meta_path.append(Editable)  # type: ignore[arg-type]
    assert bring_in().value == "editable"
    assert context.events == ["in", "out"]


def test_one_loader_for_many_modules(context: CountingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip file's loader serves all of its modules; only the framework's root is wrapped."""
    with zipfile.ZipFile(tmp_path / "room.zip", "w") as archive:
        archive.writestr("needyframe/__init__.py", "import needyneighbour\nvalue = needyneighbour.value")
        archive.writestr("needyneighbour.py", "value = 5")
    monkeypatch.syspath_prepend(str(tmp_path / "room.zip"))
    assert bring_in().value == 5
    assert context.events == ["in", "out"]
    del sys.modules["needyneighbour"]


def test_other_imports_are_left_alone(context: CountingContext) -> None:
    assert import_hooks._Finder.find_spec("json") is None
    assert import_hooks._Finder.find_spec("numpy") is None
    assert context.events == []


def test_what_is_imported_already_is_not_watched(context: CountingContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anotherframe", ModuleType("anotherframe"))
    import_hooks.prepare_import("anotherframe")
    assert "anotherframe" not in import_hooks._WATCHED
    before = list(sys.meta_path)
    import_hooks.prepare_import("needyframe")
    assert sys.meta_path == before


def test_missing_stays_missing(context: CountingContext) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        bring_in()
    assert caught.value.name == "needyframe"
    assert context.events == []


def test_nothing_is_installed_by_importing_devshim(python: Any) -> None:
    python("""
        import sys
        before = list(sys.meta_path)
        import devshim as ds
        ds.device("gpu:1")
        assert sys.meta_path == before
    """)


@pytest.mark.parametrize("name", ["convert", "world", "place", "load"])
def test_numpy_may_be_first_imported_by_devshim_itself(python: Callable[..., str], name: str) -> None:
    """Its import loads the adapter of the simulated GPUs, while the module that imports NumPy is not complete."""
    done = python(f"""
        import sys, devshim as ds
        ds.simulate(2)
        assert "numpy" not in sys.modules
        ds.{name}
        ds.use("numpy")
        print(ds.device_of(ds.place(ds.ones(3), "gpu:1")))
    """)
    assert done.split() == ["gpu:1"]

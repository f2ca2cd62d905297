"""Tests of the registry: which backend handles a name or tensor, lazily; missing, broken and ambiguous ones differ."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import discovery, registry

BROKEN = {
    "library": ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12"),
    "dependency": ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
    "itself": ("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')", "No module named 'torch'"),
    "syntax": ("def", "SyntaxError"),
    "other": ("raise RuntimeError('driver too old')", "driver too old"),
    "a script of the user's": ("x = 1", "torch"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_install_is_broken_with_its_own_traceback(case: str, python: Any, package: Any) -> None:
    source, reported = BROKEN[case]
    output = python(
        """
        import devshim as ds
        assert "torch" in ds.backends()
        ds.use("torch")  # choosing imports nothing
        for _ in range(2):
            try:
                ds.zeros(3)
            except ds.BackendNotFoundError as error:
                raise SystemExit(f"reported as missing: {error}")
            except ds.BackendBrokenError as error:
                assert "PyTorch is installed, but importing it fails" in str(error), error
                assert "Traceback" in str(error) and error.__cause__ is not None
                assert isinstance(error, ImportError)
                print(error)
        """,
        package("torch", source),
    )
    assert reported in output


@pytest.mark.parametrize("why", ["nothing there", "blocked", "a folder", "an imported folder"])
def test_missing_is_missing(why: str, python: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    if "folder" in why:
        (tmp_path / "folder" / "mxnet").mkdir()
        (tmp_path / "folder" / "mxnet" / "data.txt").touch()
    prepare = {"blocked": "sys.modules['mxnet'] = None", "an imported folder": "import mxnet"}.get(why, "")
    python(
        f"""
        import sys
        {prepare}
        import devshim as ds
        assert "mxnet" not in ds.backends()
        for call in (lambda: ds.use("mxnet"), lambda: ds.using("mxnet"), lambda: ds.cpu().native("mxnet")):
            try:
                call()
            except ds.BackendNotFoundError as error:
                assert "MXNet is not installed" in error.problem and "numpy" in error.problem
                assert "pip install 'devshim[mxnet]'" in error.hint
            else:
                raise SystemExit("found")
        """,
        tmp_path / "folder",
    )


@pytest.mark.parametrize(
    ("name", "meant"), [("torhc", "torch"), ("pytroch", "torch"), ("TensorFlwo", "tensorflow"), ("np.", "numpy")]
)
def test_a_misspelt_name_gets_a_hint(name: str, meant: str) -> None:
    with pytest.raises(ds.BackendNotFoundError, match=re.escape(repr(name))) as caught:
        ds.use(name)
    assert f"did you mean {meant!r}?" in str(caught.value.hint)
    assert "torch, tensorflow, mxnet, paddle, jax, cupy, numpy" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["", "x" * 10**5, "zzz", "torch.nn", "../torch", "\ud800"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ds.BackendNotFoundError) as caught:
        ds.use(name)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", [3, b"torch", np, ("torch",)])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(ds.BackendNotFoundError, match="named by text"):
        ds.use(name)


@pytest.mark.parametrize("name", ["numpy", "NumPy", "np"])
def test_nicknames(name: str) -> None:
    ds.use(name)
    assert ds.framework() is np


CLAIM = """
import devshim as ds
for call in (lambda: ds.cpu().native("NAME"), lambda: (ds.use("NAME"), ds.zeros(1))):
    try:
        call()
    except ds.BackendConflictError as error:
        assert "first" in error.problem and "SECOND" in error.problem, error
        assert "uninstall all but one" in error.hint
    else:
        raise SystemExit("served by one of two")
print("refused")
"""


def test_two_claimants_of_a_name_are_refused_by_name(python: Any, package: Any, distribution: Any) -> None:
    folder = package("toyframe.py", "")
    distribution("first", "toyframe = first_adapter:Backend")
    distribution("second", "toyframe = second_adapter:Backend")
    assert "refused" in python(CLAIM.replace("NAME", "toyframe").replace("SECOND", "second"), folder)


def test_a_claimant_of_a_name_of_ours_is_refused(python: Any, distribution: Any) -> None:
    folder = distribution("first", "numpy = first_adapter:Backend")
    assert "refused" in python(CLAIM.replace("NAME", "numpy").replace("SECOND", "devshim itself"), folder)


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("Backend = object", "which is not a devshim.backend.Backend"),
        ("from devshim_backends._numpy.backend import NumpyBackend as Backend", "a backend called 'numpy'"),
        ("", "has no attribute 'Backend'"),
        ("import nothing_of_the_kind", "nothing_of_the_kind"),
        ("from devshim.contract.backend import Backend", "abstract"),
    ],
)
def test_a_third_partys_defect_is_reported_as_such(
    source: str, reported: str, python: Any, package: Any, distribution: Any
) -> None:
    package("toyframe.py", "")
    package("toyframe_devshim.py", source)
    folder = distribution("toys", "toyframe = toyframe_devshim:Backend")
    output = python(
        """
        import devshim as ds
        ds.use("toyframe")
        try:
            ds.zeros(1)
        except ds.BackendBrokenError as error:
            print(error)
        """,
        folder,
    )
    assert reported in output


def test_the_root_of_a_library_may_be_a_namespace_package(python: Any, package: Any, distribution: Any) -> None:
    package("spaceframe/core.py", "class Array: pass")  # as MLX: `import mlx.core`, and mlx has no __init__.py
    package(
        "space_adapter.py",
        """
        import spaceframe.core
        from devshim_backends._numpy.backend import NumpyBackend
        class Backend(NumpyBackend):
            name = "spaceframe"
            def is_tensor(self, cls):
                return cls is spaceframe.core.Array or super().is_tensor(cls)
        """,
    )
    folder = distribution("spaces", "spaceframe = space_adapter:Backend")
    python(
        """
        import devshim as ds
        import spaceframe.core
        assert ds.device_of(spaceframe.core.Array()) is ds.cpu()
        assert ds.backends()["spaceframe"].imported
        ds.use("spaceframe")
        """,
        folder,
    )


def test_a_folder_with_the_name_of_a_framework_is_not_the_framework(python: Any, package: Any) -> None:
    folder = package("paddle/notes.py", "").parent.parent
    python("import devshim as ds; assert 'paddle' not in ds.backends()", folder)


def test_capitals_and_extras_in_an_entry_point(python: Any, package: Any, distribution: Any) -> None:
    package("ToyFrame.py", "")
    package(
        "toy_adapter.py",
        """
        from devshim_backends._numpy.backend import NumpyBackend
        class Backend(NumpyBackend):
            name = "ToyFrame"
        """,
    )
    folder = distribution("toys", "ToyFrame = toy_adapter:Backend [more]")
    python("import devshim as ds; ds.use('ToyFrame'); ds.zeros(2); assert 'ToyFrame' in ds.backends()", folder)


@pytest.mark.slow
def test_the_example_of_the_readme_works(python: Any, package: Any, distribution: Any) -> None:
    """The adapter of backends/README.md uses only `Backend` in at most a hundred lines; it runs, and passes the kit."""
    found = readme()
    folder = distribution("strict-devshim", toml(found))
    for name, source in examples(found).items():
        package(name, source)
    adapter = examples(found)["strict_devshim.py"]
    assert "devshim_backends" not in adapter
    assert len(adapter.splitlines()) <= 100
    python(examples(found)["program.py"], folder)
    words = ["-q", "-p", "devshim.testing.plugin", "-p", "no:cacheprovider", str(folder / "test_strict.py")]
    for marked in ("not gpu", "gpu"):
        run = f"import pytest; raise SystemExit(pytest.main({[*words, '-m', f'{marked} and not fresh']!r}))"
        assert " passed" in python(run, folder)


def readme() -> str:
    for folder in Path(__file__).parents:
        if (folder / "backends" / "README.md").is_file():
            return (folder / "backends" / "README.md").read_text(encoding="utf-8")
    raise AssertionError("backends/README.md is not beside the tests")


def examples(text: str) -> dict[str, str]:
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", text, re.DOTALL))


def toml(text: str) -> str:
    (block,) = re.findall(r"```toml\n\[project.entry-points.\"devshim.backends\"\]\n(.*?)```", text, re.DOTALL)
    return str(block).replace('"', "")


def test_a_tensor_is_recognised_by_its_type_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = fake.to_device(np.zeros(2), ds.gpu(1))
    assert ds.device_of(x) is ds.gpu(1)
    assert registry.TENSORS[type(x)] is fake
    monkeypatch.setattr(registry, "backend_of_type", None)  # not queried again
    assert ds.device_of(fake.to_device(np.zeros(1), ds.gpu(0))) is ds.gpu(0)


def test_the_nearest_base_class_decides(fake: Any) -> None:
    """A third party's tensors may subclass NumPy arrays, and a user's class may subclass those."""
    theirs = type(fake.to_device(np.zeros(1), ds.cpu()))
    mine = type("Mine", (theirs,), {"__module__": "my_program"})
    plain = type("Plain", (np.ndarray,), {"__module__": "my_program"})
    assert registry.backend_for(np.zeros(1).view(mine)) is fake
    assert registry.backend_for(np.zeros(1).view(plain)) is registry.load("numpy")
    del registry.TENSORS[mine], registry.TENSORS[plain]


def test_its_own_framework_serves_a_tensor_whatever_is_current(fake: Any) -> None:
    ds.use("numpy")
    moved = ds.place(fake.to_device(np.arange(3), ds.cpu()), "gpu:1")
    assert type(moved).__module__ == "fakeframe"
    assert ds.device_of(moved) is ds.gpu(1)
    with pytest.raises(ds.DeviceNotFoundError, match="NumPy has 0 gpu devices"):
        ds.place(np.zeros(1), "gpu:1")


def test_types_made_in_a_loop_are_not_kept_for_ever() -> None:
    for _ in range(5000):
        assert registry.backend_for(type("T", (), {})()) is None
    assert len(registry._OTHERS) <= 4096


def test_threads_that_load_one_backend_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Slow(ModuleType):
        @staticmethod
        def Backend() -> Any:
            threading.Event().wait(0.05)
            made.append(registry.load("numpy").__class__())
            return made[-1]

    monkeypatch.setitem(sys.modules, "slowframe", ModuleType("slowframe"))
    monkeypatch.setitem(sys.modules, "slow_adapter", Slow("slow_adapter"))
    point = SimpleNamespace(name="slowframe", value="slow_adapter:Backend", dist=None)
    monkeypatch.setattr(discovery, "_entry_points", {"slowframe": [point]})
    monkeypatch.setattr(registry, "_check", lambda *args: None)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(registry.load("slowframe"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del registry.LOADED["slowframe"]
    assert len(made) == 1
    assert len(set(map(id, found))) == 1
    assert len(found) == 6


def test_gaps_are_read_without_importing_the_framework(python: Callable[..., str]) -> None:
    python("""
        import sys
        from devshim.registry import discovery, registry
        for name in discovery.BUILTIN:
            gaps = registry.gaps(name)
            assert all(gap.reason for gap in gaps.values())
        assert not [name for name in ("torch", "tensorflow", "jax", "paddle", "mxnet", "numpy") if name in sys.modules]
    """)


def test_limits_are_a_third_partys_own(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fake), "limits", {"simulate": "by halves"})
    assert registry.limits("fakeframe") == {"simulate": "by halves"}
    assert "np.asarray" in registry.limits("numpy")["guard"]


def test_a_framework_that_is_imported_is_present(python: Callable[..., str]) -> None:
    """This also holds before any devshim call needed it."""
    python(
        """
        import devshim as ds
        from devshim.registry import registry
        assert [each.name for each in registry.imported_backends()] == []
        import numpy
        assert [each.name for each in registry.imported_backends()] == ["numpy"]
        assert registry.imported_backends() == registry.loaded_backends()
        """
    )

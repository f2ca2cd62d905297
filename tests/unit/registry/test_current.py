"""Tests of the current framework: `use`, `using`, the environment and what is installed, for each context."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

import devshim as ds
from devshim.registry import current as current_module
from devshim.registry import discovery
from devshim.testing.base import in_thread


def current() -> str:
    return current_module.current().name


def test_precedence(fake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The innermost block comes first, then the process, then the environment."""
    ds.use(None)
    monkeypatch.setenv("DEVSHIM_BACKEND", "fakeframe")
    assert current() == "fakeframe"
    ds.use("numpy")
    assert current() == "numpy"
    with ds.using("fakeframe") as name:
        assert name == current() == "fakeframe"
        with ds.using("numpy"):
            assert current() == "numpy"
        assert current() == "fakeframe"
    assert current() == "numpy"
    ds.use(None)
    assert current() == "fakeframe"


def test_the_environment_is_read_when_it_is_needed(fake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use(None)
    for name, found in (("fakeframe", "fakeframe"), ("np", "numpy"), ("NumPy", "numpy"), (" NumPy\t", "numpy")):
        monkeypatch.setenv("DEVSHIM_BACKEND", name)
        assert current() == found
    monkeypatch.setenv("DEVSHIM_BACKEND", "nonsense")
    with pytest.raises(ds.BackendNotFoundError, match="no backend is called 'nonsense'"):
        ds.zeros(1)
    assert current_module.chosen_name() is None
    for nothing in ("", "  "):
        monkeypatch.setenv("DEVSHIM_BACKEND", nothing)
        assert current() == "fakeframe"  # the only one installed besides NumPy


def test_a_block_ends_whatever_happens(fake: object) -> None:
    with pytest.raises(ZeroDivisionError), ds.using("fakeframe"):
        raise ZeroDivisionError
    assert current() == "numpy"
    with pytest.raises(ds.BackendNotFoundError):
        ds.use("nonsense")
    assert current() == "numpy"
    with pytest.raises(ds.BackendNotFoundError), ds.using("nonsense"):
        pass
    assert current() == "numpy"


def test_use_is_the_processes_and_using_the_threads(fake: object) -> None:
    with ds.using("fakeframe"):
        assert in_thread(current) == "numpy"
        ds.use("fakeframe")
        assert in_thread(current) == "fakeframe"
        assert contextvars.copy_context().run(current) == "fakeframe"


def test_one_block_shared_by_threads(fake: object) -> None:
    """Both are inside at the same time, and leave in the order in which they entered."""
    block, turns, seen = ds.using("fakeframe"), [threading.Event() for _ in range(3)], []

    def first() -> None:
        with block:
            turns[0].set()
            assert turns[1].wait(10)
            seen.append(current())
        seen.append(current())
        turns[2].set()

    def second() -> None:
        assert turns[0].wait(10)
        with block:
            turns[1].set()
            assert turns[2].wait(10)
            seen.append(current())
        seen.append(current())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["fakeframe", "numpy", "fakeframe", "numpy"]


def test_tasks_keep_their_own(fake: object) -> None:
    async def task(name: str, mine: asyncio.Event, other: asyncio.Event) -> str:
        with ds.using(name):
            mine.set()
            await other.wait()
            return current()

    async def main() -> list[str]:
        one, two = asyncio.Event(), asyncio.Event()
        found = await asyncio.gather(task("fakeframe", one, two), task("numpy", two, one))
        return [*found, current()]

    assert asyncio.run(main()) == ["fakeframe", "numpy", "numpy"]


def test_a_block_left_in_another_context_does_no_harm(fake: object) -> None:
    """A generator's finally clause, or an asynchronous fixture's, may run in another context."""
    block = ds.using("fakeframe")
    contextvars.Context().run(block.__enter__)
    contextvars.Context().run(block.__exit__, None, None, None)
    assert current() == "numpy"


def test_the_one_framework_installed_is_taken(python: Any, package: Any) -> None:
    folder = package("jax", "raise RuntimeError('imported too early')")
    python(
        """
        import devshim as ds
        assert list(ds.backends()) == ["jax", "numpy"]
        try:
            ds.device_count()
        except ds.BackendBrokenError as error:
            assert "JAX" in error.problem  # NumPy comes with all of them: JAX it is
        else:
            raise SystemExit("NumPy was taken")
        """,
        folder,
    )


def test_several_and_none_chosen_lists_them(python: Any, package: Any) -> None:
    package("torch", "raise RuntimeError('imported too early')")
    folder = package("jax", "raise RuntimeError('imported too early')")
    python(
        """
        import devshim as ds
        for call in (ds.device_count, ds.devices, lambda: ds.zeros(1), lambda: ds.require("cpu"), ds.try_gpu):
            try:
                call()
            except ds.BackendNotFoundError as error:
                assert "installed are torch, jax" in error.problem, error
                assert "ds.use('torch')" in error.hint and "DEVSHIM_BACKEND" in error.hint
            else:
                raise SystemExit("one was taken")
        import numpy as np
        assert ds.device_of(np.zeros(1)) is ds.cpu(), "a tensor is served by its own framework"
        ds.use("numpy")
        assert ds.device_count() == 0
        """,
        folder,
    )


def test_numpy_alone_is_taken(python: Any) -> None:
    python("""
        import devshim as ds
        assert list(ds.backends()) == ["numpy"]
        assert type(ds.zeros(2)).__module__ == "numpy"
    """)


def test_backends_returns_versions_without_importing(python: Any, package: Any, distribution: Any) -> None:
    package("torch", "raise RuntimeError('imported too early')")
    folder = distribution("torch", "")
    python(
        """
        import devshim as ds
        info = ds.backends()["torch"]
        assert (info.name, info.title, info.version) == ("torch", "PyTorch", "1.0")
        assert not info.imported and info.clashes == ()
        import numpy
        info = ds.backends()["numpy"]
        assert (info.version, info.imported) == (numpy.__version__, True)
        """,
        folder,
    )


def test_framework_gives_the_module(fake: object) -> None:
    assert ds.framework().__name__ == "numpy"
    assert ds.framework("fakeframe").__name__ == "fakeframe"
    assert "fakeframe" in discovery.known_names()

"""Fixtures of the tests of `devshim tutorial`: a separate cache, and no simulated GPUs that stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import devshim as ds


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all tests share, so that the kernel's packages are linked once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_TUTORIAL_CACHE", str(cache_folder))


@pytest.fixture(autouse=True)
def _nothing_simulated() -> Iterator[None]:
    ds.use("numpy")
    yield
    ds.simulate(0)
    ds.use(None)

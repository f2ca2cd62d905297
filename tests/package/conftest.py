"""The option that says where the built distributions are: ``pytest tests/package --dist=DIR``."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--dist", type=Path, help="the folder with the built sdist and wheel")


@pytest.fixture(scope="session")
def dist(pytestconfig: pytest.Config) -> Path:
    folder = pytestconfig.getoption("--dist")
    if folder is None:
        pytest.fail("tests/package needs --dist=DIR: run `nox -s package`")
    return Path(folder)

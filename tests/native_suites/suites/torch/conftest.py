"""Tests that need the network are skipped: libraries download models and data sets in some of their own tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
NEEDS_NETWORK = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "couldn't connect to")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test that wants to download something."""
    try:
        return (yield)
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            text = f"{type(cause).__name__}: {cause}"
            if any(each in text for each in NEEDS_NETWORK):
                pytest.skip("downloads a model or a data set")
            cause = cause.__cause__ or cause.__context__
        raise

"""Tests of the checksum: the same with and without the faster library, and at any split into pieces."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from devshim.checkpoints import crc


@pytest.fixture(params=["as installed", "without isal"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        if request.param == "without isal":
            patch.setitem(sys.modules, "isal", None)
            patch.delitem(sys.modules, "isal.isal_zlib", raising=False)
            assert importlib.reload(crc).crc32 is zlib.crc32
        yield
    importlib.reload(crc)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("size", [0, 1, 63, 5000, 3 * crc.CHUNK + 1])
def test_a_sum_of_pieces_is_the_crc_of_the_whole(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    found = crc.Sum()
    for start in range(0, size, crc.CHUNK):
        found.add(data[start : start + crc.CHUNK].data)
    assert found.value == crc.crc32(data.data) == zlib.crc32(data.data)

"""The conformance kit on the stub: ``STUB_CUPY_GPUS=2 pytest -p devshim.testing.plugin -m gpu tests/stub_cupy``."""

from __future__ import annotations

import runpy
from pathlib import Path

KIT = runpy.run_path(str(Path(__file__).parents[1] / "backends" / "cupy" / "test_conformance.py"))


class TestCupyStub(KIT["TestCupy"]):  # type: ignore[misc]
    pass

"""Every test may use the conformance kit's marks and options."""

from __future__ import annotations

from importlib.util import find_spec

# tests/package builds devshim before it is installed, and needs neither.
pytest_plugins = ["devshim.testing.plugin"] if find_spec("devshim") is not None else []

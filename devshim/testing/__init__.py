"""The conformance kit: one suite of tests that any adapter runs by subclassing ``Conformance`` in about ten lines.

Requirements that this package meets:

* A promise is made once, in the contract, and tested once, here: two backends pass the same test, not two copies of
  it. Each module of ``devshim.testing.behaviours`` tests one table of the contract.
* Code that only a framework's expert can write is a hook (``Kit``): how to differentiate, compile, write in place.
* The tested devices always include one that is *not* the default, real or simulated.
* A feature that a backend declares it does not have (`contract.backend.Gap`) is reported as a gap with its reason,
  never silently skipped. If it can be called, the call must raise. Any other skip is a failure, and so is a backend
  that was requested and is not installed.
* Results are recorded per feature, and the support table of the docs is generated from them
  (``devshim.testing.table``).

Usage::

    # conftest.py
    pytest_plugins = ["devshim.testing.plugin"]

    # test_mine.py
    from devshim.testing import Conformance

    class TestMine(Conformance):
        backend = "mine"

Then run ``pytest`` three times, each time in a new process: without options, with ``--devshim-gpus=2`` for two
simulated GPUs, and with ``--devshim-gpus=3 -m cards`` for the tests that need three. ``pytest -m gpu`` runs the tests
that need real GPUs. pytest must be installed; NumPy already is.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.testing.suite import Conformance

__all__ = ["Conformance"]

REWRITTEN = ("devshim.testing.base", "devshim.testing.values", "devshim.testing.suite", "devshim.testing.behaviours")
"""The modules and packages whose assertions pytest rewrites, so that a failure shows the values."""


def __getattr__(name: str) -> object:
    # Import late, so that devshim.testing.table does not need pytest.
    if name != "Conformance":
        msg = f"module 'devshim.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    import pytest

    pytest.register_assert_rewrite(*REWRITTEN)
    from devshim.testing.suite import Conformance

    return Conformance

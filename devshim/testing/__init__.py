"""The conformance kit: one suite of behaviours that any adapter subclasses in about twenty lines.

Requirements this package answers:

* A promise is made once, in the contract, and tested once, here: two backends pass by the same test, not by two
  copies of it.  The rooms of this package are the contract's tables.
* What only a framework's owner can write is a hook (`Kit`): how to differentiate, to compile, to write in place.
* A device that is *not* the default is always among those tested, real or simulated.
* What a backend declares it cannot do (`contract.backend.Gap`) is reported as a gap with its reason, never passed over;
  where it can be called, it must refuse.  Any other skip is a failure, and so is a backend that was asked for and is
  missing.
* What ran is written down per feature, and the support table of the docs is made from it (`devshim.testing.table`).

Use::

    # conftest.py
    pytest_plugins = ["devshim.testing.plugin"]

    # test_mine.py
    from devshim.testing import Conformance

    class TestMine(Conformance):
        backend = "mine"

and run ``pytest`` three times, each in a process of its own: as it is, with ``--devshim-gpus=2`` for two simulated
cards, and with ``--devshim-gpus=3 -m cards`` for what takes three.
``pytest -m gpu`` runs what needs real ones.  pytest must be installed; NumPy is.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.testing.suite import Conformance

__all__ = ["Conformance"]

ROOMS = (
    *("base", "suite", "values", "declared", "devices", "missing", "placing", "copying", "creating", "making"),
    *(
        "drawing",
        "host",
        "interrupts",
        "dtypes",
        "gradients",
        "scopes",
        "threads",
        "mixing",
        "trees",
        "tracing",
        "converting",
        "running",
    ),
    *(
        "fresh",
        "simulation",
        "cards",
        "observed",
        "taken",
        "refused",
        "models",
        "training",
        "several",
        "three",
        "watching",
        "guarding",
        "sites",
        "secrets",
        "traced",
        "traced_calls",
        "checkpoints",
        "explaining",
        "errors",
        "state",
    ),
)
"""The modules whose assertions pytest shall explain."""


def __getattr__(name: str) -> object:
    # Late, so that devshim.testing.table needs no pytest.
    if name != "Conformance":
        raise AttributeError(f"module 'devshim.testing' has no attribute {name!r}")
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{room}" for room in ROOMS))
    from devshim.testing.suite import Conformance

    return Conformance

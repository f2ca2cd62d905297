"""The commands: `devshim tour`, `devshim run`, `devshim devices`, `devshim doctor`, `devshim certify`.

They call the public API and import no framework to print help.  A command runs in a process of its own, so it
may choose the backend and the simulated cards for the whole of it.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of ``devshim`` and of ``python -m devshim``."""
    from devshim.cli.app import app

    app(prog_name="devshim")

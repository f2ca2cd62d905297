"""The commands of `devshim`: tour, run, compare, devices, smi, doctor, certify, new-backend, tabs, launch and others.

They call the public API and import no framework to print help. A command runs in its own process, so it
may choose the backend and the simulated GPUs for the whole process.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line: the entry point of ``devshim`` and of ``python -m devshim``."""
    from devshim.cli.app import app

    app.main(prog_name="devshim")

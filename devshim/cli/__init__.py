"""The commands of `devshim`: tour, run, compare, devices, smi, doctor, certify, new-backend, tabs, launch and others.

They call the public API and import no framework to print help.  A command runs in its own process, so it
may choose the backend and the simulated GPUs for the whole process.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line: the entry point of ``devshim`` and of ``python -m devshim``."""
    from devshim.cli.app import app

    if sys.argv[1:2] == ["--complete"]:  # asked by the scripts of `devshim completion`
        from devshim.cli.completion import follow

        print(*follow(app, sys.argv[2:]), sep="\n")
        return
    sys.exit(app.main(sys.argv[1:]))

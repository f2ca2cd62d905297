"""`devshim tabs`: print a script as a page of *Dive into Deep Learning*, with native code for each framework."""

from __future__ import annotations

import sys
from pathlib import Path

from devshim.registry import discovery

__all__ = ["main"]


def main(script: Path, frameworks: str | None, backend: str, gpus: int, output: Path | None) -> int:
    """Write the page to a file or to standard output, and what was not translated to standard error; return 0."""
    from devshim.tutorial.front_matter import library

    library("libcst")  # first: its absence has its own error
    from devshim.tutorial import tabs

    names = (
        [discovery.canonical_name(each.strip()) for each in frameworks.split(",")] if frameworks else tabs.FRAMEWORKS
    )
    text, left = tabs.tabs(script, names, backend, gpus)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
    for line in left:
        print(f"devshim: not translated: {line}", file=sys.stderr)
    return 0

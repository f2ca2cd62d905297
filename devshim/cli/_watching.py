"""Build pages again whenever their files change, until Ctrl-C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from devshim.cli._console import print_error, say
from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["watch"]

_PAUSE = 0.3
"""The seconds between two looks at the files; nothing is installed for the file system's notifications."""


def watch(pages: Sequence[Path], build: Callable[[Path], bool], pause: Callable[[float], None] = time.sleep) -> int:
    """Build pages, and each again when its file changes; return the exit code after Ctrl-C, 0.

    An error of a page is printed, and the page is built again when it changes.
    """
    built: dict[Path, tuple[int, int]] = {}
    missing = [path for path in pages if _state(path) is None]
    if missing:
        msg = f"{missing[0]} is not a file"
        raise DevshimError(msg, "name pages that exist; --watch waits for their changes")
    try:
        while True:
            changed = [path for path in pages if _state(path) not in (None, built.get(path))]
            for path in changed:
                built[path] = _state(path) or (0, 0)  # before the build, so that a change during it counts
                _build(path, build)
            if changed:
                say(f"watching {', '.join(map(str, pages))}; Ctrl-C ends it", "dim")
            pause(_PAUSE)
    except KeyboardInterrupt:
        say("stopped watching")
        return 0


def _build(path: Path, build: Callable[[Path], bool]) -> None:
    try:
        build(path)
    except DevshimError as error:
        print_error(error)


def _state(path: Path) -> tuple[int, int] | None:
    """Return when a file was written, and its size; None while an editor replaces it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

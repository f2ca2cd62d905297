"""How a framework is imported beside others: with what it needs, or refused before it crashes.

Three frameworks need care.  MXNet looks for NumPy names that NumPy removed, TensorFlow before Paddle
(or, with older versions, Paddle before TensorFlow) ends the process with a segmentation fault unless
the second is loaded with its own symbols first, and Paddle's simulated GPUs must be announced before it
is imported.  An adapter's ``importing.py`` says what its framework needs, as a context manager around the
execution of its root module; the finder below puts it there, whoever types the ``import``.

The finder is installed when a framework is first asked for (`use`, `using`, a load), never by
``import devshim`` alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Around = Callable[[], AbstractContextManager[None]]

_WATCHED: dict[str, Around] = {}


class _Finder:
    """Finds the watched root modules as Python itself would, and wraps their loaders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        around = _WATCHED.get(name)
        if around is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _wrap(spec, around)
        return spec


def _wrap(spec: ModuleSpec, around: Around) -> None:
    """Make the loader execute its module inside ``around()``; for this spec's loader only."""
    loader = spec.loader
    assert loader is not None
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with around():
            execute(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def watch(name: str) -> None:
    """Give a framework's import what it needs from now on, and do nothing where it needs nothing."""
    watching = importing(name)
    if watching is None or name in _WATCHED or name in sys.modules:
        return
    _WATCHED[name] = watching.around
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def importing(name: str) -> ModuleType | None:
    """Return the adapter's ``importing`` module, or None where it has none; imports no framework."""
    from importlib import import_module
    from importlib.util import find_spec

    from devshim._registry import BUILTIN

    if name not in BUILTIN:
        return None
    room = BUILTIN[name].partition(":")[0].replace(".backend", ".importing")
    return import_module(room) if find_spec(room) is not None else None


def clashes(name: str) -> tuple[str, ...]:
    """Return known trouble of importing a framework beside those imported already, a sentence each."""
    room = importing(name)
    found: tuple[str, ...] = room.clashes() if room is not None else ()
    return found

"""Patches of a module that a program may import later, or never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from devshim.registry import import_hooks
from devshim.simulation.patching import Patches

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["LatePatches"]


class LatePatches:
    """Patches of one module from `install` to `undo`, also if it is imported in between.

    Args:
        module: The name of the module.
        needed: An attribute of the module; without it, as in another version of the module, nothing is patched.
        patch: Replaces attributes of the module.
    """

    def __init__(self, module: str, needed: str, patch: Callable[[Patches, ModuleType], None]) -> None:
        self._name, self._needed, self._patch = module, needed, patch
        self._patches = Patches()
        self._is_wanted = self._is_watched = False

    def install(self) -> None:
        """Patch the module, now or immediately after its import."""
        self._is_wanted = True
        if self._name in sys.modules or not self._is_watched:
            self._is_watched = True
            import_hooks.call_after_import(self._name, self._apply)

    def undo(self) -> None:
        """Restore the module, and leave it alone if it is imported later."""
        self._is_wanted = False
        self._patches.undo()

    def _apply(self) -> None:
        module = sys.modules.get(self._name)
        if self._is_wanted and not self._patches and module is not None and hasattr(module, self._needed):
            self._patch(self._patches, module)

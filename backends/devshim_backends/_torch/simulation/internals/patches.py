"""Replacing attributes of PyTorch, and restoring them.

What is patched, and why nothing else works, is said in the modules with patches: `tensors`, `comm`, `accelerator`,
`engine`, `indices`, `defaults` and `streams`.
"""

from __future__ import annotations

from devshim.simulation.patching import Patches

_PATCHES = Patches()

install = _PATCHES.replace
"""Replace an attribute until `uninstall_all`; an inherited attribute is restored by deleting the new one."""
install_item = _PATCHES.replace_item
"""Set an item of a dictionary until `uninstall_all`."""
uninstall_all = _PATCHES.undo
"""Restore all replaced attributes, the latest first."""

"""Replacing attributes of PyTorch, and restoring them.

The modules with patches document what they patch and why nothing else works: `tensors` in the package above, and
`attention`, `comm`, `accelerator`, `engine`, `indices`, `defaults`, `messages`, `sent_tensors` and
`streams` in this one.
"""

from __future__ import annotations

from devshim.simulation.patching import Patches

ALL = Patches()
"""All replaced attributes and items."""
install = ALL.replace
"""Replace an attribute until `uninstall_all`; an inherited attribute is restored by deleting the new one."""
install_item = ALL.replace_item
"""Set an item of a dictionary until `uninstall_all`."""
uninstall_all = ALL.undo
"""Restore all replaced attributes, the latest first."""

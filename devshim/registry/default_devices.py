"""The default devices of a thread or task: a context variable with the innermost one and what restores the others.

`devshim.runtime.scopes` changes it for `on` and `set_device`; `run` and `value_and_grad` set it while they call a
function. `devshim.registry.current.default_device` also knows the environment and compiled functions.
"""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any

    from devshim.devices.device import Device

    Default = tuple[Device, int, Any]
    """A device; how many scopes of the framework were open when its `on` was entered, or `NOT_A_BLOCK`; and the
    `Default` around it, or None."""

__all__ = ["DEFAULT", "NOT_A_BLOCK", "innermost"]

DEFAULT: ContextVar[Default | None] = ContextVar("devshim_default", default=None)
"""The innermost default device of this thread or task; None if none was set."""

NOT_A_BLOCK = -1
"""The mark of a device that no `on` restores: that of `run`, `value_and_grad`, or `set_device` outside of a block."""


def innermost() -> Device | None:
    """Return the device of the innermost `on`, `run` or `set_device` of this thread or task, or None."""
    default = DEFAULT.get()
    return None if default is None else default[0]

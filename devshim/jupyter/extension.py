"""Loading and unloading of the extension in an IPython shell.

The magics are plain functions, registered one by one. A shell of IPython 8 and 9 keeps them in a dict for each kind,
from which `unload` removes those that are still ours.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError
from devshim.jupyter import magics

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load", "unload"]

LINE: dict[str, Callable[[str], object]] = {
    "devices": magics.devices,
    "use": magics.use,
    "simulate": magics.simulate,
}
"""Name -> function of the text that follows ``%name``."""

_OURS = "_is_of_devshim"


def _frameworks(line: str) -> None:
    from devshim.jupyter import frameworks  # needs packages that the other magics do without

    frameworks.line(line)


def _frameworks_cell(line: str, cell: str) -> None:
    from devshim.jupyter import frameworks

    frameworks.cell(line, cell)


def load(shell: Any) -> None:
    """Register the magics; done twice, it changes nothing."""
    for name, function in LINE.items():
        shell.register_magic_function(_show_errors(function), magic_kind="line", magic_name=name)
    shell.register_magic_function(_show_errors(_frameworks), magic_kind="line", magic_name="frameworks")
    shell.register_magic_function(_show_errors(_frameworks_cell), magic_kind="cell", magic_name="frameworks")


def unload(shell: Any) -> None:
    """Remove the magics, unless something else has taken their names, and end the kernels."""
    for known in shell.magics_manager.magics.values():
        for name in [name for name, function in known.items() if hasattr(function, _OURS)]:
            del known[name]
    frameworks = sys.modules.get("devshim.jupyter.frameworks")
    if frameworks is not None:
        frameworks.stop_all()


def _show_errors(function: Callable[..., object]) -> Callable[..., object]:
    """Return a magic whose errors are shown as a text, without a traceback through devshim."""
    from functools import wraps

    @wraps(function)
    def magic(*texts: str) -> object:
        from IPython.core.error import UsageError

        try:
            return function(*texts)
        except DevshimError as error:
            raise UsageError(str(error)) from None

    setattr(magic, _OURS, True)
    return magic

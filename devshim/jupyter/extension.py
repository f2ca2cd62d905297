"""Loading and unloading of the extension in an IPython shell.

The magics are plain functions, registered one by one. A shell of IPython 8 and 9 keeps them in a dict for each kind,
from which `unload` removes those that are still ours.
"""

from __future__ import annotations

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


def load(shell: Any) -> None:
    """Register the magics; done twice, it changes nothing."""
    for name, function in LINE.items():
        shell.register_magic_function(_wrapped(function), magic_kind="line", magic_name=name)


def unload(shell: Any) -> None:
    """Remove the magics, unless something else has taken their names."""
    known = shell.magics_manager.magics["line"]
    for name in LINE:
        if hasattr(known.get(name), _OURS):
            del known[name]


def _wrapped(function: Callable[..., object]) -> Callable[..., object]:
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

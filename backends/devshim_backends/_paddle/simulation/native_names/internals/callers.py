"""Distinguish the program's calls of Paddle from calls by Paddle itself."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

_OWN = ("paddle", "devshim", "devshim_backends")
_AS_PROGRAMS = ("paddle.utils.install_check", "paddle.distributed.launch.context.device")
"""Paddle's modules that check an installation or start processes: they would find the plug-in, ``sim_gpu``."""


def is_program(depth: int = 2, besides: Collection[str] = ()) -> bool:
    """Return True if the caller of the function that calls this one is not in Paddle or devshim.

    Args:
        depth: How many functions the caller is away.
        besides: Modules of Paddle that count as programs.
    """
    name = sys._getframe(depth).f_globals.get("__name__")
    return name in _AS_PROGRAMS or name in besides or not (isinstance(name, str) and name.partition(".")[0] in _OWN)


def for_programs(original: Any, answer: Any, besides: Collection[str] = ()) -> Any:
    """Return a function that calls ``answer`` for programs, and the original for Paddle's own modules.

    Args:
        original: Paddle's function.
        answer: The function for programs.
        besides: Modules of Paddle that get the answer, too.
    """

    @wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        return (answer if is_program(besides=besides) else original)(*args, **kwargs)

    return ask

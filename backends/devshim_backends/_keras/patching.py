"""Wrappers around methods of Keras classes, for places where Keras offers no hook.

Measured with Keras 3.15.1, whose names are used; a name that another version lacks is skipped.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[..., Any]
    Around = Callable[[Call, Any, Any, Any], Any]
    """A function that receives the original method of Keras, the object, and the arguments."""

__all__ = ["ORIGINAL", "wrap_method"]

ORIGINAL = "_devshim_original"
"""The attribute of a wrapper that contains the Keras function it replaced."""


def wrap_method(cls: type, name: str, around: Around, passes: Callable[[], bool]) -> None:
    """Wrap a method, on the class from which ``cls`` inherits it, and on Keras's subclasses that define it.

    Args:
        cls: The class.
        name: The method; nothing happens if the class does not have it.
        around: The function to call instead.
        passes: Called for each call of the method; True leaves it to Keras.
    """
    above = [each for each in cls.__mro__ if name in vars(each)][:1]
    for owner in {*above, *(each for each in _subclasses(cls) if name in vars(each))}:
        original = vars(owner)[name]
        if inspect.isfunction(original) and owner.__module__.startswith("keras.") and not hasattr(original, ORIGINAL):
            setattr(owner, name, _method(original, around, passes))


def _method(original: Call, around: Around, passes: Callable[[], bool]) -> Call:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if passes():
            return original(self, *args, **kwargs)
        return around(original, self, args, kwargs)

    setattr(method, ORIGINAL, original)
    return method


def _subclasses(cls: type) -> Iterator[type]:
    children: list[type] = type.__subclasses__(cls)
    for each in children:
        yield each
        yield from _subclasses(each)

"""Safe formatting of unknown values in error messages: bounded work, and no method of the value is called.

A message about a hostile object must not run its ``__repr__``, trust its ``__class__``, or read ten million characters.
A value that is not plain data is therefore shown only by the name of its type.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = ["describe", "list_some", "show", "type_name", "with_article"]

_LONGEST = 40
_NAME_OF_TYPE = type.__dict__["__name__"]  # a metaclass can override it with a property


def type_name(value: object) -> str:
    """Return the name of a value's type, as `type` itself stores it."""
    name: str = _NAME_OF_TYPE.__get__(type(value))
    return name if name.isprintable() and len(name) <= _LONGEST else repr(name[:_LONGEST])


def show(value: object) -> str:
    """Return at most about 40 characters of text for a value; a short tuple or list is shown by its items."""
    cls = type(value)
    if cls is tuple and len(value) <= 3:  # type: ignore[arg-type]
        items = [_plain(item) or type_name(item) for item in value]  # type: ignore[attr-defined]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if cls is list and len(value) <= 3:  # type: ignore[arg-type]
        return f"[{', '.join([_plain(item) or type_name(item) for item in value])}]"  # type: ignore[attr-defined]
    return _plain(value) or f"an object of type {type_name(value)}"


def describe(value: object) -> str:
    """Return a few words for a value in a sentence: a plain value as Python writes it, any other by its type."""
    if type(value).__name__ in ("function", "builtin_function_or_method", "method"):
        return "a function"
    shown = show(value)
    return with_article(type_name(value)) if shown.startswith("an object of type ") else shown


def list_some(items: Sequence[T], most: int, form: Callable[[T], str] = str) -> str:
    """Return the first of some items, and the number of the others: ``a, b and 3 more``."""
    shown = ", ".join(map(form, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def with_article(name: str) -> str:
    """Return a type's name with its indefinite article."""
    return f"{'an' if name[:1].lower() in 'aeio' or name[:2].lower() == 'nd' else 'a'} {name}"


def _plain(value: Any) -> str | None:
    """Return the shortened repr of a plain value; None for any other value."""
    cls = type(value)
    if issubclass(cls, str):
        start = str.__getitem__(value, slice(_LONGEST))
        return repr(start if str.__len__(value) <= _LONGEST else start[:-3] + "...")
    if cls is bytes:
        return repr(value[:_LONGEST])
    if cls is int and value.bit_length() > 128:
        return f"an int of {value.bit_length()} bits"
    return repr(value) if cls in (int, float, complex, bool, type(None)) else None

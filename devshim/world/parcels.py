"""Messages of ranks in `broadcast` and `all_gather`: the bytes of a value, or the error of a rank that cannot send one.

Only the ranks make objects of the bytes: an agent would wait, or fail, if it made an object that it cannot import. A
rank that fails still takes part in the exchange, so its peers do not wait for it, and raise an error that names it.
"""

from __future__ import annotations

from contextlib import suppress
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim import errors
from devshim.errors import ArgumentError, ConversionError, DevshimError, WorldError
from devshim.world import pickles

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.ranks import Place
    from devshim.world.steps import Step

__all__ = ["Parcel", "unwrap"]

_LONGEST = 500
"""Characters of an error's text that are shown."""


class Parcel:
    """The message of one rank.

    Args:
        call: The call: ``world.all_gather``.
        value: Returns the value.

    Attributes:
        content: Arrays, of which the first is a pickle, and the others are its buffers; or the parts of an error.
        error: The error, which this rank raises after the exchange.
    """

    def __init__(self, call: str, value: Callable[[], Any]) -> None:
        self.error: Exception | None = None
        self.content: list[np.ndarray[Any, Any]] | dict[str, str]
        try:
            self.content = _arrays(call, value())
        except Exception as error:
            self.error, self.content = error, _parts_of(error)

    def send(self, exchange: Callable[[Any], Any]) -> Any:
        """Call a function that exchanges the content, and return its result; then raise the error, if there is one."""
        if self.error is None:
            return exchange(self.content)
        with suppress(WorldError):  # the first error is that of this rank
            exchange(self.content)
        raise self.error


def unwrap(content: Any, place: Place, rank: int, step: Step) -> Any:
    """Return the value that another rank has sent.

    Raises:
        DevshimError: That rank could not send it: the class is that of its error, or `WorldError`.
        ConversionError: The value cannot be made of the bytes on this rank.
    """
    at = f"step {step.number} ({step.what})"
    if isinstance(content, dict):
        msg = f"{place.name_rank(rank)} sent no value in {at}: {content['problem']}"
        found = getattr(errors, content["error"], WorldError)
        raise found(msg, content["hint"] or f"see the error of rank {rank}")
    try:
        return pickles.loads(content[0].tobytes(), content[1:])
    except Exception as error:
        msg = f"the value that {place.name_rank(rank)} sent in {at} cannot be unpickled here: {_said(error)}"
        raise ConversionError(msg, "send tensors, numbers, text, or trees of them") from error


def _arrays(call: str, value: Any) -> list[np.ndarray[Any, Any]]:
    """Return a value as arrays of bytes.

    Raises:
        ArgumentError: It cannot be pickled, or not unpickled: then it would fail on every other rank.
    """
    verb, buffers = "pickled", list[Any]()
    try:
        data = pickles.dumps(value, buffers)
        verb = "unpickled"
        pickles.loads(data, buffers)
    except Exception as error:
        msg = f"{call} cannot send the value, which cannot be {verb}: {_said(error)}"
        raise ArgumentError(msg, "send tensors, numbers, text, or trees of them") from error
    return [np.frombuffer(data, np.uint8), *(np.asarray(each.raw()) for each in buffers)]


def _parts_of(error: Exception) -> dict[str, str]:
    """Return the class, the sentence and the hint of an error."""
    if isinstance(error, DevshimError):
        return {"error": type(error).__name__, "problem": error.problem, "hint": error.hint or ""}
    return {"error": "WorldError", "problem": _said(error), "hint": ""}


def _said(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", _LONGEST, placeholder=" ...")

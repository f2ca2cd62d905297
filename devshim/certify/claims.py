"""The classes of `devshim certify`: a claim, the setting in which it is checked, and its result."""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["FAIL", "PASS", "RATE", "SKIP", "Broken", "Claim", "Claims", "Rate", "Result", "Setting", "Skip", "check"]
__all__ += ["differences", "expect", "require_refusal"]

PASS, FAIL, SKIP, RATE = "PASS", "FAIL", "SKIP", "RATE"

_LONGEST = 400
"""The number of characters of an error that a note shows."""


class Skip(Exception):
    """The exception of a claim that cannot be checked here; its text is the reason."""


class Broken(AssertionError):
    """The exception of a claim that is false."""


@dataclass(frozen=True)
class Setting:
    """The setting in which claims are checked.

    Attributes:
        backend: The framework.
        gpus: The number of GPUs that it sees.
        simulated: True if these are simulated GPUs.
        quick: True for smaller tensors and fewer rounds.
        others: The other installed frameworks that see GPUs.
        only: A pattern for the names of the claims to check.
    """

    backend: str
    gpus: int
    simulated: bool = False
    quick: bool = False
    others: tuple[str, ...] = ()
    only: str = "*"

    @property
    def first(self) -> ds.Device:
        """The first GPU."""
        return ds.gpu(0)

    @property
    def last(self) -> ds.Device:
        """The last GPU; on a machine with one GPU, the first."""
        return ds.gpu(self.gpus - 1)

    def to_json(self) -> str:
        """Return the setting as JSON text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Setting:
        """Return the setting that `to_json` wrote."""
        read: dict[str, Any] = json.loads(text)
        return cls(**{**read, "others": tuple(read["others"])})


@dataclass(frozen=True)
class Rate:
    """A measured rate or time.

    Attributes:
        value: The number.
        unit: The unit: ``"GB/s"`` or ``"s"``.
        native: The same, measured with the framework's own call, or None.
        nbytes: The bytes copied at a time, unless the claim states them.
    """

    value: float
    unit: str
    native: float | None = None
    nbytes: int | None = None

    def __str__(self) -> str:
        beside = "" if self.native is None else f", native {_amount(self.native, self.unit)}"
        sized = "" if self.nbytes is None else f" ({self.nbytes >> 20} MiB)"
        return _amount(self.value, self.unit) + beside + sized


def _amount(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.3g} {unit}"
    scale, name = next((pair for pair in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")) if value < pair[0] * 1e3), (1, "s"))
    return f"{value / scale:.3g} {name}"


@dataclass(frozen=True)
class Claim:
    """A public sentence about devshim and the function that checks it.

    Attributes:
        name: A stable name, such as ``"tensors.round_trip"``.
        says: The sentence.
        check: Raises if the sentence is false; returns a note, a `Rate`, or None.
        cards: The number of GPUs that it needs.
        real: True if it needs a real GPU.
        only: The frameworks that it is about; empty for all.
    """

    name: str
    says: str
    check: Callable[[Setting], object]
    cards: int = 1
    real: bool = False
    only: Collection[str] = ()


@dataclass(frozen=True)
class Result:
    """The result of a claim.

    Attributes:
        name: The claim's name.
        says: The claim's sentence.
        status: ``PASS``, ``FAIL``, ``SKIP`` or ``RATE``.
        note: Why it failed or was skipped, or what was seen.
        seconds: The time that it took.
        rate: The fields of a `Rate`, if one was measured.
    """

    name: str
    says: str
    status: str
    note: str = ""
    seconds: float = 0.0
    rate: dict[str, Any] | None = None


class Claims(list[Claim]):
    """The claims of one module, in order."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.subject = subject

    def add(
        self, says: str, *, cards: int = 1, real: bool = False, only: Collection[str] = ()
    ) -> Callable[[Callable[[Setting], object]], Callable[[Setting], object]]:
        """Return a decorator that makes a function the check of a claim."""

        def adds(function: Callable[[Setting], object]) -> Callable[[Setting], object]:
            self.append(Claim(f"{self.subject}.{function.__name__}", says, function, cards, real, only))
            return function

        return adds


def check(claim: Claim, at: Setting) -> Result:
    """Check one claim; any exception that it raises is its result."""
    result = partial(Result, claim.name, claim.says)
    if claim.cards > at.gpus:
        return result(SKIP, f"needs {claim.cards} GPUs")
    if claim.real and at.simulated:
        return result(SKIP, "needs a real GPU")
    began = time.perf_counter()
    try:
        found = claim.check(at)
    except Skip as reason:
        return result(SKIP, str(reason))
    except ds.UnsupportedError as error:  # a gap: docs/support.md lists it with this reason
        return result(SKIP, f"declared: {_shorten(error)}")
    except Exception as error:  # the report must show any exception of a framework
        return result(FAIL, f"{_shorten(error)} [{_line(error)}]", _elapsed_since(began))
    if not isinstance(found, Rate):
        return result(PASS, "" if found is None else str(found), _elapsed_since(began))
    if at.simulated:
        return result(SKIP, "runs; a simulated GPU has no real rate", _elapsed_since(began))
    return result(RATE, str(found), _elapsed_since(began), asdict(found))


def _elapsed_since(began: float) -> float:
    return round(time.perf_counter() - began, 3)


def _shorten(error: Exception) -> str:
    if isinstance(error, Broken):
        text = str(error)
    else:
        problem = error.problem if isinstance(error, ds.DevshimError) else str(error)
        text = f"{type(error).__name__}: {problem}"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def _line(error: Exception) -> str:
    """Return the line of the claim that raised: the last one in this package."""
    here = Path(__file__).parent
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).parent == here]
    at = next((each for each in reversed(frames) if each.name not in ("expect", "require_refusal", "check")), None)
    return "" if at is None else f"{Path(at.filename).name}:{at.lineno}"


def expect(true: object, otherwise: str) -> None:
    """Raise `Broken` with a text if a condition is false; unlike `assert`, it also works with `python -O`."""
    if not true:
        raise Broken(otherwise)


def require_refusal(kind: type[BaseException], call: Callable[[], object]) -> str:
    """Return the text of the error that a call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    msg = f"nothing was raised where {kind.__name__} was expected"
    raise Broken(msg)


def differences(found: Any, wanted: Any) -> str:
    """Return how two arrays differ, as text for a reader who sees neither; an empty text if they are equal."""
    seen, right = np.asarray(found), np.asarray(wanted)
    if seen.shape != right.shape:
        return f"the shape is {seen.shape}, not {right.shape}"
    at = np.argwhere(seen != right)
    if not len(at):
        return ""
    first = tuple(at[0].tolist())
    where = f"at {first[0] if len(first) == 1 else first}, " if first else ""
    return f"{len(at)} of {right.size} values differ; the first, {where}is {seen[first]}, not {right[first]}"

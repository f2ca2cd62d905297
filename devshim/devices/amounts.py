"""Parsing of amounts that a program or its environment gives as numbers or text: GPU counts and byte sizes.

Text must be plain ASCII: a number without a sign, with underscores only between its digits, then an optional unit.
"""

from __future__ import annotations

from devshim.devices.device import as_int
from devshim.errors import ArgumentError
from devshim.errors.formatting import show

__all__ = ["MAX_GPUS", "is_size", "read_count", "read_limit", "read_memory"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
MAX_GPUS = 1024
"""More than a machine has; a framework may simulate fewer: see `SimulationBackend.most_simulated_gpus`."""
MOST_BYTES = 2**60
"""More than the size of any memory; sums of a few of these still fit in 63 bits."""


def read_count(gpus: object, name: str = "gpus") -> int:
    """Return the number of simulated GPUs, given as a number or as text; ``name`` is its name in an error."""
    try:
        count = _digits(gpus) if isinstance(gpus, str) else as_int(gpus)
    except TypeError:
        count = -1
    if not 0 <= count <= MAX_GPUS:
        hint = "ds.simulate(gpus=2)" if name == "gpus" else f"set {name}=2"
        msg = f"{name} is {show(gpus)}, and it must be 0 to {MAX_GPUS}"
        raise ArgumentError(msg, hint)
    return count


def _digits(text: str) -> int:
    """Return a number written with one to five of the digits 0 to 9; -1 for other text."""
    plain = text.strip(" ") if len(text) <= 40 else ""
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) <= 5 else -1


def read_limit(memory: object, name: str = "memory") -> int | None:
    """Return a number of bytes as `read_memory` does; None, which means no limit, stays None."""
    return None if memory is None else read_memory(memory, name)


def read_memory(memory: object, name: str = "memory") -> int:
    """Return a number of bytes, given as a number or as text with a unit.

    Text must be plain ASCII: a number without a sign, with underscores only between its digits, then an optional unit.
    """
    if isinstance(memory, str):
        text = memory.strip(" ").lower() if len(memory) <= 40 else ""
        number = text.rstrip("bikmgt")
        size = _multiply(number.strip(" "), _UNITS.get(text[len(number) :]))
    else:
        size = _to_int(memory)
    if size is None or size <= 0 or size > MOST_BYTES:
        most = f", of at most {MOST_BYTES:,} bytes" if size is not None and size > MOST_BYTES else ""
        call = {"memory": "ds.simulate(memory='4GiB')"}.get(name, f"set {name} to 4GiB, 512MiB or a number of bytes")
        msg = f"{name} is {show(memory)}, and it must be a positive number of bytes or text with a unit{most}"
        raise ArgumentError(msg, call)
    return size


def _to_int(number: object) -> int | None:
    try:
        return as_int(number)
    except TypeError:
        return None


def _multiply(number: str, factor: int | None) -> int | None:
    digits = number.replace("_", "")
    if factor is None or not digits or digits.strip("0123456789.e") or not number.isascii():
        return None
    try:
        if digits.isdecimal():
            return int(number) * factor  # exact to the byte; int() refuses an underscore that is not between digits
        return int(float(number) * factor)
    except (ValueError, OverflowError):
        return None


def is_size(text: str) -> bool:
    """Return True if the text is an amount of memory, such as ``"4GiB"``."""
    try:
        read_memory(text)
    except ArgumentError:
        return False
    return True

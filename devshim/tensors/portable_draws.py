"""Random numbers that are the same to the bit on every framework, device, machine and version of NumPy.

Requirements of this module:

* The numbers come from Philox 4x64-10, a counter-based generator: its key is ``(seed, 0)``, and draw number ``d``
  starts at the counter ``d * 2**128``. A draw therefore depends only on the seed and its number.
  ``Philox.random_raw`` is used, whose words NumPy guarantees; the methods of ``numpy.random.Generator`` may change
  (NEP 19) and are not used.
* Floats are computed in float64 with additions, subtractions, products, quotients and square roots, which IEEE 754
  defines to the bit, and are rounded once at the end. No logarithm or cosine of a library is used: those differ in the
  last bit between machines. NumPy computes each operation in a separate loop, so no operations are fused.

Each function takes its words in order, and documents how many. The words of a draw are used for that draw only.
"""

from __future__ import annotations

from math import factorial
from typing import TYPE_CHECKING

import numpy as np

from devshim.devices.ranges import nearest_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray

__all__ = ["Words", "as_dtype", "bernoulli", "normal", "permutation", "randint", "uniform"]

_BLOCK = 2**15
_LN2 = 0.6931471805599453
_TWO_PI = 6.283185307179586
_ROOT_HALF = 0.7071067811865476
_ATANH = [1 / (2 * k + 1) for k in range(12)]
_SINE = [(-1) ** k / factorial(2 * k + 1) for k in range(9)]
_COSINE = [(-1) ** k / factorial(2 * k) for k in range(10)]
"""The coefficients of the Taylor series, of which the next term is below 2**-60 in the ranges used."""


class Words:
    """The 64-bit words of one draw, in order."""

    def __init__(self, seed: int, draw: int) -> None:
        key, counter = np.array([seed, 0], np.uint64), np.array([0, 0, draw, 0], np.uint64)
        self._philox = np.random.Philox(key=key, counter=counter)

    def take(self, count: int) -> Array:
        """Return the next words, as uint64."""
        found: Array = np.asarray(self._philox.random_raw(count), np.uint64)
        return found

    def fractions(self, count: int, bits: int = 53) -> Array:
        """Return one multiple of ``2**-bits`` in ``[0, 1)`` from the upper bits of each of the next words."""
        found: Array = (self.take(count) >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits
        return found


def uniform(words: Words, count: int, low: float, high: float, name: str) -> Array:
    """Return numbers in ``[low, high)``: ``low + u * (high - low)``, with one word for each.

    ``u`` is a multiple of 2**-53 for float64, and of 2**-24 for the other dtypes. A number that rounding moved out of
    the interval becomes the nearest number of the dtype within it.
    """
    bits, scale, offset = 53 if name == "float64" else 24, float(high) - float(low), float(low)
    rounded = _in_blocks(count, lambda part: as_dtype(words.fractions(part, bits) * scale + offset, name))
    if low >= high:
        return rounded
    first, last = as_dtype(np.array([low, high], np.float64), name)
    first = first if float(first) >= low else _neighbour(first, name, 1)
    last = last if float(last) < high else _neighbour(last, name, -1)
    found: Array = np.maximum(np.minimum(rounded, last), first)
    return found


def normal(words: Words, count: int, loc: float, scale: float, name: str) -> Array:
    """Return numbers of the normal distribution: ``loc + scale * z``, with two words for each two numbers.

    The numbers ``2i`` and ``2i + 1`` are those of Box and Muller: ``r * cos(a)`` and ``r * sin(a)``, where
    ``r = sqrt(-2 * log(1 - u))`` and ``a = 2 * pi * v``, of the fractions ``u`` and ``v`` with 53 bits of the words
    ``2i`` and ``2i + 1``. No number is farther than 8.6 deviations from the mean.
    """
    return _in_blocks(count, lambda part: as_dtype(_standard_normal(words, part) * float(scale) + float(loc), name))


def _standard_normal(words: Words, count: int) -> Array:
    fractions = words.fractions(2 * ((count + 1) // 2))
    radius = np.sqrt(-2.0 * _log(1.0 - fractions[0::2]))
    cosine, sine = _on_circle(fractions[1::2])
    found: Array = np.stack([radius * cosine, radius * sine], axis=1).reshape(-1)[:count]
    return found


def _in_blocks(count: int, make: Callable[[int], Array]) -> Array:
    """Join what ``make`` returns for blocks of an even length: blocks fit a processor's cache."""
    first = make(min(count, _BLOCK))
    if count <= _BLOCK:
        return first
    result = np.empty(count, first.dtype)
    result[:_BLOCK] = first
    for start in range(_BLOCK, count, _BLOCK):
        result[start : start + _BLOCK] = make(min(count - start, _BLOCK))
    return result


def randint(words: Words, count: int, low: int, high: int) -> Array:
    """Return integers in ``[low, high)``, each exactly as probable as every other.

    Each word gives its upper ``b`` bits, where ``b`` is the fewest with ``high - low <= 2**b``; those that are not
    below ``high - low`` are skipped. If there is only one value, no words are used.

    The result is int64; integers from 2**63 on are wrapped, so that a cast to uint64 gives them.
    """
    span = high - low
    bits = (span - 1).bit_length()
    if bits == 0:
        return np.full(count, low % 2**64, np.uint64).view(np.int64)
    found: list[Array] = []
    missing = count
    while missing > 0:  # at least half of the words are used, on average
        values = words.take(2 * missing + 8) >> np.uint64(64 - bits)
        found.append(values[values <= np.uint64(span - 1)][:missing])
        missing -= len(found[-1])
    joined = np.concatenate(found) if found else np.zeros(0, np.uint64)
    return (joined + np.uint64(low % 2**64)).view(np.int64)


def permutation(words: Words, count: int) -> Array:
    """Return the integers below a number, as int64, in random order, where every order is equally probable.

    One word is taken for each integer, and the integers are sorted by their words. If two words are equal, all are
    taken again.
    """
    while True:
        taken = words.take(count)
        order = np.argsort(taken, kind="stable")
        in_order = taken[order]
        if not (in_order[1:] == in_order[:-1]).any():
            return order.astype(np.int64)


def bernoulli(words: Words, count: int, p: float) -> Array:
    """Return booleans, with one word for each: True if its fraction with 53 bits is below ``p``."""
    found: Array = words.fractions(count) < float(p)
    return found


def as_dtype(values: Array, name: str) -> Array:
    """Return float64 numbers in a dtype; bfloat16 as the float32 numbers that it can represent.

    Numbers are rounded to the nearest, ties to even. float16 and bfloat16 are rounded from float32.
    """
    if name == "float64":
        return values
    with np.errstate(over="ignore", under="ignore"):
        narrow: Array = values.astype(np.float32)
        if name == "float16":
            return narrow.astype(np.float16)
    return nearest_bfloat16(narrow) if name == "bfloat16" else narrow


def _neighbour(value: Array, name: str, direction: int) -> Array:
    """Return the next number of a dtype above (1) or below (-1) one, which is 0-d."""
    if name != "bfloat16":
        return np.asarray(np.nextafter(value, value.dtype.type(direction * np.inf)))
    if value == 0:
        return np.asarray(direction * 2.0**-133, np.float32)
    bits, step = int(value.view(np.uint32)), 0x10000
    away = (value > 0) == (direction > 0)
    return np.asarray(bits + step if away else bits - step, np.uint32).view(np.float32)


def _log(x: Array) -> Array:
    """Return the natural logarithm of numbers in ``(0, 1]``, with an error of a few units in the last place.

    With ``x = m * 2**e`` and ``m`` from sqrt(1/2) to sqrt(2), it is ``e * ln(2) + 2 * atanh((m - 1) / (m + 1))``.
    """
    mantissa, exponent = np.frexp(x)
    small = mantissa < _ROOT_HALF
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    power = exponent.astype(np.float64) - small.astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    found: Array = power * _LN2 + s * 2.0 * _polynomial(s * s, _ATANH)
    return found


def _on_circle(turns: Array) -> tuple[Array, Array]:
    """Return the cosine and the sine of angles in turns, from 0 to 1."""
    quarter = np.floor(turns * 4.0 + 0.5)
    angle = (turns - quarter * 0.25) * _TWO_PI  # at most an eighth of a turn, subtracted exactly
    square = angle * angle
    cosine, sine = _polynomial(square, _COSINE), _polynomial(square, _SINE) * angle
    which = quarter.astype(np.int64) % 4
    return np.choose(which, [cosine, -sine, -cosine, sine]), np.choose(which, [sine, cosine, -sine, -cosine])


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Return the polynomial with these coefficients, the constant first, by Horner's rule."""
    result = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result

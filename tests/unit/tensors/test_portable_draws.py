"""Tests of portable draws: the numbers follow from their documentation, on every processor and version of NumPy."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from devshim.tensors import portable_draws
from devshim.tensors.portable_draws import Words

SUMS = {
    "float16": ("054d4bddf45a", "9ca6f0c8ab27"),
    "bfloat16": ("2c7cfc7c4575", "1f6143bcd81c"),
    "float32": ("c7270f930461", "2b7286bfdbb0"),
    "float64": ("3b77e537de10", "f13309dc0fc2"),
}
"""The start of the SHA-256 sums of 100,001 normal and uniform numbers; they never change."""

NARROW = [(0.0, 1.0), (-1.0, 0.0), (0.1, 0.2), (1.0, 1.02), (-2.0, -1.5), (-0.0003, 0.0001), (-6.1e4, 6.1e4)]


def drawn() -> dict[str, tuple[str, str]]:
    """Return the sums of draws, in the form of `SUMS`."""
    found = {}
    for name in SUMS:
        normal = portable_draws.normal(Words(7, 3), 100_001, 0, 1, name)
        uniform = portable_draws.uniform(Words(7, 3), 100_001, -0.3, 1.7, name)
        found[name] = (
            hashlib.sha256(normal.tobytes()).hexdigest()[:12],
            hashlib.sha256(uniform.tobytes()).hexdigest()[:12],
        )
    return found


def test_the_numbers_never_change() -> None:
    assert drawn() == SUMS


def test_the_numbers_do_not_depend_on_the_processor() -> None:
    features = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3"
    program = "import test_portable_draws as t; assert t.drawn() == t.SUMS"
    environment = {
        **os.environ,
        "NPY_DISABLE_CPU_FEATURES": features,
        "PYTHONPATH": os.pathsep.join([*sys.path, os.path.dirname(__file__)]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_a_draw_starts_at_its_own_counter() -> None:
    philox = np.random.Philox(key=np.array([5, 0], np.uint64))
    philox.advance(3 * 2**128)
    assert Words(5, 3).take(9).tolist() == philox.random_raw(9).tolist()
    words = Words(5, 3)
    assert [*words.take(2).tolist(), *words.take(0).tolist(), *words.take(7).tolist()] == Words(5, 3).take(9).tolist()
    assert Words(2**64 - 1, 2**64 - 1).take(1).dtype == np.uint64


def test_uniform_numbers_are_those_of_the_formula() -> None:
    words = Words(1, 2).take(50).tolist()
    found = portable_draws.uniform(Words(1, 2), 50, -3, 5, "float64").tolist()
    assert found == [(word >> 11) * 2.0**-53 * 8.0 - 3.0 for word in words]
    found = portable_draws.uniform(Words(1, 2), 50, 0, 1, "float32").tolist()
    assert [Fraction(x) for x in found] == [Fraction(word >> 40, 2**24) for word in words]


def test_normal_numbers_are_those_of_the_formula() -> None:
    u, v = Words(1, 2).fractions(2000).reshape(-1, 2).T
    found = portable_draws.normal(Words(1, 2), 2000, 0, 1, "float64").reshape(-1, 2)
    for i in range(1000):
        radius = math.sqrt(-2 * math.log1p(-u[i]))
        expected = radius * math.cos(2 * math.pi * v[i]), radius * math.sin(2 * math.pi * v[i])
        assert abs(found[i, 0] - expected[0]) < 5e-15
        assert abs(found[i, 1] - expected[1]) < 5e-15


def test_logarithms_are_right_to_the_last_bits() -> None:
    x = np.concatenate([1 - Words(1, 1).fractions(500), 2.0 ** -np.arange(54), [0.5**0.5, 1 - 2**-53]])
    found = portable_draws._log(x)
    with localcontext() as context:
        context.prec = 40
        exact = [Decimal(float(value)).ln() for value in x]
        errors = [abs(Decimal(float(y)) - z) / (abs(z) or 1) for y, z in zip(found, exact, strict=True)]
    assert max(errors) < Decimal("1e-15")


def test_the_corners_of_the_circle_are_exact() -> None:
    cosine, sine = portable_draws._on_circle(np.array([0.0, 0.25, 0.5, 0.75]))
    assert (cosine + 0.0).tolist() == [1, 0, -1, 0]
    assert (sine + 0.0).tolist() == [0, 1, 0, -1]
    cosine, sine = portable_draws._on_circle(Words(0, 0).fractions(1000))
    assert np.abs(cosine * cosine + sine * sine - 1).max() < 1e-15


@pytest.mark.parametrize("count", [0, 1, 2, 7, 2**15 - 1, 2**15, 2**15 + 1, 2**16 + 3])
@pytest.mark.parametrize("make", [portable_draws.uniform, portable_draws.normal])
def test_a_longer_draw_begins_with_a_shorter_one(make: Callable[..., np.ndarray], count: int) -> None:
    long = make(Words(3, 0), 2**16 + 100, 0, 1, "float32")
    short = make(Words(3, 0), count, 0, 1, "float32")
    assert short.shape == (count,)
    assert short.tolist() == long[:count].tolist()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (0, 2**32), (-(2**52), 2**52), (2**62, 2**62 + 3)])
def test_integers_are_those_of_the_words_that_fit(low: int, high: int) -> None:
    bits = (high - low - 1).bit_length()
    kept = [word >> (64 - bits) for word in Words(9, 1).take(5000).tolist()] if bits else [0] * 5000
    expected = [low + value for value in kept if value < high - low][:1000]
    assert portable_draws.randint(Words(9, 1), 1000, low, high).tolist() == expected


def test_a_permutation_sorts_words() -> None:
    words = Words(9, 1).take(1000).tolist()
    assert portable_draws.permutation(Words(9, 1), 1000).tolist() == sorted(range(1000), key=words.__getitem__)


def test_equal_words_are_taken_again() -> None:
    class Repeated(Words):
        def take(self, count: int) -> np.ndarray:
            self.times = getattr(self, "times", 0) + 1
            return np.array([4, 2, 4][:count] if self.times == 1 else [3, 1, 2][:count], np.uint64)

    assert portable_draws.permutation(Repeated(0, 0), 3).tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(("low", "high"), NARROW)
def test_uniform_numbers_stay_in_their_interval(name: str, low: float, high: float) -> None:
    found = portable_draws.uniform(Words(4, 4), 20_000, low, high, name)
    assert float(found.min()) >= low
    assert float(found.max()) < high
    assert not (name == "bfloat16" and (found.view(np.uint32) & 0xFFFF).any())


@pytest.mark.parametrize("name", SUMS)
def test_an_interval_of_one_number_gives_that_number(name: str) -> None:
    assert set(portable_draws.uniform(Words(4, 4), 100, 5, 5, name).tolist()) == {5}


def test_bfloat16_is_rounded_to_the_nearest_even() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.concatenate(
        [portable_draws.normal(Words(0, 0), 5000, 0, 1e3, "float64"), [1.00390625, 1.01171875, 3.4e38]]
    )
    with np.errstate(over="ignore"):
        expected = values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert portable_draws.as_dtype(values, "bfloat16").tolist() == expected.tolist()


def test_normal_numbers_have_the_moments_and_tails_of_the_distribution() -> None:
    z = portable_draws.normal(Words(11, 0), 2_000_000, 0, 1, "float64")
    root = 2_000_000**0.5
    assert abs(z.mean()) * root < 4
    assert abs((z * z).mean() - 1) / 2**0.5 * root < 4
    assert abs((z**3).mean()) / 15**0.5 * root < 4
    assert abs((z**4).mean() - 3) / 96**0.5 * root < 4
    assert abs((z[:-1] * z[1:]).mean()) * root < 4
    for limit in (0.5, 1.0, 2.0, 3.0, 4.0):
        p = math.erfc(limit / 2**0.5)
        assert abs(int((abs(z) > limit).sum()) - p * z.size) < 5 * (p * z.size) ** 0.5

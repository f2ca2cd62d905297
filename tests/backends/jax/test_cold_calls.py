"""Tests of public calls that are the first ones of a process, inside a compiled function."""

from __future__ import annotations

import pytest
from cold_calls import AS_IT_IS, STARTS, failed_cold_calls


def test_first_calls_in_compiled_functions():
    assert not failed_cold_calls("jax", "compiled = jax.jit\ntensor = lambda a: jax.numpy.asarray(a)")


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_first_calls(start):
    assert not failed_cold_calls("jax", AS_IT_IS + "tensor = lambda a: jax.numpy.asarray(a)", **start)

"""Tests of public calls that are the first ones of a process, inside a compiled function."""

from __future__ import annotations

import pytest
from cold_calls import AS_IT_IS, STARTS, failed_cold_calls

SETUP = """
def compiled(fn):
    as_it_is = paddle.jit.not_to_static(fn)
    def call(x):
        return as_it_is(x)
    return paddle.jit.to_static(call, full_graph=True)
tensor = lambda a: paddle.to_tensor(a, place=paddle.CPUPlace())
"""


def test_first_calls_in_compiled_functions():
    assert not failed_cold_calls("paddle", SETUP)


def test_first_calls_in_functions_that_the_compiler_reads():
    assert not failed_cold_calls("paddle", SETUP.replace("full_graph=True", "full_graph=False"), all_calls=False)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_first_calls(start):
    assert not failed_cold_calls(
        "paddle", AS_IT_IS + "tensor = lambda a: paddle.to_tensor(a, place=paddle.CPUPlace())", **start
    )

"""Tests of public calls that are the first ones of a process, in a hybridized block or outside."""

from __future__ import annotations

import pytest
from cold_calls import AS_IT_IS, STARTS, failed_cold_calls

TENSOR = "tensor = lambda a: mxnet.np.array(a, dtype='float32')\n"
SETUP = """
def compiled(fn):
    bodies = {"forward": lambda self, x: fn(x), "hybrid_forward": lambda self, F, x: fn(x)}
    method = "forward" if hasattr(mxnet, "device") else "hybrid_forward"
    block = type("Block", (mxnet.gluon.HybridBlock,), {method: bodies[method]})()
    block.hybridize()
    return block
"""


def test_first_calls_in_compiled_functions():
    assert not failed_cold_calls("mxnet", SETUP + TENSOR, in_thread=True, gpus=2)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_first_calls(start):
    assert not failed_cold_calls("mxnet", AS_IT_IS + TENSOR, **start)

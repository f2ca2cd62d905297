"""Tests of public calls that are the first ones of a process, inside a compiled function."""

from __future__ import annotations

import pytest
from cold_calls import AS_IT_IS, STARTS, failed_cold_calls
from programs import run_program

SETUP = """
import torch._dynamo  # it takes a second: once for all processes
compiled = lambda fn: torch.compile(fn, backend='eager', fullgraph=True)
tensor = torch.tensor
"""


def test_first_calls_in_compiled_functions():
    assert not failed_cold_calls("torch", SETUP, all_calls=False)


@pytest.mark.parametrize("call", ["ds.place({'x': x}, 'cpu')['x']", "ds.zeros(2, device='cpu') + x"])
def test_a_first_call_loads_the_compiler(call):
    """The first compilation also imports dynamo, before or after devshim."""
    for imports in ("import devshim as ds, torch", "import torch, devshim as ds", "from devshim import place, zeros"):
        run_program(
            f"{imports}\nimport torch, devshim as ds\n"
            f"fn = torch.compile(lambda x: {call}, backend='eager', fullgraph=True)\n"
            "assert [fn(torch.ones(2)).tolist() for _ in range(2)] == [[1.0, 1.0]] * 2",
            DEVSHIM_BACKEND="torch",
        )


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_first_calls(start):
    assert not failed_cold_calls("torch", AS_IT_IS + "tensor = torch.tensor", **start)

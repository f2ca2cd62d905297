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


@pytest.mark.parametrize("gpus", [0, 2])
def test_first_calls_in_compiled_functions(gpus):
    assert not failed_cold_calls("torch", SETUP, all_calls=False, gpus=gpus)


def test_a_first_call_in_a_compiled_function_simulates_gpus():
    """Nothing has been compiled for other GPUs, and dynamo cannot discard code while it compiles."""
    program = (
        "import torch, devshim as ds\n"
        "fn = torch.compile(lambda x: ds.place(x, 'gpu:1') + 1, backend='eager')\n"
        "assert [fn(torch.ones(2)).tolist() for _ in range(2)] == [[2, 2]] * 2\n"
        "assert str(ds.device_of(fn(torch.ones(2)))) == 'gpu:1'"
    )
    for names in "01":
        run_program(program, DEVSHIM_SIMULATE_GPUS="2", DEVSHIM_SIMULATE_NATIVE_NAMES=names)


@pytest.mark.parametrize("gpus", ["", "2"])
def test_a_first_call_that_is_refused(gpus):
    """The compiler loads the name, and with it the adapter, from modules that import each other."""
    run_program(
        "import torch, devshim as ds\n"
        "try:\n    torch.compile(lambda x: ds.all_reduce_([x, x]), backend='eager', fullgraph=True)(torch.ones(2))\n"
        "except ds.TracingError as error:\n    assert 'ds.all_reduce_ cannot work inside' in str(error), error\n"
        "else:\n    raise AssertionError",
        DEVSHIM_SIMULATE_GPUS=gpus,
    )


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

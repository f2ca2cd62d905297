"""Public calls as the first ones of a process, inside a compiled function.

Caches that the first call fills must not change what a compiler has read already. Each call runs in its own process,
which is forked from one that has imported the framework and has called nothing.
"""

from __future__ import annotations

from programs import run_program

PROGRAM = """
import os, sys
import numpy as np
import {name}
{setup}
from types import SimpleNamespace
import devshim as ds
from devshim.testing.behaviours.compiled_calls import ANSWERS, MADE

ROWS = np.arange(12, dtype="float32").reshape(3, 4) + 1
around = SimpleNamespace(backend="{name}", device=ds.cpu(), gpus=0, array=ROWS[:2, :2])
made = {{key: lambda a, call=MADE[key]: lambda x: (call(a, x), x + x)[0] for key in ("zeros", "full like")}}
tree = {{"a tree": lambda a: lambda x: ds.place({{"x": x + x}}, a.device)["x"]}}
answers = {{key: ANSWERS[key] for key in ("namespace", "device_of", "place", "run", "on", "gather", "value_and_grad")}}
calls = {{**answers, **made, **tree}}

def outcome(call):
    make = lambda: calls[call](around)
    try:
        fn = compiled(make())
        found = [np.asarray(fn(tensor(ROWS + i))) for i in range(2)]
    except Exception as error:
        return "" if "\\n\\nHint: " in str(error) else f"{{type(error).__name__}}: {{error}}"[:400]
    expected = [np.asarray(make()(tensor(ROWS + i))) for i in range(2)]
    return "" if np.array_equal(found, expected) else f"{{found}} instead of {{expected}}"

for call in calls:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            text = outcome(call)
            if text:
                print(call, text, flush=True)
        finally:
            os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(call, "ended the process", flush=True)
"""


def failed_cold_calls(name: str, setup: str) -> str:
    """Return the calls that fail as the first ones of a process, inside a compiled function.

    Args:
        name: The framework.
        setup: A program that defines ``compiled(fn)``, and ``tensor(array)`` without devshim.
    """
    return run_program(PROGRAM.format(name=name, setup=setup), DEVSHIM_BACKEND=name)

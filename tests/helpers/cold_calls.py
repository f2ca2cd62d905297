"""Public calls as the first ones of a process, inside a compiled function.

Caches that the first call fills must not change what a compiler has read already. Each call runs in its own process,
which is forked from one that has imported the framework and has called nothing.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from programs import run_program

PROGRAM = """
import os, sys
import numpy as np
import {name}
{setup}
from types import SimpleNamespace
import devshim as ds
from devshim.testing.behaviours.compiled_calls import ANSWERS, DRAWN, FACTS, MADE, PROCESS

ROWS = np.arange(12, dtype="float32").reshape(3, 4) + 1
around = SimpleNamespace(backend="{name}", device=ds.cpu(), gpus=0, array=ROWS[:2, :2])
ALL = {all_calls}
NAMES = ("namespace", "device_of", "place", "run", "on", "gather", "value_and_grad", "zeros", "full like")
beside = lambda call: lambda a: lambda x: (call(a, x), x + x)[0]
made = {{key: beside(call) for key, call in MADE.items() if key not in ("empty", "empty_like", "load")}}
effects = {{key: beside(call) for key, call in DRAWN.items() if key != "random.Generator.normal"}} | PROCESS
tree = {{"a tree": lambda a: lambda x: ds.place({{"x": x + x}}, a.device)["x"]}}
calls = {{**ANSWERS, **FACTS, **made, **(effects if ALL else {{}}), **tree}}
calls = calls if ALL else {{key: calls[key] for key in (*NAMES, *tree)}}

def outcome(call):
    make = lambda: calls[call](around)
    try:
        fn = compiled(make())
        found = [np.asarray(fn(tensor(ROWS + i))) for i in range(2)]
    except Exception as error:
        return "" if "\\n\\nHint: " in str(error) else f"{{type(error).__name__}}: {{error}}"[:400]
    if call in effects:
        return ""
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


def failed_cold_calls(name: str, setup: str, *, all_calls: bool = True) -> str:
    """Return the calls that fail as the first ones of a process, inside a compiled function.

    Args:
        name: The framework.
        setup: A program that defines ``compiled(fn)``, and ``tensor(array)`` without devshim.
        all_calls: True for all public calls that the conformance kit compiles, except those with files and models;
            False for a few of them, because compiling takes long.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "cold_calls_program.py")  # a compiler may read the text of a function
        path.write_text(PROGRAM.format(name=name, setup=setup, all_calls=all_calls))
        return run_program(f"import runpy\nrunpy.run_path({str(path)!r})", DEVSHIM_BACKEND=name)

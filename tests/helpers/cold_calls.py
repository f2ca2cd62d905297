"""Public calls as the first ones of a process: inside a compiled function or outside, in any thread and process.

Caches that the first call fills must not change what a compiler has read already, nor depend on the thread that fills
them. Each call runs in its own process, which is forked from one that has imported the framework and has called
nothing.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from programs import run_program

PROGRAM = """
import os, sys
import numpy as np
import {imports}
{setup}
from threading import Thread
from types import SimpleNamespace
import devshim as ds
from devshim.testing.behaviours.compiled_calls import ANSWERS, DRAWN, FACTS, MADE, PROCESS

ROWS = np.arange(12, dtype="float32").reshape(3, 4) + 1
around = SimpleNamespace(
    backend="{name}", device=ds.gpu(1) if {gpus} else ds.cpu(), gpus={gpus}, array=ROWS[:2, :2]
)
NAMES = ("namespace", "device_of", "place", "run", "on", "gather", "value_and_grad", "zeros", "full like")
beside = lambda call: lambda a: lambda x: (call(a, x), x + x)  # MXNet 2.0 crashes if an input is unused
made = {{key: beside(call) for key, call in MADE.items() if key not in ("empty", "empty_like", "load")}}
effects = {{key: beside(call) for key, call in DRAWN.items() if key != "random.Generator.normal"}} | PROCESS
tree = {{"a tree": lambda a: lambda x: ds.place({{"x": x + x}}, a.device)["x"]}}
calls = {{**ANSWERS, **FACTS, **made, **effects, **tree}}
if not {all_calls}:
    calls = {{key: calls[key] for key in (*NAMES, *tree)}}

def attempt(call, fn):
    "Return the results of two calls, or the error of a refusal."
    try:
        return [fn(tensor(ROWS + i)) for i in range(2)]
    except Exception as error:
        if "\\n\\nHint: " in str(error):
            return error
        raise

def arrays(results):
    return [ds.to_numpy(x) for each in results for x in (each if isinstance(each, (list, tuple)) else [each])]

def outcome(call):
    try:
        found = attempt(call, compiled(calls[call](around)))
        if isinstance(found, Exception):
            again = attempt(call, compiled(calls[call](around)))
            return "" if isinstance(again, Exception) else f"refused only the first time: {{found}}"[:400]
        found = arrays(found)
        expected = found if call in effects else arrays(attempt(call, calls[call](around)))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"[:400]
    return "" if all(map(np.array_equal, found, expected)) else f"{{found}} instead of {{expected}}"

def report(call):
    text = outcome(call)
    if text:
        print(call, text, flush=True)

def run():
    for call in calls:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                if {in_thread}:
                    thread = Thread(target=report, args=(call,))
                    thread.start()
                    thread.join()
                else:
                    report(call)
            finally:
                os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(call, "ended the process", flush=True)

if __name__ == "__main__":
    if {spawned}:
        from multiprocessing import get_context
        process = get_context("spawn").Process(target=run)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
    else:
        run()
"""

AS_IT_IS = "compiled = lambda fn: fn\n"
"""A setup without a compiler."""

STARTS = {
    "spawned, in a thread": {"in_thread": True, "spawned": True, "gpus": 2},
    "native names": {"gpus": 2, "native_names": True},
}
"""The ways to start a process, as arguments of `failed_cold_calls`."""


def failed_cold_calls(
    name: str,
    setup: str,
    *,
    all_calls: bool = True,
    in_thread: bool = False,
    spawned: bool = False,
    gpus: int = 0,
    native_names: bool = False,
) -> str:
    """Return the calls that fail as the first ones of a process.

    Args:
        name: The framework.
        setup: A program that defines ``compiled(fn)``, and ``tensor(array)`` without devshim.
        all_calls: True for all public calls that the conformance kit compiles, except those with files and models;
            False for a few of them, because compiling takes long.
        in_thread: True for calls in a new thread.
        spawned: True for calls in a process that ``multiprocessing`` has spawned.
        gpus: The number of simulated GPUs, of which the calls use the second.
        native_names: True for the program of ``devshim run``, False for ``DEVSHIM_SIMULATE_GPUS``.
    """
    imports = "devshim\nmxnet = devshim.framework('mxnet')" if name == "mxnet" else name  # it needs an older NumPy
    options = {"all_calls": all_calls, "in_thread": in_thread, "spawned": spawned, "gpus": gpus}
    program = PROGRAM.format(name=name, imports=imports, setup=setup, **options)
    with TemporaryDirectory() as folder:
        path = Path(folder, "cold_calls_program.py")  # a compiler may read the text of a function
        path.write_text(program)
        run = f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')"
        simulated = {}
        if native_names or spawned:
            arguments = ["run", "--gpus", str(gpus), str(path)] if native_names else [str(path)]
            launch = [*(["-m", "devshim"] if native_names else []), *arguments]
            run = f"import subprocess, sys\nsys.exit(subprocess.run([sys.executable, *{launch!r}]).returncode)"
        if gpus and not native_names:
            simulated = {"DEVSHIM_SIMULATE_GPUS": str(gpus)}
        return run_program(run, DEVSHIM_BACKEND=name, **simulated)

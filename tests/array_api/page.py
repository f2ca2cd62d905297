"""The page docs/array-api.md, made from its record: ``python tests/array_api/page.py --write RECORD PAGE RESULT...``.

``--check RECORD PAGE`` makes the page again; the exit code is 1 if it differs.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

HEAD = """\
# The array API

`ds.namespace(x)` is the namespace of the framework of a tensor: its functions under the names of the
[array API standard](https://data-apis.org/array-api/) (2025.12), on its own tensors, computing where
the arguments are. A program that is written with it runs on every framework and device:

```py
import devshim as ds


def normalized(x):
    xp = ds.namespace(x)
    return xp.divide(x, xp.linalg.vector_norm(x, axis=-1, keepdims=True))
```

The functions are the framework's own. On NumPy, PyTorch and CuPy they come from
[array-api-compat](https://data-apis.org/array-api-compat/), on JAX from `jax.numpy`. On the others,
thin functions of devshim change what differs from the standard: names, arguments, dtypes. A function
that a framework lacks is missing: `hasattr(xp, "fft")` is False, and reading it raises
`UnsupportedError`.

Creation functions (`xp.zeros`, `xp.asarray`, `xp.fft.fftfreq`) take `device=` as those of devshim do.
Without it, the device is that of `ds.on`, or the CPU.

## What works

The checker in `tests/array_api` calls each function of the standard with sample arguments of all dtypes
that the framework has, and compares values and dtypes with `array-api-strict`. A function passes if
all its calls do. `nox -s array-api` runs it and writes this page. JAX runs with 64-bit dtypes on.
PyTorch has the dtypes uint16, uint32 and uint64, but few functions for them.

The sample arguments have no NaN. On every framework, `sort`, `argsort` and the `unique` functions
put NaNs last, and `max` and `min` return NaN. `argmax` and `argmin` return the index of the first
NaN on NumPy, PyTorch, JAX and MXNet 1.9, and skip NaNs on TensorFlow, PaddlePaddle and MXNet 2.0.
`searchsorted` finds the end for a NaN; on MXNet, and on TensorFlow with `side="left"`, it returns 0.
`sum` and `mean` of infinite numbers are NaN on [MXNet](frameworks/mxnet.md).

Results of integers that do not fit wrap, as in NumPy. `pow` of JAX reads only six bits of an integer
exponent, so exponents of 64 and more give other values. PaddlePaddle has few functions of float16 on
the CPU, and raises its own error for the others.

`clip` takes Python bounds outside the range of an integer dtype. On TensorFlow, PaddlePaddle and
MXNet, so do comparisons and `divide`, which compute in a floating dtype then. Other functions drop
the bits of such a number that do not fit, or raise the framework's error: NumPy raises
`OverflowError`.

`sqrt` of float32 on PaddlePaddle (3.3) is NaN for infinity in tensors of eight elements or more, and
0.0 for -0.0: these are values of its own kernel.

Without `jax_enable_x64`, indices of JAX are int32: the results of `argmax`, `argmin`, `argsort`,
`nonzero`, `searchsorted` and `count_nonzero`, and the indices of the `unique` functions. On the other
frameworks they are int64.

An axis is an int. An axis that does not exist is refused on every framework, and so is a float. The
functions do not agree about other objects, because a check would slow every call: a bool is an axis
0 or 1 on JAX, TensorFlow, PaddlePaddle and MXNet, and for some functions of NumPy; integers of
NumPy are axes everywhere, except in reductions, `expand_dims` and `squeeze` of PyTorch, and
`fft.fftshift` of JAX. `axis=None` flattens the tensor in `sort` and `argsort` of NumPy and JAX.

For the same reason, `sum` and `prod` do not refuse a real `dtype` for complex numbers, as
`cumulative_sum` does: they drop the imaginary parts, and NumPy and PyTorch warn of it.
"""


def table(record: list[dict[str, Any]]) -> str:
    """Return the table of the numbers of functions that pass."""
    rows = ["| framework | on the CPU | on a simulated `gpu:1` | array-api-compat alone |", "|---|---|---|---|"]
    for run in record:
        numbers = [counted(run.get(where)) for where in ("cpu", "gpu:1", "array-api-compat")]
        rows.append(f"| {run['title']} {run['version']} | {' | '.join(numbers)} |")
    return "\n".join(rows)


def counted(calls: dict[str, str] | None) -> str:
    """Return how many functions pass, or a dash."""
    return "-" if calls is None else f"{sum(each == 'pass' for each in calls.values())} of {len(calls)}"


def shortfalls(run: dict[str, Any]) -> str:
    """Return the lists of missing and different functions on one framework."""
    found = {name: result for where in ("cpu", "gpu:1") for name, result in run[where].items() if result != "pass"}
    lines = [f"### {run['title']} {run['version']}", ""]
    missing = [name for name, result in found.items() if result == "missing"]
    if missing:
        text = f"Missing: {', '.join(f'`{name}`' for name in missing)}."
        lines += [textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False), ""]
    differing = {name: result for name, result in found.items() if result != "missing"}
    if differing:
        lines += ["| function | first difference |", "|---|---|"]
        lines += [f"| `{name}` | {cell(result)} |" for name, result in differing.items()]
        lines.append("")
    return "\n".join(lines)


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return f"`{text.replace('|', '/').replace('`', '')}`"


def page(record: list[dict[str, Any]]) -> str:
    """Return the page."""
    parts = [HEAD, table(record), "", "## What is missing or differs", ""]
    for run in record:
        if any(result != "pass" for where in ("cpu", "gpu:1") for result in run[where].values()):
            parts.append(shortfalls(run))
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Run one of the two commands, and return the exit code."""
    kept, target = Path(arguments[1]), Path(arguments[2])
    if arguments[0] == "--check":
        return int(target.read_text(encoding="utf-8") != page(json.loads(kept.read_text(encoding="utf-8"))))
    old = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    runs = {run["name"]: run for run in [*old, *(json.loads(Path(path).read_text("utf-8")) for path in arguments[3:])]}
    record = [runs[name] for name in sorted(runs)]
    text = ",\n".join(json.dumps(run) for run in record)  # one line for each run keeps diffs small
    kept.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    target.write_text(page(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

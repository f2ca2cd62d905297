"""Measure which sums over ranks each framework's own engine computes correctly, against NumPy.

``python tests/world/engine_sums.py torch`` starts 2 and 3 processes with torchrun's variables, reduces random values of
every dtype with every operation, and prints one JSON object: dtype -> operation -> ``right``, or what was seen. Random
values matter: small integers hide the wrong sums of float16 that some engines give. Some values are NaN or infinite.
The key ``nan`` says if the engine itself keeps NaN in the maximum and minimum. Where it does not, they are computed as
`devshim.world.nans` does it.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"),
    *("uint64", "bool", "complex64", "complex128"),
)
OPS = ("sum", "max", "min")
LENGTH = 200_000
SPECIAL = (float("nan"), -float("nan"), float("inf"), -float("inf"))
"""Values of which one in forty is, in floating-point dtypes."""
SECONDS = 100


def start(code: list[str], size: int, **variables: str) -> list[subprocess.Popen[str]]:
    """Start the ranks of a job on this machine with torchrun's variables."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    paths = [str(ROOT), str(ROOT / "backends"), str(Path(__file__).parent)]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    shared |= {"LOCAL_WORLD_SIZE": str(size), "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **variables}
    return [
        subprocess.Popen(
            [sys.executable, *code],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def finish(ranks: list[subprocess.Popen[str]], seconds: float = SECONDS) -> list[tuple[int, str, str]]:
    """Wait for the ranks, kill those that are late, and return the status, the output and the errors of each."""
    found = []
    try:
        for each in ranks:
            try:
                out, err = each.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                each.kill()
                out, err = each.communicate()
            found.append((each.returncode, out, err))
    finally:
        for each in ranks:
            each.kill()
    return found


def random_values(dtype: str, rank: int) -> Any:
    """Return the values of one rank: whole-range integers, floats of all sizes below 20,000, NaN and infinity."""
    import numpy as np

    from devshim.devices.dtypes import numpy_dtype

    random, kind = np.random.default_rng(rank), numpy_dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, LENGTH, dtype=kind, endpoint=True)
    if kind.kind == "b":
        return random.integers(0, 2, LENGTH).astype(bool)
    both = random.uniform(-1, 1, (2, LENGTH)) * 10 ** random.uniform(-3, 4.3, (2, LENGTH))
    is_special = random.random(both.shape) < 1 / 40
    both[is_special] = random.choice(SPECIAL, np.count_nonzero(is_special))
    if kind.kind == "c":  # ``values + 1j * others`` would add NaN to infinity
        return both.T.astype(kind.type(0).real.dtype).copy().view(kind)[:, 0]
    return both[0].astype(kind)


def judged(result: Any, dtype: str, op: str, size: int) -> str:
    """Return ``right``, or what is wrong with a result."""
    import numpy as np

    parts = [random_values(dtype, rank) for rank in range(size)]
    if result.shape != parts[0].shape or str(result.dtype) != dtype:
        return f"{result.dtype} {result.shape}"
    is_narrow = dtype in ("float16", "bfloat16", "float32")
    if dtype.startswith("complex") and op == "sum":  # each component by itself: either may be NaN
        result, *parts = (x.view(x.real.dtype) for x in (result, *parts))
        is_narrow = dtype == "complex64"
    add = getattr(np, {"sum": "add", "max": "maximum", "min": "minimum"}[op])
    wide = [x.astype("float64") for x in parts] if is_narrow else parts
    with np.errstate(invalid="ignore"):
        expected = reduce(add, wide)  # in their own dtype: ``np.add.reduce`` would widen integers
        found = result.astype(expected.dtype)
        is_right = (found == expected) | ((found != found) & (expected != expected))  # NaN differs from itself
        if op == "sum" and dtype.startswith(("float", "bfloat", "complex")):
            step = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23}.get(
                dtype, 2.0**-52
            )
            is_near = np.abs(found - expected) <= step * size * sum(np.abs(x) for x in wide)
            is_right |= is_near & np.isfinite(found) & np.isfinite(expected)
    return "right" if is_right.all() else f"{np.count_nonzero(~is_right)} of {LENGTH} wrong"


def place_of(variables: Mapping[str, str]) -> Any:
    """Return the place that torchrun's variables tell."""
    from devshim.contract.ranks import Place

    address = f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}"
    rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    return Place(rank=rank, size=size, local_rank=rank, engine_address=address, timeout=20.0, launcher="devshim")


def work(framework: str, dtypes: list[str]) -> None:
    """Reduce values of each dtype in one rank; print a line before and after each."""
    import devshim as ds
    from devshim.registry import registry

    ds.use(framework)
    place = place_of(os.environ)
    backend = registry.load(framework)
    engine = backend.start_ranks(place)
    for dtype in dtypes:
        for op in OPS:
            print(json.dumps([dtype, op, "begun"]), flush=True)
            try:
                seen = seen_in(engine, dtype, op, place)
            except Exception as error:  # each framework has its own errors
                seen = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
            print(json.dumps([dtype, op, seen]), flush=True)
        if "float" in dtype and seen == "right":
            kept = {
                judged(reduced(engine, random_values(dtype, place.rank), op), dtype, op, place.size) for op in OPS[1:]
            }
            print(json.dumps([dtype, "nan", "right" if kept == {"right"} else "lost"]), flush=True)
    engine.close()


def reduced(engine: Any, values: Any, op: Any) -> Any:
    """Return the result of an engine in one call."""
    import devshim as ds

    return ds.to_numpy(engine.reduce_flat(ds.from_numpy(values), op))


def seen_in(engine: Any, dtype: str, op: Any, place: Any) -> str:
    """Return ``right``, or what is wrong if an engine reduces the values at once, or in three parts, as large ones."""
    import numpy as np

    import devshim as ds
    from devshim.world.nans import reduce_marked

    def in_place(parts: Iterable[Any], op: Any) -> None:
        given = []

        def tensors() -> Iterator[Any]:
            for part in parts:
                given.append(part)
                yield ds.from_numpy(part, copy=True)

        results = list(engine.reduce_parts(tensors(), op))
        for part, result in zip(given, results, strict=True):
            part[...] = ds.to_numpy(result)

    is_marked = op != "sum" and "float" in dtype and not engine.keeps_nan
    values = random_values(dtype, place.rank)
    results = [] if is_marked else [reduced(engine, values, op)]
    for count in (1, 3):
        result = values.copy()
        parts = np.array_split(result, count)
        reduce_marked(in_place, result, parts, op) if is_marked else in_place(parts, op)
        results.append(result)
    seen = [judged(result, dtype, op, place.size) for result in results]
    return next((each for each in seen if each != "right"), "right")


def code_of(name: str) -> str:
    """Return a checksum of the code that adds the tensors: an adapter's ``ranks.py`` and `devshim.world.nans`.

    For Ray, it is that of the portable engine. Comments, docstrings and line breaks do not change it.
    """
    adapter = f"backends/devshim_backends/_{name}/ranks.py"
    paths = ["devshim/world/portable.py"] if name == "portable" else [adapter, "devshim/world/nans.py"]
    return checksum("\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths))


def checksum(source: str) -> str:
    """Return a checksum of the syntax tree of a program, which is the same in every version of Python."""
    return hashlib.sha256(_dumped(ast.parse(source)).encode()).hexdigest()[:16]


def _dumped(node: Any) -> str:
    """Return a node as text without empty fields, of which each version of Python has others.

    ``ast.dump`` leaves them out only from 3.13 on, and 3.12 divides the text of an f-string in another way.
    """
    if isinstance(node, list):
        return f"[{', '.join(_dumped(each) for each in node if not _is_docstring(each))}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    if isinstance(node, ast.JoinedStr):
        fields["values"] = _joined(node.values)
    return f"{type(node).__name__}({', '.join(f'{name}={_dumped(fields[name])}' for name in sorted(fields))})"


def _is_docstring(node: Any) -> bool:
    """Return True for a statement that is only a text; it may describe an attribute, after its assignment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Return the parts of an f-string with neighbouring texts in one, and without empty ones."""
    found: list[ast.expr] = []
    for each in values:
        if isinstance(each, ast.Constant) and found and isinstance(found[-1], ast.Constant):
            found[-1] = ast.Constant(str(found[-1].value) + str(each.value))
        elif not isinstance(each, ast.Constant) or each.value:
            found.append(each)
    return found


def measured(framework: str) -> dict[str, Any]:
    """Return what was measured with a framework's engine, and its version."""
    import devshim as ds

    version, engine = str(ds.backends()[framework].version), "ring" if framework == "tensorflow" else "gloo"
    sums = _measured(framework, (2, 3))
    return _record(framework, version, engine, sums)


def measured_portable() -> dict[str, Any]:
    """Return what was measured with devshim's own additions, in ranks that are threads; Ray only carries the arrays."""
    from importlib.metadata import version

    from devshim.testing.thread_ranks import on_ranks
    from devshim.world.portable import Portable
    from devshim.world.world import World

    sums: dict[str, dict[str, str]] = {dtype: {} for dtype in DTYPES}
    for size, dtype, op in itertools.product((2, 3), DTYPES, OPS):

        def job(world: World, size: int = size, dtype: str = dtype, op: Any = op) -> str:
            portable: Portable = world._engine()
            with world.steps.step(f"{op} of {dtype}") as step:
                (found,) = portable.reduce(step, [random_values(dtype, world.rank)], op)
            return judged(found, dtype, op, size)

        for seen in on_ranks(size, job):
            if sums[dtype].get(op, "right") == "right":
                sums[dtype][op] = seen if isinstance(seen, str) else f"{type(seen).__name__}: {seen}"
    return _record("portable", version("ray"), "Ray", sums)


def _record(name: str, version: str, engine: str, sums: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "engine": engine,
        "length": LENGTH,
        "code": code_of(name),
        "sums": sums,
    }


def _measured(framework: str, sizes: tuple[int, ...]) -> dict[str, dict[str, str]]:
    """Return dtype -> operation -> what all ranks saw, the worst of all numbers of ranks."""
    found: dict[str, dict[str, str]] = {dtype: {} for dtype in DTYPES}
    for size in sizes:
        left = list(DTYPES)
        while left:
            ranks = finish(start([__file__, "--rank", framework, *left], size, JAX_ENABLE_X64="1"))
            ended = None
            for _, out, _ in ranks:
                lines = [json.loads(line) for line in out.splitlines() if line.startswith('["')]
                for dtype, op, seen in lines:
                    if seen != "begun" and found[dtype].get(op, "right") == "right":
                        found[dtype][op] = seen
                if lines and lines[-1][2] == "begun":
                    ended = lines[-1][:2]
            if ended is None:
                if any(status for status, _, _ in ranks):
                    raise RuntimeError(ranks)
                break
            status = next((status for status, _, _ in ranks if status), 0)
            for op in OPS[OPS.index(ended[1]) :]:
                found[ended[0]][op] = f"ends the process (status {status})"
            left = left[left.index(ended[0]) + 1 :]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        work(sys.argv[2], sys.argv[3:])
    else:
        print(json.dumps(measured(sys.argv[1]), indent=1))

"""A neutral program with every devshim call of the book's GPU chapter, and the same program in each framework's words.

The translations are files in ``tests/native``, which the tests of each framework run on simulated GPUs. All print the
same.
``python tests/helpers/transpiler_sample.py`` writes them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FRAMEWORKS = ("torch", "tensorflow", "jax", "paddle", "mxnet")
SOURCE = """\
import devshim as ds

print(ds.device_count(), len(ds.try_all_gpus()))
print(len(ds.devices()))
print(len(ds.devices("gpu")))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
x = ds.asarray([1.0, 2.0, 3.0], dtype="float32")
X = ds.ones((2, 3), device=ds.try_gpu())  # float32
Y = ds.full((2, 3), 0.5, device="gpu:1")
print(ds.to_numpy(x).tolist(), ds.device_of(X) == ds.device_of(Y))

ds.random.seed(0)
R = ds.random.uniform(size=(2, 3), dtype="float32", device=ds.try_gpu(1))
N = ds.random.normal(3.0, 0.0, size=4, device=ds.gpu(0))
print(tuple(R.shape), ds.to_numpy(N).tolist(), ds.device_of(R) == ds.device_of(Y))

Z = ds.place(X, "gpu:1")  # to the GPU of Y
S = ds.run(lambda a, b: a + b, Y, Z)
print(ds.to_numpy(S).tolist(), ds.device_of(S) == ds.device_of(Y))
print(ds.place(Z, "gpu:1") is Z, ds.copy(Z, "gpu:1") is Z)

where = "gpu:0"
parts = [ds.place(part, where) for part in (X, Y)]
tree = ds.place({"a": X, "b": [Z]}, ds.gpu(0))
print({ds.device_of(part) == ds.device_of(X) for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(ds.to_numpy(ds.place(tensor, ds.cpu())).sum())


for device in ds.try_all_gpus():
    zeros = ds.zeros((2,), device=device)
    print(total(ds.place(X, device)) + total(zeros))

H = ds.from_numpy(ds.to_numpy(Y), ds.try_gpu(10))
print(total(H), ds.device_of(H) == ds.device_of(x))
"""


def rewritten(framework: str, calls: list[Any]) -> str:
    """Return the program in a framework's own code."""
    from devshim.tutorial.transpiler.cells import Cell, translate_cells
    from devshim.tutorial.transpiler.templates import native_code

    native = native_code(framework)
    assert native is not None
    found = translate_cells([Cell(SOURCE, calls)], native)
    assert found.left == [[]]
    return f"{found.setup}\n\n{found.sources[0]}\n"


def file_of(framework: str) -> Path:
    """Return the file with a framework's translation."""
    return Path(__file__).parents[1] / "native" / framework / "transpiler.py"


def main() -> None:
    """Write the translations, and what they print."""
    from contextlib import redirect_stdout
    from io import StringIO

    import devshim as ds
    from devshim.tutorial.transpiler.recording import run_cells

    ds.use("numpy")
    ds.simulate(2)
    with redirect_stdout(StringIO()) as printed:
        (calls,) = run_cells([SOURCE], Path("sample.py"))
    for framework in FRAMEWORKS:
        file_of(framework).write_text(rewritten(framework, calls), encoding="utf-8")
        file_of(framework).with_suffix(".txt").write_text(printed.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()

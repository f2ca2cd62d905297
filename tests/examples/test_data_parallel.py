"""Tests of the data-parallel loop, as a program, on every installed framework; and that the loop can fail."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from example_programs import loaded_example

import devshim as ds

PROGRAM = Path(__file__).parents[2] / "examples" / "data_parallel.py"


def run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), name],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", sorted({*ds.backends()} - {"numpy"}))
def test_the_loop_reproduces_training_on_one_device(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name} on gpu:0, gpu:1, gpu:2 (simulated), 6 batches of 8, 8, 7, ... rows" in done.stdout
    assert "equal to the bit" in done.stdout


class Bare(ast.NodeTransformer):
    """A transformer that removes what a page leaves out: annotations, docstrings, ``strict=True``."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        node.body = node.body[1:] if ast.get_docstring(node) else node.body
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.keywords = [each for each in node.keywords if each.arg != "strict"]
        return node


def loop(source: str) -> str:
    (found,) = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef) and each.name == "train"]
    return ast.unparse(Bare().visit(found)).replace("BATCHES", "batches")


def test_the_page_shows_this_loop() -> None:
    page = (PROGRAM.parents[1] / "docs" / "guides" / "several-devices.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(def train\(model.*?)```", page, re.DOTALL)
    assert [loop(block) for block in blocks] == [loop(PROGRAM.read_text(encoding="utf-8"))]


def framework_lines(source: str) -> list[str]:
    """Return the lines inside `LAYERS` and the functions it names, without definitions and docstrings."""
    body = ast.parse(source).body
    (layers,) = [each for each in body if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "LAYERS"]
    named = {each.id for each in ast.walk(layers) if isinstance(each, ast.Name)}
    made = [each for each in body if isinstance(each, ast.FunctionDef) and each.name in named]
    spans = [(layers.lineno + 1, layers.end_lineno), *((each.body[1].lineno, each.end_lineno) for each in made)]
    lines = source.splitlines()
    return [line for first, last in spans for line in lines[first - 1 : last] if line.strip(" ])},")]


def test_only_the_layers_name_a_framework() -> None:
    source = PROGRAM.read_text(encoding="utf-8")
    lines = framework_lines(source)
    assert len(lines) <= 15
    rest = source[: source.index("def gluon")] + source[source.index("@dataclass") :]
    code = re.sub(r"\"\"\".*?\"\"\"", "", rest, flags=re.DOTALL)
    assert re.findall(r"torch|paddle|keras|tensorflow|mxnet|gluon|jax", code) == []


@pytest.fixture
def program() -> Any:
    """Yield the program's module on NumPy, with gradients by hand."""
    with loaded_example("data_parallel") as module:
        module.gradients = lambda model, batch: (None, by_hand(model, batch, module.Arrays))
        ds.use("numpy")
        with ds.simulate(3):
            yield module
        ds.use(None)


def by_hand(model: Any, batch: Any, arrays: Any) -> Any:
    x, y, rows = batch
    h = ds.namespace(x).tanh(x @ model.w1 + model.b1)
    out = 2 * (h @ model.w2 + model.b2 - y) / rows
    inner = out @ model.w2.T * (1 - h * h)
    return arrays(x.T @ inner, inner.sum(0), h.T @ out, out.sum(0))


def test_gradients_by_hand_train_on_numpy(program: Any) -> None:
    assert program.main("numpy") == 0


def test_a_mean_of_means_is_noticed(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In a loop that averages the means of the parts, the rows of larger parts count for less."""

    def of_means(model: Any, batch: Any) -> Any:
        x, y, rows = batch
        return None, by_hand(model, (x, y, len(x) * (3 if rows > len(x) else 1)), program.Arrays)

    program.gradients = of_means
    assert program.main("numpy") == 1
    reported = capsys.readouterr().out
    assert "equal to the bit" in reported, "the replicas agree on what is wrong"


def test_a_replica_that_goes_its_own_way_is_noticed(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    step = program.step

    def alone(model: Any, grads: Any) -> Any:
        program.RATE = 0.05 if ds.device_of(model.w1) is ds.gpu(1) else 0.0500001
        return step(model, grads)

    program.step = alone
    assert program.main("numpy") == 1
    assert "NOT EQUAL" in capsys.readouterr().out


def test_a_framework_without_gradients_is_refused() -> None:
    done = run("numpy")
    assert done.returncode != 0
    assert "UnsupportedError" in done.stderr

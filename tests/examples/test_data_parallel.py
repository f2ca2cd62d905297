"""Tests of the data-parallel loop, as a program, on every installed framework; and that the loop can fail."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import devshim as ds

PROGRAM = Path(__file__).parents[2] / "examples" / "data_parallel.py"


@pytest.mark.parametrize("name", sorted(ds.backends()))
def test_it_reproduces_training_on_one_device(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
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
    page = (PROGRAM.parents[1] / "docs" / "several-devices.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(def train\(words.*?)```", page, re.DOTALL)
    assert [loop(block) for block in blocks] == [loop(PROGRAM.read_text(encoding="utf-8"))]


@pytest.fixture
def program() -> Any:
    spec = importlib.util.spec_from_file_location("data_parallel", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ds.use("numpy")
    with ds.simulate(3):
        yield module
    ds.use(None)


def test_a_mean_of_means_is_noticed(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In a loop that averages the means of the parts, the rows of larger parts count for less."""

    class Means(program.NumPy):  # type: ignore[misc, name-defined]
        def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
            return super().gradients(model, x, y, len(x) * (3 if rows > len(x) else 1))

    program.WORDS["numpy"] = Means
    assert program.main("numpy") == 1
    reported = capsys.readouterr().out
    assert "equal to the bit" in reported, "the replicas agree on what is wrong"


def test_a_replica_that_goes_its_own_way_is_noticed(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class Alone(program.NumPy):  # type: ignore[misc, name-defined]
        def step(self, model: Any, optimizer: Any, gradients: Any) -> Any:
            rate = 0.05 if ds.device_of(model[0]) is ds.gpu(1) else 0.0500001
            return [w - rate * gradient for w, gradient in zip(model, gradients, strict=True)]

    program.WORDS["numpy"] = Alone
    assert program.main("numpy") == 1
    assert "NOT EQUAL" in capsys.readouterr().out

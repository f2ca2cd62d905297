"""Tests of compiled functions of one framework after others, with their own compilers, were loaded."""

from __future__ import annotations

import importlib

import pytest

import devshim as ds

LOADED = ("jax", "tensorflow", "torch")  # this order: a framework that traces bytecode is still queried first
for _name in LOADED:
    pytest.importorskip(_name)


@pytest.fixture(autouse=True)
def everything():
    for name in LOADED:
        ds.use(name)
        ds.zeros(1)
    yield
    ds.use(None)


def in_scope(x):
    with ds.on("cpu"):
        return ds.run(lambda t: t + t, x)


CALLS = {
    "a tensor": lambda x: ds.place(x + x, "cpu"),
    "a tree": lambda x: ds.copy({"x": x + x}, "cpu")["x"],
    "a scope": in_scope,
}


@pytest.mark.parametrize("call", CALLS)
def test_torch_compile_reads_no_other_framework(call):
    torch = importlib.import_module("torch")
    compiled = torch.compile(CALLS[call], fullgraph=True, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", LOADED)
def test_each_compiler_refuses_in_its_own_name(name):
    ds.use(name)
    made = importlib.import_module(name)
    compiled = {
        "jax": lambda fn: made.jit(fn),
        "tensorflow": lambda fn: made.function(fn),
        "torch": lambda fn: made.compile(fn, fullgraph=True, backend="eager"),
    }[name]
    with pytest.raises(ds.TracingError, match={"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}[name]):
        compiled(lambda x: (ds.memory("cpu"), x)[1])(ds.ones(2))
    assert ds.memory("cpu").total


def test_another_frameworks_model_is_not_moved_while_a_function_is_compiled():
    jax, torch = importlib.import_module("jax"), importlib.import_module("torch")
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ds.TracingError, match="JAX is compiling"):
        jax.jit(lambda x: (ds.place(model, "cpu"), x)[1])(jax.numpy.ones(2))

"""Tests of several frameworks in one interpreter: PyTorch, TensorFlow, Paddle, JAX and MXNet, with NumPy.

Each import order is tried in its own process, because the wrong one crashes it (TensorFlow 2.21 before Paddle 3.3 is a
segmentation fault without devshim, and MXNet cannot be imported with today's NumPy).
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import devshim as ds

FRAMEWORKS = ["tensorflow", "paddle", "torch", "jax", "mxnet"]
ALL = [*FRAMEWORKS, "numpy"]


def run_alone(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter, without its log output."""
    import os

    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def _all_loaded() -> None:
    """Load all of them here, TensorFlow before Paddle: the order that crashes without devshim."""
    missing = [name for name in ALL if name not in ds.backends()]
    assert not missing, f"this session is about all frameworks, and {missing} are not installed"
    for name in ALL:
        with ds.using(name):
            ds.zeros((1,))


def values(dtype: str) -> np.ndarray:
    return np.arange(6).reshape(2, 3).astype(dtype)


@pytest.mark.parametrize(
    "order",
    [
        ("tensorflow", "paddle"),
        ("paddle", "tensorflow"),
        ("tensorflow", "torch", "paddle", "jax", "mxnet"),
        ("mxnet", "jax", "tensorflow", "paddle", "torch"),
        ("jax", "paddle", "mxnet", "torch", "tensorflow"),
    ],
    ids="-".join,
)
def test_every_order_of_first_use_survives(order: tuple[str, ...]) -> None:
    code = f"""
import devshim as ds
for name in {order!r}:
    with ds.using(name):
        x = ds.ones((2, 3), dtype="float32")
        assert ds.device_of(ds.copy(x, "cpu")) is ds.cpu(), name
        assert ds.to_numpy(ds.run(lambda a: a + a, x)).sum() == 12, name
print("survived")
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "survived" in done.stdout


def test_imports_typed_by_the_user_get_the_same_care() -> None:
    code = """
import devshim as ds
ds.use("tensorflow")
import tensorflow
ds.use("paddle")
import paddle
ds.use("mxnet")
import mxnet
print(float(paddle.ones([2]).sum() + 1), int(tensorflow.ones([2])[0]), mxnet.np.ones((2,)).sum())
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_the_care_tensorflow_before_paddle_still_crashes() -> None:
    """The trap is real: if this fails, the workaround in `_paddle/import_hooks.py` can be removed."""
    done = run_alone("import tensorflow, paddle")
    assert done.returncode == -11, f"exit code {done.returncode}: {done.stderr[-500:]}"


def test_nothing_is_imported_that_was_not_asked_for() -> None:
    code = """
import sys
import devshim as ds
ds.backends()
ds.use("jax")
ds.place(ds.zeros((2,)), "cpu")
print([name for name in ("torch", "tensorflow", "paddle", "mxnet") if name in sys.modules])
"""
    done = run_alone(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-1000:]


def test_with_several_installed_and_none_chosen_the_error_lists_them() -> None:
    done = run_alone("import devshim as ds\ntry: ds.zeros(1)\nexcept ds.BackendNotFoundError as e: print(e)")
    assert all(name in done.stdout for name in FRAMEWORKS), done.stdout


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("current", ["torch", "numpy"])
def test_a_tensor_is_served_by_its_own_framework_whatever_is_current(name: str, current: str) -> None:
    with ds.using(name):
        x = ds.asarray([[1.0, 2.0]], dtype="float32")
    with ds.using(current):
        y = ds.copy(x, "cpu")
        assert type(y) is type(x)
        assert y is not x
        assert ds.place(x, "cpu") is x
        assert ds.device_of(y) is ds.cpu()
        assert type(ds.zeros_like(x)) is type(x)
        assert ds.to_numpy(y).tolist() == [[1.0, 2.0]]


def test_one_tree_may_hold_tensors_of_all() -> None:
    tree = {}
    for name in ALL:
        with ds.using(name):
            tree[name] = ds.ones((2,), dtype="float32")
    copied = ds.copy(tree, "cpu")
    assert {name: type(x) for name, x in copied.items()} == {name: type(x) for name, x in tree.items()}
    assert all(copied[name] is not tree[name] for name in ALL)
    assert ds.place(tree, "cpu") is tree
    assert ds.same_device(tree)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "uint8"])
@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(ALL, 2)), ids="-".join)
def test_convert_keeps_values_dtype_and_shape(source: str, target: str, dtype: str) -> None:
    with ds.using(source):
        x = ds.from_numpy(values(dtype))
    y = ds.convert(x, target)
    with ds.using(target):
        expected: Any = type(ds.zeros((1,)))
    assert type(y) is expected
    back = ds.to_numpy(y)
    assert back.dtype == np.dtype(dtype)
    assert back.shape == (2, 3)
    assert back.tobytes() == values(dtype).tobytes()


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(ALL, 2)), ids="-".join)
def test_convert_with_copy_shares_nothing(source: str, target: str) -> None:
    array = values("float32")
    with ds.using(source):
        x = ds.from_numpy(array)
    y = ds.convert(x, target, copy=True)
    try:
        seen = ds.to_numpy(x, copy=False)
        seen[...] = -1
    except (ds.CopyNeededError, ValueError):  # memory that cannot be written cannot show sharing
        return
    assert ds.to_numpy(y).tolist() == array.tolist()


def test_simulated_cards_of_several_frameworks_in_one_process() -> None:
    code = """
import devshim as ds
ds.simulate(gpus=2)
for name in ("tensorflow", "jax", "mxnet", "numpy"):
    with ds.using(name):
        assert ds.device_count() == 2, name
        x = ds.ones((2, 2), device="gpu:1")
        assert ds.device_of(ds.run(lambda a: a + a, x)) is ds.gpu(1), name
        assert ds.describe("gpu:1").simulated
        y = ds.convert(x, "numpy", device="gpu:0")
        assert ds.device_of(y) is ds.gpu(0), name
print("simulated")
"""
    done = run_alone(code)
    assert "simulated" in done.stdout, done.stderr[-2000:]

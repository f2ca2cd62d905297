"""Tests of sums over several TensorFlow devices: the engine of ``tf.distribute``, run on logical host devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import devshim as ds
from devshim.registry import registry

NAMES = ["/CPU:1", "/CPU:2", "/CPU:3"]


@pytest.fixture(autouse=True)
def _cards() -> Iterator[None]:
    ds.use("tensorflow")
    with ds.simulate(3):
        yield


def tensors(dtype: str) -> list[Any]:
    """Return numbers whose sum does not depend on the order."""
    return [ds.from_numpy(np.array([[i + 1, 3 * i], [-i, 99]]).astype(dtype), i) for i in range(3)]


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_sums_by_tf_distribute_equal_the_portable_ones(op: str, dtype: str) -> None:
    if op == "mean" and dtype.startswith("int"):
        return  # refused before any engine is used
    from devshim_backends._tensorflow.collectives import REDUCED_DTYPES, all_reduce_on_gpus

    xs = tensors(dtype)
    assert xs[0].dtype in REDUCED_DTYPES
    results = all_reduce_on_gpus(NAMES, xs, op)
    expected = ds.all_reduce_(list(xs), op)  # type: ignore[arg-type]
    assert [ds.device_of(each) for each in results] == ds.devices("gpu")
    for result, portable in zip(results, expected, strict=True):
        assert result.dtype == portable.dtype
        assert ds.to_numpy(result).tobytes() == ds.to_numpy(portable).tobytes()


def test_tf_distribute_only_sums_on_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no maximum, and simulated GPUs have no engine."""
    backend = registry.load("tensorflow")
    xs = tensors("float32")
    assert backend.all_reduce(xs, "sum") is None
    monkeypatch.setattr(type(backend), "to_native", lambda self, device: NAMES[device.index])
    devices = {id(x): ds.device_of(x) for x in xs}
    monkeypatch.setattr(type(backend), "device_of", lambda self, x: devices[id(x)])
    monkeypatch.setattr(backend, "simulated", 0)
    found = backend.all_reduce(xs, "sum")
    assert found is not None
    assert [each.numpy().tolist() for each in found] == [[[6, 9], [-3, 297]]] * 3
    assert backend.all_reduce(xs, "max") is None
    variables = [tf.Variable([True])] * 3
    assert backend.all_reduce(variables, "sum") is None, "no sum of what the engine does not take"


@pytest.mark.parametrize(
    "make",
    [lambda: tf.sparse.from_dense([[1.0, 0.0]]), lambda: tf.ragged.constant([[1.0], [2.0, 3.0]])],
    ids=["sparse", "ragged"],
)
@pytest.mark.parametrize(
    ("call", "verb"),
    [
        (lambda x: ds.split([x], ["cpu", "gpu:1"]), "split"),
        (lambda x: ds.split(x, ["cpu", "gpu:1"]), "split"),
        (lambda x: ds.gather([x, x], "gpu:1"), "join"),
        (lambda x: ds.gather([{"a": x}, {"a": x}], "gpu:1"), "join"),
        (lambda x: ds.all_reduce_([x, x]), "reduce"),
    ],
)
def test_composite_tensors_are_refused(make: Callable[[], Any], call: Callable[[Any], Any], verb: str) -> None:
    with pytest.raises(ds.UnsupportedError, match=f"devshim cannot {verb} tensors of the type (Sparse|Ragged)Tensor"):
        call(make())


class Shaped(tf.experimental.ExtensionType):  # type: ignore[misc]
    x: tf.Tensor
    shape: tf.TensorShape


class WithSparse(tf.experimental.ExtensionType):  # type: ignore[misc]
    x: tf.SparseTensor


def test_an_extension_type_that_has_the_shape_of_its_tensors_is_only_summed() -> None:
    shaped = Shaped(tf.ones((4, 3)), [4])
    for call in (lambda: ds.split(shaped, [0, 1]), lambda: ds.gather([shaped, shaped], 0)):
        with pytest.raises(ds.UnsupportedError, match=r"static data has the shape \(4,\), which would stay"):
            call()
    first, _ = ds.all_reduce_([ds.place(shaped, 0), ds.place(shaped, 1)])
    assert first.x.numpy().tolist() == [[2] * 3] * 4


def test_a_sparse_tensor_in_an_extension_type_is_refused() -> None:
    held = WithSparse(tf.sparse.from_dense([[1.0, 0.0]]))
    for call in (
        lambda: ds.split(held, [0, 1]),
        lambda: ds.gather([held, held], 0),
        lambda: ds.all_reduce_([held, held]),
    ):
        with pytest.raises(ds.UnsupportedError, match="a SparseTensor in it has tensors that belong together"):
            call()


@pytest.mark.parametrize("like", [ds.empty_like, ds.zeros_like, ds.ones_like, lambda x: ds.full_like(x, 2)])
def test_a_tensor_like_a_ragged_one_is_refused(like: Callable[[Any], Any]) -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    with pytest.raises(ds.UnsupportedError, match="length of axis 1, and this RaggedTensor has no fixed one"):
        like(ragged)
    assert like(ragged.to_tensor()).shape == (2, 2)


def test_a_batch_of_unknown_length_is_not_split() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def first(x: Any) -> Any:
        return ds.split(x, ["cpu", "cpu"], axis=axis)[0]

    axis = 0
    with pytest.raises(
        ds.TracingError, match="length of axis 0, and TensorFlow is compiling a function for any length"
    ):
        first(tf.ones((4, 3)))
    axis = 1
    assert first(tf.ones((4, 3))).shape == (4, 2)


@pytest.mark.parametrize("shape", [None, [None, 2]], ids=["any rank", "any length"])
def test_a_variable_without_a_fixed_shape_has_that_of_its_value(shape: Any) -> None:
    variable = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], shape=tf.TensorShape(shape))
    variable.assign([[1.0, 2.0], [3.0, 4.0]])
    parts = ds.split(variable, ["cpu", "gpu:1"])
    assert [ds.to_numpy(part).tolist() for part in parts] == [[[1.0, 2.0]], [[3.0, 4.0]]]
    assert ds.gather([variable, variable], "cpu").shape == (4, 2)
    assert ds.zeros_like(variable).shape == (2, 2)
    with ds.transfers() as log:
        ds.place([variable, ds.ones(2, device="gpu:0")], "gpu:1")
    assert [record.bytes for record in log.records] == [16, 8]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("shape", [[3, 2], [None, 2], None], ids=["fixed", "any length", "any rank"])
def test_a_tensor_has_the_shape_of_its_model_when_the_function_runs(shape: Any, jit_compile: bool) -> None:
    def make(x: Any) -> Any:
        return ds.zeros_like(x), ds.full_like(x, 2, dtype="float64"), ds.ones_like(x), ds.empty_like(x)

    options: Any = {"input_signature": [tf.TensorSpec(shape)], "autograph": False, "jit_compile": jit_compile}
    made = tf.function(make, **options)(ds.ones((3, 2), device="gpu:1"))
    assert [tuple(x.shape) for x in made] == [(3, 2)] * 4
    assert [float(tf.reduce_sum(x)) for x in made[:3]] == [0, 12, 6]
    assert {ds.device_of(x) for x in made} == {ds.gpu(1)}


def test_a_new_int32_is_not_left_on_the_host() -> None:
    with pytest.raises(ds.TracingError, match="TensorFlow's operators keep int32 in host memory: create it outside"):
        tf.function(lambda x: ds.zeros_like(x, dtype="int32"), autograph=False)(ds.ones(2, device="gpu:1"))


def test_a_namespace_makes_operands_for_xla() -> None:
    def shifted(x: Any) -> Any:
        xp = ds.namespace(x)
        return x + xp.arange(4, dtype="float32") * xp.asarray(2.0) + xp.eye(4)[0] - xp.linspace(3, 4, 4, endpoint=False)

    x = ds.zeros((2, 4), device="gpu:1")
    for jit_compile in (True, False):
        made = tf.function(shifted, jit_compile=jit_compile, autograph=False)(x)
        assert made.numpy().tolist() == [[-2.0, -1.25, 0.5, 2.25]] * 2


def test_tensors_of_any_rank_are_not_split() -> None:
    split = tf.function(lambda x: ds.split(x, ["cpu", "cpu"]), input_signature=[tf.TensorSpec(None)], autograph=False)
    with pytest.raises(ds.TracingError, match="for tensors with any number of axes"):
        split(tf.ones((4, 3)))

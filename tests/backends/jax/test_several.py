"""Tests of several devices on JAX: dtypes and devices that its operators would lose, and XLA's collectives."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from devshim_backends._jax import collectives

import devshim as ds
from devshim.collectives import all_reduce
from devshim.registry import registry

G0, G1, G2 = ds.gpu(0), ds.gpu(1), ds.gpu(2)


pytestmark = pytest.mark.usefixtures("three_cards")


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128", "float16", "int8"])
def test_values_keep_their_width_without_x64(dtype: str) -> None:
    a = (np.arange(14).reshape(7, 2) + 2**40 * (np.dtype(dtype).itemsize == 8)).astype(dtype)
    parts = ds.split(ds.from_numpy(a), [0, 1, 2])
    assert {part.dtype.name for part in parts} == {dtype}
    assert ds.to_numpy(ds.gather(parts, 1)).tobytes() == a.tobytes()
    copies = ds.all_reduce_(ds.broadcast(ds.from_numpy(a), [0, "cpu"]))
    assert {ds.to_numpy(each).tobytes() for each in copies} == {(a + a).tobytes()}


def test_an_uncommitted_array_is_split_and_gathered_on_its_device() -> None:
    x = jnp.arange(4.0)
    with ds.on("gpu:2"):
        parts = ds.split(x, ["cpu", "cpu"])
        assert [ds.device_of(part) for part in parts] == [ds.cpu()] * 2
        assert ds.device_of(ds.gather([x, x], "cpu")) is ds.cpu()
        assert [ds.device_of(each) for each in ds.all_reduce_([x, x, ds.copy(x, 0)])] == [ds.cpu(), ds.cpu(), G0]


def test_all_reduce_replaces_the_list_entries_and_keeps_the_arrays() -> None:
    old = [ds.asarray([1.0], device=0), ds.asarray([2.0], device=1)]
    tensors = list(old)
    assert ds.all_reduce_(tensors) is tensors
    assert [each.tolist() for each in tensors] == [[3.0], [3.0]]
    assert [each.tolist() for each in old] == [[1.0], [2.0]]
    assert [ds.device_of(each) for each in tensors] == [G0, G1]


def test_gradients_flow_through_split_and_gather() -> None:
    def loss(x: Any) -> Any:
        parts = ds.split(x, [0, 1, 2])
        return ds.gather([part * (i + 1) for i, part in enumerate(parts)], "cpu").sum()

    assert jax.grad(loss)(jnp.arange(7.0)).tolist() == [1, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("count", [1, 2])
def test_a_function_on_several_gpus_returns_with_its_results(count: int) -> None:
    """XLA's CPU devices share few threads, which functions with collectives could otherwise block."""
    mesh = jax.sharding.Mesh([ds.gpu(i).native() for i in range(count)], ("i",))
    by_row = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    x = jax.device_put(np.full((4, 400, 400), 1e-3, "float32"), by_row)
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, y: y @ x, x))
    ready = [step(x).is_ready() for _ in range(4)]  # the first goes through Python, the others through C++
    assert ready == [True] * 4 if count == 2 else not all(ready)


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8"])
def test_xla_collectives_agree_with_the_portable_ones(op: str, dtype: str) -> None:
    """The program for GPUs runs on XLA's host devices, with numbers whose sum does not depend on the order."""
    if op == "mean" and dtype == "int8":
        return  # refused before any engine is used
    kind = jnp.dtype(dtype)
    xs = [ds.place(ds.from_numpy(np.array([[i + 1, 3 * i], [-i, 100]]).astype(kind)), i) for i in range(3)]
    results = collectives.reduce_over_gpus([device.native() for device in (G0, G1, G2)], [xs], op)[0]
    expected = ds.all_reduce_(list(xs), op)  # type: ignore[arg-type]
    assert [ds.device_of(each) for each in results] == [G0, G1, G2]
    for result, portable in zip(results, expected, strict=True):
        assert result.dtype == portable.dtype == kind
        assert ds.to_numpy(result).tobytes() == ds.to_numpy(portable).tobytes()


def test_nan_stays_in_every_result() -> None:
    xs = [ds.asarray([np.nan, 1.0], device=0), ds.asarray([2.0, 3.0], device=1)]
    for op in ("sum", "mean", "max", "min"):
        for result in ds.all_reduce_(list(xs), op):  # type: ignore[arg-type]
            assert np.isnan(ds.to_numpy(result)[0])
    for result in collectives.reduce_over_gpus([G0.native(), G1.native()], [xs], "sum")[0]:
        assert np.isnan(ds.to_numpy(result)[0])


def test_xla_computes_only_sums_and_means_on_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's maximum loses NaN, and simulated GPUs have no engine."""
    backend = registry.load("jax")
    xs = [ds.asarray([1.0], device=0), ds.asarray([2.0], device=1)]
    assert backend.all_reduce(xs, "sum") is None
    natives = {device: device.native() for device in (G0, G1)}
    monkeypatch.setattr(type(backend), "to_native", lambda self, device: natives[device])
    monkeypatch.setattr(backend, "simulated", 0)
    found = backend.all_reduce(xs, "sum")
    assert found is not None
    assert [each.tolist() for each in found] == [[3.0], [3.0]]
    assert backend.all_reduce(xs, "max") is None


def test_the_leaves_of_a_tree_are_reduced_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of all dtypes and shapes; each result is what a separate call for the leaf gives."""
    backend = registry.load("jax")
    values = [np.full((4, 2), 2.5), np.arange(3, dtype="int32"), np.float32(7), np.ones(5, "float16"), np.ones(0)]
    trees = [{str(k): ds.from_numpy(np.asarray(each), i) for k, each in enumerate(values)} for i in range(3)]
    expected = ds.all_reduce_([dict(tree) for tree in trees])
    natives = [device.native() for device in (G0, G1, G2)]
    calls: list[int] = []

    def all_reduce_many(self: Any, groups: Any, op: Any) -> Any:
        calls.append(len(groups))
        return collectives.reduce_over_gpus(natives, groups, op)

    monkeypatch.setattr(all_reduce.Group, "may_have_engine", lambda self: True)  # simulated GPUs have none
    monkeypatch.setattr(type(backend), "all_reduce_many", all_reduce_many)
    with ds.transfers() as log:
        found = ds.all_reduce_([dict(tree) for tree in trees])
    assert calls == [5]
    assert [(record.tensors, record.bytes) for record in log.records] == [(5, 64 + 12 + 4 + 10)] * 3
    for i, (tree, other) in enumerate(zip(found, expected, strict=True)):
        for key, x in tree.items():
            assert x.dtype == other[key].dtype
            assert ds.device_of(x) is ds.gpu(i)
            assert ds.to_numpy(x).tobytes() == ds.to_numpy(other[key]).tobytes()


def test_parallel_uses_the_settings_of_the_calling_thread() -> None:
    x = jnp.zeros(1)
    assert ds.parallel([lambda x: jnp.arange(3.0).dtype.name], [x]) == ["float32"]
    with collectives.enable_x64(True):
        assert ds.parallel([lambda x: jnp.arange(3.0).dtype.name] * 2, [x, x]) == ["float64"] * 2
    with jax.default_device(G1.native()):
        assert ds.parallel([lambda x: ds.device_of(jnp.arange(3.0))], [None]) == [G1]


def test_parallel_works_where_jax_transforms_and_not_where_it_compiles() -> None:
    def double(x: Any) -> Any:
        return jnp.add(*ds.parallel([lambda y: y, lambda y: y * y], [x, x]))

    x = jnp.arange(3.0)
    assert jax.vmap(double)(x).tolist() == [0, 2, 6]
    assert jax.grad(lambda x: double(x).sum())(x).tolist() == [1, 3, 5]
    with pytest.raises(ds.TracingError, match=r"ds\.parallel"):
        jax.jit(double)(x)


def test_split_and_gather_are_refused_in_jit() -> None:
    for call in (lambda x: ds.split(x, [0, 1])[0], lambda x: ds.gather([x, x], 0)):
        with pytest.raises(ds.TracingError):
            jax.jit(call)(jnp.arange(4.0))


def test_a_collective_is_compiled_once_for_each_shape() -> None:
    """Compiling at each call would take a tenth of a second for each array of a model, and more on GPUs."""
    compiled: list[str] = []

    def note(event: str, seconds: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    natives = [ds.gpu(i).native() for i in range(3)]
    trees = [[ds.from_numpy(np.full(shape, i, "float32"), i) for i in range(3)] for shape in ((5, 7), (6,))]
    collectives.reduce_over_gpus(natives, trees, "sum")
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for _ in range(2):
            for results in collectives.reduce_over_gpus(natives, trees, "sum"):
                assert all((np.asarray(x) == 3).all() for x in results)
        assert compiled == []
        collectives.reduce_over_gpus(natives, [[ds.from_numpy(np.ones(9, "float32"), i) for i in range(3)]], "sum")
        assert compiled, "nothing is counted"
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: ds.zeros_like(x),
        lambda x: ds.asarray([[1, 2], [3, 4]], like=x),
        lambda x: ds.asarray(np.float64(7), like=x),
        lambda x: ds.arange(2**40, 2**40 + 3, like=x, dtype="int64"),
        lambda x: ds.namespace(x).full_like(x, 3),
    ],
)
def test_a_function_that_returns_only_new_arrays_returns_them_where_its_argument_is(make: Any) -> None:
    x = ds.ones((3, 2), device="gpu:1")
    for fn in (jax.jit(make), jax.jit(lambda x: jax.jit(make)(x + 1))):
        made = fn(x)
        assert ds.device_of(made) is ds.gpu(1)
    assert ds.to_numpy(jax.jit(make)(x)).tolist() == ds.to_numpy(make(x)).tolist()


def test_new_arrays_are_sharded_as_their_model_and_follow_symbolic_lengths() -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("rows",))
    x = jax.device_put(jnp.ones((4, 2)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows")))
    assert jax.jit(lambda x: x + ds.zeros_like(x) + ds.ones(2, like=x))(x).sharding == x.sharding
    exported = jax.export.export(jax.jit(lambda x: ds.ones_like(x)))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 2"), jnp.float32)
    )
    assert exported.call(jnp.ones((5, 2))).sum() == 10


def test_a_namespace_makes_operands_in_a_compiled_function() -> None:
    def shifted(x: Any) -> Any:
        xp = ds.namespace(x)
        return x + xp.arange(4, dtype="float32") * xp.asarray(2.0) + xp.eye(4)[0] - xp.linspace(3, 4, 4, endpoint=False)

    made = jax.jit(shifted)(ds.zeros((2, 4), device="gpu:1"))
    assert ds.device_of(made) is ds.gpu(1)
    assert made.tolist() == [[-2.0, -1.25, 0.5, 2.25]] * 2
    with pytest.raises(ds.TracingError, match=r"ds\.zeros cannot work"):
        jax.jit(lambda x: x + ds.namespace(x).zeros(4, device="gpu:1"))(made)


def test_a_batch_of_unknown_length_is_not_split() -> None:
    (length,) = jax.export.symbolic_shape("length,")
    batch = jax.ShapeDtypeStruct((length, 4), jnp.float32)

    for count in (1, 2):
        split = jax.jit(lambda x, count=count: ds.split(x, ["cpu"] * count)[0])
        with pytest.raises(ds.TracingError, match="length of axis 0, and JAX is compiling a function for any length"):
            jax.export.export(split)(batch)

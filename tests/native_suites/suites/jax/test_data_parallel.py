"""Data-parallel programs for JAX on two CUDA GPUs: pmap, meshes, shard_map and named shardings."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

SUITE = "programs: data parallelism with pmap, shard_map and shardings"
TESTED = ("jax",)
P = PartitionSpec
GPUS = jax.devices("gpu")


def mesh() -> Mesh:
    return jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))


def parameters(seed: int = 0) -> Any:
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "w1": jax.random.normal(first, (8, 16)) * 0.3,
        "b1": jnp.zeros(16),
        "w2": jax.random.normal(second, (16, 1)) * 0.3,
    }


def predict(params: Any, x: jax.Array) -> jax.Array:
    return (jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"])[..., 0]


def loss(params: Any, x: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.mean((predict(params, x) - target) ** 2)


def batch(size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(size, 8)).astype(np.float32)
    return x, x.sum(1)


def test_the_gpus_are_there() -> None:
    assert jax.default_backend() == "gpu"
    assert [each.platform for each in GPUS] == ["gpu", "gpu"]
    assert jax.device_count() == jax.local_device_count() == 2
    assert jnp.ones(2).devices() == {GPUS[0]}
    assert jax.devices("cpu")[0].platform == "cpu"


def test_pmap_trains_with_psum() -> None:
    x, target = batch()
    params = (
        jax.device_put_replicated(parameters(), GPUS)
        if hasattr(jax, "device_put_replicated")
        else jax.tree.map(lambda each: jnp.stack([each] * 2), parameters())
    )

    @partial(jax.pmap, axis_name="batch")
    def step(params: Any, x: jax.Array, target: jax.Array) -> tuple[Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, x, target)
        grads = jax.lax.pmean(grads, "batch")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), jax.lax.pmean(value, "batch")

    values = []
    for _ in range(10):
        params, value = step(params, x.reshape(2, 16, 8), target.reshape(2, 16))
        values.append(float(value[0]))
    assert values[-1] < values[0]
    assert params["w1"].sharding.device_set == set(GPUS)
    np.testing.assert_array_equal(params["w1"][0], params["w1"][1])


def test_pmap_has_the_collectives() -> None:
    @partial(jax.pmap, axis_name="i")
    def every(x: jax.Array) -> Any:
        return {
            "sum": jax.lax.psum(x, "i"),
            "max": jax.lax.pmax(x, "i"),
            "all": jax.lax.all_gather(x, "i"),
            "next": jax.lax.ppermute(x, "i", [(0, 1), (1, 0)]),
            "index": jax.lax.axis_index("i"),
        }

    found = every(jnp.arange(2.0))
    np.testing.assert_array_equal(found["sum"], [1, 1])
    np.testing.assert_array_equal(found["max"], [1, 1])
    np.testing.assert_array_equal(found["next"], [1, 0])
    np.testing.assert_array_equal(found["index"], [0, 1])
    np.testing.assert_array_equal(found["all"], [[0, 1], [0, 1]])


def test_pmap_on_chosen_devices_and_with_static_arguments() -> None:
    found = jax.pmap(lambda x, n: x * n, static_broadcasted_argnums=1, devices=GPUS[::-1])(jnp.ones((2, 3)), 4)
    np.testing.assert_array_equal(found, np.full((2, 3), 4))
    with pytest.raises(ValueError, match=r"devices|partitioned"):
        jax.pmap(lambda x: x)(jnp.ones((3, 2)))


@pytest.mark.parametrize("donate", [False, True])
def test_a_named_sharding_divides_the_batch(donate: bool) -> None:
    x, target = batch()
    over = NamedSharding(mesh(), P("batch"))
    whole = NamedSharding(mesh(), P())
    x, target = jax.device_put((x, target), over)
    params = jax.device_put(parameters(), whole)
    assert x.sharding.is_equivalent_to(over, 2)
    assert {each.device for each in x.addressable_shards} == set(GPUS)
    assert x.addressable_shards[0].data.shape == (16, 8)

    @partial(jax.jit, donate_argnums=(0,) if donate else (), out_shardings=(whole, None))
    def step(params: Any, x: jax.Array, target: jax.Array) -> tuple[Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, x, target)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    values = []
    for _ in range(10):
        params, value = step(params, x, target)
        values.append(float(value))
    assert values[-1] < values[0]
    assert params["w1"].sharding.is_fully_replicated


def test_the_result_is_that_of_one_gpu() -> None:
    x, target = batch()
    params = parameters()
    alone = jax.jit(jax.grad(loss))(params, x, target)
    over = NamedSharding(mesh(), P("batch"))
    both = jax.jit(jax.grad(loss))(
        jax.device_put(params, NamedSharding(mesh(), P())), jax.device_put(x, over), jax.device_put(target, over)
    )
    assert alone["w1"].devices() == {GPUS[0]}
    assert both["w1"].devices() == set(GPUS)
    for name in params:
        np.testing.assert_allclose(alone[name], both[name], atol=1e-5)


def test_shard_map_computes_each_part() -> None:
    @jax.jit
    @partial(jax.shard_map, mesh=mesh(), in_specs=(P("batch"), P()), out_specs=P("batch"))
    def scaled(x: jax.Array, factor: jax.Array) -> jax.Array:
        return x / jax.lax.psum(x.sum(), "batch") * factor

    x = jnp.arange(8.0)
    np.testing.assert_allclose(scaled(x, 28.0), x)
    assert scaled(x, 1.0).sharding.spec == P("batch")


def test_shard_map_trains() -> None:
    x, target = batch()

    @jax.jit
    @partial(jax.shard_map, mesh=mesh(), in_specs=(P(), P("batch"), P("batch")), out_specs=(P(), P()))
    def step(params: Any, x: jax.Array, target: jax.Array) -> tuple[Any, jax.Array]:
        value, grads = jax.value_and_grad(lambda p: jax.lax.pmean(loss(p, x, target), "batch"))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params, values = parameters(), []
    for _ in range(8):
        params, value = step(params, x, target)
        values.append(float(value))
    assert values[-1] < values[0]


def test_a_matrix_product_is_divided_over_two_axes() -> None:
    grid = Mesh(np.array(GPUS).reshape(2, 1), ("rows", "columns"))
    left = jax.device_put(jnp.arange(16.0).reshape(4, 4), NamedSharding(grid, P("rows", "columns")))
    right = jax.device_put(jnp.eye(4), NamedSharding(grid, P("columns", None)))
    found = jax.jit(jnp.matmul, out_shardings=NamedSharding(grid, P("rows", None)))(left, right)
    np.testing.assert_array_equal(found, np.arange(16.0).reshape(4, 4))
    assert "CudaDevice" in repr(grid.devices)


def test_constraints_of_shardings_inside_jit() -> None:
    over = NamedSharding(mesh(), P("batch"))

    @jax.jit
    def divided(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x * 2, over)

    assert divided(jnp.ones((4, 2))).sharding.is_equivalent_to(over, 2)


def test_arrays_are_made_of_parts_and_by_callbacks() -> None:
    over = NamedSharding(mesh(), P("batch"))
    parts = [jax.device_put(jnp.full((1, 3), index), gpu) for index, gpu in enumerate(GPUS)]
    whole = jax.make_array_from_single_device_arrays((2, 3), over, parts)
    np.testing.assert_array_equal(whole[:, 0], [0, 1])
    made = jax.make_array_from_callback((4,), over, lambda index: np.arange(4)[index])
    np.testing.assert_array_equal(made, range(4))
    local = jax.make_array_from_process_local_data(over, np.arange(6))
    assert local.addressable_shards[1].data.devices() == {GPUS[1]}


def test_the_second_gpu_is_chosen() -> None:
    x = jax.device_put(np.ones(3), GPUS[1])
    assert x.device == GPUS[1]
    assert jax.jit(lambda x: x + 1)(x).devices() == {GPUS[1]}
    with jax.default_device(GPUS[1]):
        assert jnp.zeros(2).devices() == {GPUS[1]}
        assert jax.random.normal(jax.random.key(0), (2,)).devices() == {GPUS[1]}
    host = jax.device_put(x, jax.devices("cpu")[0])
    assert host.device.platform == "cpu"
    assert jax.device_put(host, SingleDeviceSharding(GPUS[0])).device == GPUS[0]


def test_arrays_on_two_gpus_are_not_added() -> None:
    one, other = (jax.device_put(jnp.ones(2), each) for each in GPUS)
    with pytest.raises(ValueError, match="incompatible devices"):
        one + other
    with pytest.raises(ValueError, match="incompatible devices"):
        jax.jit(jnp.add)(one, other)


@pytest.mark.parametrize("transform", ["vmap", "scan", "checkpoint", "while", "cond"])
def test_transformations_compute_on_a_gpu(transform: str) -> None:
    x = jax.device_put(jnp.arange(6.0).reshape(3, 2), GPUS[1])
    run = {
        "vmap": lambda x: jax.vmap(jnp.sum)(x),
        "scan": lambda x: jax.lax.scan(lambda carry, row: (carry + row, carry), jnp.zeros(2), x)[1],
        "checkpoint": lambda x: jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum())(x),
        "while": lambda x: jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x),
        "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, x),
    }[transform]
    found = jax.jit(run)(x)
    assert found.devices() == {GPUS[1]}
    np.testing.assert_allclose(found, run(jax.device_put(x, jax.devices("cpu")[0])), atol=1e-6)


def test_callbacks_and_prints_inside_jit(capfd: pytest.CaptureFixture[str]) -> None:
    @jax.jit
    def shown(x: jax.Array) -> jax.Array:
        jax.debug.print("sum {}", x.sum())
        return jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    found = shown(jax.device_put(jnp.ones(3), GPUS[1]))
    jax.effects_barrier()
    np.testing.assert_array_equal(found, [2, 2, 2])
    assert "sum 3.0" in capfd.readouterr().out


def test_memory_kinds_and_offloading() -> None:
    pinned = SingleDeviceSharding(GPUS[1], memory_kind="pinned_host")
    x = jax.device_put(jnp.ones(4), pinned)
    assert x.sharding.memory_kind == "pinned_host"
    back = jax.device_put(x, SingleDeviceSharding(GPUS[1], memory_kind="device"))
    np.testing.assert_array_equal(back, np.ones(4))
    assert GPUS[1].default_memory().kind == "device"


def test_keys_are_divided_over_gpus() -> None:
    keys = jax.device_put(jax.random.split(jax.random.key(1), 2), NamedSharding(mesh(), P("batch")))
    found = jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)
    assert found.devices() == set(GPUS)


def test_a_prefetching_loader_feeds_both_gpus() -> None:
    import collections
    import itertools

    over = NamedSharding(mesh(), P("batch"))

    def prefetch(batches: Any, depth: int = 2) -> Any:
        waiting: Any = collections.deque()
        batches = iter(batches)
        for each in itertools.islice(batches, depth):
            waiting.append(jax.device_put(each, over))
        while waiting:
            yield waiting.popleft()
            for each in itertools.islice(batches, 1):
                waiting.append(jax.device_put(each, over))

    found = [float(each.sum()) for each in prefetch(np.full((4, 2), index) for index in range(5))]
    assert found == [0, 8, 16, 24, 32]


def test_compiled_programs_are_inspected() -> None:
    lowered = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((4, 4), jnp.float32))
    compiled = lowered.compile()
    assert compiled(jnp.eye(4)).devices() == {GPUS[0]}
    assert compiled.cost_analysis() is not None
    assert "dot" in lowered.as_text()

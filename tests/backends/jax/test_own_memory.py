"""Tests that a simulated GPU of JAX has its own memory: NumPy shares none of it, so copies need no wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devshim_backends._jax.internals.clients import cpu_devices
from devshim_backends._jax.simulation import hooks
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import devshim as ds

DTYPES = ["bool", "int8", "uint16", "int32", "float16", "float32", "complex64", jnp.bfloat16]


@pytest.fixture(autouse=True, params=[False, True], ids=["devshim names", "native names"])
def _two(current: str, request: pytest.FixtureRequest) -> Iterator[None]:
    with ds.simulate(2, native_names=request.param):
        yield


def gpu(index: int = 1) -> Any:
    return cpu_devices()[1 + index]


def sharding(*axes: str) -> NamedSharding:
    return NamedSharding(Mesh(np.array([gpu(0), gpu(1)]), ("d",)), PartitionSpec(*axes))


def ones(offset: int, dtype: Any = "float32", elements: int = 4096) -> np.ndarray:
    """Return ones that start this many bytes after an address that XLA would share."""
    size = elements * np.dtype(dtype).itemsize
    raw = np.empty(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + size].view(dtype)
    array[...] = 1
    return array


def in_scope(array: np.ndarray, make: Callable[[np.ndarray], Any]) -> Any:
    with jax.default_device(gpu()):
        return make(array)


def one(array: np.ndarray) -> Any:
    return np.ones((), array.dtype)


def through_the_host(array: np.ndarray) -> Any:
    return jax.device_put(jax.device_put(array, cpu_devices()[0]), gpu())


WAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "device_put": lambda a: jax.device_put(a, gpu()),
    "device_put, may_alias": lambda a: jax.device_put(a, gpu(), may_alias=True),
    "device_put of a tree": lambda a: jax.device_put({"a": [a]}, gpu()),
    "device_put to a sharding": lambda a: jax.device_put(a, sharding("d")),
    "device_put to all": lambda a: jax.device_put(a, sharding()),
    "device_put in a scope": partial(in_scope, make=jax.device_put),
    "asarray": lambda a: jnp.asarray(a, device=gpu()),
    "asarray in a scope": partial(in_scope, make=jnp.asarray),
    "array in a scope": partial(in_scope, make=jnp.array),
    "an operator": partial(in_scope, make=lambda a: jnp.multiply(a, jnp.ones((), a.dtype))),
    "jit": partial(in_scope, make=jax.jit(lambda a: (a, a))),
    "jit, donated": partial(in_scope, make=jax.jit(lambda a: a, donate_argnums=0)),
    "jit beside an array": lambda a: jax.jit(lambda a, b: (a, b))(a, jax.device_put(0, gpu()))[0],
    "jit beside an array, of a host array": lambda a: jax.jit(jnp.multiply)(
        jax.device_put(a), jax.device_put(one(a), gpu())
    ),
    "jit of a closure": partial(in_scope, make=lambda a: jax.jit(lambda: jnp.asarray(a))()),
    "a callback": lambda a: jax.make_array_from_callback(a.shape, sharding("d"), lambda index: a[index]),
    "a callback for all": lambda a: jax.make_array_from_callback(a.shape, sharding(), lambda index: a[index]),
    "local data": lambda a: jax.make_array_from_process_local_data(sharding("d"), a),
    "through the host": through_the_host,
    "from_numpy": lambda a: ds.from_numpy(a, ds.gpu(1)),
    "ds.asarray": lambda a: ds.asarray(a, device=ds.gpu(1)),
    "place": lambda a: ds.place(ds.from_numpy(a), ds.gpu(1)),
}


@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_write_to_a_numpy_array_does_not_reach_a_gpu(way: str, offset: int) -> None:
    """The second run of a function takes the C++ fast path of JAX."""
    for _ in range(3):
        array = ones(offset)
        x = WAYS[way](array)
        array[...] = 0
        for leaf in jax.tree.leaves(x):
            assert leaf.sharding.device_set <= {gpu(0), gpu(1)}
            assert np.asarray(leaf).all()


@pytest.mark.parametrize("way", ["device_put", "jit beside an array", "jit beside an array, of a host array"])
@pytest.mark.parametrize("offset", [0, 16])
def test_a_write_to_a_large_numpy_array_does_not_reach_a_gpu(way: str, offset: int) -> None:
    """JAX reads a large array in other threads, after it has returned from the call."""
    for _ in range(6):
        array = ones(offset, elements=6_000_000)
        x = WAYS[way](array)
        array[...] = 0
        assert all(np.asarray(leaf).all() for leaf in jax.tree.leaves(x))


def test_what_jax_gets_of_a_numpy_array_is_never_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    put = hooks._put_parts

    def record(aval: Any, sharding: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        given.extend(xs)
        return put(aval, sharding, xs, *args, **kwargs)

    monkeypatch.setattr(hooks, "_put_parts", record)
    for array in (ones(0), ones(16), ones(4)[::2], ones(0).reshape(64, 64).T):
        jax.device_put(array, gpu())
        assert len(given) == 1
        assert not np.shares_memory(given.pop(), array)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_arrays_of_every_dtype_are_copied(dtype: Any) -> None:
    for make in (WAYS["device_put"], WAYS["from_numpy"]):
        array = ones(0, dtype)
        x = make(array)
        array[...] = 0
        assert x.dtype == array.dtype
        assert ds.to_numpy(x).astype(bool).all()


def test_mapped_files_are_copied(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "values", np.float32, "w+", shape=4096)
    array[...] = 1
    x, y = jax.device_put(array, gpu()), jax.jit(lambda a, b: a + b)(array, jax.device_put(np.float32(1), gpu()))
    array[...] = 0
    assert np.asarray(x).all()
    assert (np.asarray(y) == 2).all()


def test_an_array_on_the_host_still_shares_memory() -> None:
    """That is how JAX is on the CPU, and what a simulated GPU must not change."""
    array = ones(0)
    x = jax.device_put(array, cpu_devices()[0])
    assert x.unsafe_buffer_pointer() == array.ctypes.data


def test_numpy_and_others_cannot_write_to_a_gpu() -> None:
    x = jax.device_put(np.ones(16, np.float32), gpu())
    ds.to_numpy(x)[...] = 0
    np.array(x)[...] = 0
    with pytest.raises(ds.CopyNeededError):
        ds.to_numpy(x, copy=False)
    with pytest.raises((BufferError, RuntimeError)):  # NumPy refuses memory of a GPU by the second
        np.from_dlpack(x)
    for view in (np.asarray(x), np.asarray(memoryview(x))):
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
    assert np.asarray(x).all()


def test_dlpack_gives_a_copy_to_a_consumer_that_asks_for_the_host() -> None:
    x = jax.device_put(np.ones(1 << 20, np.float32), gpu())
    copied = np.from_dlpack(x, device="cpu")
    assert copied.all()
    assert copied.ctypes.data != x.unsafe_buffer_pointer()
    with pytest.raises((BufferError, ValueError)):  # JAX's error on a GPU is the second
        np.from_dlpack(x, device="cpu", copy=False)


# ---------------------------------------------------------------------- copies between GPUs
def test_a_copy_between_gpus_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy may write to the host's memory before JAX has read it; only JAX writes to that of a GPU."""
    x, waited, wait = ds.asarray([1.0, 2.0], device="cpu"), [], jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda x: (waited.append(x), wait(x))[1])
    on_gpu, tree = ds.place(x, "gpu:0"), ds.place([x], "gpu:0")
    assert waited
    waited.clear()
    found = [ds.place(on_gpu, "gpu:1"), *ds.place([on_gpu, tree[0]], "gpu:1")]
    value, grad = ds.value_and_grad(lambda x: (ds.place(x, "gpu:1") ** 2).sum())(on_gpu)
    assert not waited
    back = ds.place(found[0], "cpu")
    assert waited
    assert [ds.to_numpy(each).tolist() for each in (*found, back)] == [[1.0, 2.0]] * 4
    assert (float(value), ds.to_numpy(grad).tolist()) == (5.0, [2.0, 4.0])


@pytest.mark.parametrize("as_tree", [False, True])
def test_a_copy_is_right_if_its_source_is_donated_or_deleted(as_tree: bool) -> None:
    def copied(x: Any) -> Any:
        return ds.place([x], "gpu:1")[0] if as_tree else ds.place(x, "gpu:1")

    negate = jax.jit(lambda x: -x, donate_argnums=0)
    sums = jax.jit(lambda x: x + (x @ x)[0, 0] * 0)  # takes a while, and the copy must wait for it
    source = jax.device_put(np.ones((256, 256), np.float32), gpu(0))
    for _ in range(20):
        x = sums(source)
        y = copied(x)
        negated = negate(x)
        assert x.is_deleted()
        z = copied(negated)
        negated.delete()
        assert (np.asarray(y) == 1).all()
        assert (np.asarray(z) == -1).all()

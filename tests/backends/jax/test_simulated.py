"""Tests of simulated GPUs on JAX beyond the kit: what is counted, which operators find a GPU full, and switching."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import pxla
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import devshim as ds

KIB = 1024


@pytest.fixture(autouse=True)
def _two(current):
    gc.collect()
    ds.simulate(2)
    yield
    ds.simulate(2)


def used(gpu=1):
    gc.collect()
    return ds.memory(ds.gpu(gpu)).used


def native(gpu=1):
    return ds.gpu(gpu).native("jax")


def on_gpu(elements=256, gpu=1):
    """Return float32 ones on a GPU, one KiB by default."""
    return jax.device_put(np.ones(elements, np.float32), native(gpu))


# ---------------------------------------------------------------------- memory: what is counted
def test_every_way_to_create_an_array_is_counted():
    """`device_put`, `device=`, operators, compiled functions, gradients, loops, random keys, callbacks."""
    x = on_gpu()
    made = [
        *(x, jnp.zeros(256, device=native()), x + x, x.copy(), jnp.sin(x)),
        *jax.jit(lambda a: (a * 2, a * 3))(x),
        *(jax.grad(lambda a: (a * a).sum())(x), jax.vmap(lambda a: a * 2)(x), jax.lax.add(x, x)),
        jax.lax.scan(lambda c, a: (c, a * 2), x[0], x)[1],
        jax.make_array_from_callback((256,), SingleDeviceSharding(native()), lambda index: np.ones(256, np.float32)),
    ]
    assert (used(0), used(1)) == (0, KIB * len(made))
    key = jax.device_put(jax.random.key(0), native())
    assert used() == KIB * len(made) + 512
    del x, key
    made.clear()
    assert (used(0), used(1)) == (0, 0)


def test_a_shared_buffer_counts_once_until_its_last_array_is_gone():
    """`device_put` to the array's own device gives a second array over its buffer, as does `addressable_shards`."""
    x = on_gpu()
    alias, part = jax.device_put(x, native()), x.addressable_shards[0].data
    assert used() == KIB
    assert alias.unsafe_buffer_pointer() == part.unsafe_buffer_pointer()
    del x
    assert used() == KIB
    del alias
    assert used() == KIB
    del part
    assert used() == 0


def test_deleted_and_donated_memory_is_released():
    """`x.delete()` frees memory, and so do arguments whose memory the result has taken over."""
    x, y = on_gpu(), on_gpu()
    x.delete()
    assert used() == KIB
    z = jax.jit(lambda a: a + 1, donate_argnums=0)(y)
    assert y.is_deleted()
    assert used() == ds.memory("gpu:1").peak - KIB == KIB  # the peak was x and y
    del z
    assert used() == 0


def test_sharded_arrays_count_on_each_gpu():
    mesh = Mesh(np.array([native(0), native(1)]), ("i",))
    x = jax.device_put(np.ones(512, np.float32), NamedSharding(mesh, PartitionSpec("i")))
    everywhere = jax.device_put(np.ones(256, np.float32), NamedSharding(mesh, PartitionSpec()))
    assert (used(0), used(1)) == (2 * KIB, 2 * KIB)
    y = x * 2
    assert (used(0), used(1)) == (3 * KIB, 3 * KIB)
    assert float(y.sum()) == 1024
    del x, y, everywhere
    assert (used(0), used(1)) == (0, 0)


def test_the_peak_is_exact_between_queries():
    """The result of an operator is counted when it is created, not only at the next query."""
    x = on_gpu()
    ds.simulate(2)  # the peak is reset to the current use
    for _ in range(3):
        x = x + x * 2  # at the same time: x, x * 2, and the sum
    assert ds.memory("gpu:1").peak == 3 * KIB
    assert used() == KIB


@contextmanager
def python_runs():
    """Yield a list that gets an entry each time that a compiled function runs through Python."""
    ran, inner = [], pxla.ExecuteReplicated.__call__

    def spying(executable, *args):
        ran.append(executable)
        return inner(executable, *args)

    pxla.ExecuteReplicated.__call__ = spying
    try:
        yield ran
    finally:
        pxla.ExecuteReplicated.__call__ = inner


def runs(function, *args, times=5):
    """Return how many of some calls ran through Python; the others took JAX's fast path."""
    with python_runs() as ran:
        for _ in range(times):
            function(*args)
    return len(ran)


def test_functions_take_the_fast_path_and_are_counted():
    """On the host, on a simulated GPU with and without a limit, and on a device that is no longer a GPU."""
    double = jax.jit(lambda a: {"double": a * 2, "more": (a, None)})
    here, there = jnp.ones(256), on_gpu()
    assert runs(double, here) == runs(double, there) == 1
    ds.simulate(2)  # the peak is reset to the current use
    found = [double(there) for _ in range(5)]
    assert used() == ds.memory("gpu:1").peak == 11 * KIB
    assert float(found[-1]["double"][0]) == 2
    assert found[-1]["more"][1] is None
    del found
    assert used() == KIB
    with ds.simulate(2, memory=4 * KIB):
        assert runs(double, there) == 1
        held = double(there)
        for _ in range(2):
            with pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory: 1,024 bytes were requested"):
                double(there)
        assert used() == ds.memory("gpu:1").peak - KIB == 3 * KIB  # one of the two results has been made
        held["double"].delete()
        assert float(double(there)["double"][0]) == 2
        del held
    place = native()
    del there
    ds.simulate(0)
    assert runs(double, jax.device_put(np.ones(256, np.float32), place)) == 1


def test_random_keys_and_sharded_results_are_counted_on_the_fast_path():
    mesh = Mesh(np.array([native(0), native(1)]), ("i",))
    split = jax.jit(jax.random.split)
    double = jax.jit(lambda a: a * 2)
    key = jax.device_put(jax.random.key(0), native())
    x = jax.device_put(np.ones(512, np.float32), NamedSharding(mesh, PartitionSpec("i")))
    assert runs(split, key) == runs(double, x) == 1
    kept = [(split(key), double(x)) for _ in range(3)]
    assert (used(0), used(1)) == (4 * KIB, 4 * KIB + 4 * 512)
    assert kept[-1][0].shape == (2,)
    kept.clear()
    assert (used(0), used(1)) == (KIB, KIB + 512)


def test_what_must_be_seen_before_it_runs_leaves_the_fast_path():
    """Donated arguments, large results on a GPU with a limit, faults and removed GPUs."""
    x, double, large = on_gpu(), jax.jit(lambda a: a * 2), jax.jit(lambda a: jnp.tile(a, 2**17))
    step, box = jax.jit(lambda a: a + 1, donate_argnums=0), [on_gpu()]

    def train():
        box[0] = step(box[0])

    assert runs(train) == 5
    assert ds.memory("gpu:1").peak == 2 * KIB
    assert runs(large, x) == 1
    with ds.simulate(2, memory="1GiB"):
        assert runs(large, x) == 5
        assert runs(double, x) == 1
    with ds.simulate(2, faults=ds.Fault("gpu:1", "allocation", at=100)):
        assert runs(double, x) == 5
    assert runs(double, x) == 1
    ds.simulate(1)
    for _ in range(3):
        with pytest.raises(ds.SimulationError):
            double(x)


@pytest.mark.parametrize("host", [np.ones(256, np.float32), "uncommitted"], ids=["NumPy", "uncommitted"])
def test_functions_that_copy_an_array_leave_the_fast_path_under_a_guard(host):
    """Also those that took it before the guard; functions of arrays that JAX does not copy keep theirs."""
    x, double, add = on_gpu(), jax.jit(lambda a: a * 2), jax.jit(lambda a, b: a + b)
    host = jnp.ones(256) if isinstance(host, str) else host
    assert runs(double, x) == runs(add, x, host) == runs(add, x, x) == 1
    with ds.guard("error", host_to_device="allow"):
        assert runs(add, x, host) == 5
        assert runs(double, x) == runs(add, x, x) == 1  # decided again, as the one before was not seen by the guard
        ds.simulate(2)
        assert runs(add, x, host) == 5
        assert runs(double, x) == 1
    assert runs(double, x) == 1
    with ds.guard("error"):
        assert runs(double, x) == 0  # no function copies an array, so nothing is decided again
        for _ in range(2):
            with pytest.raises(ds.TransferError, match="an argument of a compiled function"):
                add(x, host)
    assert runs(add, x, host) == runs(double, x) == 1  # decided again, because a guard has refused a function


def test_a_function_on_the_host_that_copies_from_a_gpu_leaves_the_fast_path_under_a_guard():
    host, add = jax.device_put(np.ones(256, np.float32), ds.cpu().native("jax")), jax.jit(lambda a, b: a + b)
    with jax.default_device(native()):
        uncommitted = jnp.ones(256)
    for _ in range(3):
        add(host, uncommitted)
    for _ in range(2):
        with ds.guard("error"), pytest.raises(ds.TransferError):
            add(host, uncommitted)
    add(host, uncommitted)


def test_an_interrupt_while_results_are_counted_loses_no_memory(monkeypatch):
    """Ctrl-C arrives in the function that C++ calls with the results."""
    from devshim_backends._jax.simulation import memory

    x, double = on_gpu(), jax.jit(lambda a: a * 2)
    assert runs(double, x) == 1
    original = memory.count_results

    def interrupted(xs, parts):
        original(xs, parts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory, "count_results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            double(x)
    assert used() == KIB
    assert float(double(x)[0]) == 2


def test_ending_the_simulation_restores_jax():
    from jax._src import dispatch, pjit

    def hooked_functions():
        return (
            *(pjit._get_fastpath_data, pxla.ExecuteReplicated.__call__, pxla.batched_device_put),
            *(dispatch.device_put_p.impl, dispatch._batched_device_put_impl),
        )

    ds.simulate(0)
    before = hooked_functions()
    assert all(function.__module__.startswith("jax.") for function in before)
    ds.simulate(2)
    assert all(a is not b for a, b in zip(before, hooked_functions(), strict=True))
    ds.simulate(0)
    assert hooked_functions() == before


# ---------------------------------------------------------------------- memory: full
FILLING = {
    "device_put": lambda x: jax.device_put(np.ones(1024, np.float32), native()),
    "from the other GPU": lambda x: jax.device_put(on_gpu(1024, 0), native()),
    "device=": lambda x: jnp.zeros(1024, device=native()),
    "operator": lambda x: x + x,
    "primitive": lambda x: jax.lax.mul_p.bind(x, x),
    "jit": lambda x: jax.jit(lambda a: a @ a + a)(x),
    "gradient": lambda x: jax.grad(lambda a: (a * a).sum())(x),
}


@pytest.mark.parametrize("name", FILLING)
def test_jax_operators_raise_on_a_full_gpu(name):
    """The error is JAX's and devshim's, the text is the same everywhere, and the GPU stays usable."""
    error = getattr(jax.errors, "JaxRuntimeError", RuntimeError)
    x = on_gpu(1024)
    FILLING[name](x)  # this also applies if JAX already has a fast path
    with ds.simulate(2, memory=8 * KIB - 512):
        with pytest.raises(ds.OutOfMemoryError) as caught:
            FILLING[name](x)
        assert isinstance(caught.value, error)
        assert caught.value.problem == "gpu:1 is out of memory: 4,096 bytes were requested, 3,584 bytes are free"
        del caught
        assert used() == 4 * KIB
        assert float(x[:512].sum()) == 512


def test_a_result_that_cannot_fit_is_refused_before_it_uses_host_memory():
    """A terabyte is refused by the GPU, not by the host's allocator."""
    x = on_gpu()
    with ds.simulate(2, memory="1MiB"):
        for call in (
            lambda: ds.zeros(2**38, device="gpu:1"),
            lambda: ds.random.normal(size=2**38, device="gpu:1"),
            lambda: jnp.broadcast_to(x[:, None], (256, 2**30)),
            lambda: jax.jit(lambda a: (a, jnp.tile(a, 2**30)))(x),
        ):
            with pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory: 1,099,511,627,776 bytes"):
                call()
    assert used() == KIB


def test_a_donated_argument_frees_memory_for_the_result():
    with ds.simulate(2, memory=4 * KIB):
        x = on_gpu(1024)
        step = jax.jit(lambda a: a + 1, donate_argnums=0)
        for _ in range(3):
            x = step(x)
        assert np.asarray(x)[0] == 4
        assert ds.memory("gpu:1").peak == used() == 4 * KIB


def test_simulated_faults_reach_jax_operators():
    """A chosen allocation fails in an operator; on a GPU that has vanished, every operator fails."""
    with ds.simulate(2, faults=ds.Fault("gpu:1", "allocation", at=2)):
        x = on_gpu()
        with pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory: 1,024 bytes"):
            x + 1
        assert float((x + 1)[0]) == 2
    with ds.simulate(2, faults=ds.Fault("gpu:1", "vanish", at=2)):
        x, y = on_gpu(), on_gpu(gpu=0)
        for call in (lambda: x + 1, lambda: jax.jit(jnp.sum)(x), lambda: jax.device_put(y, native())):
            with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed during"):
                call()
        assert float((y + 1)[0]) == 2


# ---------------------------------------------------------------------- switching
def test_existing_arrays_are_counted_and_not_refused():
    """An array made while its device was not a GPU, or under a larger limit, is counted."""
    place = native()
    ds.simulate(0)
    x = jax.device_put(np.ones(256, np.float32), place)
    y = x * 2
    assert ds.device_of(y) is ds.cpu()
    ds.simulate(2, memory=512)
    assert ds.memory("gpu:1").used == ds.memory("gpu:1").peak == 2 * KIB
    assert ds.device_of(y) is ds.gpu(1)
    ds.simulate(1)
    for _ in range(3):
        with pytest.raises(ds.SimulationError):
            x * 2
    ds.simulate(2, memory=2 * KIB)
    assert used() == 2 * KIB
    with pytest.raises(ds.OutOfMemoryError):
        x * 2
    del x, y
    assert used() == 0


def test_the_number_of_gpus_can_change_while_no_array_exists(in_fresh_process):
    """JAX restarts its devices for more GPUs, but only while no array is on the old ones."""
    printed = in_fresh_process("""
double = jax.jit(lambda a: a * 2)
for gpus in (1, 3, 2, 0, 5):
    ds.simulate(gpus, memory="1MiB")
    for i in range(gpus):
        x = double(ds.ones(128, device=f"gpu:{i}"))
        assert ds.device_of(x) is ds.gpu(i) and ds.memory(f"gpu:{i}").used == 512, (gpus, i)
        assert ds.describe(f"gpu:{i}").simulated and ds.describe(f"gpu:{i}").total_memory == 2**20
    x = None
    print(ds.device_count(), [ds.memory(d).used for d in ds.devices("gpu")])
""")
    assert printed.splitlines()[-1] == "5 [0, 0, 0, 0, 0]"
    assert printed.splitlines()[:2] == ["1 [0]", "3 [0, 0, 0]"]


def test_a_late_simulation_names_what_prevents_it(in_fresh_process):
    """With live arrays, more GPUs are impossible: the error counts the arrays, and nothing has changed."""
    printed = in_fresh_process("""
x = ds.ones(3)
try:
    ds.simulate(gpus=20)
except ds.SimulationError as error:
    print(ds.device_count(), ds.device_of(x), float(x.sum()), error)
""")
    assert printed.startswith("0 cpu 3.0 JAX cannot simulate GPUs now: it has started its devices")
    assert "call ds.simulate before the first JAX array" in printed


# ---------------------------------------------------------------------- threads
def test_counts_are_exact_in_many_threads():
    """Sixteen threads use compiled functions and moves between GPUs; the count ends at zero."""
    step = jax.jit(lambda a: (a * 2, a.sum()))

    def body(seed):
        for i in range(30):
            x = on_gpu(64, seed % 2) * (seed + i)
            doubled, total = step(x)
            moved = jax.device_put(doubled, native((seed + 1) % 2))
            assert float(total) == 64 * (seed + i)
            assert float(moved[0]) == 2 * (seed + i)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(body, range(16)))
    assert (used(0), used(1)) == (0, 0)


# ---------------------------------------------------------------- trees
def leaves(count=5, elements=300):
    return {"x": [ds.from_numpy(np.full(elements, i, np.float32)) for i in range(count)]}


def test_each_leaf_of_a_placed_tree_is_counted():
    """devshim's own copies share no memory: each is counted, until its last array is freed."""
    before, tree = used(), leaves()
    there = ds.place(tree, ds.gpu(1))
    each = -(-300 * 4 // 512) * 512
    assert used() == before + 5 * each
    shared = jax.device_put(there["x"][0], native())  # JAX returns another array over the same buffer
    assert used() == before + 5 * each
    del there
    assert used() == before + each
    del shared
    assert used() == before


def test_a_tree_that_does_not_fit_uses_no_memory_and_names_the_leaf():
    ds.simulate(2, memory=4096)
    before, tree = used(), leaves()
    with pytest.raises(ds.OutOfMemoryError, match="x"):
        ds.place(tree, ds.gpu(1))
    assert used() == before
    assert ds.place({"x": tree["x"][:2]}, ds.gpu(1)) is not tree


def test_a_tree_that_is_partly_on_the_gpu_is_counted():
    """If one leaf is already on the GPU, copies may share buffers, so JAX's own function is used."""
    tree = leaves(2)
    there = ds.place(tree["x"][0], ds.gpu(1))
    before = used()
    mixed = ds.place({"x": [there, tree["x"][1]]}, ds.gpu(1), copy=True)
    assert mixed["x"][0] is not there
    assert used() == before + 2 * 1536
    assert [x.tolist()[0] for x in mixed["x"]] == [0.0, 1.0]


# ---------------------------------------------------------------- reading in place
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)], ids=str)
def test_a_numpy_view_uses_the_memory_of_the_array(dtype, shape):
    x = ds.zeros(shape, dtype=dtype)
    try:
        seen = ds.to_numpy(x, copy=False)
    except ds.CopyNeededError:
        assert dtype == "bfloat16"
        return
    assert seen.shape == shape
    assert not seen.flags.writeable
    assert not seen.size or seen.ctypes.data == x.unsafe_buffer_pointer()


def test_a_view_of_a_deleted_array_or_of_a_gpu_is_refused():
    x = ds.ones(3)
    x.delete()
    with pytest.raises(ds.ConversionError, match="deleted"):
        ds.to_numpy(x, copy=False)
    with pytest.raises(ds.CopyNeededError):
        ds.to_numpy(on_gpu(), copy=False)

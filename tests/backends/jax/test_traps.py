"""Tests of the peculiarities of JAX: each test names the trap, and fails without the adapter's workaround for it."""

from __future__ import annotations

import gc
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import run_program

import devshim as ds
from devshim.devices import startup
from devshim.registry import registry
from devshim.testing.values import at_offset

CPU, GPU0, GPU1 = ds.cpu(), ds.gpu(0), ds.gpu(1)
EVERYWHERE = pytest.mark.parametrize("device", [CPU, GPU1], ids=str)
WIDE = pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
X64 = pytest.mark.parametrize("x64", [False, True], indirect=True, ids=["x64-off", "x64-on"])


@pytest.fixture(autouse=True)
def _nothing_global_changes(two_cards):
    before = (jax.config.jax_enable_x64, jax.config.jax_default_device, jnp.zeros(()).devices())
    yield
    assert (jax.config.jax_enable_x64, jax.config.jax_default_device, jnp.zeros(()).devices()) == before


@pytest.fixture
def x64(request):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", before)


def pointer(x) -> int:
    return x.unsafe_buffer_pointer()


# ---------------------------------------------------------------------- memory is never shared by accident
@EVERYWHERE
@pytest.mark.parametrize("offset", [0, 4, 16, 32])
@pytest.mark.parametrize("make", [ds.from_numpy, lambda a, d: ds.asarray(a, device=d)], ids=["from_numpy", "asarray"])
def test_numpy_memory_is_not_aliased(make, offset, device):
    """Trap: device_put shares a NumPy array's memory when it is 64-byte aligned (jax-ml/jax#37830)."""
    array = at_offset(np.arange(1000).astype("float32"), offset)
    x = make(array, device)
    array[:] = -1
    assert np.array_equal(ds.to_numpy(x), np.arange(1000, dtype=np.float32))


def test_gradients_that_depend_on_nothing_stay_on_the_device_of_their_argument():
    """Trap: jit drops arguments on which no result depends, and then runs on the default device."""
    x = ds.ones(3, dtype="float32", device=GPU1)

    def slopes(x):
        return ds.value_and_grad(jnp.sum)(x)[1]

    assert ds.device_of(slopes(x)) is GPU1
    assert ds.device_of(jax.jit(ds.value_and_grad(jnp.sum))(x)[1]) is GPU1, "the value depends on the argument"
    assert ds.device_of(ds.run(jax.jit(slopes), x)) is GPU1
    if ds.device_of(jax.jit(slopes)(x)) is not CPU:
        pytest.fail("the limit of trace_gradient in capabilities.py no longer applies")


def test_copy_false_shares_or_raises():
    """Trap: device_put silently copies unaligned memory, so copy=False has to check the address."""
    aligned = at_offset(np.arange(4).astype("float32"), 0)
    x = ds.from_numpy(aligned, copy=False)
    aligned[0] = 7
    assert float(x[0]) == 7
    eight = np.arange(8).astype("float32")
    for unsharable in (at_offset(eight, 4), at_offset(eight, 0)[::-1], at_offset(eight, 0)[::2]):
        with pytest.raises(ds.CopyNeededError):
            ds.from_numpy(unsharable, copy=False)
    with pytest.raises(ds.CopyNeededError):
        ds.from_numpy(aligned, GPU0, copy=False)


def test_copy_to_the_same_device_is_a_new_buffer():
    """Trap: device_put(x, its own device) gives a new object over the same buffer."""
    for device in (CPU, GPU0):
        x = ds.ones(1000, device=device)
        copied = ds.copy(x, device)
        assert pointer(copied) != pointer(x)
        x.delete()  # the only way to destroy JAX's memory
        assert np.array_equal(ds.to_numpy(copied), np.ones(1000, np.float32))


def test_many_copies_are_new_buffers():
    """Trap: the batched device_put aliases arrays that are already there."""
    tree = {"here": ds.ones(8, device=GPU0), "there": ds.ones(8, device=GPU1)}
    copied = ds.place(tree, GPU0, copy=True)
    assert pointer(copied["here"]) != pointer(tree["here"])
    assert {ds.device_of(leaf) for leaf in copied.values()} == {GPU0}


def test_to_numpy_returns_writable_memory_of_its_own():
    """Trap: np.asarray(x) is a read-only view of the array's memory."""
    x = ds.ones(4)
    array = ds.to_numpy(x)
    array[:] = 5
    assert float(x[0]) == 1
    assert not ds.to_numpy(x, copy=False).flags.writeable


# ---------------------------------------------------------------------- committed to the requested device
@EVERYWHERE
def test_arrays_that_devshim_creates_are_committed(device):
    """Trap: JAX's own creation is uncommitted, and follows any array that it meets."""
    other = ds.zeros(2, device=GPU0)
    made = [
        *(ds.zeros(2, device=device), ds.asarray([1.0, 2.0], device=device), ds.arange(2, device=device)),
        *(ds.random.uniform(size=2, device=device), ds.from_numpy(np.ones(2, np.float32), device)),
        *(ds.place(ds.ones(2, device=GPU0), device), ds.copy(jnp.ones(2), device)),
    ]
    for x in made:
        assert ds.device_of(x) is device
        with pytest.raises(ValueError, match="incompatible devices"):
            x + other


def test_place_returns_an_uncommitted_array_unchanged():
    """The contract: the same object when it is there already, committed or not."""
    x = jnp.ones(2)
    assert ds.place(x, CPU) is x
    assert ds.device_of(ds.place(x, GPU0)) is GPU0


def test_cast_stays_on_the_device():
    """Trap: an uncommitted array goes to the default device when JAX computes with it."""
    adapter = registry.load("jax")
    x = jnp.ones(2)
    with ds.on(GPU1):
        assert ds.device_of(adapter.cast(x, np.dtype("int32"))) is CPU


def test_created_numbers_are_not_weakly_typed():
    """Trap: jnp.full((2,), 3) + 0.5 changes its dtype, since a fill value's type is weak."""
    for x in (ds.full((2,), 3), ds.asarray(3), ds.asarray([1.0])):
        assert not x.weak_type


# ---------------------------------------------------------------------- 64 bits stay 64 bits
@WIDE
@EVERYWHERE
@X64
def test_64_bits_stay_64_bits(dtype, device, x64):
    """Trap: with x64 off, JAX truncates 64-bit values to 32 bits on input."""
    array = np.array([2**53 - 1, 1, 0], dtype)
    x = ds.from_numpy(array, device)
    ways = {
        "from_numpy": x,
        "place": ds.place(x, GPU0),
        "copy": ds.copy(x, device),
        "asarray": ds.asarray(array.tolist(), dtype=dtype, device=device),
        "convert": ds.convert(array, "jax", device),
        "cast": ds.asarray(ds.asarray(array.tolist(), dtype=dtype, device=device), dtype=dtype),
    }
    for way, y in ways.items():
        assert y.dtype == dtype, way
        assert np.array_equal(ds.to_numpy(y), array), way
    assert ds.zeros(2, dtype=dtype, device=device).dtype == dtype
    assert ds.full((2,), 2**40, dtype=dtype, device=device).dtype == dtype
    assert registry.load("jax").nbytes(x) == array.nbytes


@X64
def test_the_default_dtype_is_jax_s_own(x64):
    """The x64 context of one call must not leak into the next default."""
    ds.zeros(1, dtype="float64")
    assert ds.zeros(1).dtype == ("float64" if x64 else "float32")
    assert ds.asarray(1).dtype == ("int64" if x64 else "int32")
    assert ds.random.normal(size=1).dtype == ("float64" if x64 else "float32")
    assert jnp.zeros(1).dtype == ("float64" if x64 else "float32")


def test_numbers_that_do_not_fit_are_refused():
    """Trap: jnp.full((2,), 2**40) is zeros, jnp.full((2,), nan, int32) is zeros."""
    for make in (
        lambda: ds.full((2,), 2**40),
        lambda: ds.asarray([1, 2**40]),
        lambda: ds.arange(2**40, 2**40 + 2),
        lambda: ds.full((2,), float("nan"), dtype="int32"),
        lambda: ds.full((2,), 1j, dtype="float32"),
        lambda: ds.asarray([-1], dtype="uint8"),
        lambda: ds.asarray([1j], dtype="float32"),
    ):
        with pytest.raises(ds.ConversionError):
            make()


# ---------------------------------------------------------------------- jax.grad and jax.vmap are not jax.jit
@EVERYWHERE
def test_gradients_flow_through_place_and_copy(device):
    """Trap: inside jax.grad an array is a tracer without a device (jax-ml/jax#26000)."""
    x = ds.asarray([1.0, 2.0, 3.0], device=GPU0)

    def loss(t, move):
        assert ds.device_of(t) is GPU0
        moved = move(t, device)
        assert ds.device_of(moved) is device
        return (moved**2).sum()

    for move in (ds.place, ds.copy):
        gradient = jax.grad(loss)(x, move)
        assert ds.device_of(gradient) is GPU0
        assert np.array_equal(ds.to_numpy(gradient), [2.0, 4.0, 6.0])


def test_second_derivatives_vmap_and_host_values():
    """Trap: tracers nest, and wrap NumPy arrays and numbers as they are."""
    x = ds.asarray([1.0, 2.0], device=GPU0)
    hessian = jax.hessian(lambda t: (ds.place(t, GPU1) ** 3).sum())(x)
    assert np.array_equal(ds.to_numpy(hessian), np.diag([6.0, 12.0]))
    rows = jax.vmap(lambda t: ds.place(t, GPU1) * 2)(ds.ones((3, 2), device=GPU0))
    assert ds.device_of(rows) is GPU1
    assert rows.shape == (3, 2)
    assert ds.device_of(jax.vmap(lambda t: ds.place(t, GPU1))(np.ones((3, 2), np.float32))) is GPU1
    assert float(jax.grad(lambda t: ds.place(t, CPU) ** 2)(3.0)) == 6.0


def test_run_and_to_numpy_work_under_grad():
    """Outside jit a tracer has values: `run` follows them, `to_numpy` reads them without their gradient."""
    x = ds.asarray([1.0, 2.0], device=GPU0)
    gradient = jax.grad(lambda t: ds.run(lambda u: (u * u * jnp.ones(2)).sum(), t))(x)
    assert ds.device_of(gradient) is GPU0
    assert np.array_equal(jax.grad(lambda t: (t * float(ds.to_numpy(t).sum())).sum())(x), [3.0, 3.0])


CALLS = {
    "device_of": lambda t: ds.device_of(t) and t,
    "place": lambda t: ds.place(t, GPU0),
    "place where it is": lambda t: ds.place(t, GPU1),
    "copy": lambda t: ds.copy(t, GPU0),
    "place a closure": lambda t: t + ds.place(CLOSURE[0], GPU0),
    "run on a card": lambda t: ds.run(jnp.add, t, CLOSURE[0]),
    "zeros": lambda t: t + ds.zeros(2, device=GPU0),
    "asarray": lambda t: t + ds.asarray([1.0, 2.0], device=GPU0),
    "from_numpy": lambda t: t + ds.from_numpy(np.ones(2, np.float32)),
    "to_numpy": lambda t: ds.to_numpy(t),
    "uniform": lambda t: t + ds.random.uniform(size=2),
    "convert": lambda t: ds.convert(t, "numpy"),
}
CLOSURE: list[object] = []


def _on(t):
    with ds.on(GPU0):
        return t + jnp.zeros(2)


@pytest.mark.parametrize("call", [*CALLS.values(), _on], ids=[*CALLS, "on"])
@pytest.mark.parametrize("compiler", ["jit", "checkpoint", "scan", "shard_map"])
def test_inside_jit_nothing_is_ignored_silently(call, compiler):
    """Trap: inside jit JAX ignores device_put and default_device, and a random number would be frozen.

    Inside shard_map, outside of jit, JAX has its own error for some calls, and answers for all devices for
    others.
    """
    x = ds.ones(2, device=GPU1)
    CLOSURE[:] = [ds.ones(2, device=CPU)]
    compiled = {
        "jit": lambda: jax.jit(call)(x),
        "checkpoint": lambda: jax.grad(lambda t: jax.checkpoint(call)(t).sum())(x),
        "scan": lambda: jax.lax.scan(lambda carry, row: (carry, call(row)), 0.0, ds.ones((3, 2), device=GPU1)),
        "shard_map": lambda: _sharded(call)(np.ones(2, np.float32)),
    }[compiler]
    with pytest.raises(ds.TracingError, match="JAX is compiling"):
        compiled()
    CLOSURE.clear()


def _sharded(fn):
    """Return a function of one device's part that runs on two devices at the same time, outside of jit."""
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array([GPU0.native("jax"), GPU1.native("jax")]), ("i",))
    return jax.shard_map(fn, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))


def test_run_inside_shard_map_calls_the_function():
    assert np.array_equal(_sharded(lambda t: ds.run(jnp.square, t))(np.array([2, 3], np.float32)), [4, 9])


def test_run_inside_jit_uses_the_device_of_the_function():
    """Inside jit arguments have no device yet, and need none: everything runs where the function is called."""
    for card in (CPU, GPU1):
        y = jax.jit(lambda t: ds.run(jnp.sin, t))(ds.ones(2, device=card))
        assert ds.device_of(y) is card


def test_around_jit_everything_works():
    """The solution that the error suggests works."""
    x = ds.place(ds.ones(2), GPU1)
    y = jax.jit(lambda t: t * 2)(x)
    assert ds.device_of(y) is GPU1
    assert ds.device_of(ds.run(jax.jit(lambda t: t + jnp.zeros(2)), x)) is GPU1


# ---------------------------------------------------------------------- odd arrays
def test_a_sharded_array_has_no_single_device():
    """Trap: x.device of a sharded array is not a device but a Sharding."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    natives = np.array([GPU0.native("jax"), GPU1.native("jax")])
    sharded = jax.device_put(np.arange(4.0, dtype=np.float32), NamedSharding(Mesh(natives, ("i",)), PartitionSpec("i")))
    with pytest.raises(ds.UnsupportedError, match=r"(?s)gpu:0, gpu:1.*ds\.place\(x, device\)"):
        ds.device_of(sharded)
    assert np.array_equal(ds.to_numpy(sharded), [0, 1, 2, 3])
    with ds.transfers() as log, ds.guard("error"):  # observers change nothing
        assert np.array_equal(ds.to_numpy(sharded), [0, 1, 2, 3])
        assert ds.device_of(ds.copy(sharded, GPU1)) is GPU1
    assert [(record.source, record.target, record.bytes) for record in sorted(log.records, key=lambda r: r.start)] == [
        *((GPU0, CPU, 8), (GPU1, CPU, 8)),
        *((GPU0, GPU1, 8), (GPU1, GPU1, 8)),
    ]
    alone = jax.device_put(np.ones(2, np.float32), NamedSharding(Mesh(natives[1:], ("i",)), PartitionSpec()))
    assert ds.device_of(alone) is GPU1


def test_random_keys_are_moved_and_not_converted():
    """Trap: a key array is a jax.Array without a NumPy dtype; np.asarray of it is an array of objects."""
    key = jax.random.key(3)
    for moved in (ds.place(key, GPU1), ds.copy(key, GPU1)):
        assert ds.device_of(moved) is GPU1
        assert np.array_equal(jax.random.key_data(moved), jax.random.key_data(key))
    with pytest.raises(ds.ConversionError, match="key_data"):
        ds.to_numpy(key)


def test_jax_devices_and_shardings_are_recognized():
    """JAX's CPU devices are the host and the simulated GPUs."""
    x = ds.ones(2, device=GPU1)
    assert ds.device(jax.local_devices(backend="cpu")[2]) is GPU1
    assert ds.device(x.sharding) is GPU1
    assert GPU1.native("jax") in x.devices()


# ---------------------------------------------------------------------- random numbers
def test_draws_are_seeded_per_device():
    """JAX has no global generator: one call restarts the adapter's, even if other devices draw in between."""
    ds.random.seed(7)
    first = [ds.to_numpy(ds.random.normal(size=3, device=d)) for d in (CPU, GPU0, GPU0)]
    ds.random.seed(7)
    again = [ds.to_numpy(ds.random.normal(size=3, device=d)) for d in (GPU0, CPU, GPU0)]
    assert np.array_equal(first[0], again[1])
    assert np.array_equal(first[1], again[0])
    assert np.array_equal(first[2], again[2])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])


def test_uniform_never_reaches_its_bound():
    """Trap: scaling rounds up to the bound if the bound is large compared with the range."""
    drawn = ds.to_numpy(ds.random.uniform(1e8, 1e8 + 16, 100_000))
    assert drawn.max() < np.float32(1e8 + 16)
    assert drawn.min() >= np.float32(1e8)


def test_draws_in_threads_are_all_different(monkeypatch):
    """The generator's state is shared by threads: two of them must not draw with the same key."""

    class Slow(dict):
        def get(self, *args):
            found = super().get(*args)
            time.sleep(0.001)  # another thread's turn
            return found

    adapter = registry.load("jax")
    monkeypatch.setattr(adapter, "_draw_counts", Slow())
    drawn: list[float] = []
    threads = [
        threading.Thread(target=lambda: drawn.extend(float(ds.random.uniform(device=GPU0)) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 80


# ---------------------------------------------------------------------- scopes, guards, memory
def test_on_affects_only_this_thread():
    """jax.default_device belongs to a thread."""
    seen: list[ds.Device] = []
    with ds.on(GPU1):
        thread = threading.Thread(target=lambda: seen.append(ds.device_of(jnp.zeros(1))))
        thread.start()
        thread.join()
        assert ds.device_of(jnp.zeros(1)) is GPU1
    assert seen == [CPU]
    assert ds.device_of(jnp.zeros(1)) is CPU


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_scope_that_is_never_exited_affects_no_other_thread():
    """The cleanup of a default device never runs in another thread."""
    for _ in range(3):
        thread = threading.Thread(target=lambda: ds.set_device(GPU1))
        thread.start()
        thread.join()
        gc.collect()
        assert ds.device_of(jnp.zeros(1)) is CPU


def test_a_copy_is_complete_on_return():
    """Trap: device_put reads its source later, when memory shared with NumPy may have been overwritten."""
    shared = at_offset(np.ones(2**24).astype("float32"), 0)
    y = ds.place(ds.from_numpy(shared, copy=False), GPU0)
    assert y.is_ready()
    shared[:] = 7
    assert np.array_equal(ds.to_numpy(y), np.ones(2**24, np.float32))


def test_a_transfer_guard_does_not_stop_creation():
    """Trap: under jax.transfer_guard even jnp.zeros raises, because its 0 comes from the host."""
    x = ds.ones(2, device=GPU0)
    with jax.transfer_guard("disallow"):
        assert ds.device_of(ds.full((2,), 3, device=GPU1)) is GPU1
        assert ds.device_of(ds.random.uniform(1, 2, 2, device=GPU1)) is GPU1
        assert ds.device_of(ds.place(x, GPU1)) is GPU1
        assert ds.to_numpy(x).tolist() == [1, 1]


def test_memory_counts_a_shared_buffer_once():
    """Trap: device_put to the same device makes a second array over one buffer."""
    before = ds.memory(GPU1).used
    x = ds.zeros(1000, dtype="float64", device=GPU1)
    alias = jax.device_put(x, GPU1.native("jax"))
    assert ds.memory(GPU1).used - before == 8192
    del x, alias
    assert ds.memory(GPU1).used == before


def test_an_impossible_allocation_is_out_of_memory():
    """XLA's error class moved between modules; its status code did not."""
    with pytest.raises(ds.OutOfMemoryError):
        ds.synchronize(ds.device_of(ds.zeros((2**44,), device=GPU0)))


# ---------------------------------------------------------------------- DLPack
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex128"])
def test_dlpack_keeps_width_and_refuses_unaligned(dtype):
    """Trap: from_dlpack truncates 64 bits, and copies unaligned memory despite copy=False (JAX up to 0.8)."""
    raw = np.zeros(1024, np.uint8)
    start = -raw.ctypes.data % 64
    size = np.dtype(dtype).itemsize
    aligned = raw[start : start + 4 * size].view(dtype)
    aligned[:] = 1
    x = ds.convert(aligned, "jax", copy=False)
    assert pointer(x) == aligned.ctypes.data
    assert x.dtype == dtype
    unaligned = raw[start + 8 : start + 8 + 4 * size].view(np.uint8)
    with pytest.raises(ds.CopyNeededError, match="alignment"):
        ds.convert(unaligned, "jax", copy=False)
    assert np.array_equal(ds.convert(unaligned, "jax"), unaligned)


def test_an_exporter_without_a_device_index():
    """Trap: Paddle returns (CPU, None), which JAX does not accept."""

    class Exporter:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return (1, None)

    array = at_offset(np.array([1.0, 2.0], "float32"), 0)
    x = registry.load("jax").from_dlpack(Exporter(array))
    assert pointer(x) == array.ctypes.data


def test_memory_in_another_order_is_copied():
    """Trap: computing with this array fails in JAX 0.4, and gives other values in 0.10 after a move."""
    array = at_offset(np.arange(6.0).reshape(2, 3).astype("float32"), 0)
    with pytest.raises(ds.CopyNeededError, match="C order"):
        ds.convert(array.T, "jax", copy=False)
    x = ds.convert(array.T, "jax")
    for y in (x, ds.place(x, GPU1), jax.device_put(x, GPU0.native())):
        assert np.array_equal(y + 0, array.T)


def test_an_axis_of_one_element_may_have_any_stride():
    """Trap: JAX 0.4 and 0.7 treat it as another order, and refuse the array or fail when they compute with it."""
    array = at_offset(np.arange(12.0).reshape(3, 1, 2, 2).astype("float32"), 0)
    odd = np.lib.stride_tricks.as_strided(array, array.shape, (16, 4, 8, 4))
    x = ds.convert(odd, "jax", copy=False)
    assert pointer(x) == array.ctypes.data
    assert np.array_equal(x + 0, array)
    assert bool(jnp.any(x))


@pytest.mark.parametrize("move", [ds.place, lambda x, device: ds.place([x], device)[0]], ids=["one", "many"])
def test_moving_an_array_in_another_order_keeps_its_values(move):
    """Trap: JAX 0.10 computes other values with one that ``device_put`` has moved (`jax.dlpack` makes such arrays)."""
    array = at_offset(np.arange(6.0).reshape(2, 3).astype("float32"), 0)
    try:
        x = jax.dlpack.from_dlpack(array.T)
        assert np.array_equal(x + 0, array.T)
    except Exception as error:
        pytest.skip(f"hardware: this JAX has no such arrays: {error}")
    for device in (GPU1, GPU0, CPU):
        x = move(x, device)
        assert np.array_equal(x + 0, array.T)
        assert np.array_equal(ds.copy(x, device) + 0, array.T)


@pytest.mark.parametrize("copy", [None, True, False])
def test_an_array_that_was_donated_is_refused(copy):
    """Trap: its memory already belongs to another array."""
    x = jnp.ones(3)
    x.delete()
    with pytest.raises((ds.ConversionError, ds.CopyNeededError), match="deleted"):
        ds.convert(x, "numpy", copy=copy)


def test_convert_works_under_grad():
    """Trap: a tracer has no memory; the differentiated array has, and lends it without the gradient."""

    def loss(x):
        for copy in (None, True):
            assert ds.convert(x, "numpy", copy=copy).tolist() == [1, 2]
        return (x * ds.convert(ds.convert(x, "numpy"), "jax")).sum()

    for x in (jnp.asarray([1.0, 2.0]), np.asarray([1, 2], np.float32)):
        assert jax.grad(loss)(x).tolist() == [1, 2]
    with pytest.raises(ds.TracingError):
        jax.jit(loss)(jnp.asarray([1.0, 2.0]))
    with pytest.raises(ds.TracingError):
        jax.vmap(loss)(jnp.asarray([[1.0, 2.0]]))


def test_arrays_on_a_simulated_gpu_are_not_exported():
    """Trap: JAX exports cpu:1 as (CPU, 0), so the device would be lost."""

    with pytest.raises(ds.ConversionError, match="simulated"):
        registry.load("jax").to_dlpack(ds.ones(2, device=GPU0))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_that_numpy_lacks_keep_their_bits(name):
    """JAX has more dtypes than the array API names; their bits are preserved."""
    x = jnp.asarray([1, 2, 0], name)
    assert ds.zeros_like(x).dtype == name
    for y in (ds.copy(x, GPU1), ds.from_numpy(ds.to_numpy(x), GPU0)):
        assert y.dtype == name
        assert ds.to_numpy(y).tolist() == [1, 2, 0]
    with pytest.raises(ds.ConversionError):
        ds.from_numpy(np.ones(2, np.longdouble))


# ---------------------------------------------------------------------- real GPUs, as devshim would see them
@pytest.fixture
def nvidia_machine(monkeypatch):
    """Return a machine with two NVIDIA GPUs, before JAX has started."""
    from devshim_backends._jax import devices, real_gpus
    from devshim_backends._jax.internals import clients

    from devshim.devices import nvml

    found = [nvml.Card(i, "H200", f"GPU-{i}{i}aa", 2**37, 2**36, (9, 0)) for i in range(2)]
    monkeypatch.setattr(nvml, "cards", lambda: found)
    monkeypatch.setattr(real_gpus, "gpu_plugin", lambda: "jax_plugins.xla_cuda12")
    monkeypatch.setattr(real_gpus, "sees_driver", lambda: True)
    for module in (clients, devices):
        monkeypatch.setattr(module, "started", lambda: False)
    backend = registry.load("jax")
    monkeypatch.setattr(backend, "simulated", 0)
    return backend


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 2), ("0,1", 2), ("1", 1), ("", 0), ("-1", 0), ("0,7,1", 1), ("GPU-11", 1), ("GPU-", 0), ("0,0", 0)],
)
def test_gpus_are_counted_without_starting_jax(nvidia_machine, monkeypatch, visible, count):
    """Trap: JAX counts GPUs by starting on all of them; CUDA ignores entries after one that it does not know."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvidia_machine.count("gpu") == count
    if count < 2:
        assert "CUDA_VISIBLE_DEVICES" in nvidia_machine.why_unavailable("gpu")


def test_mig_slices_are_counted_without_starting_jax(nvidia_machine, monkeypatch):
    """Trap: NVML lists only whole GPUs, so a slice (MIG) was not counted, and `try_gpu` was silently the CPU."""
    from devshim.devices import cuda

    monkeypatch.setattr(cuda, "_ask", lambda value, order: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-00aa/1/0")
    assert nvidia_machine.count("gpu") == 1
    assert ds.try_gpu() is ds.gpu(0)


def test_gpus_are_counted_without_nvml(nvidia_machine, monkeypatch):
    """In containers without NVML, under WSL and on Jetson, CUDA is queried in a separate process."""
    from devshim.devices import cuda, nvml

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "cards", list)
    monkeypatch.setattr(cuda, "_ask", lambda value, order: 3)
    assert nvidia_machine.count("gpu") == 3


@pytest.mark.parametrize(
    ("stats", "left", "free"),
    [
        ({"bytes_limit": 60, "bytes_in_use": 10}, 70, 50),  # the GPU has more than JAX may take
        ({"bytes_limit": 60, "bytes_in_use": 10}, 5, 5),  # others have filled it
        ({"bytes_limit": 60, "bytes_in_use": 10, "pool_bytes": 60}, 5, 50),  # JAX had taken its share before
        ({"bytes_limit": 60, "bytes_in_use": 10}, None, 50),
        ({}, 70, None),
    ],
)
def test_memory_is_that_of_the_gpu_and_not_the_share_of_jax(nvidia_machine, monkeypatch, stats, left, free):
    """Trap: JAX's limit is its own share, 75 % of a GPU by default, and ignores what others have taken."""
    from types import SimpleNamespace

    from devshim.devices import nvml

    card = nvml.Card(0, "H200", "GPU-0", 100, left)
    monkeypatch.setattr(nvml, "cards", lambda: [card])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvidia_machine, "to_native", lambda device: SimpleNamespace(memory_stats=lambda: stats))
    found = nvidia_machine.memory(ds.gpu(0))
    assert (found.total, found.used, found.free) == (100, stats.get("bytes_in_use"), free)


def test_without_the_drivers_files_jax_has_no_gpu(nvidia_machine, monkeypatch):
    """Trap: JAX looks for /dev/nvidia0 before it queries the driver, and a container may have only NVML."""
    from devshim_backends._jax import real_gpus

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(real_gpus, "sees_driver", lambda: False)
    assert nvidia_machine.count("gpu") == 0
    assert ds.try_gpu() is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError, match="there is no /dev/nvidia0"):
        ds.zeros(3, device="gpu:0")


@pytest.mark.parametrize("at", ["the host", "a card"])
def test_the_host_works_if_a_platform_does_not_start(nvidia_machine, monkeypatch, at):
    """Trap: JAX raises at its first call of any kind, and continues without the platform at the next."""
    from devshim_backends._jax import devices

    own, failures = jax.local_devices, []

    def local_devices(backend=None):
        if not failures:
            failures.append(backend)
            monkeypatch.setattr(devices, "started", lambda: True)
            raise RuntimeError("Unable to initialize backend 'cuda': no supported devices (you may need to ...)")
        if backend == "gpu":
            raise RuntimeError("Unknown backend cuda")
        return own(backend=backend)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(jax, "local_devices", local_devices)
    assert ds.device_count() == 2
    if at == "the host":
        assert devices.host_device() == own(backend="cpu")[0]
    with pytest.raises(
        ds.DeviceNotFoundError, match="JAX has 0 gpu devices: Unable to initialize backend 'cuda': no supp"
    ):
        nvidia_machine.to_native(GPU0)
    assert ds.device_count() == 0


def test_host_memory_of_a_gpu_is_on_the_cpu(nvidia_machine, monkeypatch):
    """Trap: the sharding of an array in "pinned_host" memory names the device for which it is pinned."""
    native = jax.local_devices(backend="cpu")[0]
    if "pinned_host" not in {memory.kind for memory in native.addressable_memories()}:
        pytest.skip("this JAX has no such memory on the CPU")
    from devshim_backends._jax import devices

    plain = jax.device_put(np.arange(3.0), native)
    beside = jax.device_put(plain, jax.sharding.SingleDeviceSharding(native, memory_kind="pinned_host"))
    assert (devices.in_gpu_host_memory(plain), devices.in_gpu_host_memory(beside)) == (False, True)
    before = dict(devices.DEVICES)
    devices.DEVICES[native] = GPU0  # as if it were a GPU
    monkeypatch.setattr(type(nvidia_machine), "from_native", lambda self, native: GPU0)
    try:
        assert (nvidia_machine.device_of(plain), nvidia_machine.device_of(beside)) == (GPU0, ds.cpu())
    finally:
        devices.DEVICES.clear()
        devices.DEVICES.update(before)


def test_jax_platforms_hides_gpus(nvidia_machine):
    """JAX_PLATFORMS=cpu hides the GPUs."""
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    try:
        assert nvidia_machine.count("gpu") == 0
        assert "JAX_PLATFORMS" in nvidia_machine.why_unavailable("gpu")
    finally:
        jax.config.update("jax_platforms", before)


def test_a_gpu_is_described_without_starting_jax(nvidia_machine, monkeypatch):
    """The driver knows a GPU's name and memory, if it is certain which GPU is meant."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    info = nvidia_machine.describe(GPU0)
    assert (info.name, info.uuid, info.total_memory, info.compute_capability) == ("H200", "GPU-11aa", 2**37, (9, 0))


# ---------------------------------------------------------------------- starting
def test_queries_do_not_start_jax(in_fresh_process):
    """Trap: jax.devices("gpu") starts JAX, and raises if there is no GPU."""
    printed = in_fresh_process(
        "from jax._src import xla_bridge\n"
        "print(ds.device_count(), ds.try_gpu(), ds.try_all_gpus(), xla_bridge.backends_are_initialized())"
    )
    assert printed == "0 cpu [Device('cpu')] False"


def test_simulating_restores_the_environment(in_fresh_process):
    """Older versions of JAX can be configured only by XLA_FLAGS, which XLA reads once."""
    printed = in_fresh_process(
        "import os; ds.simulate(gpus=2)\n"
        "print(os.environ['XLA_FLAGS'], ds.device_count(), ds.device_of(ds.ones(2, device='gpu:1')))",
        XLA_FLAGS="--xla_cpu_enable_fast_math=false",
    )
    assert printed == "--xla_cpu_enable_fast_math=false 2 gpu:1"


def test_simulating_late_works_or_says_what_to_move(in_fresh_process):
    """Devices can be restarted while no array is on them."""
    printed = in_fresh_process(
        "x = ds.ones(2)\n"
        "try:\n    ds.simulate(gpus=2)\nexcept ds.SimulationError as error:\n    print('refused', ds.device_count())\n"
        "del x\n"
        "ds.simulate(gpus=2)\nprint(ds.device_of(ds.ones(2, device='gpu:1')))"
    )
    assert printed == "refused 0\ngpu:1"


@pytest.mark.parametrize("asked", ["flag", "setting"])
def test_cpu_devices_that_the_program_asks_for_stay_the_host(in_fresh_process, asked):
    """Trap: cpu:1 and cpu:2 of a program with three CPU devices had become simulated GPUs."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"} if asked == "flag" else {}
    printed = in_fresh_process(
        ("" if flags else "jax.config.update('jax_num_cpu_devices', 3)\n")
        + "ds.simulate(gpus=1)\nds.simulate(gpus=2)\nnatives = jax.devices('cpu')\n"
        "print(*map(ds.device, natives), natives.index(ds.gpu(1).native()))\n"
        "with ds.simulate(gpus=2, native_names=True):\n    print([each.id for each in jax.devices('cpu')])\n"
        "x = jax.device_put(jnp.ones(2), natives[2])\n"
        "print(ds.device_of(x), ds.device_of(ds.place(x, 'gpu:1')))\n"
        "try:\n    ds.place(x, 'gpu:1') + x\n"
        "except ds.DeviceMismatchError as error:\n    print('gpu:1 (sim' in str(error), 'on cpu' in str(error))\n",
        **flags,
    )
    assert printed.splitlines() == ["cpu cpu cpu gpu:0 gpu:1 4", "[0, 1, 2]", "cpu gpu:1", "True True"]


def test_jax_starts_again_with_devices_for_the_gpus(in_fresh_process):
    """A program may clear the backends of JAX; the setting with which JAX starts again is then devshim's."""
    printed = in_fresh_process(
        "import jax.extend\nds.simulate(gpus=2)\njax.extend.backend.clear_backends()\n"
        "print(ds.device_of(ds.ones(2, device='gpu:1')), len(jax.devices()))\n"
        "ds.simulate(gpus=3)\nprint(ds.gpu(2).native(), len(jax.devices()))\n"
    )
    assert printed.splitlines() == ["gpu:1 3", "cpu:3 4"]


def test_an_array_outlives_its_simulated_gpu():
    """Trap: without the simulation, JAX's cpu:2 would be taken for the host, with whose arrays it cannot be mixed."""
    with ds.simulate(gpus=2):
        x = ds.ones(2, device=GPU1)
        with ds.simulate(gpus=1):
            assert ds.device_of(x) is GPU1
            with pytest.raises(ds.SimulationError, match="gpu:1 was removed"):
                ds.place(x, CPU)
            with pytest.raises(ds.DeviceNotFoundError):
                ds.copy(ds.ones(2, device=CPU), GPU1)
        host = ds.place(x, CPU)
        assert (host + ds.ones(2, device=CPU)).tolist() == [2, 2]


def test_the_memory_policy_comes_before_the_start(in_fresh_process):
    """JAX reads its memory settings when it starts its devices."""
    printed = in_fresh_process(
        "import os; ds.memory_policy('grow'); ds.memory_policy(0.5)\n"
        "print(os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'], os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'])\n"
        "ds.ones(1)\n"
        "try:\n    ds.memory_policy('grow')\nexcept ds.AlreadyStartedError:\n    print('too late')"
    )
    assert printed == "false 0.5\ntoo late"


def test_waiting_for_values_does_not_wait_for_all_arrays(monkeypatch):
    """`convert` to a framework that names no stream used to wait for every live array."""
    from devshim_backends._jax.internals import clients

    monkeypatch.setattr(clients, "arrays_on", lambda native: pytest.fail("it waits for all arrays"))
    x = jax.jit(lambda t: (t @ t).sum())(jnp.ones((900, 900)))
    registry.load("jax").wait_for_values(x, CPU)
    assert x.is_ready()


def test_the_fast_path_over_dlpack_works():
    """It ends in a JAX function whose arguments after the stream have defaults (jaxlib 0.10.2: two)."""
    from devshim_backends._jax import buffers, dlpack

    x = ds.asarray([[0, 1, 2], [3, 4, 5]], dtype="float32")
    assert ds.device_of(x) is CPU
    y = dlpack._fast_import(*dlpack._fast_export(x, 64))
    assert y is not None
    assert y is not x
    assert buffers.address_of(y) == buffers.address_of(x)
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_random_keys_are_no_numbers():
    """JAX would say that ``add`` does not accept their dtype, and NumPy that it has none."""
    keys = [jax.random.key(0), jax.random.key(1)]
    with pytest.raises(ds.ConversionError, match="a random key of JAX cannot be converted") as failure:
        ds.convert(keys[0], "numpy")
    assert "jax.random.key_data" in failure.value.hint
    with pytest.raises(ds.ArgumentError, match=r"ds\.all_reduce_ computes with numbers, and found tensors of key<fry>"):
        ds.all_reduce_(keys)
    double = ds.data_parallel(lambda key, batch: key, ["cpu", "cpu"])
    with pytest.raises(ds.ArgumentError, match=r"computes the mean of numbers, and found key<fry> results at the top"):
        double(keys[0], jnp.ones((4, 2)))


# ---------------------------------------------------------------------- the compiled fill of ones and zeros
@EVERYWHERE
@pytest.mark.parametrize("setting", ["nothing", "disable_jit", "set_mesh", "transfer_guard", "default_device"])
def test_a_setting_of_the_program_does_not_change_where_a_fill_goes(device, setting):
    """`jax.disable_jit` would ignore the device of a compiled function, and `jax.set_mesh` refuses it."""
    if not hasattr(jax, setting) and setting != "nothing":
        pytest.skip(f"this JAX has no {setting}")
    other = jax.devices("cpu")[1]
    settings = {
        "nothing": lambda: jax.transfer_guard("allow"),
        "disable_jit": jax.disable_jit,
        "set_mesh": lambda: jax.set_mesh(jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("a",))),
        "transfer_guard": lambda: jax.transfer_guard("disallow"),
        "default_device": lambda: jax.default_device(other),
    }
    with settings[setting]():
        x = ds.ones((5, 2), dtype="int8", device=device)
    assert ds.device_of(x) is device
    assert x.committed
    assert not x.weak_type
    assert np.asarray(x).sum() == 10


def test_a_fill_keeps_the_sign_of_zero():
    """The number 0 and -0.0 are equal, and programs are kept by their values."""
    assert not np.signbit(ds.to_numpy(ds.full(2, 0.0))).any()
    ds.zeros(2)
    assert np.signbit(ds.to_numpy(ds.full(2, -0.0))).all()
    assert ds.dtype_of(ds.full(2, True)) == "bool"


def test_new_host_arrays_are_explicit_transfers_to_jaxs_guard():
    """In a process without GPUs, where the adapter does not call ``jax.device_put``."""
    run_program(
        "import devshim as ds, jax, numpy as np; ds.use('jax'); a = np.ones(2, 'float32')\n"
        "def made(): return ds.from_numpy(a), ds.asarray([1.0, 2.0]), ds.full((2,), 3.0)\n"
        "with jax.transfer_guard('disallow'):\n"
        "    assert all(x.committed and x.device.platform == 'cpu' for x in made())\n"
        "with jax.transfer_guard('disallow_explicit'):\n"
        "    try:\n"
        "        ds.from_numpy(a)\n"
        "    except Exception as error:\n"
        "        assert 'Disallowed host-to-device transfer' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('the guard allowed an explicit transfer')\n"
    )


def test_a_namespace_computes_narrow_numbers_as_jax_does():
    """Trap: JAX's dtypes of 4 and 8 bits are not NumPy's, and must not turn the mode of 64 bits on."""
    xp = ds.namespace(jnp.ones(2))
    for dtype in (jnp.float8_e4m3fn, jnp.int4):
        assert xp.argmax(jnp.ones(3, dtype)).dtype == jnp.argmax(jnp.ones(3, dtype)).dtype


def test_an_array_with_a_named_sharding_over_one_device_is_read():
    """Trap: only JAX's sharding of a single device has the device as an attribute."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    x = jax.device_put(jnp.arange(4.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    assert ds.to_numpy(x).tolist() == [0, 1, 2, 3]
    assert ds.to_numpy(ds.from_numpy(ds.to_numpy(x, copy=False))).tolist() == [0, 1, 2, 3]
    assert [ds.to_numpy(part).tolist() for part in ds.split(x, ["cpu", "cpu"])] == [[0, 1], [2, 3]]
    log = ds.MetricLog()
    for value in (x[0], x[1]):
        log.append(value)
    assert log.flush().tolist() == [0, 1]


def test_new_ranges_have_the_values_of_jax() -> None:
    """They are equal to the bit also without simulated GPUs, where NumPy makes some of them."""
    run_program(
        """
import jax.numpy as jnp
import numpy as np
import devshim as ds
ds.use("jax")
for dtype in ("float16", "float32"):
    for count in range(2, 60):
        for call, numbers in (("linspace", (0.1, 1.7, count)), ("arange", (0.1, 1.7, 1 / count))):
            ours, native = getattr(ds, call)(*numbers, dtype=dtype), getattr(jnp, call)(*numbers, dtype=dtype)
            assert np.array_equal(ours, native), (call, numbers, dtype)
assert ds.linspace(-1.5, 1.5, 4, dtype="int32").tolist() == [-2, -1, 0, 1]  # JAX rounds down; NumPy's cast does not
"""
    )

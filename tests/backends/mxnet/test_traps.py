"""Tests of the peculiarities of MXNet: each test names the trap, and fails without the adapter's workaround for it."""

from __future__ import annotations

import ctypes
import gc
import sys
import textwrap
import threading

import numpy as np
import pytest
from gluon_arrays import DEVICE, IS_2
from programs import run_program

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("current")
CPU, GPU0, GPU1 = ds.cpu(), ds.gpu(0), ds.gpu(1)
KINDS = pytest.mark.parametrize("make", [mx.np.array, mx.nd.array], ids=["np", "nd"])


def native_device(x):
    return getattr(x, DEVICE)


def script(text, *flags):
    """Run a program in a new interpreter and return its output."""
    return run_program(textwrap.dedent(text), None, *flags).strip()


# ------------------------------------------------------------------ importing with today's NumPy and Python


def test_import_does_not_change_numpy_or_warn():
    """MXNet reads names that NumPy removed (apache/mxnet#21165): it gets them, NumPy does not, and nothing warns."""
    printed = script(
        """
        import sys, types, warnings
        import numpy as np
        before, filters = dict(vars(np)), list(warnings.filters)
        import devshim as ds
        ds.use("mxnet")
        import mxnet
        after = {k: v for k, v in vars(np).items() if not isinstance(v, types.ModuleType)}
        print(sorted(k for k in after if k not in before or after[k] is not before[k]),
              sorted(k for k in before if k not in vars(np)), warnings.filters == filters, mxnet.np.NaN)
        """,
        "-W",
        "error",
    )
    assert printed == "[] [] True nan"


def test_removed_numpy_names_are_available_after_the_import():
    """``np.bool``, ``np.in1d`` and others are read at the call, long after the import."""
    x = mx.np.array([[1.0, -2.0], [3.0, 4.0]])
    mask = mx.np.array([[True, False], [True, True]], dtype="bool")
    assert x[mask].asnumpy().tolist() == [1.0, 3.0, 4.0]
    assert callable(mx.np.mirr)
    assert mx.np.trapz(mx.np.array([1.0, 3.0])).item() == 2.0


def test_numpy_scalars_in_lists_reach_operators():
    """NumPy 2 writes ``np.int64(2)`` inside a list, and MXNet sends arguments to its operators as text."""
    parts = mx.nd._internal._split_v2(mx.nd.zeros((4, 2)), indices=[np.int64(0), np.int64(1)], axis=0)
    assert [part.shape for part in parts] == [(1, 2), (3, 2)]


def test_failed_import_leaves_nothing_behind(tmp_path):
    """If MXNet's import fails, the import hook is removed, NumPy is restored, and the reason is shown."""
    package = tmp_path / "mxnet"
    package.mkdir()
    (package / "__init__.py").write_text("from . import inner\n")
    (package / "inner.py").write_text(
        "import numpy as onp\nassert onp.PZERO == 0.0\nraise RuntimeError('broken wheel')\n"
    )
    printed = script(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        before = dict(vars(np))
        import devshim as ds
        ds.use("mxnet")
        hooks = len(sys.meta_path)
        try:
            ds.zeros((2,))
        except ds.BackendBrokenError as error:
            print("broken wheel" in str(error), len(sys.meta_path) == hooks, dict(vars(np)) == before)
        """
    )
    assert printed == "True True True"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has distutils of its own")
def test_missing_setuptools_is_named():
    """MXNet needs distutils, which Python 3.12 removed: without setuptools the error says what to install."""
    printed = script(
        """
        import sys
        sys.modules["setuptools"] = None
        import devshim as ds
        ds.use("mxnet")
        try:
            ds.zeros((2,))
        except ds.BackendBrokenError as error:
            print("pip install setuptools" in str(error))
        """
    )
    assert printed == "True"


# ------------------------------------------------------------------ devices


def test_every_cpu_number_and_pinned_memory_is_the_host():
    """``mx.cpu(0) != mx.cpu(3)``, although both are the same memory."""
    assert ds.device_of(mx.np.ones((2,), **{DEVICE: mx.cpu(3)})) is CPU
    assert ds.device(mx.cpu(3)) is ds.device(mx.cpu_pinned(0)) is CPU


def test_simulated_gpus_are_the_cpus_after_the_first(two_cards):
    """``cpu(0)`` stays the host, ``cpu(1)`` is the first GPU, and ``cpu(3)`` is not a third one."""
    x = ds.place(ds.zeros((2,)), "gpu:1")
    assert native_device(x) == mx.cpu(2)
    assert [ds.device(mx.cpu(i)) for i in range(4)] == [CPU, GPU0, GPU1, CPU]
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(x, "gpu:2")


def test_labels_end_with_the_simulation():
    """The meaning of an MXNet device number is cached: ``cpu(1)`` is a GPU only while the simulation lasts."""
    with ds.simulate(gpus=2):
        x = ds.zeros((2,), device="gpu:0")
        assert ds.device_of(x) is GPU0
    assert ds.device_of(x) is GPU0, "made on a GPU, and waiting until it is back"
    del x
    gc.collect()
    ds.simulate(gpus=0)  # looks again at the remaining ones
    assert ds.device_of(mx.nd.zeros((2,), ctx=mx.cpu(1))) is CPU


# ------------------------------------------------------------------ values


@KINDS
def test_both_kinds_of_array_keep_their_class(two_cards, make):
    """``mx.nd.NDArray`` is as much a tensor as ``mx.np.ndarray``."""
    x = make([1.0, 2.0])
    y = ds.place(x, "gpu:0")
    assert type(y) is type(x)
    assert ds.place(y, "gpu:0") is y
    y[:] = 7
    assert x.asnumpy().tolist() == [1.0, 2.0]


def test_scalar_and_empty_shapes_work_in_every_thread(two_cards):
    """``()`` and ``(0, 3)`` need NumPy shape semantics: a thread's setting, off in new threads, and restored."""
    before, seen = mx.util.is_np_shape(), []

    def work():
        for shape in ((), (0, 3)):
            x = ds.place(ds.ones(shape, device="gpu:0", dtype="int64"), "gpu:1")
            seen.append(ds.to_numpy(ds.copy(x, "cpu")).shape)
        seen.append(mx.util.is_np_shape())

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(), (0, 3), before, (), (0, 3), False]


def test_only_the_stored_values_of_a_sparse_array_are_copied(two_cards):
    """Its values and their positions are copied, even to NumPy, for which MXNet makes it dense on the GPU."""
    rows = mx.nd.sparse.row_sparse_array((np.ones((2, 4), "float32"), np.array([1, 3])), shape=(100, 4))
    grid = mx.nd.sparse.csr_matrix(np.eye(50, dtype="float32"))
    empty = mx.nd.sparse.zeros("csr", (4, 5))
    for x, nbytes in ((rows, 2 * 16 + 2 * 8), (grid, 50 * 4 + 50 * 8 + 51 * 8), (empty, 5 * 8)):
        with ds.transfers() as log:
            there = ds.place(x, "gpu:1")
            values = ds.to_numpy(there)
        assert [record.bytes for record in log.records] == [nbytes, nbytes]
        assert type(there) is type(x)
        assert np.array_equal(values, x.asnumpy())
    with pytest.raises(ds.UnsupportedError, match="tostype"):
        ds.split(rows, ["gpu:0", "gpu:1"])


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool", "uint8", "float16"])
def test_numpy_values_keep_their_dtype(dtype):
    """``mx.np.array`` in 2.0 turns NumPy's int64 and float64 into float32."""
    array = np.array([[1, 0], [3, 2**40 + 1 if dtype in ("int64", "float64") else 1]]).astype(dtype)
    found = ds.to_numpy(ds.from_numpy(array))
    assert found.dtype == array.dtype
    assert (found == array).all()


def test_large_integers_survive_full():
    """``mx.np.full`` passes integers through a double in 1.9."""
    assert ds.to_numpy(ds.full((2,), 2**53 + 1, dtype="int64")).tolist() == [2**53 + 1] * 2


def test_dtypes_of_the_release():
    """1.9 lacks int16 and three unsigned dtypes: they raise ConversionError, not MXNet's KeyError."""
    if IS_2:
        assert ds.to_numpy(ds.full((2,), 2**63 + 1, dtype="uint64")).tolist() == [2**63 + 1] * 2
    else:
        with pytest.raises(ds.ConversionError, match="uint64"):
            ds.zeros((2,), dtype="uint64")
        with pytest.raises(ds.ConversionError, match="int16"):
            ds.from_numpy(np.zeros(2, np.int16))


BFLOAT16 = {
    "mean": (lambda xp, x: xp.mean(x), 2.5),
    "sum": (lambda xp, x: xp.sum(x), 10),
    "exp": (lambda xp, x: xp.exp(x)[0, 0], 2.71875),
    "matmul": (lambda xp, x: xp.matmul(x, x)[1, 1], 22),
    "sort": (lambda xp, x: xp.sort(x, descending=True)[0, 0], 2),
    "concat": (lambda xp, x: xp.concat([x, x])[3, 1], 4),
    "unique_counts": (lambda xp, x: xp.unique_counts(x).values[3], 4),
    "add": (lambda xp, x: xp.add(x, 0.5)[0, 0], 1.5),
}


@pytest.mark.parametrize("name", BFLOAT16)
def test_functions_of_the_array_api_compute_bfloat16_in_float32(two_cards, backend, name):
    """MXNet lacks most operators for bfloat16, and reports it only when a result is read."""
    x = ds.place(ds.asarray([[1.0, 2.0], [3.0, 4.0]], dtype="bfloat16"), "gpu:1")
    compute, expected = BFLOAT16[name]
    y = compute(ds.namespace(x), x)
    assert (backend.dtype_name(y), ds.device_of(y)) == ("bfloat16", GPU1)
    assert ds.to_numpy(backend.cast(y, "float32")).ravel().tolist() == [expected]
    assert backend.dtype_name(ds.namespace(x).astype(x, "float32")) == "float32"
    mx.nd.waitall()  # raises nothing


def test_bfloat16_is_created_moved_and_cast(two_cards, backend):
    """No creation operator supports bfloat16, and MXNet's own ``copyto`` and ``astype`` raise KeyError for it."""
    x = ds.place(ds.asarray([1.0, 2.5, 3.140625], dtype="bfloat16", device="gpu:0"), "gpu:1")
    assert backend.dtype_name(x) == "bfloat16"
    assert ds.to_numpy(ds.asarray(x, dtype="float32")).tolist() == [1.0, 2.5, 3.140625]
    assert backend.nbytes(x) == 6


def test_one_seed_for_all_devices(two_cards):
    """Each device has its own generator."""
    draws = []
    for _ in range(2):
        ds.random.seed(2**32 - 1)
        draws.append([ds.to_numpy(ds.random.normal(size=(3,), device=d)).tolist() for d in (CPU, GPU0, GPU1)])
    assert draws[0] == draws[1]


# ------------------------------------------------------------------ gradients


@KINDS
def test_gradient_crosses_devices(two_cards, make):
    """Inside ``record`` a move is part of the graph, and the gradient arrives on the source's device."""
    x = ds.place(make([1.0, 2.0, 3.0]), "gpu:0")
    x.attach_grad()
    with mx.autograd.record():
        y = ds.place(x, "gpu:1")
        z = (y * y * ds.copy(y, "gpu:1")).sum()
    z.backward()
    assert x.grad.asnumpy().tolist() == [3.0, 12.0, 27.0]
    assert ds.device_of(x.grad) is GPU0
    assert ds.device_of(z) is GPU1


@KINDS
def test_attach_grad_survives_a_move(two_cards, make):
    """Outside ``record`` the moved array would lose its gradient (apache/mxnet#14391), and backward would fail."""
    x = make([1.0, 2.0])
    x.attach_grad()
    y = ds.place(x, "gpu:1")
    with mx.autograd.record():
        z = (y * y).sum()
    z.backward()
    assert y.grad.asnumpy().tolist() == [2.0, 4.0]
    assert ds.device_of(y.grad) is GPU1
    assert ds.place(make([1.0]), "gpu:1").grad is None


@pytest.mark.parametrize("requested", ["write", "add"])
@pytest.mark.parametrize("place", ["cpu", "gpu:1"])
def test_stored_gradients_of_bfloat16_are_rounded(two_cards, place, requested):
    """MXNet's cast cuts bits off, and a function in Python loses a gradient that MXNet adds to a stored one."""
    x = ds.ones(4, dtype="float32", device=place)
    x.attach_grad(requested)
    heads = ds.asarray([1.0077, 1.0233, -1.0389, 100.4], dtype="float32", device=place)
    for _ in range(2):
        with mx.autograd.record():
            y = ds.asarray(ds.asarray(x * 1, dtype="bfloat16"), dtype="float32")  # a cast of 1.9 never adds
        y.backward(heads, retain_graph=True)
    y.backward(heads)
    times = 3 if requested == "add" else 1
    assert (x.grad.asnumpy() / times).tolist() == [1.0078125, 1.0234375, -1.0390625, 100.5]


@pytest.mark.skipif(not IS_2, reason="1.9 compiles symbols, which have no dtype")
def test_gradients_of_bfloat16_in_a_hybridized_block(two_cards):
    """A graph cannot contain a function in Python: the block compiles, and MXNet's cast cuts off the bits."""

    class Product(mx.gluon.HybridBlock):
        def forward(self, x, factors):
            return ds.namespace(x).multiply(x, factors)

    x = ds.ones(4, dtype="bfloat16", device="gpu:1")
    x.attach_grad()
    found = []
    for hybridized in (False, True):
        block = Product()
        block.hybridize(hybridized)
        with mx.autograd.record():
            y = block(x, ds.asarray([1.0077, 1.0233, -1.0389, 100.4], dtype="float32", device="gpu:1"))
        y.backward()
        found.append(ds.to_numpy(ds.asarray(x.grad, dtype="float32")).tolist())
    assert found == [[1.0078125, 1.0234375, -1.0390625, 100.5], [1.0, 1.015625, -1.03125, 100.0]]


# ------------------------------------------------------------------ mixed devices


@pytest.mark.parametrize("make", ["np", "nd"])
def test_simulated_gpus_do_not_mix(two_cards, make):
    """MXNet compares only the kind of device, and all simulated GPUs are CPUs: cpu(1) + cpu(2) silently works."""
    x, y = (ds.ones((2, 2), device=d) for d in (GPU0, GPU1))
    if make == "nd":
        x, y = x.as_nd_ndarray(), y.as_nd_ndarray()
    dot = mx.np.dot if make == "np" else mx.nd.dot
    for mixed in (lambda: x + y, lambda: dot(x, y), lambda: x * (y * 0 + 1)):
        with pytest.raises(ds.DeviceMismatchError, match="gpu:0 and gpu:1") as caught:
            mixed()
        assert isinstance(caught.value, mx.MXNetError)
    x.copyto(y)
    x[:] = y + 1
    assert x.asnumpy().tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_mxnet_is_unpatched_without_simulation():
    """The check is in MXNet's own functions only while GPUs are simulated."""
    from mxnet._ctypes import ndarray as invoking
    from mxnet._ffi._ctypes.function import FunctionBase

    before = FunctionBase.__call__, invoking._imperative_invoke, mx.nd.register._imperative_invoke
    with ds.simulate(gpus=1):
        assert FunctionBase.__call__ is not before[0]
        with ds.simulate(gpus=3):
            pass
    assert (FunctionBase.__call__, invoking._imperative_invoke, mx.nd.register._imperative_invoke) == before
    assert (mx.np.ones((2,), **{DEVICE: mx.cpu(1)}) + mx.np.ones((2,))).asnumpy().tolist() == [2.0, 2.0]


# ------------------------------------------------------------------ scopes and tracing


def test_scopes_nest_and_end_with_an_exception(two_cards):
    """MXNet stores the previous device on the device object, so entering one object twice restores the wrong one."""

    def current():
        return native_device(mx.np.ones((1,)))

    def work():
        with ds.on("gpu:0"), ds.on("gpu:1"), ds.on("gpu:0"):
            assert current() == mx.cpu(1)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert current() == mx.cpu(0)


def compiled(body):
    """Return a hybridized block with this body."""

    def forward(self, *inputs):
        return body(inputs[-1])

    block = type("Block", (mx.gluon.HybridBlock,), {"forward" if IS_2 else "hybrid_forward": forward})()
    block.hybridize()
    return block


def hybridized(body, x):
    """Return the result of a hybridized block's second call, which runs the compiled graph."""
    block = compiled(body)
    return [block(x), block(x * 2)]


@pytest.mark.usefixtures("two_cards", "numpy_semantics")
class TestHybridize:
    """A compiled block runs on the device of its inputs: 2.0 records a copy to another one and ignores it."""

    def check(self, body):
        first, second = hybridized(body, ds.asarray([1.0, 2.0], device="gpu:0"))
        assert [first.asnumpy().tolist(), second.asnumpy().tolist()] == [[2.0, 4.0], [4.0, 8.0]]
        assert ds.device_of(second) is GPU0

    def test_device_of(self):
        seen = []
        self.check(lambda x: (seen.append(ds.device_of(x)), x * 2)[1])
        assert seen == [GPU0]

    def test_moves_to_the_same_device_work(self):
        self.check(lambda x: ds.place(x, "gpu:0") * 2)
        self.check(lambda x: ds.copy(x, "gpu:0") * 2)
        self.check(lambda x: ds.run(lambda a: a * 2, x))

        def scoped(x):
            with ds.on("gpu:0"):
                return x * 2

        self.check(scoped)

    def test_an_error_names_the_call(self):
        calls = {"from_numpy": lambda x: x * ds.from_numpy(np.ones(2), "gpu:0")}
        if not IS_2:  # whose graphs contain no arrays
            calls |= {
                "zeros_like": ds.zeros_like,
                "split": lambda x: ds.split(x, ["gpu:0"])[0],
                "random.normal": lambda x: x * ds.random.normal(size=2, device="gpu:0"),
            }
        for name, body in calls.items():
            with pytest.raises(ds.TracingError, match=f"ds.{name} cannot work"):
                self.check(body)

    def test_a_block_that_depends_on_the_device_is_compiled_for_each(self):
        """Gluon compiles once, for inputs on any device; devshim's answer at that time is true for only one."""

        def asks(x):
            return x * (2.0 if ds.device_of(x) is GPU0 else 3.0)

        def moves(x):
            return ds.place(x, "gpu:0") * 2.0

        first, second = ds.asarray([1.0], device="gpu:0"), ds.asarray([1.0], device="gpu:1")
        block = compiled(asks)
        assert [float(block(x)[0]) for x in (first, second, second, first)] == [2.0, 3.0, 3.0, 2.0]
        block = compiled(moves)
        block(first)
        with pytest.raises(ds.TracingError):
            block(second)
        assert float(block(first)[0]) == 2.0

    def test_a_block_that_does_not_depend_on_the_device_is_compiled_once(self):
        runs = []
        block = compiled(lambda x: (runs.append(x), x * 2)[1])
        found = [ds.device_of(block(ds.ones(1, device=each))) for each in ("gpu:0", "gpu:1")]
        assert found == [ds.gpu(0), ds.gpu(1)]
        assert len(runs) == 1

    @pytest.mark.skipif(not IS_2, reason="1.9 compiles with symbols, which have no shape to split")
    def test_copies_in_a_static_graph_wait_for_what_they_copy(self):
        """Natively ``x[:1].copy()`` runs too early in a block with ``static_shape=True`` (2.0.0b1)."""

        class Joined(mx.gluon.HybridBlock):
            def forward(self, x):
                return ds.gather(ds.split(x * 2, ["gpu:1", "gpu:1"]), "gpu:1")

        block = Joined()
        block.hybridize(static_alloc=True, static_shape=True)
        x = ds.asarray([1.0, 2.0], device="gpu:1")
        assert [block(x).asnumpy().tolist() for _ in range(9)] == [[2.0, 4.0]] * 9

    @pytest.mark.parametrize("target", ["cpu", "gpu:1"])
    def test_calls_that_the_graph_would_ignore_are_refused(self, target):
        def scoped(x):
            with ds.on(target):
                return x * 2

        for body in (lambda x: ds.place(x, target) * 2, scoped, lambda x: x * ds.to_numpy(x).sum()):
            with pytest.raises(ds.TracingError):
                self.check(body)


def test_a_symbol_outside_a_block_has_no_device():
    """A symbol has a ``handle`` too: passing it to the array interface would read foreign memory."""
    with pytest.raises(ds.TracingError):
        ds.device_of(mx.sym.var("x"))


# ------------------------------------------------------------------ DLPack


class Source:
    """A producer whose capsule is changed before MXNet sees it."""

    def __init__(self, array, **changes):
        self._array, self._changes = array, changes

    def __dlpack__(self):
        from devshim.transfers import dlpack

        capsule = self._array.__dlpack__()
        tensor = dlpack.managed_tensor(capsule).tensor
        for name, value in self._changes.items():
            setattr(tensor, name, value)
        return capsule


def test_bool_crosses_both_ways():
    """MXNet exports a bool as "unsigned, 1 bit" and refuses the usual "bool, 8 bits"."""
    array = np.array([True, False, True])
    x = ds.from_numpy(array, copy=False)
    array[1] = True
    assert ds.to_numpy(x).tolist() == [True, True, True]
    seen = ds.to_numpy(x, copy=False)
    seen[0] = False
    assert seen.dtype == np.bool_
    assert array.tolist() == [False, True, True]


def test_byte_offset_is_not_ignored(backend):
    """MXNet reads from the start of the buffer, whatever ``byte_offset`` says."""
    array = np.arange(4, dtype=np.float32)
    x = backend.from_dlpack(Source(array, byte_offset=4, data=array.ctypes.data - 4))
    assert ds.to_numpy(x).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_number_of_another_frameworks_cpu_is_dropped(two_cards, backend):
    """TensorFlow exports CPU:1 as such, and ``mx.cpu(1)`` is a simulated GPU; MXNet refuses pinned memory."""
    array = np.arange(3, dtype=np.float32)
    assert ds.device_of(backend.from_dlpack(Source(array, device_id=1))) is CPU
    assert ds.device_of(backend.from_dlpack(Source(array, device_type=3))) is CPU


@pytest.mark.parametrize("array", [np.ones((2, 3)).T, np.ones(4)[::-1], np.ones(4)[::2], np.ones(2, complex)])
def test_memory_that_mxnet_cannot_share_is_refused(array, backend):
    """It never crashes, and never returns values in another order."""
    with pytest.raises(ds.ConversionError):
        backend.from_dlpack(array)


def test_strides_of_an_empty_array_do_not_matter():
    """2.0 takes NumPy's strides of a (0, 3) array for a layout that it does not support."""
    assert ds.to_numpy(ds.from_numpy(np.zeros((0, 3)), copy=False)).shape == (0, 3)


def test_an_unused_capsule_is_freed_if_other_code_changes_ctypes(backend):
    """``ctypes.pythonapi`` is shared: MXNet's own destructor fails once other code sets prototypes on it."""
    shared = ctypes.pythonapi.PyCapsule_GetPointer
    before = shared.restype, shared.argtypes
    shared.restype, shared.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        for _ in range(3):
            exported = backend.to_dlpack(ds.ones((4,)))
            assert tuple(exported.__dlpack_device__()) == (1, 0)
            del exported
            backend.to_dlpack(ds.ones((4,))).__dlpack__()
    finally:
        shared.restype, shared.argtypes = before


# ------------------------------------------------------------------ copies on the host
@KINDS
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_both_copy_methods_give_the_same_bits(make, dtype):
    """Small arrays are copied by an operator that computes with values, which would not preserve the bits of a NaN."""
    bits = np.arange(256, dtype="uint8").repeat(16)
    values = (bits % 2).astype("bool") if dtype == "bool" else bits.view(dtype)
    x = ds.from_numpy(values) if make is mx.np.array else ds.from_numpy(values).as_nd_ndarray()
    short = ds.copy(x, CPU)
    with ds.transfers() as log:
        long = ds.copy(x, CPU)
    assert log.total_bytes == values.nbytes
    for made in (short, long):
        assert type(made) is type(x)
        assert ds.to_numpy(made).tobytes() == values.tobytes()
        assert np.shares_memory(ds.to_numpy(made, copy=False), ds.to_numpy(x, copy=False)) is False


@pytest.mark.parametrize("elements", [0, 1, 1 << 20, (1 << 20) + 1])
def test_copies_of_any_size_are_complete(elements):
    """The operator is used up to 4 MiB, ``copyto`` above."""
    x = ds.arange(elements, dtype="float32")
    y = ds.copy(x, CPU)
    if elements:
        x[:] = -1
    assert ds.to_numpy(y).tolist() == list(range(elements))


def test_copies_are_recorded_and_keep_attached_gradients():
    x = ds.ones(3)
    x.attach_grad()
    assert ds.copy(x, CPU).grad is not None
    assert ds.copy(ds.ones(3), CPU).grad is None
    with mx.autograd.record():
        y = (ds.copy(x, CPU) * 3).sum()
    y.backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_counting_cards_does_not_start_cuda(monkeypatch):
    """MXNet's own ``num_gpus`` starts CUDA, after which ``ds.set_visible_devices`` comes too late."""
    from devshim_backends._mxnet import devices

    from devshim.devices import cuda, nvml

    counted = []
    monkeypatch.setattr(devices, "HAS_CUDA", True)
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(mx.context, "num_gpus", lambda: counted.append(1) or 4)
    assert ds.device_count() == 2
    assert counted == []
    monkeypatch.setattr(nvml, "cuda_started", lambda: True)
    assert ds.device_count() == 4  # MXNet's count


def test_queries_create_no_context_on_an_unused_card(monkeypatch):
    """CUDA creates one on the GPU that is queried; for a GPU without one, NVML gives the same answer."""
    from devshim_backends._mxnet import devices

    from devshim.devices import cuda, nvml
    from devshim.registry import start_failures

    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    monkeypatch.setattr(devices, "HAS_CUDA", True)
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(cuda, "has_context", lambda index: index == 1)
    monkeypatch.setattr(nvml, "card_at", lambda index: nvml.Card(index, "H200", f"GPU-{index}", 200, 150))
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 2)
    asked = []
    monkeypatch.setattr(mx.context, "gpu_memory_info", lambda index: asked.append(index) or (70, 190))
    assert (ds.memory("gpu:0").free, ds.memory("gpu:0").total, ds.describe("gpu:0").total_memory) == (150, 200, 200)
    ds.synchronize("gpu:0")
    assert asked == []
    assert (ds.memory("gpu:1").free, ds.memory("gpu:1").total, ds.describe("gpu:1").total_memory) == (70, 190, 190)
    assert set(asked) == {1}


def test_a_driver_that_is_too_old_has_no_cards(monkeypatch, backend):
    """NVML counts them; the first use raises CUDA's reason, and from then on the count is 0."""
    from devshim_backends._mxnet import devices

    from devshim.devices import cuda, startup
    from devshim.registry import start_failures

    def fail(index):
        raise mx.MXNetError(
            "Traceback (most recent call last):\n  File ../src/c_api/c_api.cc, line 1\nMXNetError: Check failed: "
            "e == cudaSuccess (35 vs. 0) : CUDA: CUDA driver version is insufficient for CUDA runtime version"
        )

    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    monkeypatch.setattr(devices, "HAS_CUDA", True)
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(mx.context, "num_gpus", lambda: fail(0))
    for call in (ds.describe, ds.memory, ds.synchronize, ds.empty_cache):
        assert ds.device_count() == 2
        message = "MXNet has 0 gpu devices: CUDA does not start .CUDA driver version is insufficient for CUDA runtime"
        with pytest.raises(ds.DeviceNotFoundError, match=message):
            call("gpu:1")
        assert ds.device_count() == 0
        startup._REASONS.clear()
    assert backend.why_unable_to_start(mx.MXNetError("CUDA: an illegal memory access was encountered")) is None


# ---------------------------------------------------------------------- copies between simulated GPUs
@KINDS
def test_a_copy_between_gpus_is_not_waited_for(two_cards, make, monkeypatch):
    """Only MXNet uses their memory, and its engine knows the order; NumPy may write to the host's at any time."""
    waited = []
    for cls in (mx.np.ndarray, mx.nd.NDArray):
        monkeypatch.setattr(cls, "wait_to_read", lambda x: waited.append(ds.device_of(x)))
    x = make([1.0, 2.0])
    on_gpu = ds.place(x, GPU0)
    assert waited == [GPU0]
    on_other = ds.place(on_gpu, GPU1)
    tree = ds.place([on_gpu, on_gpu + 1], GPU1)
    assert waited == [GPU0]
    back = ds.place(on_other, CPU, non_blocking=True)
    assert waited == [GPU0, CPU]
    monkeypatch.undo()
    on_gpu += 1
    assert back.asnumpy().tolist() == on_other.asnumpy().tolist() == tree[0].asnumpy().tolist() == [1.0, 2.0]
    assert tree[1].asnumpy().tolist() == [2.0, 3.0]


@KINDS
def test_writes_after_a_copy_between_gpus_do_not_reach_it(two_cards, make):
    """Also writes by operators with ``out=``, by NumPy through MXNet, by gradients, and by a block's next call."""
    net = mx.gluon.nn.Dense(64, in_units=64)
    net.initialize()
    ds.place(net, GPU0)
    net.hybridize(static_alloc=True, static_shape=True)
    one = ds.place((mx.nd if DEVICE == "ctx" else mx.np).ones((64, 64)), GPU0)
    for _ in range(20):
        x = ds.place(make(np.ones((64, 64), "float32")), GPU0)
        x[:] = ds.place(make(np.full((64, 64), 2, "float32")), GPU0)
        first = ds.place(x, GPU1)
        x *= 3
        second = ds.place([x], GPU1)[0]
        x[:] = np.zeros((64, 64), "float32")
        third = ds.place(x, GPU1)
        x += 1
        y = net(one)
        expected, copied = y.asnumpy().copy(), ds.place(net(one), GPU1)
        net(one * 2)
        found = [each.asnumpy() for each in (first, second, third)]
        assert [np.unique(each).tolist() for each in found] == [[2], [6], [0]]
        np.testing.assert_array_equal(copied.asnumpy(), expected)
    x.attach_grad()
    for factor in (2, 3):
        with mx.autograd.record():
            total = (x * factor).sum()
        total.backward()
        gradient = ds.place(x.grad, GPU1)
        x.grad[:] = 0
        assert (gradient.asnumpy() == factor).all()

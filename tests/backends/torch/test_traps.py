"""Tests of the peculiarities of PyTorch: each names the trap, and fails without the adapter's workaround for it."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from programs import run_program

import devshim as ds

CPU = ds.cpu()
pytestmark = pytest.mark.usefixtures("backend")
COMPILERS = pytest.mark.parametrize("compiler", ["eager", "aot_eager"])


@pytest.fixture
def fake_gpu(monkeypatch):
    """Return a ``gpu:0`` that is PyTorch's meta device: it has its own name and no values, on any machine."""
    from devshim_backends._torch import backend, devices

    meta = torch.device("meta")
    monkeypatch.setitem(devices.NATIVE, ds.gpu(0), meta)
    monkeypatch.setitem(devices.DEVICES, meta, ds.gpu(0))
    monkeypatch.setattr(backend.TorchBackend, "count", lambda self, kind: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda index: torch.device("meta"))  # no GPU to make current
    return ds.gpu(0)


@pytest.fixture
def compiled():
    def compile_whole(fn, compiler="eager"):
        torch._dynamo.reset()
        return torch.compile(fn, backend=compiler, fullgraph=True)

    import torch._dynamo

    yield compile_whole
    torch._dynamo.reset()


# ---------------------------------------------------------------- naming


@pytest.mark.parametrize("spec", ["cpu", "cpu:0", "cpu:7", "CPU:1", torch.device("cpu"), torch.device("cpu", 3)])
def test_every_cpu_index_is_the_host(spec):
    """``x.to("cpu:0") is x`` is False: a silent copy on the device that it is already on."""
    x = torch.ones(3)
    assert ds.place(x, spec) is x
    assert ds.copy(x, spec).device == torch.device("cpu")


def test_cuda_without_an_index_is_the_current_card(monkeypatch):
    """``torch.device("cuda")`` is the current GPU, not GPU 0 (pytorch/pytorch#115405)."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert ds.device(torch.device("cuda")) is ds.gpu(3)
    assert ds.device(torch.device("cuda", 1)) is ds.gpu(1)


@pytest.mark.parametrize("spec", ["gpu:99", "cuda:99", torch.device("cuda", 99)])
def test_a_missing_gpu_is_refused(spec):
    """PyTorch accepts ``cuda:99`` without a check."""
    with pytest.raises(ds.DeviceNotFoundError, match="gpu:99 was asked for"):
        ds.place(torch.ones(1), spec)


def test_meta_tensors_have_no_device():
    """A meta tensor has a device and no data: moving it would invent values."""
    x = torch.ones(2, device="meta")
    for call in (ds.device_of, ds.to_numpy, lambda x: ds.place(x, "cpu"), lambda x: ds.copy(x, "cpu")):
        with pytest.raises(ds.UnsupportedError, match="meta"):
            call(x)


def test_torchs_default_device_is_ignored():
    """``torch.set_default_device`` changes PyTorch's own creation, and devshim's default stays the host."""
    torch.set_default_device("meta")
    try:
        made = [ds.zeros(2), ds.asarray([1.0]), ds.arange(3), ds.eye(2), ds.random.normal(size=2)]
        made.append(ds.from_numpy(np.ones(2)))
        assert torch.ones(1).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert {x.device.type for x in made} == {"cpu"}


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[0].expand(5, 4),
        lambda x: x.detach(),
        lambda x: torch.nn.Parameter(x),
        lambda x: torch.nn.Buffer(x),
    ],
)
def test_a_copy_of_a_view_is_new_memory(view):
    """``x.to(device)`` of a view is that view, so writing to the "copy" would change the base."""
    base = torch.arange(12.0).reshape(3, 4)
    x = view(base)
    before = base.clone()
    copied = ds.copy(x, "cpu")
    with torch.no_grad():
        copied.fill_(-1)
    assert torch.equal(base, before)
    assert copied.shape == x.shape


def test_a_copy_keeps_channels_last():
    """Strides affect how a convolution is run, so a copy keeps them."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert ds.copy(x, "cpu").is_contiguous(memory_format=torch.channels_last)


LAYOUTS = {
    "in order": lambda x: x,
    "turned": lambda x: x.permute(2, 0, 1),
    "cut": lambda x: x[:, ::2],
    "repeated": lambda x: x[:1].expand(4, 3, 4),
    "overlapping": lambda x: x.as_strided((3, 3), (1, 1)),
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "negative": lambda x: torch.complex(x, x).conj().imag,
    "empty": lambda x: x[:0],
    "sparse": lambda x: x[0].to_sparse(),
    "a parameter": torch.nn.Parameter,
    "a leaf": lambda x: x.clone().requires_grad_(),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_copy_paths_equal_pytorchs_copy(layout, mode):
    """The fast path, by ``clone``, gives the same as ``to(copy=True)``, flag by flag."""

    def facts(y):
        strides = y.stride() if y.layout is torch.strided else None
        flags = (y.is_conj(), y.is_neg(), y.requires_grad, y.is_leaf, y.is_inference())
        return (type(y), y.dtype, y.shape, strides, *flags)

    x = LAYOUTS[layout](torch.arange(24.0).reshape(2, 3, 4))
    with mode():
        short = ds.copy(x, CPU)
        with ds.transfers() as log:
            long = ds.copy(x, CPU)
        native = x.to("cpu", copy=True)
    assert log.count == 1
    assert facts(short) == facts(long)
    if mode is not torch.inference_mode:  # there our copy can be trained
        assert facts(short) == facts(native)
    assert not short.is_inference()
    assert torch.equal(short.detach().to_dense(), x.detach().to_dense())
    if x.layout is torch.strided and x.numel():
        assert short.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_conjugate_views():
    """A conjugated tensor is a view with a flag, which NumPy cannot see."""
    x = torch.tensor([1 + 2j]).conj()
    assert ds.to_numpy(x)[0] == 1 - 2j
    assert ds.to_numpy(x.imag)[0] == -2
    assert ds.copy(x, "cpu")[0] == 1 - 2j
    with pytest.raises(ds.CopyNeededError):
        ds.to_numpy(x, copy=False)


@pytest.mark.parametrize("make", [torch.nn.Parameter, lambda x: x.requires_grad_()])
def test_gradient_flows_through_a_copy(make):
    """A moved leaf is not a leaf: its ``.grad`` is None, and the source must get the gradient."""
    leaf = make(torch.ones(3))
    copied = ds.copy(leaf, "cpu")
    assert copied.requires_grad
    assert not copied.is_leaf
    (copied * 2).sum().backward()
    assert torch.equal(leaf.grad, torch.full((3,), 2.0))


def test_a_copy_to_the_host_is_complete_on_return(fake_gpu, monkeypatch):
    """``non_blocking=True`` towards the host returns memory that is still being written (pytorch/pytorch#140296)."""
    seen = []
    to = torch.Tensor.to

    def spy(x, *args, **options):
        seen.append(options.get("non_blocking", args[2] if len(args) > 2 else None))  # to(device, dtype, non_blocking)
        return to(x, *args, **options)

    monkeypatch.setattr(torch.Tensor, "to", spy)
    x = torch.ones(2)
    away = ds.place(x, fake_gpu, non_blocking=True)
    assert seen == [True]
    with pytest.raises(NotImplementedError, match="meta"):  # it has no values to return
        ds.place(away, "cpu", non_blocking=True)
    ds.place(x, "cpu", copy=True, non_blocking=True)
    assert True not in seen[1:]
    assert seen[1] is False


# ---------------------------------------------------------------- NumPy


def test_negative_strides_and_read_only_arrays():
    """``from_numpy`` raises on negative strides, and warns on read-only memory and then writes into it."""
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    for array in (np.arange(3.0)[::-1], frozen, np.broadcast_to(np.arange(3.0), (2, 3))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = ds.from_numpy(array)
        np.testing.assert_array_equal(x.numpy(), array)
        x.fill_(7)
        assert not (array == 7).any()
        with pytest.raises(ds.CopyNeededError):
            ds.from_numpy(array, copy=False)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_keep_their_bits(name):
    """``.numpy()`` of bfloat16 raises; through ``ml_dtypes`` every bit arrives, and returns."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = torch.randn(3, 4).to(getattr(torch, name)).t()
    array = ds.to_numpy(x)
    assert array.dtype == getattr(ml_dtypes, name)
    back = ds.from_numpy(array)
    assert back.dtype is x.dtype
    assert torch.equal(back.contiguous().view(torch.uint8), x.contiguous().view(torch.uint8))


def test_bfloat16_without_ml_dtypes(monkeypatch):
    """NumPy has no own bfloat16: the error says what to install, instead of giving other numbers."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ds.ConversionError, match="ml_dtypes"):
        ds.to_numpy(torch.ones(2, dtype=torch.bfloat16))


@pytest.mark.filterwarnings("ignore:.*Sparse")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_tensors(layout):
    """Sparse tensors move unchanged; they do not become arrays unless the user makes them dense."""
    x = getattr(torch.eye(3), layout)()
    assert ds.place(x, "cpu") is x
    copied = ds.copy(x, "cpu")
    assert copied.layout is x.layout
    copied.values().zero_() if layout != "to_sparse" else copied._values().zero_()
    assert torch.equal(x.to_dense(), torch.eye(3))
    with pytest.raises(ds.ConversionError, match="to_dense"):
        ds.to_numpy(x)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_creation_in_dtypes_that_pytorch_lacks(dtype):
    """``torch.arange``, ``linspace`` and ``eye`` are not implemented for these."""
    np.testing.assert_array_equal(ds.to_numpy(ds.arange(0, 2, dtype=dtype)), np.arange(2).astype(dtype))
    np.testing.assert_array_equal(ds.to_numpy(ds.linspace(0, 4, 3, dtype=dtype)), np.linspace(0, 4, 3).astype(dtype))
    np.testing.assert_array_equal(ds.to_numpy(ds.eye(2, 3, k=1, dtype=dtype)), np.eye(2, 3, 1).astype(dtype))


def test_an_empty_range():
    """``torch.arange(3, 0)`` raises although the range is merely empty."""
    assert ds.arange(3, 0).shape == (0,)
    assert ds.arange(3, 0).dtype is torch.int64
    assert ds.arange(0.0, 3.0, -1.0).dtype is torch.float32


def test_uniform_does_not_reach_its_bound():
    """In float16 one draw in some thousands is rounded up to ``high``."""
    assert ds.random.uniform(1, 2, 200_000, dtype="float16").max() < 2


# ---------------------------------------------------------------- DLPack


def test_negative_strides_do_not_abort():
    """``torch.from_dlpack(a[::-1])`` crashes (pytorch/pytorch#188023)."""
    backward = np.arange(3.0)[::-1]
    x = ds.convert(backward, "torch")
    assert x.tolist() == [2.0, 1.0, 0.0]
    with pytest.raises(ds.CopyNeededError):
        ds.convert(backward, "torch", copy=False)


def test_read_only_memory_is_not_shared():
    """``torch.from_dlpack`` ignores the flag and gives a tensor that writes into the array."""
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    ds.convert(frozen, "torch").fill_(7)
    assert frozen.tolist() == [0.0, 1.0, 2.0]


class _Capsule:
    """A producer of the older protocol, whose device has no number, like Paddle's."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, None)

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def test_producers_of_the_older_protocol():
    """Paddle returns ``(1, None)`` for the host and does not support ``max_version``; the checks still apply."""
    from devshim.registry.registry import load

    array = np.arange(3.0)
    shared = load("torch").from_dlpack(_Capsule(array))
    array[0] = 5
    assert shared[0] == 5
    with pytest.raises(ds.ConversionError, match="negative strides"):
        load("torch").from_dlpack(_Capsule(array[::-1]))


def test_tensors_without_memory_are_not_shared():
    """PyTorch exports zero tensors and fake ones at address 0: reading it crashes."""
    zero = torch._efficientzerotensor((3,))
    assert ds.convert(zero, "numpy").tolist() == [0, 0, 0]
    with pytest.raises(ds.CopyNeededError, match="no memory"):
        ds.convert(zero, "numpy", copy=False)
    fake = torch._subclasses.fake_tensor.FakeTensorMode().from_tensor(torch.ones(3))
    for copy in (None, True):
        with pytest.raises(ds.ConversionError, match="FakeTensor has no values that NumPy can read"):
            ds.convert(fake, "numpy", copy=copy)


def test_tensors_that_dlpack_cannot_express_are_refused_or_detached():
    """Gradients, conjugation and sparse layouts raise BufferError in PyTorch, each with another message."""
    from devshim.registry.registry import load

    backend = load("torch")
    leaf = torch.nn.Parameter(torch.ones(2))
    assert np.from_dlpack(backend.to_dlpack(leaf)).tolist() == [1.0, 1.0]
    for x in (torch.tensor([1j]).conj(), torch.eye(2).to_sparse()):
        with pytest.raises(ds.ConversionError):
            backend.to_dlpack(x)


# ---------------------------------------------------------------- scopes


def test_a_scope_belongs_to_one_thread(fake_gpu):
    """``with torch.device`` must not affect another thread, and must always end."""
    seen = []

    def fail():
        with ds.on(fake_gpu):
            assert torch.zeros(1).device.type == "meta"
            with ds.on("cpu"):
                assert torch.zeros(1).device.type == "cpu"
            assert torch.zeros(1).device.type == "meta"
            thread = threading.Thread(target=lambda: seen.append(torch.zeros(1).device.type))
            thread.start()
            thread.join()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == ["cpu"]
    assert torch.zeros(1).device.type == "cpu"
    assert torch._C._len_torch_function_stack() == 0


# ---------------------------------------------------------------- tracing


@COMPILERS
def test_device_of_compiled(compiled, compiler):
    """A graph break in `device_of` would make ``fullgraph=True`` fail."""
    fn = compiled(lambda x, w: (ds.device_of(x), x + w if ds.device_of(w).kind == "cpu" else x), compiler)
    device, y = fn(torch.ones(2), torch.nn.Parameter(torch.ones(2)))
    assert device is CPU
    assert y.tolist() == [2.0, 2.0]


@COMPILERS
@pytest.mark.parametrize("spec", ["cpu", "cpu:0", CPU, torch.device("cpu")], ids=str)
def test_place_compiled(compiled, compiler, spec):
    """`place` either has nothing to do, or makes a copy that is also one inside the graph."""
    x = torch.ones(2)
    assert compiled(lambda x: ds.place(x, spec) + 1, compiler)(x).tolist() == [2.0, 2.0]
    copied = compiled(lambda x: ds.copy(x, spec), compiler)(x)
    copied.fill_(5)
    assert x.tolist() == [1.0, 1.0]


def test_place_compiled_moves(compiled, fake_gpu):
    """A move inside the graph is a move, with its gradient."""
    moved = compiled(lambda x: ds.place(x, "gpu:0") * 2)(torch.ones(2, requires_grad=True))
    assert moved.device.type == "meta"
    assert moved.requires_grad


@COMPILERS
def test_run_compiled(compiled, compiler):
    """`run` inspects its arguments and opens a scope; both must be traced."""
    x = torch.ones(2)
    assert compiled(lambda x: ds.run(torch.add, x, x, alpha=3), compiler)(x).tolist() == [4.0, 4.0]


def test_run_compiled_follows_data(compiled, fake_gpu):
    """A tensor that ``fn`` creates inside the graph is on its arguments' device."""
    made = compiled(lambda x: ds.run(lambda t: torch.ones(2), x))(torch.ones(2, device="meta"))
    assert made.device.type == "meta"


@COMPILERS
def test_on_compiled(compiled, compiler):
    """``torch.compile`` cannot enter a ``torch.device`` ("Unsupported context manager")."""

    def fn(x):
        with ds.on("cpu"):
            return torch.zeros(2) + x

    assert compiled(fn, compiler)(torch.ones(2)).tolist() == [1.0, 1.0]


def test_on_compiled_means_what_it_means_eagerly(compiled, fake_gpu):
    """Nested scopes, explicit devices and code after the block give the same placement in and out of the graph."""

    def fn(x):
        with ds.on("gpu:0"):
            a = torch.zeros(2)
            with ds.on("cpu"):
                b = torch.tensor(3)
            c = torch.arange(3)
            d = torch.zeros(2, device="cpu")
            e = torch.zeros_like(x)
        return a, b, c, d, e, torch.ones(2)

    x = torch.ones(2)
    eagerly = [y.device.type for y in fn(x)]
    assert eagerly == ["meta", "cpu", "meta", "cpu", "cpu", "cpu"]
    assert [y.device.type for y in compiled(fn)(x)] == eagerly
    assert torch._C._len_torch_function_stack() == 0


def test_a_compiled_function_inside_a_scope(compiled, fake_gpu):
    """The graph is cached with the scope in which it was made: it must not be reused outside of it."""
    fn = compiled(lambda x: torch.randn(2))
    with ds.on("gpu:0"):
        assert fn(torch.ones(2)).device.type == "meta"
    assert fn(torch.ones(2)).device.type == "cpu"


def test_the_first_call_can_be_compiled(tmp_path):
    """Loading the adapter takes a lock and imports, which cannot be traced: it must not need an eager call before."""
    program = """
import torch, devshim as ds
ds.use("torch")
compiled = lambda fn: torch.compile(fn, backend="eager", fullgraph=True)
def scoped(x):
    with ds.on("cpu"):
        return torch.zeros(2) + x
x, w = torch.ones(2), torch.nn.Parameter(torch.ones(2))
CALL
"""
    calls = (
        "assert compiled(ds.device_of)(x) is ds.cpu()",
        "compiled(lambda x: ds.place(x, 'cpu') + 1)(x)",
        "compiled(lambda x, w: ds.run(torch.add, x, w))(x, w)",
        "compiled(scoped)(x)",
        REFUSED,
    )
    for call in calls:
        run_program(program.replace("CALL", call), tmp_path)


REFUSED = """
ds.use(None)  # the only one there is, then; what cannot be done is refused in devshim's words
def chosen(x):
    with ds.using("torch"):
        return x + 1
for fn in chosen, lambda x: x + ds.zeros(2):
    try:
        compiled(fn)(x)
    except ds.TracingError as error:
        assert "inside a function" in str(error) or "cannot know the default device" in str(error)
    else:
        raise AssertionError("it was compiled")
    assert torch.compile(fn, backend="eager")(x).shape == (2,)
"""


def test_proxies_of_torch_fx_are_refused():
    """A ``torch.fx`` proxy has no device; any answer would be invented."""
    with pytest.raises(ds.TracingError):
        torch.fx.symbolic_trace(lambda x: ds.place(x, "cpu"))


# ---------------------------------------------------------------- runtime


def test_queries_start_nothing_without_a_gpu(tmp_path):
    """``torch.cuda.synchronize`` and ``torch.accelerator.synchronize`` raise without a GPU, and start CUDA."""
    run_program(
        """
import torch, devshim as ds
ds.use("torch")
ds.synchronize()
ds.empty_cache()
assert ds.device_count() == 0
assert ds.try_all_gpus() == [ds.cpu()]
assert ds.device(torch.device("cuda")) is ds.gpu(0)
assert ds.memory("cpu").total > 0
assert not torch.cuda.is_initialized()
""",
        tmp_path,
        CUDA_VISIBLE_DEVICES="",
    )


def test_a_full_host_is_out_of_memory():
    """On the host PyTorch raises a plain RuntimeError."""
    with pytest.raises(ds.OutOfMemoryError):
        ds.empty(2**50)


# ---------------------------------------------------------------- a real GPU: pytest -m gpu

CARD = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() == 0, reason="hardware: no CUDA or ROCm card")]


class TestOnACard:
    pytestmark = CARD

    def test_there_and_back(self):
        """Values, gradients and identity are right, on a GPU that is named with its index."""
        leaf = torch.randn(5, 7, requires_grad=True)
        there = ds.place(leaf, "gpu:0")
        assert there.device == torch.device("cuda", 0)
        assert ds.device_of(there) is ds.gpu(0)
        assert ds.place(there, "cuda") is there
        back = ds.place(there, "cpu", non_blocking=True)
        assert torch.equal(back, leaf)
        back.sum().backward()
        assert torch.equal(leaf.grad, torch.ones(5, 7))

    def test_a_copy_on_the_card_is_new_memory(self):
        """``x.to(device)`` of a tensor that is already there is ``x`` itself."""
        x = torch.ones(3, device="cuda:0")
        ds.copy(x, "gpu:0").zero_()
        assert x.tolist() == [1.0, 1.0, 1.0]

    def test_overlapping_copies(self):
        """From pinned memory a copy to the GPU may still be running on return; a copy to the host may not."""
        x = torch.randn(1 << 22, pin_memory=True)
        there = ds.place(x, "gpu:0", non_blocking=True)
        ds.synchronize("gpu:0")
        assert torch.equal(there.cpu(), x)
        assert torch.equal(ds.place(there * 2, "cpu", non_blocking=True), x * 2)

    def test_numpy(self):
        """Every layout, and a read-only array, arrives without a warning and without sharing."""
        frozen = np.broadcast_to(np.arange(3.0), (2, 3))
        for array in (frozen, np.arange(6.0)[::-2], np.arange(6.0).reshape(2, 3).T, np.array(2.0), np.zeros((0, 3))):
            x = ds.from_numpy(array, "gpu:0")
            assert ds.device_of(x) is ds.gpu(0)
            np.testing.assert_array_equal(ds.to_numpy(x), array)

    def test_a_scope_sets_the_current_card_and_restores_it(self):
        """``with torch.device`` does not set the current GPU, so ``"cuda"`` without an index could be another one."""
        last = torch.cuda.device_count() - 1
        before = torch.cuda.current_device()
        with ds.on(ds.gpu(last)):
            assert torch.zeros(1).device.index == last
            assert torch.zeros(1, device="cuda").device.index == last
            assert torch.cuda.current_device() == last
        assert torch.cuda.current_device() == before
        assert torch.zeros(1).device.type == "cpu"

    @COMPILERS
    def test_compiled(self, compiled, compiler):
        """All four calls work in one graph, on the GPU."""

        def fn(x):
            y = ds.place(x, "gpu:0")
            with ds.on(ds.device_of(y)):
                z = torch.ones(3)
            return ds.run(torch.add, y, z)

        assert compiled(fn, compiler)(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]

    def test_dlpack_from_a_card_that_is_not_current(self):
        """PyTorch refuses to export from any GPU but the current one."""
        from devshim.registry.registry import load

        backend = load("torch")
        x = torch.arange(3.0, device=f"cuda:{torch.cuda.device_count() - 1}")
        shared = backend.from_dlpack(backend.to_dlpack(x))
        shared[0] = 9
        assert x[0] == 9
        assert ds.device_of(shared) is ds.device_of(x)

    def test_what_a_card_is_and_holds(self):
        """Byte counts are of this process's tensors; the UUID is spelled as NVML spells it."""
        info = ds.describe("gpu:0")
        assert info.name
        assert info.total_memory
        assert not info.simulated
        before = ds.memory("gpu:0").used
        kept = ds.zeros(1 << 20, device="gpu:0")
        seen = ds.memory("gpu:0")
        assert seen.used - before == kept.nbytes
        assert seen.peak >= seen.used
        assert seen.used + seen.free <= seen.total
        with pytest.raises(ds.OutOfMemoryError):
            ds.empty(1 << 50, device="gpu:0")

    def test_one_seed_for_all(self):
        """The GPU has its own generator."""
        draws = []
        for _ in range(2):
            ds.random.seed(3)
            draws.append((ds.random.normal(size=4), ds.random.normal(size=4, device="gpu:0").cpu()))
        assert torch.equal(draws[0][0], draws[1][0])
        assert torch.equal(draws[0][1], draws[1][1])

    def test_choosing_cards_after_the_driver_has_read_its_environment(self, tmp_path):
        """``torch.cuda.is_available`` initializes the driver, and from then on CUDA_VISIBLE_DEVICES is ignored."""
        run_program(
            """
import torch, devshim as ds
ds.use("torch")
assert ds.device_count() > 0
from devshim.registry.registry import load
assert not load("torch").started()
torch.cuda.is_available()
assert load("torch").started()
""",
            tmp_path,
        )


# ---------------------------------------------------------------- simulated GPUs


def test_simulated_gpus_are_named_sim(tmp_path):
    """``gpu:i`` is ``sim:i`` in both directions, then ``cuda:i`` again, and nothing is registered before."""
    run_program(
        """
import sys, torch, devshim as ds
ds.use("torch")
assert ds.gpu(1).native() == torch.device("cuda", 1)
ds.simulate(0)
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
loaded = {name for name in sys.modules if name.startswith("devshim_backends._torch.simulation.")}
assert loaded == {"devshim_backends._torch.simulation.simulate"}, loaded
with ds.simulate(2):
    assert ds.gpu(1).native() == torch.device("sim", 1)
    assert ds.device(torch.device("sim:1")) is ds.device("cuda:1") is ds.gpu(1)
    torch.sim.set_device(1)
    assert ds.device(torch.device("sim")) is ds.gpu(1)
    left = ds.zeros(3, device="gpu:1")
    with ds.on("gpu:0"):
        assert torch.zeros(1).device == torch.zeros(1, device="sim").device == torch.device("sim:0")
assert ds.gpu(1).native() == torch.device("cuda", 1)
assert ds.device_count() == 0 and not torch.accelerator.is_available()
assert torch.accelerator.current_accelerator() is None or torch.version.cuda
try:
    left + 1
except ds.SimulationError as error:
    assert "gpu:1 was removed at " in str(error) and "ds.simulate" in str(error)
else:
    raise AssertionError("an operator on a card that is gone")
""",
        tmp_path,
    )


def test_a_compiled_function_sees_changes_of_simulation(tmp_path):
    """A compiled function contains the devices that existed when it was compiled."""
    run_program(
        """
import torch, devshim as ds
ds.use("torch")
fn = torch.compile(lambda x: ds.place(x, ds.try_gpu()), backend="eager", fullgraph=True)
assert fn(torch.ones(2)).device.type == "cpu"
with ds.simulate(2):
    assert fn(torch.ones(2)).device.type == "sim"
assert fn(torch.ones(2)).device.type == "cpu"
""",
        tmp_path,
    )


def test_another_custom_device_prevents_simulation(tmp_path):
    """PyTorch lets a process register one custom device: with torch_npu, simulated GPUs are impossible."""
    run_program(
        """
import torch, devshim as ds
torch.utils.rename_privateuse1_backend("npu")
ds.use("torch")
try:
    ds.simulate(2)
except ds.SimulationError as error:
    assert "npu" in str(error) and error.hint
else:
    raise AssertionError("two devices of one's own")
assert ds.device_count() == 0
assert ds.place(torch.ones(2), "cpu").sum() == 2
""",
        tmp_path,
    )


def test_a_pytorch_that_is_too_old(tmp_path):
    """Before 2.10 a device cannot be made in Python."""
    run_program(
        """
import torch, devshim as ds
del torch.utils.backend_registration._setup_privateuseone_for_python_backend
ds.use("torch")
try:
    ds.simulate(2)
except ds.SimulationError as error:
    assert torch.__version__ in str(error) and "2.10" in str(error)
else:
    raise AssertionError("nothing to simulate with")
assert torch._C._get_privateuse1_backend_name() == "privateuseone" and ds.device_count() == 0
""",
        tmp_path,
    )


def test_a_full_gpu_raises_devshims_and_pytorchs_error(tmp_path):
    """``except torch.OutOfMemoryError`` catches it as ``except ds.OutOfMemoryError`` does, in PyTorch's own calls."""
    run_program(
        """
import torch, devshim as ds
ds.use("torch")
ds.simulate(2, memory="1MiB")
x = torch.ones(2**17, device="sim:1")
host = torch.ones(2**18)
for call in (lambda: torch.cat([x, x, x]), lambda: host.to("sim:1"), lambda: torch.empty(2**18, device="sim:1")):
    try:
        call()
    except torch.OutOfMemoryError as error:
        assert isinstance(error, ds.OutOfMemoryError) and "gpu:1 is out of memory" in str(error)
    else:
        raise AssertionError("it fitted")
assert torch.sim.get_device_properties(1).total_memory == 2**20
assert torch.sim.mem_get_info(1) == (2**19, 2**20)
""",
        tmp_path,
    )


def test_a_forked_process_continues(tmp_path):
    """CUDA's memory cannot be used after a fork; a simulated GPU's is the host's, and no engine thread is lost."""
    run_program(
        """
import os, torch, devshim as ds
ds.use("torch"); ds.simulate(2)
x = torch.ones(3, device="sim:1", requires_grad=True)
(x * 2).sum().backward()
child = os.fork()
if child == 0:
    try:
        y = torch.ones(3, device="sim:0", requires_grad=True)
        (y * x.detach().to("sim:0")).sum().backward()
        os._exit(0 if y.grad.tolist() == [1.0, 1.0, 1.0] else 1)
    except BaseException:
        os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
        tmp_path,
    )


def test_pytorch_is_unchanged_after_simulation(tmp_path):
    """Every function and class is restored; this test and the documentation list the exceptions."""
    run_program(
        """
import sys, torch, devshim as ds
import torch._dynamo  # which replaces torch.manual_seed by itself, when an optimizer is first made
import torch.nn.parallel.comm
ds.use("torch")
ds.zeros(2)
owners = [torch, torch._C, torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.storage._StorageBase,
          torch.nn.parallel.comm, torch.accelerator, torch.autograd, torch.autograd.graph, torch.autograd.Variable,
          torch.serialization, torch.optim.Optimizer, sys.modules["torch.optim.optimizer"], torch.random,
          torch.nn.utils.rnn.PackedSequence, torch.nn.parameter.UninitializedTensorMixin, torch.amp, torch.utils]
before = [dict(vars(owner)) for owner in owners]
for _ in range(2):
    ds.simulate(3)
    torch.sim.set_device(1)
    model = torch.nn.Linear(2, 2).to("sim")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.tensor([[1.0, 2.0]], device="sim")).sum().backward()
    optimizer.step()
    model.cpu()
    del optimizer  # its state is on the GPU, whose use is refused for as long as it lives
    ds.simulate(0)
changed, new = set(), set()
for owner, was in zip(owners, before):
    for name, value in vars(owner).items():
        if name not in was:
            new.add(name)
        elif value is not was[name] and callable(value):
            changed.add(name)
    assert set(was) <= set(vars(owner)), owner
assert changed == {"_accelerator_getAccelerator", "_get_accelerator"}, changed
assert torch._C._get_accelerator() == torch.device("cpu") or torch.version.cuda
assert not {name for name in new if not name.startswith("_")}, new
assert "torch.sim" not in sys.modules
assert "__new__" in vars(torch.UntypedStorage)
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.to("cpu") is x and not x.is_pinned() and isinstance(torch.Generator(), torch.Generator)
assert torch.accelerator.current_accelerator() is None or torch.version.cuda
""",
        tmp_path,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_number_above_the_largest_float_is_infinity(dtype: str) -> None:
    """Trap: torch.full raises a RuntimeError where torch.tensor and other frameworks give infinity."""
    for value in (1e39, -1e39):
        assert ds.to_numpy(ds.full(2, value, dtype=dtype).float()).tolist() == [np.copysign(np.inf, value)] * 2


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_are_not_split(layout):
    x = torch.eye(2).to_sparse(layout=layout)
    with pytest.raises(ds.UnsupportedError, match="cannot split a tensor of layout sparse"):
        ds.split([x], ["cpu", "cpu"])


# ---------------------------------------------------------------- elements that share memory
@pytest.mark.parametrize("compiler", [None, "eager", "aot_eager"])
def test_the_gradient_of_a_sum_can_be_written(compiled, compiler):
    """PyTorch expands one number to the shape of the tensor, and refuses to write such a gradient."""

    def gradient(x):
        return ds.value_and_grad(lambda x: x.T.sum())(x)[1]

    grad = (compiled(gradient, compiler) if compiler else gradient)(torch.zeros(2, 3))
    assert grad.add_(1).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("strides", [(0, 0), (0, 1), (1, 1)])
def test_all_reduce_refuses_shared_elements_before_it_writes(strides):
    """PyTorch refuses the first two when they are written; in the last one, the value written last would remain."""
    shared = torch.ones(6).as_strided((2, 3), strides)
    trees = [{"a": torch.ones(3), "b": torch.ones(2, 3)}, {"a": torch.ones(3), "b": shared}]
    with pytest.raises(ds.ArgumentError, match=r"elements of tensor 1 at \['b'\] share memory"):
        ds.all_reduce_(trees)
    assert [tree["a"].tolist() for tree in trees] == [[1.0] * 3] * 2
    assert ds.all_reduce_([torch.ones(2, 3).T, torch.ones(3, 2)])[0].tolist() == [[2.0] * 2] * 3

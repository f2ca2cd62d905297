"""Tests of PyTorch's own names for cards on simulated GPUs: what the kit and the scripts do not show."""

from __future__ import annotations

import copy
import ctypes
import functools
import importlib
import inspect
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from devshim_backends._torch.capabilities import NOT_SIMULATED
from simulated_torch import two_cards
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

import devshim as ds

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("Sparse invariant checks", "Sparse CSR tensor support", "torch.range is deprecated")
]


@pytest.fixture
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards."""
    with two_cards():
        try:
            yield
        finally:
            torch.set_default_device(None)


CREATIONS = [
    "torch.zeros(3, device=D)",
    "torch.empty(3, device=D)",
    "torch.full((2,), 1.5, device=D)",
    "torch.tensor([1.0], device=D)",
    "torch.as_tensor([1.0], device=D)",
    "torch.asarray([1.0], device=D)",
    "torch.arange(3, device=D)",
    "torch.linspace(0, 1, 3, device=D)",
    "torch.eye(2, device=D)",
    "torch.rand(3, device=D)",
    "torch.randn(3, device=D)",
    "torch.randint(0, 5, (3,), device=D)",
    "torch.randperm(3, device=D)",
    "torch.normal(0.0, 1.0, (3,), device=D)",
    "torch.tril_indices(3, 3, device=D)",
    "torch.hann_window(4, device=D)",
    "torch.fft.fftfreq(4, device=D)",
    "torch.empty_strided((2, 2), (1, 2), device=D)",
    "torch.zeros(3, device=D, out=torch.empty(3, device=D))",
    "torch.arange(3, device=D, out=torch.empty(0, dtype=torch.int64, device=D))",
    "torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=D)",
    "torch.range(0, 2, device=D)",
    "torch.kaiser_window(3, device=D)",
    "torch.kaiser_window(3, False, device=D)",
    "torch.kaiser_window(3, True, 10.0, device=D)",
    "torch.ones(3).new_zeros(2, device=D)",
    "torch.ones(3).new_tensor([1.0], device=D)",
    "torch.zeros_like(torch.ones(3), device=D)",
    "torch.ones(3).to(D)",
    "torch.ones(3).to(device=D, dtype=torch.float64)",
    "torch.ones(3, dtype=torch.bfloat16).to(D, torch.float16, non_blocking=True)",
    "torch.ones(3).cuda(D)",
    "torch.ones(()).to(D)",
    "torch.ones(0, 3).to(D)",
    "nn.Linear(2, 2, device=D).weight",
    "nn.Linear(2, 2).to(D).weight.data",
    "nn.LSTM(2, 2).cuda(D).weight_ih_l0",
    "torch.rand(3, device=D, generator=torch.Generator(D))",
    "torch.cuda.Stream(D)",
]


@pytest.mark.parametrize("index", [None, 0, 1], ids=["cuda", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("kind", [str, torch.device], ids=["text", "device"])
@pytest.mark.parametrize("creation", CREATIONS)
@pytest.mark.usefixtures("cards")
def test_a_device_means_its_card_in_every_call(creation: str, kind: Any, index: int | None) -> None:
    with torch.cuda.device(1):  # "cuda" is the current one
        name = kind("cuda" if index is None else f"cuda:{index}")
        made = eval(creation, {"torch": torch, "nn": nn, "D": name})
    assert made.device == torch.device("cuda", 1 if index is None else index)
    if isinstance(made, torch.Tensor):
        assert made.is_cuda
        assert ds.device_of(made) is ds.gpu(1 if index is None else index)


@pytest.mark.parametrize("creation", [each for each in CREATIONS if "LSTM" not in each and "Linear" not in each])
@pytest.mark.usefixtures("cards")
def test_a_missing_card_is_refused_in_every_call(creation: str) -> None:
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid device ordinal\ncuda:7 does not exist"):
        eval(creation, {"torch": torch, "nn": nn, "D": "cuda:7"})


@pytest.mark.usefixtures("cards")
def test_a_device_made_of_a_number_is_a_card() -> None:
    for number in (1, np.int64(1)):
        made = torch.device(number)
        assert (made, repr(made), made.type) == (torch.device("cuda:1"), "device(type='cuda', index=1)", "cuda")
    assert torch.ones(2, device=torch.device(1)).device == copy.deepcopy(torch.device(1)) == torch.device("cuda", 1)
    with torch.device(1):
        assert torch.ones(2).device == torch.device(device="cuda:1")
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid device ordinal\ncuda:7 does not exist"):
        torch.ones(2, device=torch.device(7))


WRONG_DEVICES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((-1,), {}),
    ((1.5,), {}),
    ((1, 2), {}),
    (("cuda:x",), {}),
    (("wrong",), {}),
    ((), {"a": 1}),
]


@pytest.mark.parametrize(("args", "kwargs"), WRONG_DEVICES)
def test_what_is_no_device_raises_pytorchs_own_error(args: Any, kwargs: Any) -> None:
    with ds.using("torch"), ds.simulate(2), pytest.raises((TypeError, RuntimeError)) as before:
        torch.device(*args, **kwargs)
    with ds.using("torch"), ds.simulate(2, native_names=True), pytest.raises(before.type) as during:
        torch.device(*args, **kwargs)
    assert str(during.value) == str(before.value).replace(", sim device type", ", privateuseone device type")


def test_the_constructor_of_devices_is_restored() -> None:
    def constructor() -> tuple[object, int]:
        get = ctypes.pythonapi.PyType_GetSlot
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
        return vars(torch.device)["__new__"], get(torch.device, 65)

    before = constructor()
    with ds.using("torch"), ds.simulate(2):
        shown = repr(torch.device(0))
        with ds.simulate(2, native_names=True):
            assert torch.device(0).type == "cuda"
            assert constructor() != before
        assert constructor() == before
        assert repr(torch.device(0)) == shown


@pytest.mark.usefixtures("cards")
def test_functions_imported_before_reach_the_card() -> None:
    zeros, to, cuda = torch._C._VariableFunctions.zeros, torch._C.TensorBase.to, torch.Tensor.cuda
    assert zeros(3, device="cuda:1").device == to(torch.ones(3), "cuda:1").device == cuda(torch.ones(3), 1).device


@pytest.mark.usefixtures("cards")
def test_a_tensor_already_there_is_not_copied() -> None:
    x = torch.ones(3, device="cuda:1")
    assert x.to("cuda:1") is x.cuda(1) is x.to(torch.device("cuda", 1)) is x.to(x.device) is x.to(x)
    assert torch.as_tensor(x, device="cuda:1") is x
    assert ds.place(x, "cuda:1") is x
    assert ds.gpu(1).native() == x.device


@pytest.mark.usefixtures("cards")
def test_no_name_of_the_simulation_is_shown() -> None:
    x = torch.ones(2, device="cuda:1")
    shown = [x, x.device, x.type(), x.untyped_storage().device, torch.accelerator.current_accelerator()]
    shown += [torch.Generator("cuda").device, torch.cuda.current_stream(), torch.Stream("cuda:1").device]
    shown += [
        torch.get_device_module("cuda"),
        torch._C._get_accelerator(),
        nn.Parameter(x),
        torch.empty(0, device="cuda"),
    ]
    assert not [each for each in shown if "sim" in repr(each)]
    for call in (lambda: x.numpy(), lambda: x + torch.ones(2), lambda: x + x.cuda(0), lambda: x.cuda(9)):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            call()
        assert "sim:" not in str(caught.value)
        assert "cuda:" in str(caught.value)


def _assign_gradient() -> None:
    nn.Parameter(torch.ones(2, device="cuda:1")).grad = torch.ones(2)


FROM_CPP = {
    "block_diag": (lambda: torch.block_diag(torch.ones(1, 1, device="cuda:1"), torch.ones(1, 1)), "cuda:1"),
    "lstm": (lambda: nn.LSTM(2, 3).cuda(1)(torch.ones(1, 1, 2)), "cuda:1"),
    "a gradient": (_assign_gradient, "device type 'cuda'"),
    "a generator": (lambda: torch.rand(2, generator=torch.Generator("cuda:1")), "found 'cuda'"),
    "a storage": (lambda: torch.ones(2).set_(torch.ones(2, device="cuda:1").untyped_storage()), "cuda:1"),
    "a convolution": (lambda: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2, device="cuda:1")), "torch.cuda.FloatTensor"),
    "an image": (lambda: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2)), "Expected all tensors to be on the same"),
    "an image in groups": (lambda: nn.Conv2d(2, 2, 2, groups=2).cuda()(torch.ones(1, 2, 2, 2)), "be a MKLDNN tensor"),
    "an image of another shape": (lambda: nn.Conv2d(3, 2, 2).cuda()(torch.ones(1, 2, 2, 2)), "to have 3 channels"),
    "images": (lambda: nn.Conv2d(1, 1, 2).cuda()(torch.ones(2, 1, 2, 2)), "same or input should be a MKLDNN tensor"),
    "a result": (lambda: torch.zeros(2, out=torch.ones(2, device="cuda:1"), device="cpu"), "out parameter (cuda)"),
    "an argument": (lambda: torch.ones(2, device="cuda:1").__setitem__(0, "a"), "torch.cuda.FloatTensor"),
    "a mask": (lambda: torch.ones(2, device="cuda:1").masked_fill_(torch.ones(2) > 0, 0), "mask on cpu and self on"),
}


@pytest.mark.parametrize("form", FROM_CPP)
@pytest.mark.usefixtures("cards")
def test_errors_of_cpp_name_the_card(form: str) -> None:
    call, text = FROM_CPP[form]
    with pytest.raises((RuntimeError, TypeError), match=re.escape(text)) as caught:
        call()
    assert not re.search(r"\bsim\b", str(caught.value))


def test_errors_of_python_keep_their_texts_and_the_class_is_restored() -> None:
    before = dict(vars(RuntimeError)), dict(vars(NotImplementedError))
    with ds.simulate(2, native_names=True):
        assert str(RuntimeError("the sim failed: 'sim', my.sim:0, sim: 3")) == "the sim failed: 'sim', my.sim:0, sim: 3"
        assert RuntimeError("a", "sim:0").args == ("a", "sim:0")
        assert RuntimeError("on sim:0").args == ("on cuda:0",)
        assert issubclass(RecursionError, RuntimeError)
    assert (dict(vars(RuntimeError)), dict(vars(NotImplementedError))) == before
    assert str(RuntimeError("on sim:0")) == "on sim:0"


@pytest.mark.usefixtures("cards")
def test_priorities_of_streams_are_those_of_a_card() -> None:
    assert [torch.cuda.Stream(priority=number).priority for number in (0, -1, -9)] == [0, -1, -3]
    with pytest.raises(RuntimeError, match="Expected cuda stream priority to be less than or equal to 0, got 1"):
        torch.cuda.Stream(priority=1)
    assert isinstance(torch.cuda.Stream(), torch._C._CudaStreamBase)
    assert isinstance(torch.cuda.Event(), torch._C._CudaEventBase)


@pytest.mark.parametrize("call", ["memory_allocated", "memory_stats", "reset_peak_memory_stats", "memory_reserved"])
@pytest.mark.usefixtures("cards")
def test_the_allocator_refuses_a_card_that_does_not_exist(call: str) -> None:
    torch.cuda.init()  # before, PyTorch answers without asking the allocator
    with pytest.raises(ds.SimulationError, match="Invalid device argument 7: did you call init"):
        getattr(torch.cuda, call)(7)


@pytest.mark.usefixtures("cards")
def test_the_legacy_types_are_those_of_a_card() -> None:
    x = torch.cuda.FloatTensor([1, 2])
    assert x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert torch.ones(2).type("torch.cuda.DoubleTensor").dtype is torch.float64
    assert torch.ones(2).type(torch.cuda.LongTensor).is_cuda
    assert x.type(torch.FloatTensor).device == torch.device("cpu")
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)


@pytest.mark.usefixtures("cards")
def test_a_new_thread_has_its_own_current_card() -> None:
    found: list[Any] = []
    torch.cuda.set_device(1)
    try:
        thread = threading.Thread(
            target=lambda: found.append((torch.cuda.current_device(), torch.ones(1).cuda().device))
        )
        thread.start()
        thread.join()
    finally:
        torch.cuda.set_device(0)
    assert found == [(0, torch.device("cuda", 0))]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("fullgraph", [True, False])
def test_compiled_functions_run_on_cards(fullgraph: bool) -> None:
    def function(x: Any, weight: Any) -> Any:
        y = (x @ weight).relu() + torch.ones(3, device="cuda:1") + torch.arange(3, device=x.device)
        return y.to("cuda:0") if x.is_cuda and x.device.type == "cuda" else y

    weight = torch.ones(3, 3, device="cuda:1", requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=fullgraph)
    result = compiled(torch.ones(2, 3, device="cuda:1"), weight)
    assert result.device == torch.device("cuda", 0)
    assert result.tolist() == function(torch.ones(2, 3, device="cuda:1"), weight).tolist()
    result.sum().backward()
    assert weight.grad.device == weight.device


@pytest.mark.usefixtures("cards")
def test_the_default_compiler_says_that_it_does_not_compile() -> None:
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="runs eagerly"):
        compiled = torch.compile(lambda x: x * 2)
    assert compiled(torch.ones(2, device="cuda:1")).tolist() == [2, 2]


@pytest.mark.usefixtures("cards")
def test_another_thread_uses_cards_while_one_compiles() -> None:
    found: list[Any] = []

    def use() -> None:
        found.append(torch.ones(2).cuda(1).to("cuda:0").device)
        found.append(torch.tensor([1.0], device="cuda:1").new_tensor([2.0], device="cuda:0").device)

    def compile_beside_a_thread(graph: Any, inputs: Any) -> Any:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1, backend=compile_beside_a_thread)
    assert compiled(torch.ones(2, device="cuda:1")).tolist() == [2, 2]
    assert found == [torch.device("cuda:0")] * 2


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.usefixtures("cards")
def test_torchscript_compiles_calls_of_the_replaced_functions() -> None:
    def added(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor(1.0, device=x.device) + torch.as_tensor(2.0)

    result = torch.jit.script(added)(torch.ones(2, device="cuda:1"))
    assert result.tolist() == [4, 4]
    assert result.device == torch.device("cuda:1")


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")  # PyTorch 2.11 built with CUDA
@pytest.mark.usefixtures("cards")
def test_the_profiler_says_that_it_records_the_cpu() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with pytest.warns(UserWarning, match="times of the CPU"), torch.profiler.profile(activities=activities) as found:
        torch.ones(3, device="cuda:1") * 2
    assert "aten::mul" in {event.key for event in found.key_averages()}


@pytest.mark.usefixtures("cards")
def test_marks_for_nvtx_are_not_nested() -> None:
    marks = torch.autograd.profiler.emit_nvtx()
    with marks, pytest.raises(RuntimeError, match="not reentrant"):
        marks.__enter__()
    with torch.autograd.profiler.emit_nvtx(enabled=False) as disabled:
        assert disabled is None


@pytest.mark.usefixtures("cards")
def test_what_cannot_be_routed_names_the_line_to_write() -> None:
    x = torch.ones(2, device="cuda:1")
    for call in (
        torch.cuda.CUDAGraph,
        lambda: torch.cuda.graph(None),
        torch.cuda.temperature,
        torch.cuda.host_memory_stats,
        torch.cuda.memory._record_memory_history,
        lambda: torch.cuda.nccl.all_reduce([x]),
        lambda: torch.cuda.Event(interprocess=True),
        lambda: x.__cuda_array_interface__,
        lambda: torch.multiprocessing.reductions.reduce_tensor(x),
    ):
        with pytest.raises(ds.UnsupportedError, match="Hint: "):
            call()
    with pytest.raises(ds.UnsupportedError, match=rf"torch.cuda.CUDAGraph, which {re.escape(__file__)}:\d+ calls"):
        torch.cuda.CUDAGraph()


@pytest.mark.usefixtures("cards")
def test_a_process_may_use_a_fraction_of_the_memory() -> None:
    with ds.simulate(2, memory="4MiB", native_names=True):
        torch.cuda.set_per_process_memory_fraction(0.5, 1)
        assert [torch.cuda.get_per_process_memory_fraction(i) for i in (0, 1)] == [1.0, 0.5]
        assert torch.cuda.get_device_properties(1).total_memory == 4 << 20
        kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda:0")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(3 << 20, dtype=torch.uint8, device="cuda:1")
        torch.cuda.set_per_process_memory_fraction(1.0, 1)
        assert kept.to("cuda:1").device.index == 1
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(5 << 20, dtype=torch.uint8, device="cuda:1")


@pytest.mark.usefixtures("cards")
def test_extensions_with_cuda_sources_are_refused() -> None:
    pytest.importorskip("setuptools")
    from torch.utils import cpp_extension

    with pytest.raises(ds.UnsupportedError, match="Hint: build the sources for the CPU"):
        cpp_extension.CUDAExtension("x", ["x.cu"])
    with ds.simulate(2):
        assert cpp_extension._join_cuda_home.__module__ == "torch.utils.cpp_extension"


WRONG = re.compile(
    "not compiled with CUDA|has no attribute '_|dummy base class|not supported on this platform|no NVIDIA"
)
"""Texts of errors for features that a build without CUDA lacks."""
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("device", "device_a", "peer_device", "debug_mode", "range_id", "res", "code", "which"), 0),
    **dict.fromkeys(("fraction", "seed", "n", "size", "mem_ptr"), 1),
    **dict.fromkeys(("msg", "filename", "code_string", "kernel_source", "kernel_name", "filename_pattern"), "x"),
}
"""Name of a parameter -> a value for it; any other is None."""


def _public(module: Any) -> list[tuple[str, Any]]:
    """Return the public functions and classes of a module of ``torch.cuda``, without what it imports."""
    found = [(name, each) for name, each in vars(module).items() if not name.startswith("_") and callable(each)]
    own = ("torch", "devshim_backends")
    return [(name, each) for name, each in found if str(getattr(each, "__module__", "torch")).startswith(own)]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    "place",
    [
        *("", ".amp", ".gds", ".graphs", ".green_contexts", ".memory", ".nccl", ".nvtx", ".random", ".sparse"),
        *(".streams", ".tunable", ".profiler"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_name_of_torch_cuda_answers_or_is_refused(place: str) -> None:
    module = importlib.import_module(f"torch.cuda{place}")
    states = {"new_state": torch.cuda.get_rng_state(), "new_states": torch.cuda.get_rng_state_all()}
    wrong = []
    for name, each in _public(module):
        if name in ("seed", "seed_all"):
            continue
        try:
            known = inspect.signature(each).parameters.values()
        except (TypeError, ValueError):
            known = ()
        needed = [one for one in known if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD,)]
        try:
            each(*(states.get(one.name, ARGUMENTS.get(one.name)) for one in needed))
        except Exception as error:  # an argument may be of the wrong type
            if WRONG.search(str(error)) or (isinstance(error, ds.DevshimError) and error.hint is None):
                wrong.append(f"{name}: {error}")
    assert wrong == []
    assert _public(module)


@pytest.mark.usefixtures("cards")
def test_what_is_listed_beforehand_is_refused() -> None:
    for name in NOT_SIMULATED:
        if name.startswith(("torch.utils", "torch.cuda.jiterator", "torch.distributed.rpc")):
            continue  # refused with arguments only, or for others; they have their own tests
        found = functools.reduce(lambda owner, part: getattr(owner, part, None), name.split(".")[1:], torch)
        if found is not None:  # other versions of PyTorch have other names
            with pytest.raises(ds.UnsupportedError):
                found.fget(torch.ones(2, device="cuda")) if isinstance(found, property) else found()


@pytest.mark.usefixtures("cards")
def test_a_kernel_of_the_program_is_refused_when_it_is_called() -> None:
    """PyTorch's database of operators creates some when it is imported."""
    made = torch.cuda.jiterator
    for create in (made._create_jit_fn, functools.partial(made._create_multi_output_jit_fn, num_outputs=1)):
        kernel = create("template <typename T> T twice(T x) { return x + x; }")
        name = getattr(create, "func", create).__name__
        with pytest.raises(ds.UnsupportedError, match=rf"jiterator\.{name}, which .*\n\nHint: .* PyTorch operators"):
            kernel(torch.ones(2, device="cuda"))


@pytest.mark.usefixtures("cards")
def test_settings_of_cuda_libraries_can_be_asked_and_set() -> None:
    plans = torch.backends.cuda.cufft_plan_cache
    plans[1].max_size = 7
    assert (plans[1].max_size, plans[0].max_size, plans.size) == (7, 4095, 0)
    plans.clear()
    assert torch.cuda.nccl.version() > (2, 10)
    assert not torch.cuda.tunable.is_enabled()
    assert str(torch.cuda.CudaError(2)) == "out of memory (2)"


@pytest.mark.usefixtures("cards")
def test_new_tensors_can_be_pinned() -> None:
    for made in (
        torch.empty(3, pin_memory=True),
        torch.zeros(2, 3, dtype=torch.int64, pin_memory=True),
        torch.tensor([1.0], pin_memory=True),
        torch.ones(3, requires_grad=True, pin_memory=True),
        torch.ones_like(torch.empty(3), pin_memory=True),
        torch.ones(3, device="cuda:1").new_zeros(2, device="cpu", pin_memory=True),
        torch.ones(3, dtype=torch.int32).new_full((2,), 3, pin_memory=True),
        torch.empty(3).new_empty_strided((2, 2), (1, 2), pin_memory=True),
        torch.empty_permuted((2, 3), (1, 0), pin_memory=True),
        torch.hann_window(4, pin_memory=True),
        torch.tril_indices(2, 2, pin_memory=True),
    ):
        assert made.is_pinned()
        assert made.is_leaf
        assert made.cuda(1, non_blocking=True).device == torch.device("cuda", 1)
    assert torch.ones(3, requires_grad=True, pin_memory=True).requires_grad
    assert not torch.empty(3).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.empty(3, device="cuda", pin_memory=True)


@pytest.mark.usefixtures("cards")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torchscript_knows_the_functions_that_create_tensors() -> None:
    @torch.jit.script
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(3, device=x.device) + torch.ones_like(x) + torch.tensor([1.0], device=x.device)

    assert function(torch.ones(3, device="cuda:1")).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "use", ["x = torch.ones(1, device='cuda')", "torch.cuda.current_device()", "torch.cuda.set_device(1)"]
)
def test_cuda_is_initialized_from_its_first_use_on(use: str) -> None:
    with ds.simulate(2, native_names=True):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 2
        torch.cuda.manual_seed_all(2)
        torch.cuda.manual_seed(1)
        torch.ones(2).pin_memory()
        torch.cuda.empty_cache()
        assert not torch.cuda.is_initialized()
        assert torch.cuda.memory_stats() == {}
        exec(use, {"torch": torch})
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.is_initialized()
        assert "num_ooms" in torch.cuda.memory_stats()
        assert torch.cuda.initial_seed() == 2 - (
            torch.cuda.current_device() == 0
        )  # `manual_seed` seeds the current GPU


@pytest.mark.parametrize("reset", ["reset_peak_memory_stats", "reset_accumulated_memory_stats"])
def test_a_reset_of_the_peak_forgets_no_use_of_cuda(reset: str) -> None:
    with ds.simulate(2, native_names=True):
        torch.ones(1, device="cuda")
        getattr(torch.accelerator, reset)()
        assert torch.accelerator.max_memory_allocated() == 0
        assert torch.cuda.is_initialized()
    with ds.simulate(2, native_names=True):
        assert not torch.cuda.is_initialized()


@pytest.mark.usefixtures("cards")
def test_mixed_devices_name_the_line_of_a_cuda_program() -> None:
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cpu!") as caught:
        torch.ones(2, device="cuda:1") + torch.ones(2)
    assert caught.value.hint == 'move the others to it: x.to("cuda:1")'


def test_a_full_card_has_the_text_of_a_real_one() -> None:
    with ds.simulate(2, "1GiB", native_names=True):
        x = torch.ones(1 << 26, device="cuda:1")
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.ones(1 << 28, device="cuda:1")
        del x
        assert [torch.cuda.memory_stats(i)["num_ooms"] for i in (0, 1)] == [0, 1]
        assert "CUDA OOMs: 1 " in torch.cuda.memory_summary(1)
    assert isinstance(caught.value, ds.OutOfMemoryError)
    assert str(caught.value).startswith(
        "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 1 has a total capacity of 1024.00 MiB of which 768.00 "
    )
    assert "Including non-PyTorch memory, this process has 256.00 MiB memory in use. Of the " in str(caught.value)
    assert "256.00 MiB is allocated by PyTorch" in str(caught.value)
    assert "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF" in str(caught.value)
    assert "gpu:1 is out of memory: 1,073,741,824 bytes were requested" in str(caught.value)
    with ds.simulate(2, "1MiB"), pytest.raises(ds.OutOfMemoryError, match=r"^gpu:0 is out of memory"):
        torch.ones(1 << 28, device="sim:0")
    ours = ds.using("torch")
    with ours, ds.simulate(2, native_names=True), pytest.raises(ds.OutOfMemoryError, match=r"^cpu is out of memory"):
        ds.empty(2**50)


def test_a_program_that_limits_its_memory_is_told_how_much_it_may_use() -> None:
    with ds.simulate(1, "1GiB", native_names=True):
        x = torch.ones(1 << 26, device="cuda")
        torch.cuda.set_per_process_memory_fraction(0.5)
        assert torch.cuda.mem_get_info() == (768 << 20, 1 << 30)  # the limit is the program's, not the card's
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.ones(1 << 27, device="cuda")
        del x
    assert "of which 768.00 MiB is free." in str(caught.value)
    assert "256.00 MiB memory in use. 512.00 MiB allowed; Of the allocated memory 256.00 MiB is" in str(caught.value)


@pytest.mark.usefixtures("cards")
def test_the_drivers_for_linear_algebra_are_those_of_cuda() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 3, device="cuda"), torch.randn(4, 2, device="cuda")
    for driver in ("gesvd", "gesvdj", "gesvda", None):
        u, s, v = torch.linalg.svd(x, full_matrices=False, driver=driver)
        torch.testing.assert_close(u @ s.diag() @ v, x)
        torch.testing.assert_close(torch.linalg.svdvals(x, driver=driver, out=torch.empty(0, device="cuda")), s)
    with pytest.raises(RuntimeError, match=r"^torch.linalg.svd: unknown svd driver gels in svd_cusolver"):
        torch.linalg.svd(x, driver="gels")
    with pytest.raises(RuntimeError, match="only supported on CUDA inputs"):
        torch.linalg.svd(x.cpu(), driver="gesvd")
    for driver in ("gels", None):
        found = torch.linalg.lstsq(x, y, driver=driver)
        torch.testing.assert_close(found.solution, torch.linalg.pinv(x) @ y)
        assert found.rank.numel() == 0, "gels computes none"
    singular = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], device="cuda")
    batch = torch.stack([torch.eye(3, 2, device="cuda"), singular])
    for a in (singular, singular.mT, batch, batch.mT):
        with pytest.raises(torch.linalg.LinAlgError, match="does not have full rank") as caught:
            torch.linalg.lstsq(a, torch.ones(*a.shape[:-1], 1, device="cuda"))
        assert "Hint: CUDA has only the driver gels" in str(caught.value)
        pseudo_inverse = torch.linalg.pinv(a) @ torch.ones(*a.shape[:-1], 1, device="cuda")  # as the hint says
        assert pseudo_inverse.isfinite().all()
    for driver in ("gelsy", "gelsd", "gelss"):
        assert torch.linalg.lstsq(x.cpu(), y.cpu(), driver=driver).rank == 3
        with pytest.raises(RuntimeError, match=r"^torch.linalg.lstsq: `driver` other than `gels` is not supported"):
            torch.linalg.lstsq(x, y, driver=driver)


@pytest.mark.usefixtures("cards")
def test_an_operator_that_only_cuda_has_says_so() -> None:
    x = torch.ones(2, 4, dtype=torch.float16, device="cuda:1")
    with pytest.raises(
        NotImplementedError, match=r"aten::_mixed_dtypes_linear' on a simulated GPU: its weights are in"
    ):
        torch._mixed_dtypes_linear(x, x.char(), x[0])


class _Log(TorchDispatchMode):
    """Record the devices in the arguments of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (*args, *(kwargs or {}).values())
        self.devices += [each for each in given if isinstance(each, torch.device)]
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("cards")
def test_a_mode_of_the_dispatcher_sees_cards() -> None:
    host, card = torch.ones(2), torch.ones(2, device="cuda:1")
    with _Log() as log:
        moved = [host.to("cuda:1"), host.cuda(1), card.to(device="cuda:0"), card.to("cuda:1"), host.to("cpu")]
        moved += [card.to(host.device), torch.zeros(2, device="cuda:1"), host.to("cuda:1", torch.float64)]
    assert [str(each.device) for each in moved] == [*["cuda:1"] * 2, "cuda:0", "cuda:1", "cpu", "cpu", *["cuda:1"] * 2]
    assert moved[3] is card
    assert {each.type for each in log.devices} == {"cuda", "cpu"}


def test_a_tensor_of_a_card_that_was_taken_away_is_an_illegal_access() -> None:
    with ds.simulate(2, native_names=True):
        x = torch.ones(3, device="cuda:1")
    calls: list[Any] = [lambda x: x + 1, lambda x: x.cpu(), lambda x: x[0].item(), lambda x: x.add_(1)]
    for again in (lambda: ds.simulate(0), lambda: ds.simulate(1, native_names=True)):
        with again():
            for call in calls:
                with pytest.raises(torch.AcceleratorError, match="CUDA error: an illegal memory access") as caught:
                    call(x)
                assert isinstance(caught.value, ds.SimulationError)
                assert "was removed at" in str(caught.value)
                assert caught.value.hint is not None
    with ds.simulate(2, native_names=True):
        assert (x + 1).tolist() == [2, 2, 2]
        del x, caught


class _Wrapper(torch.Tensor):
    """A tensor without its own data, as many libraries define."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = [each.inner if isinstance(each, _Wrapper) else each for each in args]
        return _Wrapper(func(*inner, **(kwargs or {})))


@pytest.mark.usefixtures("cards")
def test_a_wrapper_of_a_tensor_on_a_card_has_gradients() -> None:
    x = _Wrapper(torch.ones(2, device="cuda:1")).requires_grad_()
    (x * 3).sum().backward()
    assert isinstance(x.grad, _Wrapper)
    assert (x.device, x.grad.device, x.grad.inner.device) == (torch.device("cuda", 1),) * 3
    assert x.grad.inner.tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.usefixtures("cards")
def test_jagged_tensors_train_on_a_card() -> None:
    parts, layer = [torch.ones(2, 3), torch.ones(4, 3)], nn.Linear(3, 1).cuda(1)
    jagged = torch.nested.nested_tensor(parts, device="cuda:1", layout=torch.jagged)
    layer(jagged).values().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[6, 6, 6]]
    assert [each.device for each in jagged.unbind()] == [torch.device("cuda", 1)] * 2


@pytest.mark.usefixtures("cards")
def test_the_memory_of_a_storage_is_freed_and_allocated_again() -> None:
    x = torch.ones(1024, device="cuda:1")
    storage, part = x.untyped_storage(), x[:2]
    before = torch.cuda.memory_allocated(1)
    assert storage.resize_(4096) is storage
    assert storage.resize_(0).nbytes() == storage.size() == len(storage) == 0
    assert torch.cuda.memory_allocated(1) == before - 4096
    assert part.isnan().all()  # its values are gone, as on a real GPU
    with pytest.raises(ds.UnsupportedError, match="same size"):
        storage.resize_(8192)
    storage.resize_(4096)
    assert storage.nbytes() == 4096
    assert torch.cuda.memory_allocated(1) == before
    torch.cuda.reset_peak_memory_stats(1)
    assert x.fill_(2.0).sum().item() == 2048
    del x, part, storage
    assert torch.cuda.memory_allocated(1) == before - 4096


def test_a_full_card_refuses_to_allocate_the_memory_of_a_storage_again() -> None:
    with ds.simulate(1, memory="1MiB", native_names=True):
        storage = torch.ones(1 << 18, device="cuda").untyped_storage().resize_(0)
        other = torch.ones(1 << 10, device="cuda")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            storage.resize_(1 << 20)
        assert storage.nbytes() == 0
        del other
        assert storage.resize_(1 << 20).nbytes() == 1 << 20


@pytest.mark.usefixtures("cards")
def test_bytes_that_are_allocated_again_never_count_twice() -> None:
    storage, seen = torch.ones(1024, device="cuda:1").untyped_storage(), []
    before = torch.cuda.memory_allocated(1)
    storage.resize_(0)

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not torch.UntypedStorage.resize_.__code__:
            return None
        seen.append(torch.cuda.memory_allocated(1))  # what another thread would see before this line
        return look

    traced = sys.gettrace()
    sys.settrace(look)
    try:
        storage.resize_(4096)
    finally:
        sys.settrace(traced)
    assert set(seen) == {before - 4096, before}


@pytest.mark.usefixtures("cards")
def test_the_size_of_a_storage_may_be_symbolic() -> None:
    shapes = ShapeEnv()
    storage = FakeTensorMode(shape_env=shapes).from_tensor(torch.ones(5, 7)).untyped_storage()
    assert isinstance(storage.nbytes(), torch.SymInt)
    assert isinstance(storage.size(), torch.SymInt)
    assert not shapes.guards  # so that compiled code is not for one size only
    assert len(torch.ones(5, 7).untyped_storage()) == 140


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("trainable", [True, False])
def test_data_of_another_shape_leaves_the_gradient(trainable: bool) -> None:
    x = torch.ones(2, device="cuda:1", requires_grad=True)
    x.sum().backward()
    x.requires_grad_(trainable)
    x.data = torch.zeros(5)
    assert (x.device.type, x.shape) == ("cpu", (5,))
    assert x.grad is not None
    assert (x.grad.shape, x.grad.tolist(), x.is_leaf, x.requires_grad) == ((2,), [1, 1], True, trainable)


@pytest.mark.usefixtures("cards")
def test_the_ledger_and_memory_of_devshim_see_native_calls() -> None:
    x = torch.ones(1024, device="cuda:1")
    assert (ds.memory("gpu:1").used or 0) >= 4096 == torch.cuda.memory_allocated(1)
    with ds.transfers() as log:
        ds.place(x, "cuda:0")
    assert log.total_bytes == 4096
    with ds.explain(file=None) as lines:
        ds.place(x, "gpu:0")
    assert [str(line) for line in lines] == ['x.to("cuda:0")']
    with pytest.raises(ds.TransferError), ds.guard("error"):
        x.sum().item()
    del x


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_the_default_type_of_the_host_takes_back_that_of_a_card(cards) -> None:
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.ones(1).is_cuda
    made = torch.Tensor([1, 2]), torch.Tensor(2, 3), torch.Tensor(), torch.nn.Parameter(torch.Tensor(2))
    assert [x.type() for x in made] == ["torch.cuda.FloatTensor"] * 4
    assert torch.Tensor(np.ones(2, np.float32)).type() == "torch.cuda.FloatTensor"
    host = torch.FloatTensor([1]), torch.Tensor([1.0], device="cpu")
    assert [x.type() for x in host] == ["torch.FloatTensor"] * 2
    torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    assert torch.Tensor([1.0]).dtype == torch.float64
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.ones(1).is_cuda
    assert not torch.Tensor([1, 2]).is_cuda
    torch.set_default_device("cuda:1")
    torch.set_default_tensor_type(torch.FloatTensor)  # a default device that the program has set stays
    assert torch.ones(1).device == torch.device("cuda:1")


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_of_integers_is_refused_and_changes_nothing(cards) -> None:
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    for integers in ("torch.cuda.LongTensor", torch.cuda.LongTensor, torch.LongTensor):
        with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
            torch.set_default_tensor_type(integers)
    assert torch.ones(1).type() == torch.Tensor([1.0]).type() == "torch.cuda.DoubleTensor"
    assert torch.get_default_dtype() is torch.float64
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.ones(1).type() == "torch.FloatTensor"


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type", "ignore:TypedStorage is deprecated")
def test_a_tensor_of_a_storage_shares_it_also_where_a_card_is_the_default(cards) -> None:
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    try:
        x = torch.ones(2, device="cpu")
        for storage in (x.storage(), x.untyped_storage()):
            made = torch.Tensor(storage)
            assert made.type() == "torch.FloatTensor"
            assert made.data_ptr() == x.data_ptr()
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")


def test_afterwards_pytorch_answers_as_before() -> None:
    ds.use("torch")
    try:
        with ds.simulate(1):
            pass  # PyTorch gets a device "sim" for the life of the process
        before = sorted(vars(torch.cuda)), sorted(vars(torch._C)), torch.version.cuda, dict(torch.Tensor.__dict__)
        with ds.simulate(2, native_names=True):
            torch.set_default_device("cuda:1")
            torch.ones(1)
            torch.autocast("cuda").__enter__()
        assert before == (
            sorted(vars(torch.cuda)),
            sorted(vars(torch._C)),
            torch.version.cuda,
            dict(torch.Tensor.__dict__),
        )
        assert torch.ones(1).device == torch.device("cpu")
        assert not torch.is_autocast_enabled("cuda")
        assert not torch.cuda.is_available()
        for call in (lambda: torch.ones(1, device="cuda:0"), lambda: torch.empty(1, device="cuda"), torch.ones(1).cuda):
            with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|cuda|NVIDIA driver"):
                call()
    finally:
        ds.use(None)


def test_afterwards_pytorch_asks_again_whether_cuda_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a call that reached a card: then PyTorch's C++ itself would never ask again."""
    ds.use("torch")
    try:
        with ds.simulate(2, native_names=True):
            torch.zeros(1, device="cuda:1")
    finally:
        ds.use(None)

    def answer() -> None:
        msg = "the driver is too old"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(torch.cuda, "_lazy_init", answer)
    own = pytest.raises(ZeroDivisionError, match="too old")  # a build for CUDA asks the driver without Python
    with own if torch.version.cuda is None else pytest.raises(RuntimeError, match=r"NVIDIA driver|No CUDA GPUs"):
        torch.zeros(1, device="cuda:1")


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    code = (
        "import devshim as ds, sys; ds.use('torch'); ds.simulate(2); ds.ones(1, device='gpu:1'); "
        "print([name for name in sys.modules if 'simulation.native_names' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "[]\n"


@pytest.mark.usefixtures("cards")
def test_the_names_stay_when_the_number_of_cards_changes() -> None:
    with ds.simulate(3, native_names=True):
        assert torch.ones(1, device="cuda:2").device == ds.gpu(2).native()
        assert len(torch.cuda.default_generators) == 3
        x = ds.ones(2, device="gpu:2")
        assert ds.place(x, "cuda:2") is x
    with pytest.raises(RuntimeError, match="was removed"):
        x + 1
    assert torch.cuda.device_count() == len(torch.cuda.default_generators) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.usefixtures("cards")
def test_a_script_knows_the_functions_that_create_tensors() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2, device=x.device) + torch.tensor([1.0, 2.0], device=x.device)

    result = torch.jit.script(function)(torch.zeros(2, device="cuda:1"))
    assert result.tolist() == [2, 3]
    assert result.device == torch.device("cuda:1")


def test_a_script_is_compiled_after_the_end_of_native_names() -> None:
    program = (
        "import torch, devshim as ds\n"
        "with ds.simulate(2, native_names=True): torch.ones(2, device='cuda:1')\n"
        "def function(x: torch.Tensor): return x + torch.ones(2)\n"
        "print(torch.jit.script(function)(torch.zeros(2)).tolist())\n"
    )
    path = "import inspect, linecache; linecache.cache['program'] = (1, None, PROGRAM.splitlines(True), 'program')"
    source = f"PROGRAM = {program!r}\n{path}\nexec(compile(PROGRAM, 'program', 'exec'))"
    command = [sys.executable, "-W", "ignore", "-c", source]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[1.0, 1.0]\n"


@pytest.mark.usefixtures("cards")
def test_a_compiled_function_creates_tensors_on_a_card() -> None:
    compiled = torch.compile(lambda x: x + torch.ones(2, device="cuda:1"), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(2, device="cuda:1")).device == torch.device("cuda:1")


LIBRARIES = {
    "torch.backends.cudnn.is_available()": True,
    "torch.backends.cudnn.version() > 9000": True,
    "torch.backends.cudnn.is_acceptable(torch.ones(2, device='cuda'))": True,
    "torch.backends.cudnn.is_acceptable(torch.ones(2))": False,
    "[torch.cudnn_is_acceptable(torch.ones(2).cuda().to(t)) for t in (torch.half, torch.float, torch.double)]": [True]
    * 3,
    "[torch.cudnn_is_acceptable(torch.ones(2).cuda().to(t)) for t in (torch.bfloat16, torch.int64)]": [False] * 2,
    "torch.cudnn_is_acceptable(torch.ones(0, device='cuda'))": False,
    "torch.cudnn_is_acceptable(torch.ones(2))": False,
    "torch.cudnn_is_acceptable(nn.Parameter(torch.ones(2, device='cuda')))": True,
    "torch.backends.cusparselt.is_available()": True,
    "torch.backends.cusparselt.version()": 800,
    "torch.cuda.has_magma": True,
    "str(torch.backends.cuda.preferred_linalg_library('magma'))": "_LinalgBackend.Magma",
    "str(torch.backends.cuda.preferred_blas_library('cublaslt'))": "_BlasBackend.Cublaslt",
    "torch.backends.cuda.cufft_plan_cache[1].max_size": 4095,
    "torch.backends.cuda.cufft_plan_cache.size": 0,
    "torch.backends.cuda.is_flash_attention_available()": True,
    "torch.cuda.nccl.version()[0]": 2,
    "torch.cuda.get_device_properties(1).pci_bus_id": 1,
    "str(torch.cuda.get_device_properties(1).uuid)": "64657673-6869-6d00-0000-000000000001",  # as `devshim smi`
}


@pytest.mark.parametrize("question", LIBRARIES)
@pytest.mark.usefixtures("cards")
def test_the_libraries_of_real_cards_are_there(question: str) -> None:
    assert eval(question) == LIBRARIES[question]


@pytest.mark.usefixtures("cards")
def test_cudnn_is_not_acceptable_while_it_is_off() -> None:
    x = torch.ones(2, device="cuda")
    with torch.backends.cudnn.flags(enabled=False):
        assert not torch.cudnn_is_acceptable(x)
    assert torch.cudnn_is_acceptable(x)
    cells = nn.LSTM(3, 4, device="cuda")  # asks, too
    assert cells(torch.ones(1, 2, 3, device="cuda"))[0].is_cuda


def test_a_program_s_choice_of_libraries_ends_with_native_names() -> None:
    ds.use("torch")
    cudnn = torch.backends.cudnn
    before, available, version = torch.backends.cuda.preferred_linalg_library(), cudnn.is_available(), cudnn.m.version
    with ds.simulate(2, native_names=True):
        torch.backends.cuda.preferred_linalg_library("magma")
        torch.backends.cuda.cufft_plan_cache[1].max_size = 5
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, benchmark_limit=3):
            assert torch._C._cuda_get_cudnn_benchmark_limit() == 3
    with ds.simulate(2, native_names=True):
        assert torch.backends.cuda.preferred_linalg_library() == before
        assert torch.backends.cuda.cufft_plan_cache[1].max_size == 4095
    ds.use(None)
    assert (cudnn.is_available(), cudnn.m.version) == (available, version)
    assert torch.backends.cuda.cufft_plan_cache.caches == []


@pytest.mark.parametrize("name", ["EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "FLASH_ATTENTION", "MATH"])
@pytest.mark.usefixtures("cards")
def test_attention_is_computed_whichever_kernel_a_program_allows(name: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    x = torch.randn(1, 2, 4, 8, dtype=torch.float16, device="cuda:1", requires_grad=True)
    with sdpa_kernel(getattr(SDPBackend, name)):
        result = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    result.sum().backward()
    expected = nn.functional.scaled_dot_product_attention(*[x.detach().cpu()] * 3, is_causal=True)
    torch.testing.assert_close(result.cpu(), expected, atol=1e-3, rtol=1e-3)
    assert x.grad.device == torch.device("cuda:1")


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    "create",
    [
        lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,)),
        lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0]),
        lambda: torch.sparse_compressed_tensor([0, 1], [0], [1.0], layout=torch.sparse_csc),
    ],
)
def test_a_sparse_tensor_is_created_on_the_default_device(create: Callable[[], torch.Tensor]) -> None:
    torch.set_default_device("cuda:1")
    assert create().device == torch.device("cuda:1")
    torch.set_default_device("cuda")
    assert create().device == torch.device("cuda:0")


def test_a_kernel_for_cuda_runs_on_a_card_while_native_names_are_on() -> None:
    with torch.library._scoped_library("devshim_test", "FRAGMENT") as library:
        library.define("scale(Tensor x) -> Tensor")
        library.impl("scale", lambda x: x * 3, "CPU")
        options: dict[str, Any] = {"mutates_args": (), "schema": "(Tensor x) -> Tensor"}
        with ds.simulate(2, native_names=True):
            library.impl("scale", lambda x: x * 2, "CUDA")
            square = torch.library.custom_op("devshim_test::square", lambda x: x * x, device_types="cuda", **options)
            half = torch.library.custom_op("devshim_test::half", lambda x: x / 4, **options)
            half.register_kernel("cuda")(lambda x: x / 2)
            library.define("named(Tensor x) -> Tensor")
            torch.library.impl("devshim_test::named", "cuda", lib=library)(lambda x: x + 1)
            x = torch.full((1,), 4.0, device="cuda:1")
            found = [
                torch.ops.devshim_test.scale(x),
                torch.ops.devshim_test.named(x),
                square(x),
                half(x),
                half(x.cpu()),
            ]
            assert [each.item() for each in found] == [8.0, 5.0, 16.0, 2.0, 1.0]
            assert [str(each.device) for each in found] == ["cuda:1"] * 4 + ["cpu"]
        assert torch.ops.devshim_test.scale(torch.ones(1)).item() == 3.0
        with ds.simulate(1):
            assert torch.ops.devshim_test.scale(torch.ones(1, device="sim")).item() == 3.0


def test_a_kernel_for_cuda_that_is_older_than_native_names_runs_on_a_card() -> None:
    with torch.library._scoped_library("devshim_older", "FRAGMENT") as library:
        library.define("scale(Tensor x, float by=2.0) -> Tensor")
        library.impl("scale", lambda x, by=2.0: x * by, "CUDA")
        square = torch.library.custom_op(
            "devshim_older::square",
            lambda x: x * x,
            mutates_args=(),
            device_types="cuda",
            schema="(Tensor x) -> Tensor",
        )
        for _ in range(2):
            with ds.simulate(2, native_names=True):
                x = torch.full((1,), 4.0, device="cuda:1")
                found = [torch.ops.devshim_older.scale(x), torch.ops.devshim_older.scale(x, by=3.0), square(x)]
                assert [(each.item(), str(each.device)) for each in found] == [(n, "cuda:1") for n in (8, 12, 16)]
            with ds.simulate(1), pytest.raises(NotImplementedError, match="devshim_older::scale"):
                torch.ops.devshim_older.scale(torch.ones(1, device="sim"))


@pytest.mark.usefixtures("cards")
def test_the_profiler_has_the_activities_of_cuda() -> None:
    assert {each.name for each in torch.profiler.supported_activities()} == {"CPU", "CUDA"}

"""Tests of what PyTorch refuses on real cards, and therefore on simulated GPUs under its own names."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from scripted_devices import Where, answer, make_where
from simulated_torch import two_cards
from torch import nn
from torch.cuda import comm

import devshim as ds


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards."""
    with two_cards():
        yield


# ---------------------------------------------------------------------- operators of the program
def test_a_program_s_operator_for_the_cpu_refuses_a_card_s_tensor() -> None:
    """A card has no kernel of an operator that the program registers only for the CPU; later it may get one."""
    with torch.library._scoped_library("devshim_refusals", "DEF") as library:
        library.define("up(Tensor x) -> Tensor")
        library.define("up.by(Tensor x, int n) -> Tensor")
        library.impl("up", lambda x: x + 1, "CPU")
        library.impl("up.by", lambda x, n: x + n, "CPU")
        up, x = torch.ops.devshim_refusals.up, torch.ones(2, device="cuda")
        assert up(x.cpu()).tolist() == [2.0, 2.0]
        for arguments, name in (((x,), "up"), ((x, 3), "up.by")):
            text = f"Could not run 'devshim_refusals::{name}' with arguments from the 'CUDA' backend"
            with pytest.raises(NotImplementedError, match=text):
                up(*arguments)
        library.define("nowhere(Tensor x) -> Tensor")
        with pytest.raises(NotImplementedError, match="from the 'CUDA' backend"):
            torch.ops.devshim_refusals.nowhere(x)
        library.impl("up", lambda x: x + 5, "CUDA")
        assert up(x).tolist() == [6.0, 6.0]


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_program_s_operator_for_sparse_tensors_refuses_a_card_s(layout: str) -> None:
    """The same applies to kernels for sparse tensors."""
    key = "SparseCPU" if layout == "to_sparse" else "SparseCsrCPU"
    with torch.library._scoped_library("devshim_refusals", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, key)
        x = getattr(torch.eye(2), layout)()
        assert torch.ops.devshim_refusals.twice(x).to_dense().tolist() == [[2.0, 0.0], [0.0, 2.0]]
        with pytest.raises(NotImplementedError, match="CUDA' backend"):
            torch.ops.devshim_refusals.twice(x.cuda())


def test_a_custom_op_for_the_cpu_refuses_a_card_s_tensor() -> None:
    """An operator of `torch.library.custom_op` needs a kernel for CUDA; one for all devices has it."""

    def add_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    options: Any = {"mutates_args": (), "schema": "(Tensor x) -> Tensor"}
    on_host = torch.library.custom_op("devshim_refusals::on_host", add_one, device_types="cpu", **options)
    everywhere = torch.library.custom_op("devshim_refusals::everywhere", add_one, **options)
    x = torch.ones(2, device="cuda")
    with pytest.raises(NotImplementedError, match=r"Could not run 'devshim_refusals::on_host'.*'CUDA' backend"):
        on_host(x)
    assert everywhere(x).tolist() == on_host(x.cpu()).tolist() == [2.0, 2.0]


def test_an_operator_that_compiled_code_defines_uses_its_kernel_for_the_cpu() -> None:
    """An extension's build for the CPU has no kernels for CUDA, so such an operator runs with the one for the CPU."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("fake_quantize_per_tensor_affine_cachemask", lambda *rest: (rest[0] + 7, rest[0] > 0), "CPU")
        x = torch.ones(2, device="cuda")
        values, _ = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 1.0, 0, 0, 255)
        assert values.tolist() == [8.0, 8.0]


# ---------------------------------------------------------------------- torch.cuda.comm
def _on(gpu: int | str, *shape: int) -> torch.Tensor:
    return torch.ones(shape, device=f"cuda:{gpu}" if isinstance(gpu, int) else gpu)


COMM: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: comm.reduce_add([_on(0, 2), _on("cpu", 2)]), AssertionError, "input 1 is on CPU"),
    (lambda: comm.reduce_add([_on(0, 2), _on(1, 3)]), ValueError, "input 1 has invalid size: got 3, but expected 2"),
    (lambda: comm.reduce_add([_on(1, 2), _on(1, 2)]), RuntimeError, "on the same GPU with one of the tensors"),
    (lambda: comm.reduce_add_coalesced([[_on(0, 2)], [_on("cpu", 2)]]), AssertionError, "input 1 is on CPU"),
    (lambda: comm.gather([_on(0, 2), _on("cpu", 2)]), RuntimeError, "tensor at index 1 has device 'cpu'"),
    (lambda: comm.gather([_on(0, 2), _on(1, 2, 2)]), RuntimeError, "has 2 dimensions, (expected 1)"),
    (lambda: comm.gather([_on(0, 2, 2), _on(1, 2, 3)]), RuntimeError, "invalid shape [2, 3], but expected [2, 2]"),
    (lambda: comm.gather([_on(0, 2)], out=_on("cpu", 3)), RuntimeError, "to have shape [2], but got [3]"),
    (lambda: comm.gather([]), RuntimeError, "at least one tensor to gather"),
    (lambda: comm.broadcast(_on(0, 2)), RuntimeError, "Exactly one of 'devices' and 'out'"),
    (lambda: comm.broadcast(_on(0, 2), out=[_on("cpu", 2)]), RuntimeError, "tensor at index 0 has device 'cpu'"),
    (lambda: comm.broadcast(_on(0, 2), out=[_on(1, 3)]), RuntimeError, "output tensor at index 0 has shape [3]"),
    (lambda: comm.broadcast(_on(0, 2), [0, 7]), RuntimeError, "invalid device ordinal"),
    (lambda: comm.broadcast(_on(0, 2), [-1]), RuntimeError, "non-negative device index, but got -1"),
    (lambda: comm.broadcast_coalesced([_on("cpu", 2)], [0, 1]), RuntimeError, "must be on devices[0]: 0"),
    (lambda: comm.scatter(_on(0, 2), out=[_on(0, 1), _on("cpu", 1)]), RuntimeError, "index 1 has device 'cpu'"),
    (lambda: comm.scatter(_on(0, 2), out=[_on(0, 1)]), RuntimeError, "Expected 2, but got total size 1"),
    (lambda: comm.scatter(_on(0, 2), out=[_on(0, 1, 1)]), RuntimeError, "index 0 has incorrect shape: [1, 1]"),
    (lambda: comm.scatter(_on(0, 2), []), RuntimeError, "at least one device to scatter"),
    (lambda: comm.scatter(_on(0, 2), [0, 1], [2]), RuntimeError, "len(devices) = 2 and len(chunk_sizes) = 1"),
    (
        lambda: comm.scatter(_on("cpu", 2), [0, 1], streams=[None, torch.cuda.current_stream(0)]),
        RuntimeError,
        "at index 1 (was 0) to match the device supplied at that index (expected 1)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), COMM, ids=[text for *_, text in COMM])
def test_comm_refuses_what_pytorch_refuses(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    """The checks of `torch.cuda.comm` are PyTorch's."""
    with pytest.raises(kind, match=re.escape(text)):
        call()


def test_comm_copies_between_cards() -> None:
    """Calls that `torch.cuda.comm` accepts return what PyTorch returns, and the same objects."""
    x = torch.arange(4.0, device="cuda:0")
    first, second = comm.broadcast(x, [0, 1])
    assert first is x
    assert second.device == torch.device("cuda:1")
    outputs = [torch.zeros(4, device="cuda:1")]
    assert comm.broadcast(x, out=outputs)[0] is outputs[0]
    assert outputs[0].tolist() == x.tolist()
    (same,), (copied,) = comm.broadcast_coalesced([x], [0, 1])
    assert same is x
    assert copied.device == torch.device("cuda:1")
    parts = comm.scatter(x.cpu(), ["cuda:1", "cuda:0"], [1, 3])
    assert [each.tolist() for each in parts] == [[0.0], [1.0, 2.0, 3.0]]
    parts = [torch.zeros(3, device="cuda:0"), torch.zeros(1, device="cuda:1")]
    comm.scatter(x, out=parts)
    assert [each.tolist() for each in parts] == [[0.0, 1.0, 2.0], [3.0]]
    joined = torch.zeros(4)
    assert comm.gather(parts, out=joined) is joined
    assert comm.gather(parts, destination="cpu").tolist() == joined.tolist() == x.tolist()
    assert comm.gather(parts, destination=1).device == torch.device("cuda:1")
    images = [torch.ones(1, 2, 3, 3, device=f"cuda:{gpu}").to(memory_format=torch.channels_last) for gpu in (0, 1)]
    assert comm.gather(images).is_contiguous(memory_format=torch.channels_last)
    assert comm.reduce_add([x, second], destination=1).device == torch.device("cuda:1")
    (total,) = comm.reduce_add_coalesced([[x], [second]])
    assert total.tolist() == [0.0, 2.0, 4.0, 6.0]


# ---------------------------------------------------------------------- events
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.cuda.Event(), "Event device 1 does not match recording stream's device 0."),
        (lambda: torch.Event("cuda"), "Event device index 1 does not match recording stream's device index 0."),
    ],
)
def test_an_event_stays_on_the_card_of_its_first_record(make: Callable[[], Any], text: str) -> None:
    """The first stream decides; without a stream, it is that of the current card."""
    event = make()
    event.record(torch.cuda.current_stream(1))
    with pytest.raises(RuntimeError, match=re.escape(text)):
        event.record(torch.cuda.current_stream(0))
    with pytest.raises(RuntimeError, match=re.escape(text)):
        event.record()
    with torch.cuda.device(1):
        event.record()
    assert event.device == torch.device("cuda:1")


def test_the_time_between_events_of_two_cards_is_refused() -> None:
    """CUDA measures only between events of one card."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for gpu, event in enumerate(events):
        event.record(torch.cuda.current_stream(gpu))
    with pytest.raises(torch.AcceleratorError, match="invalid resource handle") as caught:
        events[0].elapsed_time(events[1])
    assert isinstance(caught.value, ds.DeviceMismatchError)


# ---------------------------------------------------------------------- TorchScript
def _answers(x: torch.Tensor) -> tuple[bool, bool, bool, bool, str, str]:
    device = torch.device("cuda:1")
    return x.device == device, x.device != device, x.is_cuda, x.device.type == "cuda", str(x.device), f"<{x.device}>"


def _branches(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        if x.is_cuda:
            x = x + (1 if x.device.type == "cuda" else 100)
    return x


class _Asking(nn.Module):
    @property
    def kind(self) -> str:
        return self.weight.device.type

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, device="cuda"))

    @torch.jit.export
    def where(self, x: torch.Tensor) -> torch.device:
        return x.device

    def is_on_second(self, x: torch.Tensor) -> bool:
        return x.device == torch.device("cuda:1")

    def forward(self, x: torch.Tensor) -> tuple[bool, bool, str]:
        return self.is_on_second(x), x.is_cuda, self.kind


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_script_compares_and_prints_devices_as_on_a_card(capfd: pytest.CaptureFixture[str]) -> None:
    """In C++ the device is another one, so a script of these tests is compiled with its name."""
    answers, branches = torch.jit.script(_answers), torch.jit.script(_branches)
    for x in (torch.ones(2, device="cuda:1"), torch.ones(2, device="cuda:0"), torch.ones(2)):
        assert answers(x) == _answers(x)
        for _ in range(3):  # TorchScript compiles again after the first calls
            assert branches(x).tolist() == _branches(x).tolist()

    def shows(x: torch.Tensor) -> None:
        print(x.device, "is its device")

    torch.jit.script(shows)(torch.ones(2, device="cuda:1"))
    assert capfd.readouterr().out == "cuda:1 is its device\n"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_modules_and_loaded_scripts_compare_devices_as_on_a_card() -> None:
    """The same applies to methods that a method calls, to properties, and to a script from a file."""
    scripted, x = torch.jit.script(_Asking()), torch.ones(2, device="cuda:1")
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    for each in (scripted, torch.jit.load(file)):
        assert each(x) == (True, True, "cuda")
        assert each(x.cpu()) == (False, False, "cuda")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_device_that_a_script_returns_or_takes_is_a_card() -> None:
    x, card, host = torch.ones(2, device="cuda:1"), torch.device("cuda:1"), torch.device("cpu")
    scripted, asking = torch.jit.script(answer), torch.jit.script(_Asking())
    for each, device in ((x, card), (x.cpu(), card), (x, host)):
        found, wanted = scripted(each, device), answer(each, device)
        assert found[:-1] == wanted[:-1]
        assert found[-1].device == wanted[-1].device == device
    assert asking.where(x) == card
    assert torch.jit.wait(torch.jit.fork(asking.where, x)) == card
    made = torch.jit.script(make_where)(x)
    assert type(made) is Where
    assert made.device == card


# ---------------------------------------------------------------------- values on other devices
def _index(on: str) -> torch.Tensor:
    return torch.tensor([0], device=on)


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor, str], Any]] = {
    "fill_": lambda x, value, on: x.fill_(value),
    "fill": lambda x, value, on: torch.fill(x, value),
    "index_fill_": lambda x, value, on: x.index_fill_(0, _index(on), value),
    "index_fill": lambda x, value, on: x.index_fill(0, _index(on), value),
    "index_put_": lambda x, value, on: x.index_put_((_index(on),), value),
    "index_put": lambda x, value, on: x.index_put((_index("cpu"),), value, accumulate=True),
    "a mask": lambda x, value, on: x.__setitem__(x > 0, value),
    "an index": lambda x, value, on: x.__setitem__(_index("cpu"), value),
    "masked_fill_": lambda x, value, on: x.masked_fill_(x > 0, value),
    "masked_fill": lambda x, value, on: x.masked_fill(x > 0, value),
}
"""Calls that read a value which may be elsewhere: PyTorch calls ``value.item()``, or copies it."""


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(("on", "value_on"), [("cpu", "cuda:1"), ("cuda:0", "cuda:1"), ("cuda:1", "cpu")])
def test_a_number_on_another_device_is_read(name: str, on: str, value_on: str) -> None:
    """The result stays where the changed tensor is, and is that of the host."""
    if name.startswith("masked_fill") and on == "cpu":
        with pytest.raises(RuntimeError, match="masked_fill_: Expected inputs to be on same device"):
            WRITES[name](torch.ones(2, 3), torch.tensor(7.0, device=value_on), on)
        return
    wanted, x = torch.ones(2, 3), torch.ones(2, 3, device=on)
    results = [WRITES[name](wanted, torch.tensor(7.0), "cpu"), WRITES[name](x, torch.tensor(7.0, device=value_on), on)]
    assert x.device == torch.device(on)
    assert x.tolist() == wanted.tolist()
    if results[0] is not None:
        assert results[1].device == torch.device(on)
        assert results[1].tolist() == results[0].tolist()


def test_a_guard_reports_a_number_that_is_read_from_another_device() -> None:
    """``value.item()`` waits for the card."""
    with ds.guard("error"), pytest.raises(ds.TransferError, match="item"):
        torch.ones(2).fill_(torch.tensor(7.0, device="cuda"))


MIXED: dict[str, tuple[Callable[[], Any], str]] = {
    "a row": (
        lambda: torch.ones(2, 3).__setitem__(_index("cpu"), torch.ones(3, device="cuda")),
        "at least two devices, cuda:0 and cpu!",
    ),
    "an index on a card": (
        lambda: torch.ones(2, 3).__setitem__(_index("cuda"), 5),
        "on the same device as the indexed tensor (cpu)",
    ),
    "indices on two cards": (
        lambda: torch.ones(2, 3)[_index("cuda:0"), _index("cuda:1")],
        "on the same device as the indexed tensor (cpu)",
    ),
    "a mask on the host": (
        lambda: torch.ones(2, device="cuda").masked_fill_(torch.ones(2) > 0, torch.tensor(3.0, device="cuda:1")),
        "got mask on cpu and self on cuda:0",
    ),
    "a mask without dimensions": (
        lambda: torch.ones(2, device="cuda").masked_fill_(torch.tensor(True), 3),
        "got mask on cpu and self on cuda:0",
    ),
    "a mask on a card": (
        lambda: torch.ones(2).masked_fill(torch.ones(2, device="cuda:1") > 0, 3),
        "got mask on cuda:1 and self on cpu",
    ),
    "values for fill_": (
        lambda: torch.ones(2).fill_(torch.ones(2, device="cuda")),
        "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices_are_refused_in_true_words(name: str) -> None:
    """The text names the arguments that are on different devices."""
    call, text = MIXED[name]
    with pytest.raises(RuntimeError, match=re.escape(text)):
        call()


# ---------------------------------------------------------------------- torch.distributed.rpc
def test_device_maps_of_rpc_are_refused_where_they_are_set() -> None:
    """TensorPipe would fail when the processes connect, with an error that does not name the map."""
    rpc = pytest.importorskip("torch.distributed.rpc")
    options = rpc.TensorPipeRpcBackendOptions()
    options.set_device_map("other", {"cpu": "cpu"})
    for call in (
        lambda: options.set_device_map("other", {0: 1}),
        lambda: options.set_devices([0]),
        lambda: rpc.TensorPipeRpcBackendOptions(device_maps={"other": {"cuda:0": "cuda:1"}}),
        lambda: rpc.TensorPipeRpcBackendOptions(devices=["cuda:0"]),
    ):
        with pytest.raises(
            ds.UnsupportedError, match=r"device maps of torch.distributed.rpc, which .*py:\d+"
        ) as caught:
            call()
        assert "x.cpu()" in str(caught.value)


# ---------------------------------------------------------------------- compilers
def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _package(model: nn.Module, x: torch.Tensor) -> Any:
    return torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)))


def _generate(model: nn.Module, x: torch.Tensor) -> Any:
    return torch._inductor.compile(torch.fx.symbolic_trace(model), [x])


COMPILERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    'torch.compile(backend="cudagraphs")': (
        lambda model, x: torch.compile(_add_one, backend="cudagraphs")(x),
        'it records the work of a real GPU\n\nHint: compile with backend="aot_eager"',
    ),
    "torch._inductor.aoti_compile_and_package for GPUs": (_package, "it compiles for real GPUs only"),
    "torch._inductor.compile for GPUs": (_generate, "it compiles for real GPUs only"),
    "torch._C._cuda_attach_out_of_memory_observer": (
        lambda model, x: torch._C._cuda_attach_out_of_memory_observer(print),
        "it belongs to the allocator of real GPUs\n\nHint: catch torch.OutOfMemoryError",
    ),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_compilers_for_cards_are_refused_at_the_line_of_the_program(name: str) -> None:
    call, reason = COMPILERS[name]
    line = rf"{re.escape(__file__)}:\d+"
    with pytest.raises(ds.UnsupportedError, match=f"{re.escape(name)}, which {line} calls: {re.escape(reason)}"):
        call(nn.Linear(2, 2).cuda(1), torch.ones(1, 2, device="cuda:1"))


def test_cuda_graphs_of_a_function_on_the_cpu_are_left_out_as_in_pytorch() -> None:
    assert torch.compile(_add_one, backend="cudagraphs")(torch.ones(2)).tolist() == [2, 2]


# ---------------------------------------------------------------------- texts
def _changes_what_autograd_needs() -> None:
    result = torch.ones(2, device="cuda", requires_grad=True).exp()
    result.add_(1)
    result.sum().backward()


def _quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(2, device="cuda"), 0.1, 0, torch.qint8)


TEXTS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (_changes_what_autograd_needs, RuntimeError, "[torch.cuda.FloatTensor [2]], which is output 0 of Exp"),
    (
        lambda: torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1, device="cuda")),
        RuntimeError,
        "backend of indices (CPU) must match backend of values (CUDA)",
    ),
    (lambda: _quantized().type(), RuntimeError, "Unimplemented backend QuantizedCUDA"),
    (lambda: torch.typename(_quantized()), RuntimeError, "Unimplemented backend QuantizedCUDA"),
    (lambda: _quantized().new(2), RuntimeError, "PrivateUse1, Meta) but got: QuantizedCUDA"),
    (lambda: torch.eye(2).to_sparse_csr().cuda().type(), RuntimeError, "Unimplemented backend SparseCsrCUDA"),
    (lambda: torch.eye(2).to_sparse_csr().cuda().new(2), RuntimeError, "Cannot map DispatchKey SparseCsrCUDA to a"),
    (lambda: torch.Generator("cuda").get_offset(), ds.UnsupportedError, "it has no offset"),
    (lambda: torch.Generator("cuda").graphsafe_get_state(), ds.UnsupportedError, "no state for graphs"),
    (
        lambda: torch.ones(2, device="cuda:1").untyped_storage()._share_cuda_(),
        ds.UnsupportedError,
        'queue.get().to("cuda:1")',
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), TEXTS, ids=[text for *_, text in TEXTS])
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantiz")
def test_texts_name_cards_and_what_to_do(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    """Texts of C++ have the names of cards, and those of devshim the right card."""
    with pytest.raises(kind, match=re.escape(text)):
        call()


def test_cuda_errors_have_their_texts() -> None:
    """Programs print the text of an error that a library returns."""
    runtime = torch.cuda.cudart()
    assert [runtime.cudaGetErrorString(runtime.cudaError(number)) for number in (0, 2, 710, 12345)] == [
        *("no error", "out of memory", "device-side assert triggered", "unrecognized error code"),
    ]

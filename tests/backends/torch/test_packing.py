"""Tests of packing: small tensors together, large ones in pieces, between host and CUDA GPU; with stubs, and on a GPU.

Two stubs: `StubCard`, a device that keeps its tensors on the host, where they can be inspected; and `DelayedStream`, a
stream that makes pending copies only when it is waited for.
"""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
import torch
from devshim_backends._torch.transfers.internals import coalesce, pinned

import devshim as ds

HOST = torch.device("cpu")
NEEDS_CARD = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="hardware: no CUDA or ROCm card"),
]


class StubCard:
    """A stub of a GPU that keeps its tensors on the host."""

    type = "stand-in"


def make_parcel(xs):
    """Return a parcel of all tensors."""
    parcel = coalesce.Parcel(0)
    for i, x in enumerate(xs):
        parcel.add([i], coalesce.Form(x.numel(), x.shape, False, 0, []))
    return parcel


def copy_singly(x):
    return x.to(HOST, copy=True)


@pytest.fixture
def card(monkeypatch):
    """Return a device whose tensors are on the host: everything goes to it."""
    monkeypatch.setattr(pinned, "is_between_host_and_card", lambda source, target: source.type == "cpu")
    monkeypatch.setattr(coalesce, "send", lambda xs, one, target, late=False, send=coalesce.send: send(xs, one, HOST))
    return StubCard()


class DelayedStream:
    """A stream that does its work only when it is waited for."""

    def __init__(self, monkeypatch):
        self.requested, self.copy = [], torch.Tensor.copy_
        monkeypatch.setattr(torch.Tensor, "copy_", self._copy)
        monkeypatch.setattr(torch.Tensor, "to", self._to)
        monkeypatch.setattr(pinned, "wait", lambda card: self.catch_up())
        monkeypatch.setattr(pinned, "_event", lambda card: Event(self, len(self.requested)))

    def catch_up(self, count=None):
        done = self.requested[:count]
        self.requested[:count] = [None] * len(done)
        for each in filter(None, done):
            self.copy(*each)

    @property
    def pending(self):
        return any(self.requested)

    @property
    def _copy(self):
        def copy_(target, source, non_blocking=False):
            if non_blocking:
                self.requested.append((target, source))
                return target
            return self.copy(target, source)

        return copy_

    @property
    def _to(self):
        def to(source, target, non_blocking=False, copy=False):
            return torch.full_like(source, 77).copy_(source, non_blocking=non_blocking)

        return to


class Event:
    def __init__(self, stream, count):
        self.synchronize = lambda: stream.catch_up(count)


def tensors_of_every_kind():
    """Return tensors of every kind that may be in a tree, most of which fit in a parcel."""
    rng = torch.Generator().manual_seed(0)
    plain = [torch.rand(n % 7, 3, generator=rng) for n in range(40)]
    others = [torch.arange(n + 1, dtype=torch.int64) for n in range(9)] + [torch.ones(2, dtype=torch.bool)] * 9
    scalars = [torch.tensor(float(n)) for n in range(6)] + [torch.tensor(n, dtype=torch.bfloat16) for n in range(6)]
    odd = [
        torch.rand(4, 5).t(),
        torch.rand(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.rand(2, 3, 1, 1).to(memory_format=torch.channels_last),
        torch.rand(4, 1).t(),
        torch.rand(3, requires_grad=True),
        torch.rand(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.rand(3)),
        torch.rand(3, dtype=torch.complex64).conj(),
        torch.rand(3, dtype=torch.complex64).conj().imag,
        torch.eye(3).to_sparse(),
        torch.rand(10)[2:5],
        torch.rand(4).expand(3, 4),
        torch.empty(0),
        torch.rand(4).to(torch.float8_e5m2),
        torch.zeros(4, dtype=torch.uint16),
        torch._efficientzerotensor(2, 3),
        torch._neg_view(torch.rand(3)),
        _of_inference(),
    ]
    return [x for trio in zip(plain, others + scalars + odd + plain, odd * 5, strict=False) for x in trio]


def _of_inference():
    with torch.inference_mode():
        return torch.ones(4)


def is_same(x, y):
    """Return True if two tensors are the same in everything that can be queried."""
    facts = ("dtype", "shape", "layout", "requires_grad", "is_leaf")
    reported = [
        [getattr(each, fact) for fact in facts] + [type(each), each.is_conj(), each.is_neg()] for each in (x, y)
    ]
    if reported[0] != reported[1]:
        return False
    if x.layout is not torch.strided:
        return torch.equal(x.to_dense(), y.to_dense())
    seen = [each.view(torch.uint8) if each.dtype is torch.float8_e5m2 else each for each in (x, y)]
    return x.stride() == y.stride() and torch.equal(*seen)


def test_copies_in_parcels_equal_single_copies(card):
    xs = tensors_of_every_kind()
    expected = list(map(copy_singly, xs))
    assert all(map(is_same, coalesce.copy_all(xs, card, copy_singly), expected))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4, 5), (5, 1, 3, 3), (5, 3, 1, 1), ()], ids=str)
def test_tensors_of_one_shape_are_joined_and_separated(card, shape):
    xs = [torch.rand(shape) for _ in range(50)]
    (parcel,) = coalesce.make_parcels(xs, card)
    assert len(parcel.members) == 50
    assert parcel.shape == (torch.Size(shape) if shape else None)
    for copies in (list(coalesce.copy_all(xs, card, copy_singly)), coalesce.fetch(xs, parcel)):
        assert all(map(is_same, copies, xs))
        assert all(y._base is None and y.untyped_storage().nbytes() == y.nbytes for y in copies)


def test_parameters_are_joined_only_without_gradients(card):
    """A copy of a parameter is a plain tensor; one that requires a gradient gets it through its own copy."""
    frozen = [torch.nn.Parameter(torch.rand(3, 4), requires_grad=False) for _ in range(20)]
    free = [torch.nn.Parameter(torch.rand(3, 4)) for _ in range(20)]
    assert len(coalesce.make_parcels(frozen, card)[0].members) == 20
    assert coalesce.make_parcels(free, card) == []
    with torch.no_grad():
        assert len(coalesce.make_parcels(free, card)[0].members) == 20
        copies = list(coalesce.copy_all(free, card, copy_singly))
        assert all(map(is_same, copies, map(copy_singly, free)))
    assert all(map(is_same, coalesce.copy_all([*free, *frozen], card, copy_singly), map(copy_singly, [*free, *frozen])))
    sum(y.sum() for y in coalesce.copy_all(free, card, copy_singly)).backward()
    assert all(x.grad.eq(1).all() for x in free)


def test_similar_tensors_among_others_keep_their_order(card):
    """Runs of similar tensors are cut by separate tensors, by another shape, and by the end of a parcel."""
    xs = [torch.rand(4, 3) if i % 5 else torch.rand(3, 4).t() if i % 2 else torch.rand(1, 4) for i in range(60)]
    assert all(map(is_same, coalesce.copy_all(xs, card, copy_singly), xs))
    (parcel,) = coalesce.make_parcels(xs, card)
    assert [i for i in range(60) if i not in parcel.members] == [i for i in range(60) if i % 10 == 5]


@pytest.mark.filterwarnings("ignore")  # from deprecated parts of PyTorch itself, and prototypes
def test_tensors_that_torch_func_tracks_are_not_joined(card):
    parcels = []

    def look(x):
        parcels.append(coalesce.make_parcels([x] * 9, card))
        return x.sum()

    torch.func.grad(look)(torch.ones(3))
    torch.func.vmap(look)(torch.ones(2, 3))
    with torch.autograd.forward_ad.dual_level():
        look(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3)))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    parcels.append(coalesce.make_parcels([nested] * 9, card))
    assert not any(parcels)
    assert coalesce.make_parcels([nested, *[torch.ones(3)] * 9], card)[0].members == list(range(1, 10))


def test_each_has_memory_of_its_own(card):
    xs = [torch.rand(3) for _ in range(50)]
    copies = list(coalesce.copy_all(xs, card, copy_singly))
    assert {y.untyped_storage().nbytes() for y in copies} == {12}
    assert len({y.untyped_storage().data_ptr() for y in [*xs, *copies]}) == 100
    copies[0].zero_()
    assert xs[0].any()


def test_one_parcel_for_each_dtype(card, monkeypatch):
    sent, send = [], coalesce.send
    monkeypatch.setattr(coalesce, "send", lambda xs, *given: sent.append(len(xs)) or send(xs, *given))
    xs = [torch.ones(8, dtype=dtype) for _ in range(100) for dtype in (torch.float32, torch.int64)]
    assert all(map(torch.equal, coalesce.copy_all(xs, card, copy_singly), xs))
    assert sent == [100, 100]


def test_parcels_are_bounded_and_not_too_small(card, monkeypatch):
    monkeypatch.setattr(coalesce, "PARCEL_BYTES", 1000)
    monkeypatch.setattr(coalesce, "SMALL_BYTES", 400)
    xs = [torch.ones(25) for _ in range(23)]
    assert [len(each.members) for each in coalesce.make_parcels(xs, card)] == [10, 10], "three are too few"
    assert coalesce.make_parcels([torch.ones(101) for _ in range(20)], card) == []
    assert all(map(torch.equal, coalesce.copy_all(xs, card, copy_singly), xs))


@pytest.mark.filterwarnings("ignore")  # from deprecated parts of PyTorch itself, prototypes, and quantized tensors
def test_tracked_tensors_are_copied_singly(card):
    """Tensors followed by torch.func or by forward differentiation, or without a block of memory, go separately."""
    are_plain = []

    def look(*xs):
        are_plain.append([pinned.is_plain(x) for x in xs])
        return xs[0].sum()

    x = torch.ones(3)
    torch.func.grad(look)(x)
    torch.func.vmap(look)(torch.ones(2, 3))
    with torch.autograd.forward_ad.dual_level():
        look(torch.autograd.forward_ad.make_dual(x, x))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    look(torch._efficientzerotensor(3), nested, torch.quantize_per_tensor(x, 0.1, 0, torch.qint8))
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    look(conjugate, conjugate.imag, torch._neg_view(x))
    with torch.inference_mode():
        tensor = torch.ones(3)
    look(tensor)
    assert not any(itertools.chain(*are_plain))
    assert pinned.is_plain(x)


@pytest.mark.parametrize("way", ["send", "fetch"])
def test_a_parcel_that_does_not_fit_is_copied_tensor_by_tensor(card, monkeypatch, way):
    def full(*given):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(coalesce, way, full)
    copied = []
    xs = [torch.ones(3) for _ in range(9)]
    target = HOST if way == "fetch" else card
    assert all(map(torch.equal, coalesce.copy_all(xs, target, lambda x: copied.append(x) or copy_singly(x)), xs))
    assert len(copied) == 9


def test_buffers_ignore_the_default_device(card):
    xs = [torch.arange(9.0) + i for i in range(9)]
    with torch.device("meta"):
        assert all(map(torch.equal, coalesce.copy_all(xs, card, copy_singly), xs))
        assert all(map(torch.equal, coalesce.fetch(xs, make_parcel(xs)), xs))
        assert torch.equal(pinned.send_in_pieces(xs[0], HOST), xs[0])
        assert torch.equal(pinned.fetch_in_pieces(xs[0]), xs[0])


def test_unpinned_buffers_work(monkeypatch):
    asked = []

    def refuse(*given, pin_memory=False, empty=torch.empty, **options):
        asked.append((pin_memory, options["device"]))
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return empty(*given, **options)

    monkeypatch.setattr(torch, "empty", refuse)
    monkeypatch.setattr(torch.cuda, "device", lambda card: contextlib.nullcontext())  # a CPU build has none
    assert pinned.pinned(3, torch.float32, torch.device("cuda:0")).shape == (3,)
    assert asked == [(True, "cpu"), (False, "cpu")]


def test_fetched_tensors_are_complete(monkeypatch):
    late = DelayedStream(monkeypatch)
    xs = [torch.arange(9.0) + i for i in range(9)]
    assert all(map(torch.equal, coalesce.fetch(xs, make_parcel(xs)), xs))
    assert not late.pending


@pytest.mark.parametrize("non_blocking", [False, True])
def test_sent_tensors_are_complete_unless_non_blocking(monkeypatch, non_blocking):
    late = DelayedStream(monkeypatch)
    monkeypatch.setattr(coalesce, "_divide", lambda joined, xs, parcel: [joined])  # on the GPU: after the earlier work
    xs = [torch.arange(9.0) + i for i in range(9)]
    (parcel,) = coalesce.send(xs, make_parcel(xs), HOST, non_blocking)
    assert late.pending is non_blocking
    for x in xs:
        x.zero_()
    late.catch_up()
    assert torch.equal(parcel, torch.cat([torch.arange(9.0) + i for i in range(9)]))


@pytest.mark.parametrize("count", [1, 99, 100, 101, 1234])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex128])
def test_pieces_are_assembled_in_order(monkeypatch, count, dtype):
    monkeypatch.setattr(pinned, "PIECE_BYTES", 50 * dtype.itemsize)
    x = torch.arange(count * 2).to(dtype).view(2, count)
    for y in (pinned.send_in_pieces(x, HOST), pinned.fetch_in_pieces(x)):
        assert torch.equal(x, y)
        assert y.data_ptr() != x.data_ptr()
        assert y.stride() == x.stride()


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(40, 50).t(),
        torch.rand(4, 3, 5, 6).to(memory_format=torch.channels_last),
        torch.rand(40, 9)[:, 2:7],
        torch.rand(9, 40)[:, 2:7].t(),
        torch.rand(30, 9)[::3],
        torch.rand(7, 1).expand(7, 12),
        torch.rand(5).expand(6, 5),
        torch.rand(6, 1, 8).transpose(0, 1),
        torch.rand(3, 4, 5)[:, 1:2].permute(2, 0, 1),
    ],
    ids=lambda x: f"{tuple(x.shape)}, {x.stride()}",
)
def test_pieces_of_tensors_with_other_strides(monkeypatch, x):
    monkeypatch.setattr(pinned, "PIECE_BYTES", 240)
    assert pinned._can_be_divided(x)
    for y in (pinned.send_in_pieces(x, HOST), pinned.fetch_in_pieces(x)):
        assert is_same(y, x.to(HOST, copy=True))


def test_gradients_are_copied_in_pieces(monkeypatch):
    cut, in_pieces = [], pinned.send_in_pieces
    monkeypatch.setattr(pinned, "LARGE_BYTES", 400)
    monkeypatch.setattr(pinned, "PIECE_BYTES", 240)
    monkeypatch.setattr(pinned, "is_between_host_and_card", lambda source, target: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda x: False)
    monkeypatch.setattr(pinned, "send_in_pieces", lambda x, *given: cut.append(x.requires_grad) or in_pieces(x, *given))
    x = torch.nn.Parameter(torch.rand(12, 10, dtype=torch.float64))
    y = pinned.copy_to(x, HOST)
    assert type(y) is torch.Tensor
    assert (y.requires_grad, y.is_leaf) == (True, False)
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    first.sum().backward()
    assert torch.allclose(first, 3 * x**2)
    assert torch.allclose(x.grad, 6 * x)
    assert len(cut) >= 3
    assert not any(cut), "no graph of the pieces"
    with torch.no_grad():
        assert not pinned.copy_to(x, HOST).requires_grad


@pytest.mark.parametrize("count", [1, 49, 100, 101, 333])
def test_a_buffer_is_not_filled_while_it_is_read(monkeypatch, count):
    monkeypatch.setattr(pinned, "PIECE_BYTES", 200)
    x = torch.arange(float(count))
    late = DelayedStream(monkeypatch)
    waited = pinned.send_in_pieces(x, HOST)
    assert not late.pending
    assert torch.equal(waited, x)
    y = pinned.send_in_pieces(x, HOST, non_blocking=True)
    assert late.pending
    kept = x.clone()
    x.zero_()
    late.catch_up()
    assert torch.equal(y, kept)


@pytest.mark.parametrize("count", [1, 49, 100, 101, 333])
def test_a_buffer_is_read_only_after_its_piece_has_arrived(monkeypatch, count):
    monkeypatch.setattr(pinned, "PIECE_BYTES", 200)
    x = torch.arange(float(count))
    late = DelayedStream(monkeypatch)
    assert torch.equal(pinned.fetch_in_pieces(x), x)
    assert not late.pending


def test_which_tensors_are_copied_in_pieces(card, monkeypatch):
    monkeypatch.setattr(pinned, "LARGE_BYTES", 4000)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda x: False)
    assert pinned.is_large(torch.ones(1000), card)
    monkeypatch.setattr(pinned, "PIECE_BYTES", 400)
    for x in (torch.ones(1000, requires_grad=True), torch.nn.Parameter(torch.ones(1000)), torch.ones(40, 50).t()):
        assert pinned.is_large(x, card)
    for x in (torch.ones(999), torch.ones(1000).to_sparse(), torch.ones(2, 2000)[:, ::2], torch.ones(1).expand(1000)):
        assert pinned.is_large(x, card) is (x.layout is torch.strided and x.shape == (1000,))
    assert pinned.may_apply(torch.device("cuda", 0))
    monkeypatch.setattr(torch._C, "_get_tracing_state", lambda: "a graph")
    assert not pinned.is_large(torch.ones(1000), card)
    assert not pinned.may_apply(torch.device("cuda", 0))
    monkeypatch.undo()
    assert not pinned.is_large(torch.ones(1 << 24), HOST), "from the host to the host"


class TestOnARealCard:
    """Tests that need a real GPU."""

    pytestmark = NEEDS_CARD

    def test_a_tree_is_copied_to_the_card_and_back(self):
        xs = tensors_of_every_kind()
        there = ds.place({"xs": xs}, "gpu:0")["xs"]
        for x, y, expected in zip(xs, there, [x.to("cuda:0", copy=True) for x in xs], strict=True):
            assert y.is_cuda
            assert is_same(y, expected)
            assert is_same(ds.place([y] * 9, "cpu")[0], x.to("cuda:0").cpu())
        back = ds.place(there, "cpu")
        assert all(is_same(y, each.cpu()) for y, each in zip(back, there, strict=True))
        assert all(y.untyped_storage().nbytes() == y.nbytes for y in back if pinned.is_plain(y))

    def test_the_source_may_be_written_to_at_once(self):
        xs = [torch.full((1024,), float(i)) for i in range(500)]
        copies = ds.place(xs, "gpu:0", non_blocking=True)
        for x in xs:
            x.fill_(-1)
        torch.cuda.synchronize()
        assert [float(y[0]) for y in copies] == [float(i) for i in range(500)]

    def test_copies_from_a_busy_card_are_complete(self):
        a = torch.rand(4096, 4096, device="cuda:0")
        for _ in range(20):
            a = a @ a / 4096
        xs = [torch.full((1024,), float(i), device="cuda:0") + 0 * a[0, 0].nan_to_num() for i in range(500)]
        large = torch.ones(pinned.LARGE_BYTES // 4 + 5, device="cuda:0") + 0 * a[0, 0].nan_to_num()
        copies = ds.place([*xs, large], "cpu", non_blocking=True)
        assert [float(y[-1]) for y in copies[:-1]] == [float(i) for i in range(500)]
        assert copies[-1].eq(1).all()

    @pytest.mark.parametrize("size", [1024, pinned.LARGE_BYTES // 4 + 5])
    def test_copies_are_complete_for_every_stream(self, size):
        xs = [torch.full((size,), float(i)) for i in range(1 if size > 1024 else 500)]
        with torch.cuda.stream(torch.cuda.Stream()):
            copies = ds.place(xs, "gpu:0")
        with torch.cuda.stream(torch.cuda.Stream()):
            sums = torch.stack([y.sum() for y in copies])
            assert sums.tolist() == [float(i) * size for i in range(len(xs))]

    def test_a_copy_inside_a_scope_of_the_card(self, backend):
        xs = [torch.arange(9.0) + i for i in range(9)]
        with ds.on("gpu:0"):
            copies = ds.place(xs, "gpu:0")
            assert all(map(torch.equal, ds.place(copies, "cpu"), xs))

    def test_the_copy_goes_to_the_named_card_not_the_current_one(self):
        if torch.cuda.device_count() < 2:
            pytest.skip("hardware: this machine has one card, and the test needs two")
        xs = [torch.arange(9.0) + i for i in range(9)] + [torch.ones(pinned.LARGE_BYTES // 4)]
        copies = ds.place(xs, "gpu:1")
        assert {y.device for y in copies} == {torch.device("cuda:1")}
        assert all(map(torch.equal, ds.place(ds.place(copies, "gpu:0"), "cpu"), xs))
        assert torch.cuda.current_device() == 0

    def test_a_copy_to_a_card_that_is_nearly_full(self):
        free = torch.cuda.mem_get_info()[0]
        kept = torch.empty(free - (96 << 20), dtype=torch.uint8, device="cuda:0")
        xs = [torch.rand(1 << 16) for _ in range(256)]  # 64 MiB, in four parcels
        copies = ds.place(xs, "gpu:0")
        assert all(map(torch.equal, ds.place(copies, "cpu"), xs))
        del kept

    @pytest.mark.parametrize("device", ["gpu:0", "cpu"])
    def test_a_large_tensor_is_copied_completely(self, device):
        x = torch.arange((pinned.LARGE_BYTES + 4 * pinned.PIECE_BYTES) // 4 + 7, dtype=torch.float32)
        kept = x.clone()
        source = x.cuda() if device == "cpu" else x
        y = ds.place(source, device, non_blocking=True)
        source.zero_()
        torch.cuda.synchronize()
        assert torch.equal(y.cpu(), kept)

    def test_a_model_of_many_small_parameters(self, monkeypatch):
        sent, send = [], coalesce.send
        monkeypatch.setattr(coalesce, "send", lambda xs, *given: sent.append(len(xs)) or send(xs, *given))
        model = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(500)])
        kept = [p.detach().clone() for p in model.parameters()]
        owners = list(model.parameters())
        ds.place(model, "gpu:0")
        assert sent == [1000]
        assert all(p is q and p.is_cuda for p, q in zip(model.parameters(), owners, strict=True))
        assert {p.untyped_storage().nbytes() for p in owners} == {256, 32}
        assert all(map(torch.equal, ds.place(model, "cpu").parameters(), kept))

    @pytest.mark.parametrize("target", ["gpu:0", "cpu"])
    def test_many_small_ones_are_faster(self, target):
        xs = [torch.rand(1024) for _ in range(1000)]
        xs = ds.place(xs, "gpu:0") if target == "cpu" else xs
        native = ds.device(target).native("torch")

        def seconds(move):
            torch.cuda.synchronize()
            start = time.perf_counter()
            kept = move()
            torch.cuda.synchronize()
            return time.perf_counter() - start if kept else 0.0

        ours = min(seconds(lambda: ds.place(xs, target)) for _ in range(9))
        loop = min(seconds(lambda: [x.to(native) for x in xs]) for _ in range(9))
        assert ours < loop

"""Small tensors in parcels, large ones in pieces, to a CUDA card: with the host in the card's place, and on one."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from devshim_backends._torch import packing  # noqa: E402

import devshim as ds  # noqa: E402

HOST = torch.device("cpu")
CARD = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() == 0, reason="hardware: no CUDA or ROCm card")]


def one(x):
    return x.to(HOST, copy=True)


def assorted():
    """Tensors of every kind that may stand in a tree, those that fit in a parcel in the majority."""
    rng = torch.Generator().manual_seed(0)
    plain = [torch.rand(n % 7, 3, generator=rng) for n in range(40)]
    others = [torch.arange(n + 1, dtype=torch.int64) for n in range(9)] + [torch.ones(2, dtype=torch.bool)] * 9
    scalars = [torch.tensor(float(n)) for n in range(6)] + [torch.tensor(n, dtype=torch.bfloat16) for n in range(6)]
    odd = [
        torch.rand(4, 5).t(),
        torch.rand(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.rand(3, requires_grad=True),
        torch.nn.Parameter(torch.rand(3)),
        torch.rand(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.rand(10)[2:5],
        torch.rand(4).expand(3, 4),
        torch.empty(0),
    ]
    return [x for trio in zip(plain, others + scalars + odd + plain, odd * 5, strict=False) for x in trio]


def test_they_are_what_single_copies_are():
    xs = assorted()
    for x, y, expected in zip(xs, packing.copies(xs, HOST, one), map(one, xs), strict=True):
        assert type(y) is type(expected)
        assert (y.dtype, y.shape, y.layout) == (expected.dtype, expected.shape, expected.layout)
        assert (y.requires_grad, y.is_leaf, y.is_conj()) == (
            expected.requires_grad,
            expected.is_leaf,
            expected.is_conj(),
        )
        if y.layout is torch.strided:
            assert y.stride() == expected.stride()
            assert torch.equal(y, x)
        else:
            assert torch.equal(y.to_dense(), x.to_dense())


def test_each_has_memory_of_its_own():
    xs = [torch.rand(3) for _ in range(50)]
    made = list(packing.copies(xs, HOST, one))
    assert {y.untyped_storage().nbytes() for y in made} == {12}
    assert len({y.untyped_storage().data_ptr() for y in [*xs, *made]}) == 100
    made[0].zero_()
    assert xs[0].any()


def test_one_parcel_for_each_dtype(monkeypatch):
    sent = []
    send = packing.send
    monkeypatch.setattr(packing, "send", lambda xs, place: sent.append(len(xs)) or send(xs, place))
    xs = [torch.ones(8, dtype=dtype) for _ in range(100) for dtype in (torch.float32, torch.int64)]
    assert all(map(torch.equal, packing.copies(xs, HOST, one), xs))
    assert sent == [100, 100]


def test_parcels_are_bounded_and_worth_it(monkeypatch):
    monkeypatch.setattr(packing, "PARCEL", 1000)
    monkeypatch.setattr(packing, "SMALL", 400)
    xs = [torch.ones(25) for _ in range(23)]
    assert [len(members) for members in packing.parcels(xs)] == [10, 10], "three are too few"
    assert packing.parcels([torch.ones(101) for _ in range(20)]) == []
    assert all(map(torch.equal, packing.copies(xs, HOST, one), xs))


def test_where_a_parcel_finds_no_room_they_go_one_by_one(monkeypatch):
    def full(xs, place):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(packing, "send", full)
    copied = []
    xs = [torch.ones(3) for _ in range(9)]
    assert all(map(torch.equal, packing.copies(xs, HOST, lambda x: copied.append(x) or one(x)), xs))
    assert len(copied) == 9


@pytest.mark.parametrize("count", [1, 99, 100, 101, 1234])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex128])
def test_pieces_make_the_whole(monkeypatch, count, dtype):
    monkeypatch.setattr(packing, "PIECE", 50 * dtype.itemsize)
    x = torch.arange(count * 2).to(dtype).view(2, count)
    y = packing.in_pieces(x, HOST)
    assert torch.equal(x, y)
    assert y.data_ptr() != x.data_ptr()
    assert y.stride() == x.stride()


def test_what_goes_in_pieces(monkeypatch):
    monkeypatch.setattr(packing, "LARGE", 4000)
    assert packing.is_large(torch.ones(1000))
    for x in (torch.ones(999), torch.ones(1000, requires_grad=True), torch.ones(40, 50).t()):
        assert not packing.is_large(x)


class TestOnACard:
    """What only a card can show."""

    pytestmark = CARD

    def test_a_tree_arrives_whole(self):
        xs = assorted()
        made = ds.place({"xs": xs}, "gpu:0")["xs"]
        for x, y in zip(xs, made, strict=True):
            assert y.is_cuda
            assert torch.equal(y.cpu().to_dense() if y.is_sparse else y.cpu(), x.to_dense() if x.is_sparse else x)

    def test_the_source_may_be_written_to_at_once(self):
        xs = [torch.full((1024,), float(i)) for i in range(500)]
        made = ds.place(xs, "gpu:0", non_blocking=True)
        for x in xs:
            x.fill_(-1)
        torch.cuda.synchronize()
        assert [float(y[0]) for y in made] == [float(i) for i in range(500)]

    def test_a_large_one_arrives_whole(self):
        x = torch.arange((packing.LARGE + 4 * packing.PIECE) // 4 + 7, dtype=torch.float32)
        y = ds.place(x, "gpu:0", non_blocking=True)
        kept = x.clone()
        x.zero_()
        torch.cuda.synchronize()
        assert torch.equal(y.cpu(), kept)

    def test_many_small_ones_are_faster(self):
        xs = [torch.rand(1024) for _ in range(1000)]
        ds.place(xs, "gpu:0")

        def seconds(move):
            torch.cuda.synchronize()
            start = time.perf_counter()
            kept = move()
            torch.cuda.synchronize()
            return time.perf_counter() - start if kept else 0.0

        ours = min(seconds(lambda: ds.place(xs, "gpu:0")) for _ in range(9))
        loop = min(seconds(lambda: [x.to("cuda:0") for x in xs]) for _ in range(9))
        assert ours < loop

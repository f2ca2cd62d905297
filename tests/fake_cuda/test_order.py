"""Tests with streams that work as late as possible: what the caller sees, what streams see, and later writes."""

from __future__ import annotations

import pytest

SMALL, LARGE = "1000", "(1 << 25)"
"""The numbers of elements of a tensor copied in one piece, and of one copied in several."""


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_blocking_copy_is_complete_for_every_stream(run_on_each, size):
    """A blocking copy is complete for every stream, and its source may be overwritten."""
    run_on_each(
        f"""
        x = torch.arange(float({size}))
        kept = x.clone()
        y = ds.place(x, CARD)
        x.zero_()
        with torch.cuda.stream(torch.cuda.Stream(CUDA)):
            assert torch.equal(y.cpu(), kept)
        y = ds.place([kept] * 9 if {size} == 1000 else [kept], CARD)[-1]
        with torch.cuda.stream(torch.cuda.Stream(CUDA)):
            assert torch.equal(y.cpu(), kept)
        assert torch.equal(ds.place(y, "cpu", non_blocking=True), kept)
        assert torch.equal(torch.from_numpy(ds.to_numpy(y)), kept)
        """,
        FAKE_CUDA_LATE="1",
    )


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_non_blocking_copy_is_complete_after_synchronize(run_on_each, size):
    run_on_each(
        f"""
        x = torch.arange(float({size}))
        kept = x.clone()
        y = ds.place(x, CARD, non_blocking=True)
        x.zero_()  # pageable memory may be written at once
        ds.synchronize(CARD)
        assert torch.equal(y.cpu(), kept)
        pinned = kept.pin_memory()
        y = ds.place(pinned, CARD, non_blocking=True)
        ds.synchronize(CARD)
        assert torch.equal(y.cpu(), kept)
        """,
        FAKE_CUDA_LATE="1",
    )


def test_copies_between_gpus_are_in_order(run):
    """PyTorch orders the streams of both GPUs; the copy is read on the target's current stream."""
    run(
        """
        kept = torch.arange(1000.)
        x = ds.place(kept, "gpu:3")
        assert torch.equal(ds.place(x, "gpu:2").cpu(), kept)
        assert torch.equal(ds.place(x, "gpu:1", non_blocking=True).cpu(), kept)
        ts = [torch.full((4,), float(i + 1)).to(f"cuda:{i}") for i in range(4)]
        same = list(ts)
        ds.all_reduce_(ts)
        assert [t.tolist() for t in ts] == [[10.0] * 4] * 4 and all(map(lambda a, b: a is b, ts, same))
        """,
        FAKE_CUDA_LATE="1",
    )


def test_many_small_tensors_are_one_sum(run):
    """There is one NCCL call for each dtype and GPU; large tensors go separately."""
    run("""
    def cat(xs):  # by copies: kernels compute nothing here
        made = torch.empty(sum(x.numel() for x in xs), dtype=xs[0].dtype, device=xs[0].device)
        for part, x in zip(made.split([x.numel() for x in xs]), xs):
            part.copy_(x)
        return made
    torch.cat = cat
    def tree(i):
        host = {"large": torch.full((1 << 18,), i + 1.0), "words": "as they are"}
        host |= {f"f{k}": torch.full((k, 3), i + k + 1.0) for k in range(50)}
        host |= {f"i{k}": torch.full((k,), i + k) for k in range(5)}
        return {name: x.to(f"cuda:{i}") if isinstance(x, torch.Tensor) else x for name, x in host.items()}
    trees = [tree(i) for i in range(4)]
    same = [dict(each) for each in trees]
    counts = calls_of(lambda: ds.all_reduce_(trees))
    assert counts["ncclAllReduce"] == 4 * 3, counts
    for i, each in enumerate(trees):
        assert all(each[name] is same[i][name] for name in each)
        assert each["large"].device.index == i and set(each["large"].tolist()) == {10.0}
        for k in range(50):
            assert each[f"f{k}"].shape == (k, 3) and set(each[f"f{k}"].flatten().tolist()) <= {10.0 + 4 * k}
        for k in range(5):
            assert set(each[f"i{k}"].tolist()) <= {6 + 4 * k}
    assert calls_of(lambda: ds.all_reduce_([torch.ones(3, device=f"cuda:{i}") for i in range(4)]))["ncclAllReduce"] == 4
    assert torch.cuda.current_device() == 0
    """)


def test_values_of_other_streams_are_complete_in_a_metric_log(run_on_each):
    """A value appended on a user's stream has been computed when the log is read on another."""
    run_on_each(
        """
        def stack(xs):  # by copies: kernels compute nothing here
            made = torch.empty(len(xs), device=CUDA)
            for i, x in enumerate(xs):
                made[i : i + 1].copy_(x.reshape(1))
            return made
        torch.stack, log = stack, ds.MetricLog(CARD)
        for i in range(3):
            with torch.cuda.stream(torch.cuda.Stream(CUDA)):
                log.append(torch.tensor(i + 1.0).pin_memory().to(CUDA, non_blocking=True))
        assert log.flush().tolist() == [1.0, 2.0, 3.0]
        """,
        FAKE_CUDA_LATE="1",
    )

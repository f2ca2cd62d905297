"""Streams that work as late as they may: what the caller sees, other streams see, and later writes do not change."""

from __future__ import annotations

import pytest

SMALL, LARGE = "1000", "(1 << 25)"
"""Elements of what goes at once, and of what goes in pieces."""


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_was_placed_is_there_for_every_stream(run_on_each, size):
    """A copy that waits is complete, whatever stream looks, and its source may be written."""
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
def test_without_waiting_it_is_there_after_synchronize(run_on_each, size):
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


def test_between_cards(run):
    """PyTorch orders the streams of both cards; the copy is read on the target's current stream."""
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


def test_a_metric_log_of_other_streams(run_on_each):
    """What was appended on a stream of the user's has been computed when the log is read on another."""
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

"""Copies to a real GPU, if there is one; the rows report if there is none."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

import devshim as ds
from benchmarks.native_training import WORDS, Words, compare
from benchmarks.record import Row
from benchmarks.session import Rival, Session
from benchmarks.test_training import BATCHES, ROWS, TARGET, programs

MANY = "1,000 tensors of 4 KiB from host to card"
LARGE = "pageable 1 GiB from host to card"
WAIT = "; torch.cuda.synchronize()"
NAMES = {
    MANY: ("ds.place(xs, g)", "[x.to(n) for x in xs]", 0.25),
    LARGE: ("ds.place(x, g)", "pinned.to(n, non_blocking=True)", 1 / 0.9),
}
"""Four times the time of a loop; at least 90% of the rate at which pinned memory is copied."""
TRAINING = f"LeNet on the card, {BATCHES} batches of {ROWS} images"


@pytest.mark.gpu
@pytest.mark.parametrize("case", NAMES)
def test_host_to_card(benchmark: Any, session: Session, case: str) -> None:
    """The copy is complete and finished: both sides wait for the GPU."""
    ours, native, target = NAMES[case]
    if session.backend != "torch":
        pytest.skip("measured on PyTorch")
    if not ds.device_count():
        _skip_without_card(session, "cards", case, ours, native, target)
    names: dict[str, Any] = {"g": ds.gpu(0), "n": ds.gpu(0).native()}
    if case == MANY:
        names["xs"] = [ds.ones(1024, dtype="float32") for _ in range(1000)]
    else:
        names["x"] = ds.ones(1 << 28, dtype="float32")
        names["pinned"] = names["x"].pin_memory()
    torch = ds.framework()
    torch.set_num_threads(os.cpu_count() or 1)  # they fill the pinned buffers
    note = f"on {ds.describe('gpu:0').name}"
    rivals = [Rival(native, native + WAIT, target)]
    try:
        session.versus(benchmark, "cards", case, (ours, ours + WAIT), rivals, names, rounds=21, note=note)
    finally:
        torch.set_num_threads(1)


@pytest.mark.gpu
def test_training_on_card(benchmark: Any, session: Session) -> None:
    """The loops of `test_training`, with weights on the GPU; a batch goes there at each step."""
    if session.backend not in ("torch", "jax"):
        pytest.skip("measured on PyTorch and JAX")
    if not ds.device_count():
        _skip_without_card(session, "training", TRAINING, "the neutral loop", "the native loop", TARGET)
    neutral, native, batches = programs(session, ds.gpu(0), _words_on(session.backend, ds.gpu(0).native()))
    compare(benchmark, session, TRAINING, neutral, native, batches, TARGET)


def _skip_without_card(session: Session, group: str, case: str, ours: str, native: str, target: float) -> None:
    note = "needs a card, and the machine has none"
    session.record.rows.append(Row(group, case, ours, native, target=target, note=note))
    pytest.skip("no card")


def _words_on(backend: str, native: Any) -> Words:
    """Return the functions of a native loop whose tensors are made on a GPU."""
    words, framework = WORDS[backend](), ds.framework()
    if backend == "jax":
        return replace(words, asarray=lambda a: framework.device_put(a, native))
    return replace(
        words,
        asarray=lambda a: framework.from_numpy(a).to(native),
        read=lambda losses: framework.stack(losses).cpu().numpy(),
    )

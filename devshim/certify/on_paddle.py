"""Claims about PaddlePaddle: gradients, the current GPU, copies from a GPU that is not current."""

from __future__ import annotations

import devshim as ds
from devshim.certify import driver
from devshim.certify.claims import Claims, Setting, expect

__all__ = ["CLAIMS"]

CLAIMS = Claims("paddle")


@CLAIMS.add("Gradients flow through `place` and `copy`.")
def gradients(at: Setting) -> None:
    """Copy to the GPU, on the GPU, and back."""
    x = ds.ones(3, dtype="float32")
    x.stop_gradient = False
    (ds.place(ds.copy(ds.place(x, at.first), at.last), "cpu") * 2).sum().backward()
    expect(x.grad is not None and ds.to_numpy(x.grad).tolist() == [2, 2, 2], f"it is {x.grad}")


@CLAIMS.add("From a card that is not Paddle's current one tensors come to the host.", cards=2)
def from_other_card(at: Setting) -> None:
    """Read the last GPU while the first is current."""
    with ds.on(at.first):
        y = ds.ones(4, device=at.last)
        expect(ds.to_numpy(ds.place(y, "cpu")).tolist() == [1] * 4, "place: other values")
        expect(ds.to_numpy(y).tolist() == [1] * 4, "to_numpy: other values")


@CLAIMS.add(
    "Creation, copies and reductions on another card leave the thread's current card as it was.", cards=2, real=True
)
def current(at: Setting) -> str:
    """Ask Paddle and the CUDA runtime after each call."""
    paddle = ds.framework()
    ds.to_numpy(ds.ones(3, device=at.first))
    before = (paddle.get_device(), driver.current())
    ds.ones(3, device=at.last)
    ds.copy(ds.ones(3), at.last)
    ds.gather([ds.ones(3, device=at.last)] * 2, at.last)
    expect((paddle.get_device(), driver.current()) == before, f"it is {paddle.get_device()}, it was {before}")
    return str(before[0])


@CLAIMS.add("Card to card with non_blocking=True waits for the computations of the source.", cards=2, real=True)
def between(at: Setting) -> None:
    """Copy the result of a chain of products."""
    m = ds.full((4096, 4096), 1 / 4096, dtype="float32", device=at.first)
    for _ in range(5):
        z = m
        for _ in range(40):
            z = ds.run(lambda a, b: a @ b, z, m)
        y = ds.place(z, at.last, non_blocking=True)
        ds.synchronize(at.last)
        expect(bool((ds.to_numpy(y) == ds.to_numpy(z)).all()), "the copy holds values of an earlier product")

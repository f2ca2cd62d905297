"""Claims about observers of transfers: the ledger, the guard, `explain`, and `MetricLog`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import devshim as ds
from devshim.certify.claims import Claims, Setting, expect, require_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CLAIMS"]

CLAIMS = Claims("observers")


@CLAIMS.add("The ledger has each copy once, with its bytes, its devices and the line that caused it.")
def ledger(at: Setting) -> None:
    """Copy to a GPU and back under a ledger."""
    with ds.transfers() as log:
        x = ds.place(ds.ones((256, 4), dtype="float32"), at.last)
        ds.to_numpy(x)
        ds.place(x, at.last)
    ways = [(str(each.source), str(each.target), each.bytes) for each in log.records]
    wanted = [("cpu", str(at.last), 4096), (str(at.last), "cpu", 4096)]
    expect(ways == wanted, f"recorded: {ways}")
    expect(all(f"{__file__}:" in each.site for each in log.records), f"made at {[each.site for each in log.records]}")


@CLAIMS.add("The guard refuses `float(x)` and printing, names the card, and lets explicit transfers pass.")
def guard(at: Setting) -> None:
    """Read implicitly and explicitly under a guard."""
    x = ds.ones((), dtype="float32", device=at.last)
    positive = ds.run(lambda t: t > 0, x)  # on its device: CuPy's operators take only arrays of the current GPU
    reads: dict[str, Callable[[], object]] = {
        "float(x)": lambda: float(x),
        "bool(x)": lambda: bool(positive),
        "str(x)": lambda: str(x),
    }
    with ds.guard("error"):
        for name, read in reads.items():
            text = require_refusal(ds.TransferError, read)
            expect(str(at.last) in text, f"{name}: the error does not name {at.last}: {text}")
        ds.to_numpy(x)
        ds.place(x, "cpu")
        ds.synchronize(at.last)
        ds.run(lambda t: t * 2, x)
    expect(float(x) == 1, "after the guard a read is still refused")


@CLAIMS.add("A MetricLog keeps values on the GPU and brings them to the host in one transfer.")
def metrics(at: Setting) -> None:
    """Append scalars that the GPU computes, of float32 and of int32."""
    for dtype in ("float32", "int32"):
        log = ds.MetricLog(at.last)
        for i in range(20):
            log.append(
                ds.run(lambda t: t.sum() if hasattr(t, "sum") else _sum(t), ds.full(4, i, dtype=dtype, device=at.last))
            )
        with ds.transfers() as seen:
            found = log.flush()
        expect(found.tolist() == [4 * i for i in range(20)], f"{dtype}: {found.tolist()}, not 0, 4, 8 to 76")
        expect(seen.count == 1, f"{dtype}: {seen.count} transfers")


def _sum(x: object) -> object:
    return ds.framework().reduce_sum(x)  # TensorFlow's tensors have no sum


@CLAIMS.add("`explain` prints the native line of a call, with the card's number.")
def explain(at: Setting) -> str:
    """Record the line of a placement."""
    x = ds.ones(3)
    with ds.explain(file=None) as lines:
        ds.place(x, at.last)
    expect(lines, "no line was recorded")
    return lines[0]


@CLAIMS.add("Tensors on different devices do not mix silently.", only=("torch", "jax", "paddle", "mxnet"))
def mixing(at: Setting) -> None:
    """Add a tensor on the CPU to one on a GPU through `run`."""
    require_refusal(ds.DeviceMismatchError, lambda: ds.run(lambda a, b: a + b, ds.ones(3), ds.ones(3, device=at.first)))

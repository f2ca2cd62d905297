"""Claims about conversion between frameworks, each pair in a new process, because some pairs crash together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claim, Claims, Setting, Skip, differences, expect
from devshim.certify.fresh import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLAIMS", "pairs"]

CLAIMS = Claims("convert")


@CLAIMS.add("`convert` of a GPU's tensor to NumPy on the CPU gives its values.")
def numpy(at: Setting) -> None:
    """Convert to the host."""
    found = ds.convert(ds.place(ds.arange(6, dtype="int32"), at.last), "numpy", "cpu")
    expect(isinstance(found, np.ndarray), f"it is a {type(found).__name__}")
    expect(found.tolist() == [0, 1, 2, 3, 4, 5], f"it holds {found.tolist()}")


def pairs(at: Setting) -> Iterator[Claim]:
    """Yield a claim for each other framework that sees GPUs."""
    for other in at.others:
        says = f"To {ds.backends()[other].title} and back on the same GPU: equal to the bit."
        yield Claim(f"convert.with_{other}", says, lambda at, other=other: fresh(_pair, replace(at, others=(other,))))  # type: ignore[misc]


def _pair(at: Setting) -> str:
    (other,) = at.others
    for name in (at.backend, other):
        with ds.using(name):
            _start(at)
    with ds.using(at.backend):
        return _convert(at, other)


def _start(at: Setting) -> None:
    try:
        ds.framework()
        if not at.simulated:
            ds.memory_policy("grow")
    except ds.BackendConflictError as error:
        raise Skip(error.problem) from error
    except ds.UnsupportedError:
        pass  # it does not reserve whole GPUs


def _convert(at: Setting, other: str) -> str:
    shared = []
    for dtype in ("float32", "int32", "uint8", "float16", "float64"):
        for array in (np.arange(24).reshape(4, 6).astype(dtype), np.arange(24).reshape(4, 6).astype(dtype).T):
            x = ds.from_numpy(array, at.first)
            y = ds.convert(x, other, at.first)
            expect(ds.device_of(y) is at.first, f"{dtype}: on {ds.device_of(y)}")
            back = ds.convert(y, at.backend, at.first)
            expect(type(back) is type(x), f"{dtype}: it comes back as {type(back)}")
            for each in (y, back):
                wrong = differences(ds.to_numpy(each), array)
                expect(not wrong, f"{dtype}, as {type(each).__module__}.{type(each).__name__}: {wrong}")
        if _shares(x, other):
            shared.append(dtype)
    return f"shares memory: {', '.join(shared) or 'nothing'}"


def _shares(x: Any, other: str) -> bool:
    try:
        ds.convert(x, other, copy=False)
    except ds.DevshimError:
        return False
    return True

"""Claims about naming, creating, placing and reading tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, differences, expect, require_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLAIMS"]

CLAIMS = Claims("tensors")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
DTYPES += ["uint16", "uint32", "uint64", "complex64", "complex128"]
EVERYWHERE = {"bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"}
"""The dtypes of every framework; the others are checked if the framework accepts them on the CPU."""


@CLAIMS.add("Every spelling of a GPU names the same device.")
def naming(at: Setting) -> None:
    """Parse the frameworks' names, and the current framework's own object."""
    i = at.last.index
    for spelling in (f"gpu:{i}", f"cuda:{i}", f"/GPU:{i}", f"/device:GPU:{i}", f"gpu({i})", i, at.last.native()):
        expect(ds.device(spelling) is at.last, f"{spelling!r} is {ds.device(spelling)}, not {at.last}")


@CLAIMS.add("A GPU that does not exist is a DeviceNotFoundError that says how many there are.")
def missing(at: Setting) -> None:
    """Ask for the GPU after the last."""
    for call in (
        lambda: ds.require(at.gpus),
        lambda: ds.zeros(1, device=at.gpus),
        lambda: ds.place(ds.ones(1), at.gpus),
        lambda: ds.place(ds.ones(1), "gpu:99"),
    ):
        expect(
            str(at.gpus) in require_refusal(ds.DeviceNotFoundError, call),
            "the error does not say how many GPUs there are",
        )


@CLAIMS.add("Every creation function makes its tensor on the device named, and on the CPU without one.")
def creating(at: Setting) -> None:
    """Create a tensor with each function, and read the values."""
    made: dict[str, tuple[Any, Any]] = {
        "zeros": (lambda d: ds.zeros((2, 3), device=d), [[0] * 3] * 2),
        "ones": (lambda d: ds.ones((2, 3), dtype="int32", device=d), [[1] * 3] * 2),
        "full": (lambda d: ds.full(3, 7, device=d), [7] * 3),
        "arange": (lambda d: ds.arange(4, device=d), [0, 1, 2, 3]),
        "linspace": (lambda d: ds.linspace(0, 1, 3, device=d), [0, 0.5, 1]),
        "eye": (lambda d: ds.eye(2, device=d), [[1, 0], [0, 1]]),
        "asarray": (lambda d: ds.asarray([1.5, 2.0], device=d), [1.5, 2.0]),
        "zeros_like": (lambda d: ds.zeros_like(ds.ones(2), device=d), [0, 0]),
        "full_like": (lambda d: ds.full_like(ds.ones(2), 3, device=d), [3, 3]),
        "empty": (lambda d: ds.empty((2, 3), device=d), None),
    }
    for name, (make, values) in made.items():
        for device, wanted in ((at.first, at.first), (at.last, at.last), (None, ds.cpu())):
            x = make(device)
            expect(ds.device_of(x) is wanted, f"{name} with device={device} is on {ds.device_of(x)}")
            found = ds.to_numpy(x).tolist()
            expect(values is None or found == values, f"{name} with device={device} holds {found}, not {values}")


@CLAIMS.add("To a GPU and back, every dtype and memory layout is equal to the bit.")
def round_trip(at: Setting) -> str:
    """Copy each dtype in six layouts to the first GPU, to the last, and back."""
    lacking = [name for name in DTYPES if not _has(name)]
    expect(not EVERYWHERE & {*lacking}, f"the framework should have {sorted(EVERYWHERE & {*lacking})}")
    for name in DTYPES:
        if name not in lacking:
            for layout, array in _layouts(name):
                _equal(f"{name}, {layout}", array, at)
    return f"not in this framework: {', '.join(lacking)}" if lacking else "all dtypes"


def _has(name: str) -> bool:
    """Return True if the framework accepts a NumPy dtype on the CPU."""
    try:
        return str(ds.to_numpy(ds.from_numpy(np.ones(3, name))).dtype) == name
    except (ds.DevshimError, TypeError, ValueError):
        return False


def _layouts(name: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    base = np.arange(24).reshape(2, 3, 4).astype(name)
    yield from (("contiguous", base), ("transposed", base.T), ("sliced", base[:, ::2]), ("reversed", base[::-1]))
    yield from (("empty", base[:0]), ("0-d", base[1, 2, 3].reshape(())))


def _equal(what: str, array: np.ndarray[Any, Any], at: Setting) -> None:
    y = ds.from_numpy(array, at.first)
    expect(ds.device_of(y) is at.first, f"{what}: on {ds.device_of(y)}")
    for way, x in {
        "from_numpy": y,
        "copy": ds.copy(y, at.first),
        "to the last GPU": ds.place(y, at.last),
        "to the CPU": ds.place(y, "cpu"),
        "from the CPU": ds.place(ds.from_numpy(array), at.first),
    }.items():
        back = ds.to_numpy(x)
        same = (back.dtype, back.shape) == (array.dtype, array.shape)
        expect(same, f"{what}, {way}: {back.dtype} {back.shape}")
        equal = back.tobytes() == np.ascontiguousarray(array).tobytes()
        expect(equal, f"{what}, {way}: {differences(back, array) or 'equal numbers in other bits'}")


@CLAIMS.add("`place` to where a tensor is returns the same object; `copy` returns new memory with the same values.")
def identity(at: Setting) -> str | None:
    """Compare objects, and the memory in use before and after a copy."""
    x = ds.place(ds.ones(1 << 20, dtype="float32"), at.first)
    expect(ds.place(x, at.first) is x, "place returned another object")
    expect(ds.device_of(x) is at.first, f"device_of says {ds.device_of(x)}")
    require_refusal(ds.CopyNeededError, lambda: ds.place(x, "cpu", copy=False))
    before = ds.memory(at.first).used
    y = ds.copy(x, at.first)
    ds.synchronize(at.first)
    after = ds.memory(at.first).used
    expect(y is not x, "copy returned the same object")
    wrong = differences(ds.to_numpy(y), np.ones(1 << 20, "float32"))
    expect(not wrong, f"the copy is not equal: {wrong}")
    if before is None or after is None:
        return "the memory in use is not known"
    expect(after - before >= 4 << 20, f"the copy took {after - before} bytes of new memory, not {4 << 20}")
    return None


@CLAIMS.add("`from_numpy` and `place` have read their source when they return: 64 MiB are overwritten immediately.")
def source(at: Setting) -> None:
    """Overwrite the source after each call."""
    for value in range(2 if at.quick or at.simulated else 10):
        array = np.full(1 << (20 if at.simulated else 24), float(value), "float32")
        x = ds.from_numpy(array, at.first)
        host = ds.from_numpy(array, copy=None)
        y = ds.place(host, at.first)
        array[:] = -1
        del host
        for name, each in (("from_numpy", x), ("place", y)):
            found = ds.to_numpy(each)
            expect(found.min() == found.max() == value, f"{name}: {found.min()} to {found.max()}, not {value}")


@CLAIMS.add("`to_numpy` waits for the values: a chain of operators is complete when it returns.")
def complete(at: Setting) -> None:
    """Read the result of 200 operators while they run."""
    x = ds.zeros(1 << (12 if at.simulated else 22), dtype="float32", device=at.last)
    for _ in range(20 if at.simulated else 200):
        x = ds.run(lambda t: t + 1, x)
    wanted = 20 if at.simulated else 200
    for way, host in (("to_numpy", ds.to_numpy(x)), ("place", ds.to_numpy(ds.place(x, "cpu")))):
        expect(host.min() == host.max() == wanted, f"{way} after {wanted} additions of 1 to zeros: {_range_of(host)}")


def _range_of(host: np.ndarray[Any, Any]) -> str:
    return f"the values are {host.min()} to {host.max()}"


@CLAIMS.add(
    "Trees move completely, with structure and other values; a tree that is on the device already is returned itself."
)
def trees(at: Setting) -> None:
    """Move a tree to a GPU and back."""
    arrays = [np.full(64, float(i), "float32") for i in range(200)]
    tree: dict[str, Any] = {"many": [ds.from_numpy(a) for a in arrays], "pair": (ds.ones(3), "text"), "none": None}
    there = ds.place(tree, at.last)
    expect(ds.placement_of(there).devices == {at.last}, f"leaves are on {ds.placement_of(there).devices}")
    expect(ds.place(there, at.last) is there, "a tree that was on the device already is another object")
    expect(there["pair"][1] == "text" and there["none"] is None, "what is not a tensor has changed")
    back = ds.place(there, "cpu")
    for i, (x, array) in enumerate(zip(back["many"], arrays, strict=True)):
        wrong = differences(ds.to_numpy(x), array)
        expect(not wrong, f"tree['many'][{i}], there and back: {wrong}")


@CLAIMS.add("Equal seeds give equal numbers on a GPU, and draws stay in their range.")
def drawing(at: Setting) -> None:
    """Draw twice on each GPU."""

    def draws() -> list[Any]:
        ds.random.seed(3)
        made = [ds.random.normal(size=9, device=at.last), ds.random.uniform(-1, 1, 9, device=at.first)]
        expect([ds.device_of(x) for x in made] == [at.last, at.first], "a draw is on another device")
        return [ds.to_numpy(x).tolist() for x in made]

    for first, second, name in zip(draws(), draws(), ("normal", "uniform"), strict=True):
        expect(first == second, f"random.{name} after seed(3): {differences(second, first)} at the first time")
    x = ds.to_numpy(ds.random.uniform(2, 3, 1 << 16, device=at.first))
    inside = bool(x.min() >= 2 and x.max() <= 3 and 2.4 < x.mean() < 2.6)
    expect(inside, f"random.uniform(2, 3): {_range_of(x)}, mean {x.mean()}")

"""The pool of memory, and the error of a full GPU."""

from __future__ import annotations

from cupy import _machine


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


class MemoryPool:
    """The memory pool of the current GPU."""

    def used_bytes(self) -> int:
        return _machine.allocated[_machine.current()]

    def free_bytes(self) -> int:
        return _machine.cached[_machine.current()]

    def free_all_blocks(self, stream: object = None) -> None:
        del _machine.cached[_machine.current()]

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        _machine.limits[_machine.current()] = size or int(_machine.BYTES * (fraction or 1))


POOL = MemoryPool()


def require(nbytes: int) -> int:
    """Return the current GPU, which has this many free bytes."""
    gpu = _machine.current()
    if _machine.free_bytes(gpu) < nbytes:
        POOL.free_all_blocks()
        if _machine.free_bytes(gpu) < nbytes:
            raise OutOfMemoryError(nbytes, _machine.allocated[gpu])
    return gpu


def malloc(owner: object, nbytes: int) -> None:
    """Allocate memory on the current GPU."""
    _machine.allocate(owner, require(nbytes), nbytes)

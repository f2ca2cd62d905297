"""Tests of waiting, memory, caches and batch sizes: no call fails because there is no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device


class RuntimeTests(Kit):
    """`synchronize`, `memory`, `empty_cache`, `shrink_batch`, `is_out_of_memory`."""

    @feature("place")
    def test_synchronize_works_without_a_gpu(self) -> None:
        """Without an argument, `synchronize` waits for all devices, even if there is no GPU."""
        ds.synchronize()
        ds.synchronize("cpu")

    @feature("place")
    def test_synchronize_accepts_each_device(self, device: Device) -> None:
        """`synchronize` accepts each device, whether or not it has pending work."""
        x = self.tensor(device, (64, 64))
        ds.synchronize(device)
        y = ds.run(self.matmul, x, x)
        ds.synchronize(device)
        assert ds.device_of(y) is device

    @feature("memory")
    def test_memory_is_reported_in_bytes(self, device: Device) -> None:
        """Each value is an int in bytes, or None if the framework cannot know it; the values are consistent."""
        info = ds.memory(device)
        for value in (info.total, info.used, info.free, info.peak):
            assert value is None or (type(value) is int and value >= 0)
        if info.used is not None and info.peak is not None:
            assert info.peak >= info.used
        if info.total is not None and info.free is not None:
            assert info.free <= info.total

    @feature("memory")
    def test_memory_counts_live_tensors(self, other_device: Device) -> None:
        """If a GPU's used memory is known, it includes a new tensor."""
        before = ds.memory(other_device).used
        x = ds.zeros((1024, 1024), dtype="float32", device=other_device)
        ds.synchronize(other_device)
        after = ds.memory(other_device).used
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert after - before >= self.adapter.nbytes(x) // 2

    def test_empty_cache_works_without_a_gpu(self) -> None:
        """`empty_cache` works whether or not there are GPUs, and whether or not the framework has a cache."""
        ds.empty_cache()
        ds.empty_cache("cpu")

    @feature("empty_cache")
    def test_empty_cache_keeps_the_tensors(self, device: Device) -> None:
        """Releasing cached memory changes no tensor."""
        x = self.tensor(device)
        ds.empty_cache(device)
        assert ds.device_of(x) is device
        assert self.same_numbers(x, ds.to_numpy(self.tensor()))

    def test_shrink_batch_halves_until_it_fits(self) -> None:
        """The size is halved each time the function runs out of memory; the result and the size are returned."""
        sizes: list[int] = []

        def fn(size: int) -> str:
            sizes.append(size)
            if size > 12:
                raise MemoryError("full")
            return f"fits {size}"

        assert ds.shrink_batch(fn, 100) == ("fits 12", 12)
        assert sizes == [100, 50, 25, 12]
        assert ds.shrink_batch(fn, 5) == ("fits 5", 5)

    def test_shrink_batch_gives_up_at_one(self) -> None:
        """If even a batch of one does not fit, `OutOfMemoryError` is raised with the original error as its cause."""
        error = ds.OutOfMemoryError("full")

        def fn(size: int) -> None:
            raise error

        with pytest.raises(ds.OutOfMemoryError) as caught:
            ds.shrink_batch(fn, 8)
        assert caught.value.__cause__ is error

    def test_shrink_batch_lets_other_errors_through(self) -> None:
        """An error that is not about memory is raised immediately."""
        sizes: list[int] = []

        def fn(size: int) -> None:
            sizes.append(size)
            msg = "CUDA kernels are not what this is about"
            raise RuntimeError(msg)

        with pytest.raises(RuntimeError):
            ds.shrink_batch(fn, 8)
        assert sizes == [8]

    def test_shrink_batch_grows_again(self) -> None:
        """With `grow`, the next call tries twice the size that fitted, up to the limit, and less often after failures.

        Each attempt is a real allocation of the framework, and an error of the framework says that it does not fit.
        """
        free, sizes = 20, []

        def fn(size: int) -> Any:
            sizes.append(size)
            if size > free:
                raise MemoryError("full")
            return ds.zeros((size, 2), dtype="float32")

        def call() -> int:
            sizes.clear()
            result, size = ds.shrink_batch(fn, 32, grow=True, limit=96)
            assert ds.to_numpy(result).shape == (size, 2)
            return size

        assert (call(), list(sizes)) == (16, [32, 16])
        assert (call(), list(sizes)) == (16, [32, 16])
        assert (call(), list(sizes)) == (16, [16]), "after a failure, the next call tries no larger size"
        assert (call(), list(sizes)) == (16, [32, 16])
        free = 1000
        assert [call() for _ in range(6)] == [16, 16, 32, 64, 96, 96]
        free = 50
        assert (call(), list(sizes)) == (48, [96, 48])

    def test_wrapped_errors_of_a_full_device_are_recognized(self) -> None:
        """`is_out_of_memory` finds the error of a full device inside others, and `shrink_batch` reacts to it."""
        full = ds.OutOfMemoryError("full")
        other = RuntimeError("something else")
        wrapped = RuntimeError("the step failed")
        wrapped.__cause__ = RuntimeError("a worker failed")
        wrapped.__cause__.__context__ = full
        assert ds.is_out_of_memory(full)
        assert ds.is_out_of_memory(wrapped)
        assert not ds.is_out_of_memory(other)

        def fn(size: int) -> int:
            if size > 2:
                raise wrapped
            return size

        assert ds.shrink_batch(fn, 8) == (2, 2)

    @pytest.mark.parametrize("start", [0, -1, 2.5, "8", True], ids=repr)
    def test_shrink_batch_requires_a_size(self, start: Any) -> None:
        """An invalid first size is refused before the function is called."""
        with pytest.raises(ds.ArgumentError):
            ds.shrink_batch(lambda size: None, start)

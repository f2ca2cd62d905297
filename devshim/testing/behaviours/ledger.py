"""Tests of the ledger and `MetricLog`: every copy is recorded with its exact number of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.testing.base import Kit
from devshim.testing.behaviours.call_sites import line
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device

NBYTES = 3 * 4 * 4
"""The bytes of the numbers in these tests: float32 of shape (3, 4)."""


class LedgerTests(Kit):
    """`transfers`, `MetricLog`."""

    # ------------------------------------------------------------------ ledger
    @feature("place")
    def test_the_ledger_records_the_bytes_of_every_copy(self, away: tuple[Device, Device]) -> None:
        """The ledger records source, target, bytes and line of tensors and trees, to and from the host."""
        source, target = away
        a = numbers()
        with ds.transfers() as log:
            x = ds.from_numpy(a, source)
            before = line()
            y = ds.place(x, target)
            ds.place([x, {"y": y}], target)
            ds.to_numpy(y)
            ds.place(y, target)
        ways = [(ds.cpu(), source), (source, target), (source, target), (target, ds.cpu())]
        assert [(each.source, each.target) for each in log.records] == ways
        assert [each.bytes for each in log.records] == [NBYTES] * 4
        assert log.records[1].site == f"{__file__}:{before + 1}"
        assert {each.backend for each in log.records} == {self.backend}
        assert log.bytes(source, target) >= 2 * NBYTES
        assert log.total_bytes == 4 * NBYTES

    @feature("place")
    def test_the_ledger_records_the_bytes_of_a_tree(self, away: tuple[Device, Device]) -> None:
        """A tree's tensors with the same source and target are one transfer, with all their bytes and their number."""
        tree = [self.tensor(away[0], (i + 1, 2)) for i in range(5)]
        with ds.transfers() as log:
            ds.place([tree, {"again": tree[0]}], away[1])
        assert [(each.source, each.target, each.tensors) for each in log.records] == [(*away, 5)]
        assert log.total_bytes == sum((i + 1) * 2 * 4 for i in range(5))

    @feature("models")
    @pytest.mark.hook("model")
    def test_the_ledger_records_the_bytes_of_a_model(self, away: tuple[Device, Device]) -> None:
        """Moving a model copies each of its tensors once."""
        model = ds.place(self.model(), away[0])
        sizes = [self.adapter.nbytes(leaf.read()) for leaf in self.adapter.leaves(model)]
        with ds.transfers() as log:
            ds.place(model, away[1])
        assert log.bytes(away[0], away[1]) == log.total_bytes == sum(sizes)
        with ds.transfers() as log:
            ds.place(model, away[1])
        assert log.count == 0

    @feature("models")
    @pytest.mark.hook("model")
    def test_the_ledger_records_the_bytes_of_a_copied_model(self, away: tuple[Device, Device]) -> None:
        """A copy is recorded once for each device, including the one on which the model already is."""
        model = ds.place(self.model(), away[0])
        with ds.transfers() as log:
            copies = ds.replicate(model, away)
        for device, copy in zip(away, copies, strict=True):
            held = sum(self.adapter.nbytes(leaf.read()) for leaf in self.adapter.leaves(copy))
            assert log.bytes(away[0], device) == held
        assert log.count == 2

    # ------------------------------------------------------------------ MetricLog
    @feature("several")
    def test_a_hundred_scalars_are_one_transfer(self, other_device: Device) -> None:
        """Scalars stay on their device until `flush`, which returns them in order with one transfer."""
        log = ds.MetricLog(other_device, capacity=100)
        total = ds.full((1,), 0, dtype="float32", device=other_device)  # MXNet 1.9 cannot add to a tensor without axes
        with ds.transfers() as copies:
            for _ in range(100):
                total = ds.run(lambda x: x + 1, total)
                log.append(total)
            assert copies.count == 0
            found = log.flush()
        assert copies.count == 1
        assert copies.total_bytes == 400
        assert found.dtype == "float32"
        assert found.tolist() == [float(i + 1) for i in range(100)]

    @feature("several")
    def test_scalars_of_several_dtypes_keep_their_values(self, other_device: Device) -> None:
        """An int32 that float32 cannot represent, and a Python number that is not an integer, keep their values."""
        log = ds.MetricLog(other_device)
        for small in ("float32", "float16", "bfloat16"):
            try:
                half = ds.full((1,), 0.5, dtype=small, device=other_device)
            except ds.ConversionError:
                continue
            log.append(ds.asarray([2**24 + 1], dtype="int32", device=other_device))
            log.append(half)
            assert log.flush().tolist() == [2**24 + 1, 0.5]
        log.append(ds.asarray([3], dtype="int32", device=other_device))
        log.append(0.5)
        assert log.flush().tolist() == [3, 0.5]

    @feature("several")
    def test_metric_log_accepts_scalars_of_every_dtype(self, other_device: Device) -> None:
        """Each dtype is kept; bfloat16, which NumPy lacks, becomes float32.

        Two dtypes may need a third that represents both.
        """
        log = ds.MetricLog(other_device)
        for name in DTYPES:
            try:
                values = [ds.full((), value, dtype=name, device=other_device) for value in (1, 0)]
            except ds.ConversionError:
                continue
            for value in values:
                log.append(value)
            found = log.flush()
            assert found.dtype == ("float32" if name == "bfloat16" else name)
            assert found.tolist() == [1, 0]
        log.append(ds.full((), 200, dtype="uint8", device=other_device))
        log.append(ds.full((), -1, dtype="int8", device=other_device))
        assert log.flush().tolist() == [200, -1]

    @feature("several")
    def test_metric_log_keeps_the_value_at_append(self, device: Device) -> None:
        """A later write in place changes no appended value, whether it is the first of its kind or a later one."""
        log = ds.MetricLog(device)
        x = ds.full((1,), 0, dtype="float32", device=device)
        for i in range(4):
            log.append(x)
            new = ds.full((1,), i + 1, dtype="float32", device=device)
            if self.adapter.immutable:
                x = new
            else:
                self.adapter.assign(x, new)
        del x
        assert log.flush().tolist() == [0, 1, 2, 3]

    @feature("several")
    def test_metric_log_checks_scalars_that_differ(self, device: Device, away: tuple[Device, Device]) -> None:
        """After many similar scalars, another shape or dtype and a number are accepted; invalid values are refused."""
        log = ds.MetricLog(device)
        for i in range(3):
            log.append(ds.full((1,), i, dtype="float32", device=device))
        log.append(ds.full((1, 1), 3, dtype="float32", device=device))
        log.append(ds.full((1,), 4, dtype="int32", device=device))
        log.append(5)
        log.append(ds.full((1,), 6, dtype="float32", device=device))
        with pytest.raises(ds.ArgumentError, match="one number at a time"):
            log.append(ds.full((2,), 7, dtype="float32", device=device))
        with pytest.raises(ds.DeviceMismatchError):
            log.append(ds.full((1,), 8, dtype="float32", device=next(each for each in away if each is not device)))
        log.append(ds.full((1,), 9, dtype="float32", device=device))
        assert log.flush().tolist() == [0, 1, 2, 3, 4, 5, 6, 9]

    @feature("several")
    def test_metric_log_reads_plain_host_scalars_without_an_operator(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On the host and on a simulated GPU no operator runs, because copying a number costs more than reading it."""
        if not (device is CPU or self.adapter.simulated):
            pytest.skip("hardware: a real card copies a number there")
        values = [ds.full((1,), i, dtype="float32", device=device) for i in range(5)]
        for name in ("detached_copy", "stack_scalars", "copy_to"):
            monkeypatch.setattr(self.adapter, name, None)
        log = ds.MetricLog(device, capacity=3)
        for value in values:
            log.append(value)
        assert log.flush().tolist() == [0, 1, 2, 3, 4]

    @feature("several")
    def test_metric_log_accepts_zero_dimensional_scalars(self, other_device: Device) -> None:
        """A tensor without axes is a number, even in MXNet 1.9, which takes its shape for an unknown one."""
        log = ds.MetricLog(other_device)
        for value in (1, 2):
            log.append(ds.full((), value, dtype="float32", device=other_device))
        assert log.flush().tolist() == [1, 2]

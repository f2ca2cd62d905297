"""The ledger, the guard and `MetricLog`: what is copied is known to the byte, and nothing is copied in secret."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.backend import Tensor
    from devshim.device import Device

NBYTES = 3 * 4 * 4
"""Bytes of the numbers of these tests: float32 of shape (3, 4)."""

HIDDEN: dict[str, Callable[[Any], object]] = {
    "float": float,
    "int": int,
    "bool": bool,
    "print": str,
    "repr": repr,
    "item": lambda x: x.item() if hasattr(x, "item") else x.numpy(),  # TensorFlow's word for it
}
"""What reads a tensor's value into Python without saying that it copies."""

CARRIED: dict[str, Callable[[Any], object]] = {
    "an array of NumPy's": lambda x: x + numbers(),
    "an index of the host's": lambda x: x[ds.asarray([0, 1], dtype="int64")],
    "an index of NumPy's": lambda x: x[numbers()[:, 0].astype("int64") % 3],
}
"""What of the host's a card's tensor can meet."""

EXPLICIT: dict[str, Callable[[Any], object]] = {
    "place": lambda x: ds.place(x, "cpu"),
    "copy": lambda x: ds.copy(x, ds.device_of(x)),
    "to_numpy": lambda x: ds.to_numpy(x),
    "asarray": lambda x: ds.asarray([1.0, 2.0], device=ds.device_of(x)),
    "zeros": lambda x: ds.zeros(3, device=ds.device_of(x)),
    "tree": lambda x: ds.place({"x": [x]}, "cpu"),
    "compute": lambda x: ds.run(lambda y: y + y, x),
    "device_of": lambda x: ds.device_of(x),
    "draw": lambda x: ds.random.normal(size=3, device=ds.device_of(x)),
}
"""What copies as it says, or does not copy."""


def line() -> int:
    """Return the caller's line."""
    return sys._getframe(1).f_lineno


class Watching(Kit):
    """`transfers`, `guard`, `MetricLog`."""

    def scalar(self, device: Device, value: float = 1) -> Tensor:
        """Return a tensor of one number on a device."""
        return ds.full((), value, dtype="float32", device=device)

    # ------------------------------------------------------------------ ledger
    @feature("place")
    def test_every_copy_is_known_to_the_byte(self, away: tuple[Device, Device]) -> None:
        """Source, target, bytes and the line, of single tensors and trees, to and from the host."""
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
    def test_a_tree_is_known_to_the_byte(self, away: tuple[Device, Device]) -> None:
        """A tree's tensors that go one way are one transfer, of all of its bytes and tensors."""
        tree = [self.tensor(away[0], (i + 1, 2)) for i in range(5)]
        with ds.transfers() as log:
            ds.place([tree, {"again": tree[0]}], away[1])
        assert [(each.source, each.target, each.tensors) for each in log.records] == [(*away, 5)]
        assert log.total_bytes == sum((i + 1) * 2 * 4 for i in range(5))

    @feature("models")
    @pytest.mark.hook("model")
    def test_a_model_is_known_to_the_byte(self, away: tuple[Device, Device]) -> None:
        """Moving a model copies each of its tensors once."""
        model = ds.place(self.model(), away[0])
        sizes = [self.adapter.nbytes(leaf.read()) for leaf in self.adapter.leaves(model)]
        with ds.transfers() as log:
            ds.place(model, away[1])
        assert log.bytes(away[0], away[1]) == log.total_bytes == sum(sizes)
        with ds.transfers() as log:
            ds.place(model, away[1])
        assert log.count == 0

    # ------------------------------------------------------------------ guard
    @feature("guard")
    @pytest.mark.parametrize("how", HIDDEN)
    def test_hidden_transfers_are_refused(self, other_device: Device, how: str) -> None:
        """Reading a card's value into Python raises `TransferError` at the line, and works again afterwards."""
        x = self.scalar(other_device)
        with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
            HIDDEN[how](x)
        assert f" copies from {other_device} to cpu for " in caught.value.problem
        assert __file__ in caught.value.problem
        HIDDEN[how](x)

    @feature("guard")
    @pytest.mark.parametrize("how", EXPLICIT)
    def test_what_is_written_down_is_no_secret(self, device: Device, how: str) -> None:
        """Devshim's calls say what they do, and computing on a device copies nothing."""
        x = self.tensor(device)
        with ds.guard("error"):
            EXPLICIT[how](x)

    @feature("guard")
    @pytest.mark.parametrize("how", CARRIED)
    def test_what_is_carried_to_a_card_is_refused(self, other_device: Device, how: str) -> None:
        """What a card's tensor meets of the host's is told before the framework carries it there, or refused by it."""
        x = self.tensor(other_device)
        with ds.guard("error"), pytest.raises(Exception) as caught:  # noqa: PT011 - a refusal is the framework's own
            CARRIED[how](x)
        if isinstance(caught.value, ds.TransferError):
            assert f" copies from cpu to {other_device} for an " in caught.value.problem
            assert __file__ in caught.value.problem
        with ds.guard("error", host_to_device="allow"):
            assert self.same_numbers(x + x, 2 * numbers())

    @feature("guard")
    def test_a_number_beside_a_card_is_no_secret(self, other_device: Device) -> None:
        """Python's numbers go with the operator, and what meets on one device is carried nowhere."""
        x = self.tensor(other_device)
        with ds.guard("error"):
            y = (x + 1) * 2 - x
            z = y[0]
        assert self.same_numbers(y, numbers() + 2)
        assert ds.device_of(z) is other_device

    @feature("guard")
    def test_the_host_has_no_secrets(self) -> None:
        """On the host there is nothing to transfer."""
        x = self.scalar(ds.cpu())
        with ds.guard("error"):
            assert float(x) == 1
            assert str(x)

    @feature("guard")
    def test_a_warning_points_at_the_line(self, other_device: Device) -> None:
        """``"warn"`` gives the value and a warning at the line; ``"allow"`` inside it gives no warning."""
        x = self.scalar(other_device, 3)
        with ds.guard("warn"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", ds.TransferWarning)
            before = line()
            assert float(x) == 3
            with ds.guard("allow"):
                assert float(x) == 3
        ours = [each for each in seen if each.category is ds.TransferWarning]
        assert [(each.filename, each.lineno) for each in ours] == [(__file__, before + 1)]

    # ------------------------------------------------------------------ MetricLog
    @feature("several")
    def test_a_hundred_scalars_are_one_transfer(self, other_device: Device) -> None:
        """They stay where they are computed until they are wanted, then come in order, in one transfer."""
        log = ds.MetricLog(other_device, capacity=100)
        total = ds.full((1,), 0, dtype="float32", device=other_device)  # MXNet 1.9 adds nothing to what has no axes
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
    def test_scalars_without_axes_are_taken_too(self, other_device: Device) -> None:
        """A tensor of no axes is a number, also where MXNet 1.9 takes that for an unknown shape."""
        log = ds.MetricLog(other_device)
        for value in (1, 2):
            log.append(ds.full((), value, dtype="float32", device=other_device))
        assert log.flush().tolist() == [1, 2]

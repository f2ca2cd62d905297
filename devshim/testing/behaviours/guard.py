"""Tests of the guard: it reports a framework's implicit transfers at the user's line, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.behaviours import call_sites, implicit_transfers
from devshim.testing.behaviours.call_sites import SITES, line
from devshim.testing.behaviours.implicit_transfers import COLLECTIVE, EXPLICIT, IMPLICIT, IMPLICIT_TO_GPU, READ_BY_NUMPY
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


def outcome(fn: Callable[[], object]) -> type[BaseException] | None:
    """Return the class of the error that a call raises, or None."""
    try:
        fn()
    except Exception as error:
        return type(error)
    return None


def refusal(fn: Callable[[], object]) -> type[BaseException] | None:
    """Return the class of the error that a call raises under a guard, or None."""

    def guarded() -> None:
        with ds.guard("error"):
            fn()

    return outcome(guarded)


HERE = (__file__, implicit_transfers.__file__)
"""The files that contain the lines that read."""


class GuardTests(Kit):
    """Implicit transfers that `guard` reports or refuses, and explicit ones that it allows."""

    def scalar(self, device: Device, value: float = 1) -> Tensor:
        """Return a tensor of one number on a device."""
        return ds.full((), value, dtype="float32", device=device)

    # ------------------------------------------------------------------ guard
    @feature("guard")
    @pytest.mark.parametrize("how", IMPLICIT)
    def test_the_guard_refuses_implicit_transfers(self, other_device: Device, how: str) -> None:
        """Reading a GPU's value into Python raises `TransferError` at the line, and works again after the guard."""
        x = self.scalar(other_device)
        with self.scope_of(other_device):
            plain = outcome(lambda: IMPLICIT[how](x))  # MXNet 1.9 cannot compare a tensor without axes
            with pytest.raises(plain or ds.TransferError) as caught, ds.guard("error"):
                IMPLICIT[how](x)
            if isinstance(caught.value, ds.TransferError):
                assert f" copies from {other_device} to cpu for " in caught.value.problem
                assert caught.value.problem.partition(" (an implicit transfer) at ")[2].rpartition(":")[0] in HERE
            assert outcome(lambda: IMPLICIT[how](x)) is plain

    @feature("guard")
    @pytest.mark.parametrize(
        "how", [pytest.param(how, marks=[feature("several")] if how in COLLECTIVE else []) for how in EXPLICIT]
    )
    def test_the_guard_allows_explicit_transfers(self, device: Device, how: str) -> None:
        """The calls of devshim are explicit transfers, and computing on a device copies nothing."""
        x = self.tensor(device)
        with ds.guard("error"):
            EXPLICIT[how](x)

    @feature("guard")
    @pytest.mark.parametrize("how", IMPLICIT_TO_GPU)
    def test_the_guard_refuses_implicit_copies_to_a_gpu(self, other_device: Device, how: str) -> None:
        """Host data in an operator with a GPU's tensor is reported before it is copied, or the framework refuses it."""
        x = self.tensor(other_device)
        scope = self.scope_of(other_device)
        with scope, ds.guard("error"), pytest.raises(Exception) as caught:  # noqa: PT011 - the framework's own refusal
            IMPLICIT_TO_GPU[how](x)
        if isinstance(caught.value, ds.TransferError):
            assert f" copies from cpu to {other_device} for an " in caught.value.problem
            assert caught.value.problem.partition(" (an implicit transfer) at ")[2].rpartition(":")[0] in HERE
        with self.scope_of(other_device), ds.guard("error", host_to_device="allow"):
            assert self.same_numbers(x + x, 2 * numbers())

    @feature("guard")
    def test_the_guard_allows_python_numbers_as_operands(self, other_device: Device) -> None:
        """Python numbers are allowed in an operator with a GPU's tensor; tensors on one device are not copied."""
        x = self.tensor(other_device)
        with self.scope_of(other_device), ds.guard("error"):
            y = (x + 1) * 2 - x
            z = y[0]
        assert self.same_numbers(y, numbers() + 2)
        assert ds.device_of(z) is other_device

    @feature("guard")
    def test_the_guard_ignores_tensors_on_the_host(self) -> None:
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

    @feature("guard")
    @pytest.mark.parametrize("site", SITES)
    @pytest.mark.parametrize("how", ["float", "print"])
    def test_the_line_is_named(self, other_device: Device, site: str, how: str) -> None:
        """The error names exactly the line in the user's code that reads, in any construct."""
        x = self.scalar(other_device)
        at: list[int] = []
        with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
            SITES[site](IMPLICIT[how], x, at)
        assert caught.value.problem.endswith(f" (an implicit transfer) at {call_sites.__file__}:{at[-1]}")

    @feature("guard", "namespace")
    @pytest.mark.parametrize("name", ["nonzero", "unique_values"])
    def test_a_function_that_reads_is_reported_where_it_is_called(self, other_device: Device, name: str) -> None:
        """Not at a line of the library that has the function; some frameworks compute it without a read."""
        x = self.tensor(other_device)
        fn = getattr(ds.namespace(x), name)
        problem, before = None, line()
        try:
            with ds.guard("error"):
                fn(x)
        except ds.TransferError as error:
            problem = error.problem
        assert problem is None or problem.endswith(f" at {__file__}:{before + 3}")

    @feature("guard")
    @pytest.mark.parametrize("how", READ_BY_NUMPY)
    def test_the_guard_refuses_reads_by_numpy(self, other_device: Device, how: str) -> None:
        """If NumPy reads a GPU's values, the guard reports it.

        Otherwise they stay there, or the read fails in any case.
        """
        x = self.tensor(other_device)
        plain = outcome(lambda: READ_BY_NUMPY[how](x))
        made: list[Any] = []
        found = refusal(lambda: made.append(READ_BY_NUMPY[how](x)))
        if found is not None:
            assert found in (ds.TransferError, plain)
        elif not isinstance(x, np.ndarray):  # NumPy's own
            (y,) = made  # an array of objects contains the tensors themselves
            assert str(getattr(y, "dtype", None)) == "object" or ds.device_of(y) is other_device

    @feature("guard")
    def test_the_guard_refuses_iteration(self, other_device: Device) -> None:
        """Splitting a tensor into rows copies nothing; reading an element does."""
        x = self.tensor(other_device)
        with self.scope_of(other_device), ds.guard("error"):
            rows = list(x)
            at = line() + 2
            with pytest.raises(ds.TransferError) as caught:
                sum(float(value) for value in rows[0])
        assert len(rows) == 3
        assert f"at {__file__}:{at}" in caught.value.problem

    @feature("guard")
    @pytest.mark.parametrize("default", ["the CPU", "the GPU"])
    def test_the_guard_refuses_boolean_masks(self, other_device: Device, default: str) -> None:
        """A mask is refused, because the host waits for the number of elements that it selects on the GPU.

        Without a scope, the default device is the CPU on simulated GPUs, and the first GPU on real ones.
        """
        x = self.tensor(other_device)
        with ds.on(other_device if default == "the GPU" else "cpu"):
            plain = outcome(lambda: x[x > 1])
            assert refusal(lambda: x[x > 1]) is (plain or ds.TransferError)
            with ds.guard("error", device_to_host="allow"):
                assert outcome(lambda: x[x > 1]) is plain

    @feature("guard")
    def test_the_guard_refuses_writing_host_values(self, other_device: Device) -> None:
        """Writing a NumPy array into a GPU's tensor is refused, and the tensor is unchanged."""
        x = self.tensor(other_device)
        found = refusal(lambda: x.__setitem__(0, np.zeros(4, "float32")))
        assert found is ds.TransferError or self.adapter.immutable
        assert self.same_numbers(x, numbers())

    @feature("guard")
    def test_the_guard_refuses_mixed_devices(self, away: tuple[Device, Device]) -> None:
        """Tensors on two simulated GPUs cannot meet in an operator, with or without a guard."""
        x, y = self.tensor(away[0]), self.tensor(away[1])
        assert not self.adapter.simulated or refusal(lambda: x + y) is not None

    # ------------------------------------------------------------------ threads and tasks
    @feature("guard")
    def test_a_guard_applies_to_its_own_thread(self, other_device: Device) -> None:
        """A guard applies to its own thread only: others read freely, and their guards do not affect this one."""
        x = self.scalar(other_device)

        with ds.guard("error"):
            assert in_thread(lambda: float(x)) == 1
            with ds.guard("allow"):
                assert in_thread(lambda: refusal(lambda: float(x))) is ds.TransferError
                assert float(x) == 1

    @feature("guard")
    def test_a_guard_applies_to_its_own_task(self, other_device: Device) -> None:
        """Each task of a thread has its own guard, too."""
        x = self.scalar(other_device)

        async def reading(mode: Literal["error", "allow"]) -> type[BaseException] | None:
            with ds.guard(mode):
                await asyncio.sleep(0)
                return outcome(lambda: float(x))

        async def all_of_them() -> list[object]:
            return list(await asyncio.gather(reading("error"), reading("allow"), reading("error")))

        assert asyncio.run(all_of_them()) == [ds.TransferError, None, ds.TransferError]

    @feature("guard")
    def test_guards_nest(self, other_device: Device) -> None:
        """The innermost guard applies, even if one is entered twice, and after an exception."""
        x, strict = self.scalar(other_device), ds.guard("error")
        with strict, strict:
            with ds.guard("allow"), strict, contextlib.suppress(ds.TransferError):
                float(x)
                raise AssertionError("the guard let it pass")
            assert outcome(lambda: float(x)) is ds.TransferError
        assert float(x) == 1

    @feature("guard")
    def test_a_guard_in_a_generator(self, other_device: Device) -> None:
        """A guard that a generator opens ends with it, in any order of generators."""
        x = self.scalar(other_device)

        def guarded(mode: Literal["error", "allow"]) -> Generator[None, None, None]:
            with ds.guard(mode):
                yield

        first, second = guarded("error"), guarded("allow")
        next(first)
        next(second)
        assert float(x) == 1
        first.close()
        assert float(x) == 1
        second.close()
        assert float(x) == 1
        assert refusal(lambda: float(x)) is ds.TransferError

    @feature("guard")
    def test_a_guard_restores_the_framework(self, other_device: Device) -> None:
        """The classes of tensors have exactly the same attributes afterwards, however a block ended."""
        x = self.scalar(other_device)
        before = {cls: dict(vars(cls)) for cls in type(x).__mro__}
        with contextlib.suppress(ds.TransferError), ds.guard("error"), ds.guard("warn"):
            assert {cls: dict(vars(cls)) for cls in type(x).__mro__} != before
            float(ds.place(x, "cpu"))
            with ds.guard("error"):
                float(x)
        for cls, attributes in before.items():
            assert [name for name, value in vars(cls).items() if value is not attributes.get(name)] == []
            assert vars(cls).keys() == attributes.keys()
        assert float(x) == 1

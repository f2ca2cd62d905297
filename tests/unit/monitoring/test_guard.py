"""Tests of the guard: implicit transfers are reported or refused at the line, explicit ones are allowed.

On NumPy GPUs.
"""

from __future__ import annotations

import asyncio
import copy
import io
import logging
import pickle
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devshim_backends._numpy.simulation.simulate import SimulatedArray

import devshim as ds
from devshim.monitoring import buffer_protocol, guard
from devshim.monitoring.instrumentation import OPERANDS, READS
from devshim.registry import registry
from devshim.transfers import observing

HIDDEN: dict[str, Any] = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "str": str,
    "format": lambda x: f"{x}",
    "condition": lambda x: 1 if x > 0 else 2,
    "bytes": lambda x: x.tobytes(),
    "a file": lambda x: x.dump(io.BytesIO()),
    "pickle": pickle.dumps,
    "numpy's own": lambda x: x.dumps(),
}
EXPLICIT: dict[str, Any] = {
    "place": lambda x: ds.place(x, "cpu"),
    "copy": lambda x: ds.copy(x, "gpu:1"),
    "to_numpy": lambda x: ds.to_numpy(x),
    "from_numpy": lambda x: ds.from_numpy(np.ones(2), "gpu:1"),
    "asarray": lambda x: ds.asarray([1.0, 2.0], device="gpu:1"),
    "compute": lambda x: x + 1,
    "tree": lambda x: ds.place([x], "cpu"),
    "copied where it is": copy.deepcopy,
}


@pytest.fixture
def x() -> Iterator[Any]:
    ds.use("numpy")
    with ds.simulate(2):
        yield ds.ones((), device="gpu:1")
    ds.use(None)


NAMES = (*READS, *OPERANDS)


def line() -> int:
    return sys._getframe(1).f_lineno


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_copies_are_refused(x: Any, name: str) -> None:
    with ds.guard("error"):
        with pytest.raises(
            ds.TransferError, match=r"^NumPy copies from gpu:1 to cpu for \S+.* \(an implicit transfer\) at "
        ) as caught:
            HIDDEN[name](x)
        assert "ds.to_numpy(x)" in str(caught.value.hint)
    HIDDEN[name](x)


@pytest.mark.parametrize("name", EXPLICIT)
def test_what_is_written_down_is_no_secret(x: Any, name: str) -> None:
    with ds.guard("error"):
        EXPLICIT[name](x)


def test_the_line_is_named(x: Any) -> None:
    before = line()
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        float(x)
    assert f"at {__file__}:{before + 2}" in caught.value.problem


def test_a_warning_points_at_the_line(x: Any) -> None:
    with ds.guard("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = line()
        assert float(x) == 1
    assert [(each.filename, each.lineno, each.category) for each in seen] == [
        (__file__, before + 1, ds.TransferWarning)
    ]


def test_a_log_entry_is_seen_where_nobody_has_set_up_logging(x: Any, caplog: pytest.LogCaptureFixture) -> None:
    with ds.guard("log"):
        assert float(x) == 1
    assert "NumPy copies from gpu:1 to cpu for float() (an implicit transfer)" in caplog.text


def test_directions_and_nesting(x: Any) -> None:
    with ds.guard("error", device_to_host="allow"):
        float(x)
    with ds.guard("allow", device_to_host="error"):
        with pytest.raises(ds.TransferError):
            float(x)
        with ds.guard("allow"):
            float(x)
        with pytest.raises(ds.TransferError):
            float(x)


CARRIED: dict[str, Any] = {
    "an index": lambda x: x[np.array([0, 1])],
    "one of several": lambda x: x[:, np.array([0, 1])],
    "a mask": lambda x: x[np.ones((2, 3), bool)],
    "an index to write at": lambda x: x.__setitem__(np.array([1]), 0),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_is_copied_to_a_card_is_refused(x: Any, name: str) -> None:
    y = ds.ones((2, 3), device="gpu:1")
    with ds.guard("allow", host_to_device="error"), pytest.raises(ds.TransferError) as caught:
        CARRIED[name](y)
    assert caught.value.problem.startswith("NumPy copies from cpu to gpu:1 for an index")
    assert (ds.to_numpy(y) == 1).all(), "nothing was written"
    with ds.guard("error", host_to_device="allow"):
        CARRIED[name](y)
    with ds.guard("error"):
        CARRIED[name](ds.ones((2, 3)))


def test_numbers_slices_and_what_is_there_are_not_copied(x: Any) -> None:
    y, at = ds.ones((2, 3), device="gpu:1"), ds.asarray([0, 1], device="gpu:1")
    with ds.guard("error"):
        for index in (0, slice(1), (0, 1), (slice(None), 2), None, ..., at):
            assert ds.device_of(y[index]) is ds.gpu(1)
        y[0] = 3.0
        y[1] = np.float64(4)
        assert ds.to_numpy(y).sum() == 21


def test_the_host_has_no_secrets(x: Any) -> None:
    with ds.guard("error"):
        assert float(ds.place(x, "cpu")) == 1


def test_threads_and_tasks_keep_their_own(x: Any) -> None:
    found: list[float] = []
    with ds.guard("error"):
        thread = threading.Thread(target=lambda: found.append(float(x)))
        thread.start()
        thread.join()
    assert found == [1.0], "another thread's guard is not this one's"

    async def guarded() -> bool:
        with ds.guard("error"):
            await asyncio.sleep(0)
            try:
                float(x)
            except ds.TransferError:
                return True
            return False

    async def free() -> float:
        await asyncio.sleep(0)
        return float(x)

    async def both() -> list[object]:
        return list(await asyncio.gather(guarded(), free()))

    assert asyncio.run(both()) == [True, 1.0]


def test_a_guard_that_is_over_guards_nothing(x: Any) -> None:
    """This includes a task started inside it, and the thread of a generator that another thread closed."""

    async def outlive() -> float:
        over = asyncio.Event()

        async def read() -> float:
            with pytest.raises(ds.TransferError):
                float(x)
            await over.wait()
            return float(x)

        with ds.guard("error"):
            task = asyncio.create_task(read())
            await asyncio.sleep(0)
        with ds.guard("allow"):
            over.set()
            return await task

    assert asyncio.run(outlive()) == 1

    def block() -> Iterator[None]:
        with ds.guard("error"):
            yield

    generator = block()
    next(generator)
    closing = threading.Thread(target=generator.close)
    closing.start()
    closing.join()
    ended, entered = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with ds.guard("error"):
            entered.set()
            ended.wait(60)

    other = threading.Thread(target=elsewhere)
    other.start()
    entered.wait(60)
    try:
        assert float(x) == 1
    finally:
        ended.set()
        other.join()


def test_afterwards_nothing_is_left(x: Any) -> None:
    before = {name: SimulatedArray.__dict__.get(name) for name in NAMES}
    with ds.guard("error"), ds.guard("warn"):
        assert observing.ACTIVE is not None
        assert {name: SimulatedArray.__dict__.get(name) for name in NAMES} != before
    assert {name: SimulatedArray.__dict__.get(name) for name in NAMES} == before
    assert observing.ACTIVE is None
    assert guard._instrumented == {}


def test_a_framework_loaded_under_the_guard_is_watched(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.load("numpy")
    monkeypatch.setattr(registry, "LOADED", {})
    with ds.guard("error"):
        float(x)
        registry._on_loaded(backend)
        with pytest.raises(ds.TransferError):
            float(x)


def test_a_framework_with_only_the_host_is_left_alone_until_it_gets_a_gpu() -> None:
    before = {name: SimulatedArray.__dict__.get(name) for name in NAMES}
    ds.use("numpy")
    with ds.guard("error"):
        assert guard._instrumented == {}
        assert {name: SimulatedArray.__dict__.get(name) for name in NAMES} == before
        with ds.simulate(1), pytest.raises(ds.TransferError):
            float(ds.ones((), device="gpu"))
    assert guard._instrumented == {}
    ds.use(None)


def test_a_tensor_on_a_removed_gpu_is_still_watched() -> None:
    ds.use("numpy")
    with ds.simulate(1):
        x = ds.ones((), device="gpu")
    with ds.guard("error"):
        assert set(guard._instrumented) == {"numpy"}
        with pytest.raises((ds.TransferError, ds.SimulationError)):
            float(x)
    ds.use(None)


@pytest.mark.parametrize("bad", ["", "raise", None, True])
def test_modes_that_do_not_exist(bad: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="mode is"):
        ds.guard(bad)
    if bad is not None:
        with pytest.raises(ds.ArgumentError, match="device_to_host is"):
            ds.guard("error", device_to_host=bad)


def test_the_ledger_and_the_guard_together(x: Any) -> None:
    with ds.guard("error"), ds.transfers() as log:
        ds.place(x, "cpu")
        ds.zeros(3, device=1)
        with pytest.raises(ds.TransferError):
            x.item()
    assert log.count == 1


# ---------------------------------------------------------------------- the line, and the state afterwards
def test_a_line_that_warns_often_warns_once(x: Any) -> None:
    """Like Python's own warnings, unless a filter says otherwise; and filters by module use the user's module."""
    with ds.guard("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            float(x)
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        float(x)
    assert len(seen) == 1


def test_a_module_called_as_one_of_pythons(x: Any) -> None:
    """The file decides whose line it is: a user's module may be called ``queue``."""
    code = compile("def reading(x):\n    return float(x)\n", "/home/user/queue.py", "exec")
    scope: dict[str, Any] = {"__name__": "queue"}
    exec(code, scope)
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        scope["reading"](x)
    assert caught.value.problem.endswith(" at /home/user/queue.py:2")


def test_pythons_own_lines_are_nobodys(x: Any) -> None:
    """A logger formats its arguments in its own line."""
    logger = logging.Logger("somebody")
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    at = line() + 2
    with ds.guard("warn"), pytest.warns(ds.TransferWarning) as seen:
        logger.warning("the loss is %s", x)
    assert [(each.filename, each.lineno) for each in seen] == [(__file__, at)]


def test_a_refusal_that_a_logger_prints_is_raised_where_the_block_ends(
    x: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.Logger("somebody")
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    before = line()
    with pytest.raises(ds.TransferError) as caught, ds.guard("error"):
        logger.warning("the loss is %s", x)
    assert caught.value.problem.endswith(f" at {__file__}:{before + 2}")
    assert "Logging error" in capsys.readouterr().err

    def and_fail(error: BaseException) -> None:
        with ds.guard("error"):
            logger.warning("the loss is %s", x)
            raise error

    with pytest.raises(ds.TransferError) as caught:
        and_fail(ZeroDivisionError())
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    with pytest.raises(KeyboardInterrupt):
        and_fail(KeyboardInterrupt())
    with ds.guard("error"), pytest.raises(ds.TransferError):
        float(x)  # a caught one is not raised again


def test_what_parallel_has_reported_is_not_raised_again(x: Any) -> None:
    """Of two refusals, `parallel` raises the first, and notes the other."""
    with ds.guard("error"):
        with pytest.raises(ds.TransferError, match="callable 0 of"):
            ds.parallel([float, float], [x, ds.ones((), device="gpu:0")])
        ds.parallel([ds.to_numpy], [x])


def test_a_guard_that_cannot_be_entered_leaves_nothing(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.load("numpy")

    def watch(report: object) -> Any:
        raise RuntimeError

    monkeypatch.setattr(backend, "report_implicit_transfers", watch, raising=False)
    with pytest.raises(RuntimeError), ds.guard("error"):
        raise AssertionError("not entered")
    monkeypatch.undo()
    assert guard._open == 0
    assert float(x) == 1
    with ds.guard("error"), pytest.raises(ds.TransferError):
        float(x)


OF_C = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the struct behind a class is another one: see _buffers"
)


@OF_C
@pytest.mark.parametrize("cls", [bytearray, np.ndarray, int])
def test_the_slot_for_buffers(cls: type) -> None:
    """If its address is known, it returns what memoryview returns; in a class without it, nothing is replaced."""
    calls: list[Any] = []
    slot = buffer_protocol.slot_of(cls, buffer_protocol._AS_BUFFER)
    assert (slot is not None and bool(slot.value)) == (cls is not int)
    x = cls(b"abc") if cls is bytearray else cls(3)
    with buffer_protocol.instrument_buffers(cls, calls.append):
        if cls is not int:
            assert memoryview(x).nbytes
    if cls is not int:
        memoryview(x)
    assert len(calls) == (cls is not int)


@OF_C
def test_a_buffer_that_is_refused() -> None:
    def refuse(x: object) -> None:
        raise ds.TransferError("no")

    with buffer_protocol.instrument_buffers(bytearray, refuse), pytest.raises(SystemError) as caught:
        memoryview(bytearray(b"abc"))
    assert isinstance(buffer_protocol.cause_of_refusal(caught.value), ds.TransferError)
    assert buffer_protocol.cause_of_refusal(caught.value) is None, "it is reported once"
    assert memoryview(bytearray(b"abc")).nbytes == 3


class Sequence:
    """An object whose number comes from a GPU: NumPy raises its own error before the refusal."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> float:
        raise IndexError(index)

    def __float__(self) -> float:
        raise ds.TransferError("a value on a GPU was read", "make the copy explicit")


def test_a_refusal_behind_an_error_of_numpy_is_raised(x: Any) -> None:
    with pytest.raises(ds.TransferError, match="a value on a GPU was read"), ds.guard("error"):
        np.zeros(2)[0] = Sequence()
    with pytest.raises(ValueError, match="setting an array element"):
        np.zeros(2)[0] = Sequence()


def test_other_errors_of_numpy_are_left_alone(x: Any) -> None:
    with pytest.raises(ValueError, match="setting an array element with a sequence") as caught, ds.guard("error"):
        np.zeros(2)[0] = [1.0, 2.0]
    assert caught.value.__cause__ is None or not isinstance(caught.value.__cause__, ds.TransferError)

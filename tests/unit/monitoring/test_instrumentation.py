"""Tests of the instrumentation of tensor classes: one report per implicit transfer, and the class is restored."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.monitoring import instrumentation
from devshim.monitoring.buffer_protocol import instrument_buffers

CPU, G0, G1 = ds.cpu(), ds.gpu(0), ds.gpu(1)


class Tensor:
    """A framework's tensor: values on a device."""

    def __init__(self, device: Any, values: Any = (1.0, 2.0), dtype: str = "float32") -> None:
        self.device, self.dtype = device, dtype
        self.array = np.array(values, dtype)
        self.ndim = self.array.ndim

    @property
    def value(self) -> Any:
        """The values."""
        return self.array.tolist()

    def item(self) -> Any:
        """Return the one number."""
        return self.array.item()

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"Tensor({self.value})"

    def __add__(self, other: Any) -> str:
        return "sum"

    def __eq__(self, other: object) -> bool:
        return True

    def __getitem__(self, index: Any) -> str:
        return "items"

    def __setitem__(self, index: Any, value: Any) -> None:
        self.written = (index, value)

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def reported() -> list[Any]:
    return []


@pytest.fixture
def report(reported: list[Any]) -> Any:
    return lambda source, target, what: reported.append((str(source), str(target), what))


def where(x: Any) -> Any:
    return x.device


def copied_from(x: Any) -> Any:
    return x.device if type(x) is Tensor else None


@pytest.fixture
def reads(report: Any) -> Any:
    with instrumentation.instrument_reads(Tensor, where, report, [("value", "value")]):
        yield


@pytest.fixture
def operands(report: Any) -> Any:
    with instrumentation.instrument_operands(Tensor, where, report, copied_from):
        yield


# ---------------------------------------------------------------------- reads
@pytest.mark.parametrize(
    ("read", "result", "what"),
    [
        (lambda x: x.item(), 1.0, "item()"),
        (lambda x: float(x), 1.0, "float()"),
        (lambda x: repr(x), "Tensor([1.0])", "print()"),
        (lambda x: x.value, [1.0], "value"),
    ],
    ids=["item", "float", "print", "property"],
)
def test_a_read_is_reported_once_and_gives_what_it_gave(
    reads: None, reported: list[Any], read: Any, result: Any, what: str
) -> None:
    assert read(Tensor(G1, [1])) == result
    assert reported == [("gpu:1", "cpu", what)], "what the read itself calls is not reported again"
    assert read(Tensor(None, [1])) == result, "a tracer is nowhere"
    assert len(reported) == 1


def test_what_is_known_already_is_not_reported(reads: None, reported: list[Any]) -> None:
    x = Tensor(G1, [1])
    assert not instrumentation.is_suppressed()
    with instrumentation.suppressed():
        assert instrumentation.is_suppressed()
        assert x.item() == 1.0
        assert x.value == [1.0]
        with instrumentation.suppressed():
            pass
        assert instrumentation.is_suppressed()
    assert not instrumentation.is_suppressed()
    assert reported == []
    x.item()
    assert len(reported) == 1


def test_a_report_that_raises_stops_the_read_and_the_next_is_reported(reported: list[Any]) -> None:
    def refuse(*args: Any) -> None:
        reported.append(args)
        raise RuntimeError("guarded")

    x = Tensor(G1, [1])
    with instrumentation.instrument_reads(Tensor, where, refuse):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="guarded"):
                x.item()
    assert len(reported) == 2
    assert x.item() == 1.0


def test_the_class_is_as_it_was(report: Any) -> None:
    before = dict(vars(Tensor))
    with (
        instrumentation.instrument_reads(Tensor, where, report, [("value", "value")]),
        instrumentation.instrument_operands(Tensor, where, report),
    ):
        assert dict(vars(Tensor)) != before
        assert Tensor.item.__name__ == "item"
        assert Tensor.item.__doc__ == "Return the one number."
        assert Tensor.value.__doc__ == "The values."
        assert Tensor.__add__.__name__ == "__add__"
    assert dict(vars(Tensor)) == before


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_blocks_that_replace_the_same_method_may_end_in_any_order(order: tuple[int, ...]) -> None:
    """The last one to end restores the method, and one that a class inherits is no longer its own."""
    own = Tensor.item
    blocks = [
        instrumentation.patched(Tensor, {"item": lambda self, number=number: number, "__bool__": lambda self: True})
        for number in range(3)
    ]
    for number, block in enumerate(blocks):
        block.__enter__()
        assert Tensor(CPU).item() == number  # type: ignore[comparison-overlap]
    for number in order:
        blocks[number].__exit__(None, None, None)
    assert Tensor.item is own
    assert "__bool__" not in vars(Tensor)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_blocks_that_instrument_buffers_may_end_in_any_order(order: tuple[int, ...]) -> None:
    """Each callback is called until its own block ends, and then no longer."""

    class Values(bytearray):
        """Bytes that give a buffer."""

    called: list[int] = []
    callbacks = [lambda x: called.append(0), lambda x: called.append(1)]
    blocks = [instrument_buffers(Values, callback) for callback in callbacks]
    for block in blocks:
        block.__enter__()
    for i, expected in enumerate([[0, 1], [order[1]], []]):
        called.clear()
        assert bytes(memoryview(Values(b"ab"))) == b"ab"
        assert called == expected
        if i < 2:
            blocks[order[i]].__exit__(None, None, None)


def test_what_somebody_else_put_there_meanwhile_stays(report: Any) -> None:
    class Own(Tensor):
        pass

    with instrumentation.patched(Own, {"item": lambda self: 1, "new": lambda self: 2}):
        assert (Own(CPU).item(), Own(CPU).new()) == (1, 2)  # type: ignore[attr-defined]
        Own.item = lambda self: 3  # type: ignore[method-assign]
    assert Own(CPU).item() == 3
    assert not hasattr(Own, "new")


# ---------------------------------------------------------------------- operands and indices
ARRAY = np.ones(2)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda x: x + ARRAY, [("cpu", "gpu:1", "an operand of +")]),
        (lambda x: x == ARRAY, [("cpu", "gpu:1", "a comparison")]),
        (lambda x: x + Tensor(G0), [("gpu:0", "gpu:1", "an operand of +")]),
        (lambda x: x + Tensor(G1), []),
        (lambda x: x + 1.0, []),
        (lambda x: x + np.array(1.0), []),
        (lambda x: x[Tensor(CPU, [0, 1], "int64")], [("cpu", "gpu:1", "an index")]),
        (lambda x: x[ARRAY], [("cpu", "gpu:1", "an index")]),
        (lambda x: x[0, Tensor(CPU, [0, 1], "int64")], [("cpu", "gpu:1", "an index")]),
        (lambda x: x[[Tensor(G0, [1], "int64"), 0]], [("gpu:0", "gpu:1", "an index")]),
        (lambda x: x[Tensor(CPU, 1, "int64")], []),
        (lambda x: x[0], []),
        (lambda x: x[Tensor(G1, [True, False], "bool")], [("gpu:1", "cpu", "a selection by a mask")]),
        (lambda x: x.__setitem__(0, ARRAY), [("cpu", "gpu:1", "an index or a value")]),
        (lambda x: x.__setitem__(0, Tensor(G0)), [("gpu:0", "gpu:1", "an index or a value")]),
        (lambda x: x.__setitem__(0, 1.0), []),
        (lambda x: x.__setitem__(Tensor(G1, [True, False], "bool"), 1.0), []),
    ],
)
def test_what_a_cards_tensor_meets(operands: None, reported: list[Any], use: Any, expected: Any) -> None:
    use(Tensor(G1))
    assert reported == expected
    use(Tensor(None))
    assert reported == expected, "a tracer is nowhere"


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda x: x + Tensor(G1), []),
        (lambda x: x[Tensor(G1)], []),
        (lambda x: x.__setitem__(0, Tensor(G1)), [("gpu:1", "cpu", "an index or a value")]),
        (lambda x: x.__setitem__(0, Tensor(G1, 1.0)), [("gpu:1", "cpu", "an index or a value")]),
        (lambda x: x.__setitem__(0, Tensor(CPU)), []),
        (lambda x: x.__setitem__(0, ARRAY), []),
        (lambda x: x.__setitem__(0, Tensor(None)), []),
    ],
)
def test_what_the_hosts_tensor_meets(operands: None, reported: list[Any], use: Any, expected: Any) -> None:
    use(Tensor(CPU))
    assert reported == expected


def test_the_operator_does_what_it_did(operands: None, reported: list[Any]) -> None:
    x = Tensor(G1)
    assert x + ARRAY == "sum"
    assert x[ARRAY] == "items"
    x[0] = ARRAY
    assert x.written == (0, ARRAY)
    with instrumentation.suppressed():
        assert x + ARRAY == "sum"
        assert x[ARRAY] == "items"
    assert len(reported) == 3


def test_an_index_that_the_framework_refuses_is_not_copied(report: Any, reported: list[Any]) -> None:
    with instrumentation.instrument_operands(Tensor, where, report, names=["__getitem__"], indices=False):
        x = Tensor(G1)
        x[Tensor(CPU, [0, 1], "int64")]
        x + ARRAY
        assert reported == []
        x[ARRAY]
    assert reported == [("cpu", "gpu:1", "an index")]

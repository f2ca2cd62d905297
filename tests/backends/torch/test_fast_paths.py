"""Tests of the fast paths for new PyTorch tensors: PyTorch's own settings and modes do not change the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import devshim as ds
from devshim.registry import current
from devshim.tensors import on_host

_PLAIN = torch.ones(2, 3)
NEW: dict[str, Callable[[], Any]] = {
    "empty": lambda: ds.empty((2, 3)),
    "zeros": lambda: ds.zeros((2, 3)),
    "full": lambda: ds.full((2, 3), 7),
    "arange": lambda: ds.arange(3),
    "eye": lambda: ds.eye(3),
    "zeros_like": lambda: ds.zeros_like(_PLAIN),
    "asarray": lambda: ds.asarray([1.0, 2.0]),
    "uniform": lambda: ds.random.uniform(size=3),
    "uniform, other bounds": lambda: ds.random.uniform(-1, 1, size=3),
    "randint": lambda: ds.random.randint(3, size=3),
    "permutation": lambda: ds.random.permutation(3),
    "normal": lambda: ds.random.normal(size=3),
}


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    ds.use("torch")
    ds.zeros(1)
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    ds.use(None)


def test_the_fast_paths_are_taken() -> None:
    """Otherwise the tests below would test the slow path."""
    assert on_host.make("zeros", ((2,),), (2,), None, None) is not None
    assert on_host.make("uniform", (0, 1, (2,)), (2,), None, None) is not None


@pytest.mark.parametrize("call", NEW)
def test_the_default_device_of_pytorch_is_ignored(call: str) -> None:
    """Set in a ``with`` block, and for the process."""
    with torch.device("meta"):
        assert NEW[call]().device == torch.device("cpu")
    torch.set_default_device("meta")
    assert NEW[call]().device == torch.device("cpu")


def test_draws_of_a_small_default_dtype() -> None:
    """Rounding could reach the upper bound, so the slow path draws, and the fast path has not drawn before it."""
    torch.set_default_dtype(torch.float16)
    torch.manual_seed(0)
    first = ds.random.uniform(size=4096), ds.random.normal(size=3)
    torch.manual_seed(0)
    torch.empty(4096).uniform_(0, 1)
    assert torch.equal(first[1], torch.randn(3))
    assert bool((first[0] < 1).all())


def test_draws_in_a_mode_without_values() -> None:
    """A fake tensor has no values to check against the upper bound."""
    with FakeTensorMode():
        assert ds.random.uniform(-3, 1.5, (3,)).shape == (3,)
    recorded = make_fx(lambda x: x + ds.random.uniform(-3, 2.5, (3,)))(torch.ones(3))
    assert recorded(torch.ones(3)).shape == (3,)


@pytest.mark.parametrize("call", ["uniform", "normal"])
def test_equal_seeds(call: str) -> None:
    """The fast path draws the same numbers as the slow path."""
    torch.manual_seed(0)
    fast = NEW[call]()
    torch.manual_seed(0)
    with ds.explain(file=None):
        assert torch.equal(NEW[call](), fast)


@pytest.mark.parametrize("call", [call for call in NEW if call != "zeros_like"])  # it has the device of its argument
def test_code_that_is_exported(call: str) -> None:
    """An exported function does not see a default device that is set outside of it, so each call is refused."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.sum() + NEW[call]().sum()

    NEW[call]()
    with pytest.raises(ds.TracingError):
        torch.export.export(Net(), (torch.ones(2),), strict=False)


def test_a_block_in_code_that_is_exported() -> None:
    """The exported function itself names the device."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            with ds.on("cpu"):
                return x + ds.ones(2)

    ds.ones(2)
    exported = torch.export.export(Net(), (torch.ones(2),), strict=False)
    assert exported.module()(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_block_in_compiled_code_that_stops() -> None:
    """Code after a break of the graph runs uncompiled, and is still in the block."""
    found = []

    def outside() -> None:
        found.append(ds.device_of(ds.zeros((2, 3))))

    outside_graph = torch._dynamo.disable(outside)

    @torch.compile(backend="eager")
    def compute(x: Any) -> Any:
        with ds.on("cpu"):
            y = x + ds.zeros((2, 3), device="cpu")
        outside_graph()
        return y

    compute(torch.ones(2, 3))
    assert current.usual_backend is None
    assert current.traced_scopes
    assert found == [ds.cpu()]
    assert on_host.make("zeros", ((2,),), (2,), None, None) is not None


def test_to_numpy_of_tensors_that_need_the_slow_path() -> None:
    """A pending negation and conjugation, a gradient, and memory that was freed."""
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert ds.to_numpy(x.conj().imag).tolist() == [-2, 4]
    assert ds.to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
    emptied = torch.ones(2)
    emptied.untyped_storage().resize_(0)
    with pytest.raises(ds.ConversionError):
        ds.to_numpy(emptied)


def _take(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = ds.namespace(x).take_along_axis(x, indices, axis=1)
    return found


def test_elements_along_an_axis_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices from the end, and shapes that must be broadcast, take PyTorch's slower function."""
    x, indices = torch.arange(6.0).view(2, 3), torch.tensor([[2], [0]])
    assert _take(x, indices - 3).tolist() == [[2.0], [3.0]]
    assert _take(x, indices[:1]).tolist() == [[2.0], [5.0]]
    monkeypatch.delattr(torch, "take_along_dim")
    assert _take(x, indices).tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("record", [lambda *args: make_fx(_take)(*args), lambda *_: _compiled()])
def test_a_recorded_function_takes_indices_from_the_end(record: Callable[..., Any]) -> None:
    """The indices with which it was recorded do not decide which operator it has."""
    x, indices = torch.arange(6.0).view(2, 3), torch.tensor([[2], [0]])
    recorded = record(x, indices)
    assert recorded(x, indices).tolist() == recorded(x, indices - 3).tolist() == [[2.0], [3.0]]


def _compiled() -> Callable[..., torch.Tensor]:
    return torch.compile(_take, fullgraph=True, backend="eager")

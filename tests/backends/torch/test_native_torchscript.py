"""Tests of TorchScript under native names: scripts and traces that move tensors to cards, and their export."""

from __future__ import annotations

import io
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from scripted_devices import MOVES, makes_pinned, makes_pinned_if, pins, to_missing_card
from simulated_torch import two_cards
from torch import nn

import devshim as ds

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*TorchScript")


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards."""
    with two_cards():
        yield


def _result(function: Callable[..., Any], x: torch.Tensor) -> tuple[Any, ...]:
    found = function(x)
    return str(found.device), found.dtype, found.requires_grad, found.tolist(), found is x


def _reload(script: Any, location: str | None = None) -> Any:
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    return torch.jit.load(file, map_location=location)


def _copy(function: Any) -> Any:
    """Return a function that TorchScript has not compiled."""
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    made.__annotations__ = function.__annotations__
    return made


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", MOVES)
def test_a_script_moves_and_makes_tensors_where_python_does(name: str, current: int) -> None:
    """PyTorch's operators in C++ ask for a driver of CUDA before they call an operator that creates a tensor."""
    script = torch.jit.script(_copy(MOVES[name]))
    with torch.cuda.device(current):
        for x in (torch.ones(2), torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")):
            for made in (script,) if MOVES[name].__defaults__ else (script, _reload(script)):  # a file has no defaults
                assert _result(made, x) == _result(MOVES[name], x)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", MOVES)
def test_a_traced_function_names_cards(name: str) -> None:
    x = torch.ones(2)
    traced = torch.jit.trace(MOVES[name], (x,))
    for made in (traced, _reload(traced)):
        assert "sim:" not in made.code
        assert _result(made, x)[:2] == _result(MOVES[name], x)[:2]


def test_a_traced_model_names_cards() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to("cuda:1") * 2

    traced = torch.jit.trace(Net(), (torch.ones(2),))
    assert 'torch.device("cuda:1")' in traced.code
    assert str(traced(torch.ones(2)).device) == "cuda:1"


def test_gradients_flow_through_a_move_in_a_script() -> None:
    x = torch.ones(2, requires_grad=True)
    torch.jit.script(_copy(MOVES["to"]))(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1]


def test_a_script_names_the_line_of_a_card_that_does_not_exist() -> None:
    with pytest.raises(RuntimeError, match=r"invalid device ordinal") as caught:
        torch.jit.script(_copy(to_missing_card))(torch.ones(2))
    text = str(caught.value)
    assert "scripted_devices.py" in text
    assert 'return x.to("cuda:7")' in text
    assert "--gpus 8" in text


def test_a_script_draws_with_a_generator_of_the_host() -> None:
    def draws() -> torch.Tensor:
        return torch.rand([2], generator=torch.Generator())

    assert torch.jit.script(draws)().device.type == "cpu"


def test_a_script_draws_with_the_generator_of_a_card_that_is_an_argument() -> None:
    def draws(generator: torch.Generator) -> torch.Tensor:
        return torch.rand([2], generator=generator, device="cuda:1")

    found = torch.jit.script(draws)(torch.Generator("cuda:1").manual_seed(3))
    assert found.tolist() == torch.rand(2, generator=torch.Generator("cuda:1").manual_seed(3), device="cuda:1").tolist()


def test_a_script_pins_memory() -> None:
    script, x = torch.jit.script(_copy(pins)), torch.ones(2)
    *flags, pinned = script(x)
    assert flags == [False, True]
    assert pinned.is_pinned()
    assert pinned.tolist() == [1, 1]
    assert script(pinned)[0]
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch.cuda.FloatTensor'"):
        script(x.cuda())


def test_a_script_makes_pinned_tensors() -> None:
    script, x = torch.jit.script(_copy(makes_pinned)), torch.ones(2)
    for each in (script, _reload(script)):
        made = each(x)
        assert all(one.is_pinned() for one in made)
        assert [one.tolist() for one in made] == [[3, 3], [0, 0], [4, 4], [1]]


def test_a_script_that_may_make_pinned_memory_says_what_to_write_instead() -> None:
    script = torch.jit.script(_copy(makes_pinned_if))
    assert not script(False).is_pinned()
    with pytest.raises(NotImplementedError, match=r"pin_memory=pinned[^$]*Hint: make the tensor without pin_memory"):
        script(True)


# ---------------------------------------------------------------------- torch.onnx
class _Compares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.device != torch.device("cuda:0"), f"it is on {x.device}"
        if x.device == self.weight.device:
            return x.to("cuda:1") + self.weight
        return x * 2


class _Tests(_Compares):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight if x.is_cuda else x * 2


class _Moves(_Compares):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cuda() + x


class _Names(_Compares):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight if str(x.device) == "cuda:1" else x * 2


def _exported(net: nn.Module, reload: bool) -> str:
    """Return the graph that PyTorch's exporter writes to a file; the file itself needs the package onnx."""
    from torch.onnx._internal.torchscript_exporter import utils

    script = torch.jit.script(net.to("cuda:1"))
    x = torch.ones(2, device="cuda:1")
    return str(utils._model_to_graph(_reload(script) if reload else script, (x,))[0])


@pytest.mark.parametrize("reload", [False, True])
def test_a_script_that_compares_devices_is_exported_as_on_a_card(reload: bool) -> None:
    """ONNX has no devices, so that PyTorch exports two devices as equal."""
    graph = _exported(_Compares(), reload)
    assert "onnx::Add" in graph
    assert "aten::" not in graph
    assert "prim::" not in graph


class _Pins(_Compares):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones([2], pin_memory=True) * 2


@pytest.mark.parametrize("reload", [False, True])
def test_a_script_that_makes_pinned_tensors_is_exported_as_on_a_card(reload: bool) -> None:
    assert "aten::" not in _exported(_Pins(), reload)


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize(
    ("net", "operator"), [(_Tests, "prim::is_cuda"), (_Moves, "aten::cuda"), (_Names, "aten::str")]
)
def test_the_exporter_refuses_what_it_refuses_on_a_card(net: type[nn.Module], operator: str, reload: bool) -> None:
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match=operator):
        _exported(net(), reload)


def test_a_script_is_the_same_after_its_export() -> None:
    script, x = torch.jit.script(_Compares().to("cuda:1")), torch.ones(2, device="cuda:1")
    _exported(_Compares(), reload=False)
    assert script(x).tolist() == [2, 2]
    with pytest.raises(torch.jit.Error, match="it is on cuda:0"):
        script(x.to("cuda:0"))
    assert ds.device_of(script(x)) == ds.gpu(1)

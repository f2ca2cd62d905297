"""Tests of TorchScript's graphs under native names: the passes of PyTorch's compiler, and every way to make a graph."""

from __future__ import annotations

import io
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from simulated_torch import two_cards
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*TorchScript")


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards."""
    with two_cards():
        yield


def branches(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that depends on the device."""
    if x.is_cuda or x.is_xpu:
        return x + 1
    return x - 1


def loops(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that nested blocks and another function compute."""
    for _ in range(2):
        while bool(x.sum() < 50):
            if x.is_cuda and str(x.device) == "cuda:1":
                x = x * 2
            elif x.device.type == "cpu":
                x = x * 3
            else:
                x = x * 5
        x = branches(x)
    return x


def texts(x: torch.Tensor) -> str:
    """Return texts of a device."""
    assert x.device.type == "cuda", f"it is on {x.device}"
    return "{} {} %s".format(x.device, x.device.type) % x.device  # noqa: UP032 - each is another operator


PASSES: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(torch._C, f"_jit_pass_{name}")
        for name in (
            *("batch_mm", "canonicalize", "constant_pooling", "constant_propagation", "cse", "dce", "decompose_ops"),
            *("inline", "inline_fork_wait", "lint", "loop_unrolling", "lower_all_tuples", "remove_mutation"),
            *("propagate_shapes_on_graph", "refine_tuple_types", "run_decompositions"),
        )
    },
    "peephole": lambda graph: torch._C._jit_pass_peephole(graph, False),
    "optimize frozen": lambda graph: torch._C._jit_pass_optimize_frozen_graph(graph, True),
    "peephole without shapes": lambda graph: torch._C._jit_pass_peephole(graph, True),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("function", [branches, loops, texts])
def test_a_pass_of_the_compiler_keeps_the_result(function: Any, name: str) -> None:
    """A pass used to end the process: the graph's insert point was a node that did not exist."""
    own = types.FunctionType(function.__code__, function.__globals__, name.replace(" ", "_"))  # compiled for this test
    own.__annotations__ = function.__annotations__
    graph = torch.jit.script(own).graph
    PASSES[name](graph)
    made = torch._C.CompilationUnit().create_function("made", graph)
    for x in (torch.ones(2, device="cuda:1"), torch.ones(2, device="cuda:0")):
        assert repr(made(x)) == repr(function(x))


class Net(nn.Module):
    """A model whose methods ask for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout()])

    @torch.jit.export  # type: ignore[untyped-decorator]
    def where(self, x: torch.Tensor) -> str:
        """Return the text of a device."""
        return str(x.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute layers on a card."""
        assert x.is_cuda, f"it is on {x.device}"
        for layer in self.layers:
            x = layer(x)
        if self.where(x) == "cuda:1" or x.is_xpu:
            return x + 1
        return x


def _reload(net: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(net, file)
    file.seek(0)
    return torch.jit.load(file, map_location="cuda:1")


def _optimize_twice(net: Any) -> Any:
    frozen = torch.jit.freeze(net)
    torch.jit.run_frozen_optimizations(frozen)
    return torch.jit.optimize_for_inference(frozen)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "freeze": torch.jit.freeze,
    "optimize for inference": torch.jit.optimize_for_inference,
    "optimize twice": _optimize_twice,
    "reload": _reload,
    "freeze a reloaded one": lambda net: torch.jit.freeze(_reload(net).eval()),
    "reload a frozen one": lambda net: _reload(torch.jit.freeze(net)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_frozen_model_computes_the_same(change: str) -> None:
    net = Net().to("cuda:1").eval()
    x = torch.rand(1, 1, 5, 5, device="cuda:1")
    made = CHANGES[change](torch.jit.script(net))
    for _ in range(3):  # the executor optimizes the graph after the first calls
        torch.testing.assert_close(made(x), net(x))


def test_functions_that_are_compiled_from_a_text_see_cards() -> None:
    known = torch.jit.script(branches)
    unit = torch.jit.CompilationUnit("def first(x):\n    return x.is_cuda, known(x)\n")
    unit.define("def second(x):\n    return str(x.device), x.device.type\n")
    x = torch.zeros(1, device="cuda:1")
    assert known(x) == unit.first(x)[1] == 1
    assert unit.first(x)[0]
    assert unit.second(x) == ("cuda:1", "cuda")
    net = torch.jit.script(Net())
    net.define("def more(self, x):\n    return x.is_cuda, self.where(x)\n")
    assert net.more(x) == (True, "cuda:1")


class Hooked(nn.Module):
    """A model with hooks, which TorchScript compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.inner.register_forward_pre_hook(add_on_card)
        self.inner.register_forward_hook(scale_on_card)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the hooks compute."""
        return self.inner(x)


def add_on_card(self: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Change the argument of a model on a card."""
    return (args[0] + 1 if args[0].is_cuda else args[0],)


def scale_on_card(self: Any, args: tuple[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    """Change the result of a model on a card."""
    return result * 10 if str(args[0].device) == "cuda:1" else result


def test_hooks_of_a_scripted_model_see_cards() -> None:
    x = torch.ones(1, device="cuda:1")
    assert torch.jit.script(Hooked())(x).item() == Hooked()(x).item() == 20

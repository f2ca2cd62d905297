"""Tests of ``__torch_function__`` under native names: a handler gets the function that it gets natively."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from simulated_torch import two_cards
from torch import overrides
from torch.overrides import TorchFunctionMode

import devshim as ds

LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randn_like", "zeros_like")
METHODS = ("to", "cuda", "type", "numpy", "new_tensor", "pin_memory", "is_pinned", "__setitem__", "__dlpack_device__")
PROPERTIES = ("device", "is_cuda", "data", "__cuda_array_interface__")


def _handled() -> dict[Any, str]:
    """Return a table of functions as libraries have it, made now."""
    table = {getattr(torch, name): name for name in LIKE}
    table |= {getattr(torch.Tensor, name): name for name in METHODS}
    return table | {getattr(torch.Tensor, name).__get__: name for name in PROPERTIES}


EARLIER = _handled()
"""The table of a library that is imported before native names are switched on."""


@pytest.fixture(autouse=True)
def _no_functions_of_simulated_gpus() -> None:
    """Let PyTorch list its functions again: it has cached those that simulated GPUs have in an earlier test."""
    overrides.get_testing_overrides.cache_clear()


class Recorder:
    """An argument that records the function of each call."""

    functions: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        cls.functions.append(func)


class RecordingTensor(torch.Tensor):
    """A tensor that records the function of each call."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        Recorder.functions.append(func)


def _record(tensor: RecordingTensor) -> dict[str, tuple[Any, list[Any]]]:
    """Call every function that can be overridden; return the function under its name, and those recorded."""
    found = {}
    for function, dummy in overrides.get_testing_overrides().items():
        name = overrides.resolve_name(function)
        if name is None:
            continue
        public: Any = torch
        for part in name.split(".")[1:]:
            public = getattr(public, part)
        argument = tensor if name.startswith("torch.Tensor") else Recorder()
        required = [
            argument
            for each in inspect.signature(dummy).parameters.values()
            if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
        ]
        Recorder.functions = []
        with suppress(Exception):  # some functions need other arguments: natively, they raise the same
            public(*required)
        found[name] = public, Recorder.functions
    return found


def test_every_function_that_can_be_overridden_passes_itself_to_a_handler() -> None:
    tensor = torch.ones(2).as_subclass(RecordingTensor)
    natively = _record(tensor)
    with two_cards():
        named = _record(tensor)
    assert named.keys() == natively.keys()
    for name, (public, recorded) in named.items():
        function, expected = natively[name]
        assert recorded == expected, name
        if expected and expected[0] is function:
            assert recorded[0] is public, name
    assert sum(bool(recorded) for _, recorded in natively.values()) > 1000


class Data:
    """A type of a library with a table of functions, as in PyTorch's page about extensions."""

    table: ClassVar[dict[Any, str]] = {}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.table.get(func, NotImplemented)


def _answers() -> list[Any]:
    return [getattr(torch, name)(Data(), *[0] * (name == "full_like")) for name in LIKE]


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_table_of_functions_has_them_before_and_after_it_was_made(when: str) -> None:
    Data.table = EARLIER if when == "before" else {}
    with two_cards():
        current = _handled()
        if when == "while":
            Data.table = current
        assert set(current) == set(EARLIER)
        if when != "after":
            assert _answers() == list(LIKE)
            for name in LIKE:
                assert getattr(torch._C._VariableFunctions, name) is getattr(torch, name)
    if when == "after":
        Data.table = current
    assert _answers() == list(LIKE)


class Mode(TorchFunctionMode):
    """A mode that records each function and its keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs))
        return func(*args, **(kwargs or {}))


def test_a_mode_gets_the_function_and_the_arguments_of_the_program() -> None:
    with two_cards():
        x = torch.ones(2)
        calls = {
            torch.zeros: lambda: torch.zeros(2, device="cuda:1"),
            torch.tensor: lambda: torch.tensor([1.0], device="cuda:1"),
            torch.as_tensor: lambda: torch.as_tensor([1.0], device="cuda:1"),
            torch.arange: lambda: torch.arange(3, device="cuda:1"),
            torch.empty: lambda: torch.empty(2, device="cpu", pin_memory=True),
            torch.zeros_like: lambda: torch.zeros_like(x, device="cuda:1"),
            torch.Tensor.to: lambda: x.to("cuda:1"),
            torch.Tensor.cuda: lambda: x.cuda(1),
            torch.Tensor.new_tensor: lambda: x.new_tensor([1.0], device="cuda:1"),
        }
        for function, call in calls.items():
            with Mode() as mode:
                made = call()
            func, args, kwargs = mode.calls[0]
            assert func is function
            assert "sim" not in repr((args, kwargs))
            if function is torch.empty:
                assert kwargs["pin_memory"]
                assert made.is_pinned()
            else:
                assert made.device == torch.device("cuda:1")


def test_a_subclass_computes_through_the_functions_that_it_gets() -> None:
    class Sub(torch.Tensor):
        seen: ClassVar[list[Any]] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    with two_cards():
        x = torch.ones(2, device="cuda:1").as_subclass(Sub)
        assert x.device == torch.device("cuda:1")
        assert x.is_cuda
        assert type(x.to("cuda:0")) is type(x.cuda(0)) is type(torch.zeros_like(x)) is Sub
        assert x.type() == "torch.cuda.FloatTensor"
        x[0] = 5.0
        assert torch.empty_like(x, device="cpu", pin_memory=True).is_pinned()
        assert Sub.seen[:4] == [
            torch.Tensor.device.__get__,
            torch.Tensor.is_cuda.__get__,
            torch.Tensor.to,
            torch.Tensor.cuda,
        ]
        assert {func.__name__ for func in Sub.seen} >= {"to", "cuda", "zeros_like", "type", "__setitem__", "__get__"}


def _names() -> Iterator[Any]:
    yield from (getattr(torch, name) for name in (*LIKE, "zeros", "tensor", "arange"))
    yield from (getattr(torch.Tensor, name) for name in ("to", "cuda", "type"))


def _texts(function: Any) -> tuple[Any, ...]:
    return repr(function), function.__name__, function.__qualname__, function.__doc__, overrides.resolve_name(function)


def test_the_functions_can_be_stored_and_look_like_those_of_pytorch() -> None:
    texts = [_texts(each) for each in _names()]
    stored = pickle.dumps(list(_names()))
    with two_cards():
        assert [_texts(each) for each in _names()] == texts
        for each in _names():
            assert copy.deepcopy(each) is copy.copy(each) is each
            assert inspect.isroutine(each)
        assert pickle.loads(stored) == pickle.loads(pickle.dumps(list(_names()))) == list(_names())
        file = io.BytesIO()
        torch.save({"create": torch.zeros}, file)
        file.seek(0)
        assert torch.load(file, weights_only=False)["create"] is torch.zeros
        named = pickle.dumps(list(_names()))
    assert all(new is old for new, old in zip(pickle.loads(named), _names(), strict=True))


def test_stored_methods_of_tensors_find_the_cards() -> None:
    """PyTorch stores the names in a base class of tensors, whose own methods know no cards."""
    natively = pickle.dumps([torch.Tensor.cuda, torch.Tensor.type])
    with two_cards():
        tensor = torch.ones(1)
        cuda, type_of = pickle.loads(natively)
        assert type_of(cuda(tensor, 1)) == "torch.cuda.FloatTensor"
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for name, args in (("cuda", (1,)), ("to", ("cuda:1",)), ("type", ("torch.cuda.FloatTensor",))):
                method = getattr(torch.Tensor, name)
                stored = pickle.loads(pickle.dumps([method, partial(method, tensor, *args)], protocol))
                assert stored[0] is method
                assert stored[1]().is_cuda
        assert pickle.loads(pickle.dumps(torch.Tensor.type))(tensor.cuda()) == "torch.cuda.FloatTensor"
    assert [torch._C.TensorBase.cuda, torch._C.TensorBase.type] == pickle.loads(natively)
    assert type(torch._C.TensorBase.cuda) is type(torch._C.TensorBase.cpu)


def test_simulated_gpus_without_native_names_pass_the_functions_of_pytorch() -> None:
    tensor = torch.ones(2).as_subclass(RecordingTensor)
    natively = _record(tensor)
    with ds.using("torch"), ds.simulate(2), ds.on("gpu:1"):
        ds.zeros(1)
        simulated = _record(tensor)
    for method in METHODS:
        name = f"torch.Tensor.{method}"
        if name in natively:
            assert simulated[name][1] == natively[name][1], name

"""Tests of arguments in the wrong order or form: the exact texts, and the code in their hints runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import devshim as ds

TEXTS: dict[str, tuple[type[ds.DevshimError], str, str]] = {
    'ds.place("gpu:0", x)': (
        ds.DeviceSpecError,
        "ds.place takes the device second, and was given 'gpu:0' first and an ndarray second",
        "the arguments are swapped: ds.place(x, 'gpu:0')",
    ),
    'ds.place(ds.gpu(1), {"a": x})': (
        ds.DeviceSpecError,
        "ds.place takes the device second, and was given 'gpu:1' first and a dict second",
        "the arguments are swapped: ds.place(x, 'gpu:1')",
    ),
    'ds.copy("cuda:1", x)': (
        ds.DeviceSpecError,
        "ds.copy takes the device second, and was given 'cuda:1' first and an ndarray second",
        "the arguments are swapped: ds.copy(x, 'cuda:1')",
    ),
    'ds.from_numpy("gpu:0", a)': (
        ds.DeviceSpecError,
        "ds.from_numpy takes the device second, and was given 'gpu:0' first and an ndarray second",
        "the arguments are swapped: ds.from_numpy(a, 'gpu:0')",
    ),
    'ds.gather("cpu", parts)': (
        ds.DeviceSpecError,
        "ds.gather takes the device second, and was given 'cpu' first and [ndarray, ndarray] second",
        "the arguments are swapped: ds.gather(parts, 'cpu')",
    ),
    "ds.place(x, y)": (
        ds.DeviceSpecError,
        "ds.place takes one device, and was given an ndarray",
        "to go where a tensor y is: ds.place(x, ds.device_of(y))",
    ),
    "ds.place(x, {'': 'gpu:0'})": (
        ds.DeviceSpecError,
        "ds.place takes one device, and was given a dict",
        "make a placement of the leaves' devices: ds.place(x, ds.Placement(devices))",
    ),
    "ds.place(x, ['gpu:0', 'gpu:1'])": (
        ds.DeviceSpecError,
        "ds.place takes one device, and was given ['gpu:0', 'gpu:1']",
        "ds.broadcast(x, devices) gives a copy to each of several devices",
    ),
    'ds.convert("numpy", x)': (
        ds.ArgumentError,
        "ds.convert takes the tensor first and the framework second, and was given 'numpy' first",
        "the arguments are swapped: ds.convert(x, 'numpy')",
    ),
    'ds.convert(x, "gpu:0")': (
        ds.BackendNotFoundError,
        "ds.convert takes a framework second, and was given the device 'gpu:0'",
        "name both: ds.convert(x, 'numpy', 'gpu:0'); ds.place(x, 'gpu:0') moves x and keeps its framework",
    ),
    "ds.split(x, 2)": (
        ds.ArgumentError,
        "ds.split takes a list of devices, and was given 2",
        "name them: ds.split(tree, ['gpu:0', 'gpu:1'])",
    ),
    "ds.split(x, 3)": (
        ds.ArgumentError,
        "ds.split takes a list of devices, and was given 3",
        "name them: ds.split(tree, ['cpu'] * 3)",
    ),
    'ds.split(x, "gpu:1")': (
        ds.ArgumentError,
        "ds.split takes a list of devices, and was given 'gpu:1'",
        "pass a list of one: ds.split(tree, ['gpu:1'])",
    ),
    'ds.split(["gpu:0", "gpu:1"], x)': (
        ds.ArgumentError,
        "ds.split takes the devices second, and was given ['gpu:0', 'gpu:1'] first and an ndarray second",
        "the arguments are swapped: ds.split(tree, ['gpu:0', 'gpu:1'])",
    ),
    "ds.split(x, [])": (
        ds.ArgumentError,
        "ds.split was given an empty list of devices",
        "ds.split(tree, ds.try_all_gpus())",
    ),
    'ds.broadcast("cpu", x)': (
        ds.ArgumentError,
        "ds.broadcast takes the devices second, and was given 'cpu' first and an ndarray second",
        "the arguments are swapped: ds.broadcast(tree, ['cpu'])",
    ),
    "ds.replicate(tree, ds.gpu(0))": (
        ds.ArgumentError,
        "ds.replicate takes a list of devices, and was given a Device",
        "pass a list of one: ds.replicate(model, ['gpu:0'])",
    ),
    'ds.Placement.balanced(tree, "cpu")': (
        ds.ArgumentError,
        "ds.Placement.balanced takes a list of devices, and was given 'cpu'",
        "pass a list of one: ds.Placement.balanced(obj, ['cpu'])",
    ),
    "ds.Placement.balanced(tree, 2)": (
        ds.ArgumentError,
        "ds.Placement.balanced takes a list of devices, and was given 2",
        "name them: ds.Placement.balanced(obj, ['gpu:0', 'gpu:1'])",
    ),
    'ds.Placement.balanced(["cpu"], tree)': (
        ds.ArgumentError,
        "ds.Placement.balanced takes the devices second, and was given ['cpu'] first and a dict second",
        "the arguments are swapped: ds.Placement.balanced(obj, ['cpu'])",
    ),
    'ds.Placement.balanced(tree, ["cpu", "cpu"])': (
        ds.ArgumentError,
        "ds.Placement.balanced takes each device once, and was given 1 of them again",
        "name each device once: ds.Placement.balanced(obj, ['cpu'])",
    ),
    'ds.Placement("gpu:0")': (
        ds.ArgumentError,
        "ds.Placement takes a mapping of leaf paths to devices, and was given 'gpu:0'",
        "for every leaf on one device: ds.Placement(default='gpu:0')",
    ),
    'ds.Placement(["gpu:0", "gpu:1"])': (
        ds.ArgumentError,
        "ds.Placement takes a mapping of leaf paths to devices, and was given ['gpu:0', 'gpu:1']",
        "to spread a model over devices: ds.Placement.balanced(model, ['gpu:0', 'gpu:1'])",
    ),
    'ds.gather(x, "cpu")': (
        ds.ArgumentError,
        "ds.gather takes a list of parts, and was given an ndarray",
        "ds.gather([x], device) for a list of one; ds.place(x, device) moves one tensor or tree",
    ),
    'ds.gather({"a": x}, "cpu")': (
        ds.ArgumentError,
        "ds.gather takes a list of parts, and was given a dict",
        "ds.gather([x], device) for a list of one; ds.place(x, device) moves one tensor or tree",
    ),
    "ds.parallel(fn, parts)": (
        ds.ArgumentError,
        "ds.parallel takes a list of functions, and was given a function",
        "to call one function with each input: ds.parallel([fn] * len(inputs), inputs)",
    ),
    "ds.parallel([fn], x)": (
        ds.ArgumentError,
        "ds.parallel takes a list of inputs, and was given an ndarray",
        "ds.parallel([fn], [x])",
    ),
    'ds.parallel([fn, fn], {"a": x, "b": x})': (
        ds.ArgumentError,
        "ds.parallel takes a list of inputs, and was given a dict",
        "ds.parallel([fn], [x])",
    ),
    "ds.parallel(parts, [fn, fn])": (
        ds.ArgumentError,
        "fns[0] is an ndarray, and it must be a function of one argument",
        "the arguments are swapped: ds.parallel(fns, inputs)",
    ),
    "ds.parallel([fn], parts)": (
        ds.ArgumentError,
        "ds.parallel was given 1 callable and 2 inputs",
        "to call one function with each input: ds.parallel([fn] * len(inputs), inputs)",
    ),
    "ds.run(x, fn)": (
        ds.ArgumentError,
        "ds.run takes a function first, and was given an ndarray",
        "the arguments are swapped: ds.run(fn, x)",
    ),
    "ds.run(5)": (
        ds.ArgumentError,
        "ds.run takes a function first, and was given 5",
        "pass the function to call: ds.run(fn, x)",
    ),
    "ds.shrink_batch(8, fn)": (
        ds.ArgumentError,
        "ds.shrink_batch takes a function first, and was given 8",
        "the arguments are swapped: ds.shrink_batch(fn, 8)",
    ),
    'ds.all_reduce_("sum", tensors)': (
        ds.ArgumentError,
        "ds.all_reduce_ takes the tensors first, and was given 'sum' first",
        "the arguments are swapped: ds.all_reduce_(tensors, 'sum')",
    ),
    'ds.all_reduce_(tensors, "avg")': (
        ds.ArgumentError,
        "op is 'avg', and it must be one of 'sum', 'mean', 'max', 'min'",
        "ds.all_reduce_(tensors, 'mean')",
    ),
    "ds.all_reduce_(x)": (
        ds.ArgumentError,
        "ds.all_reduce_ takes a list of tensors, and was given an ndarray",
        "ds.all_reduce_([x])",
    ),
    'ds.MetricLog(100, "gpu:0")': (
        ds.ArgumentError,
        "ds.MetricLog takes the device first and the capacity second, and was given 100 first and 'gpu:0' second",
        "the arguments are swapped: ds.MetricLog('gpu:0', 100)",
    ),
    'ds.simulate("4GiB", 2)': (
        ds.ArgumentError,
        "ds.simulate takes the number of GPUs first and the memory second, and was given '4GiB' first and 2 second",
        "the arguments are swapped: ds.simulate(2, '4GiB')",
    ),
    'ds.simulate("4GiB")': (
        ds.ArgumentError,
        "ds.simulate takes the number of GPUs first, and was given the memory '4GiB'",
        "give the memory by its name: ds.simulate(memory='4GiB')",
    ),
    "ds.ones(2, 3)": (
        ds.ArgumentError,
        "ds.ones takes the shape as one argument, and was given 2",
        "the shape is one tuple: ds.ones((2, 3))",
    ),
    "ds.zeros(2, 3, 4)": (
        ds.ArgumentError,
        "ds.zeros takes the shape as one argument, and was given 3",
        "the shape is one tuple: ds.zeros((2, 3, 4))",
    ),
    "ds.empty(2, 3)": (
        ds.ArgumentError,
        "ds.empty takes the shape as one argument, and was given 2",
        "the shape is one tuple: ds.empty((2, 3))",
    ),
    "ds.full(2, 3, 7)": (
        ds.ArgumentError,
        "ds.full takes the shape as one argument, and was given 2",
        "the shape is one tuple: ds.full((2, 3), 7)",
    ),
    "ds.full(7, (2, 3))": (
        ds.ArgumentError,
        "ds.full takes the shape first, and was given 7 first and (2, 3) second",
        "the arguments are swapped: ds.full((2, 3), 7)",
    ),
    'ds.ones(3, "gpu:0")': (
        ds.ArgumentError,
        "ds.ones takes device by its name, and was given 'gpu:0' by position",
        "ds.ones(3, device='gpu:0')",
    ),
    'ds.full((2, 3), 7, "float32")': (
        ds.ArgumentError,
        "ds.full takes dtype by its name, and was given 'float32' by position",
        "ds.full((2, 3), 7, dtype='float32')",
    ),
    "ds.random.uniform((2, 3))": (
        ds.ArgumentError,
        "low is (2, 3), and it must be a number",
        "the shape is given by name: ds.random.uniform(size=(2, 3))",
    ),
    "ds.random.normal([2, 3])": (
        ds.ArgumentError,
        "loc is [2, 3], and it must be a number",
        "the shape is given by name: ds.random.normal(size=[2, 3])",
    ),
    "ds.random.uniform(0, 1, 2, 3)": (
        ds.ArgumentError,
        "ds.random.uniform takes the shape as one argument, and was given 2",
        "the shape is one tuple: ds.random.uniform(0, 1, (2, 3))",
    ),
    "ds.random.uniform(1, 0)": (
        ds.ArgumentError,
        "high is 0, and it must be at least low (1)",
        "swap them: ds.random.uniform(0, 1)",
    ),
    "ds.random.seed(-1)": (
        ds.ArgumentError,
        "n is -1, and it must be between 0 and 2**32 - 1",
        "ds.random.seed(4294967295)",
    ),
    "ds.eye((2, 3))": (
        ds.ArgumentError,
        "n_rows is (2, 3), and it must be a number",
        "its numbers are given one by one: ds.eye(2, 3)",
    ),
    "ds.arange((1, 5))": (
        ds.ArgumentError,
        "start is (1, 5), and it must be a number",
        "its numbers are given one by one: ds.arange(1, 5)",
    ),
    "ds.zeros((2, -1))": (
        ds.ArgumentError,
        "shape is (2, -1), and it must be made of lengths of 0 or more",
        "write each length as a number, such as (2, 3): only a reshape can infer one",
    ),
    "ds.zeros(-1)": (
        ds.ArgumentError,
        "shape is -1, and it must be made of lengths of 0 or more",
        "write each length as a number, such as (2, 3): only a reshape can infer one",
    ),
    "ds.zeros([2, 2.5])": (
        ds.ArgumentError,
        "shape is [2, 2.5], and it must be an int or a tuple of ints",
        "write the lengths: 3, or (2, 3) for two axes",
    ),
    "ds.zeros(x)": (
        ds.ArgumentError,
        "shape is an ndarray, and it must be an int or a tuple of ints",
        "ds.zeros_like(x) makes zeros in the shape of a tensor x; so do ones_like, full_like and empty_like",
    ),
    'ds.ones(3, dtype="flaot32")': (
        ds.ArgumentError,
        "dtype is 'flaot32', and it must be one of bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "float16, bfloat16, float32, float64, complex64, complex128, a NumPy dtype, or NumPy's own",
        "did you mean dtype='float32'?",
    ),
    "ds.from_numpy([1, 2])": (
        ds.ArgumentError,
        "a is [1, 2], and it must be a NumPy array",
        "ds.asarray(a) reads numbers and lists",
    ),
    "ds.require_same_device(x, y)": (
        ds.ArgumentError,
        "ds.require_same_device takes its arguments by name, which its error shows, and was given 2 without",
        "ds.require_same_device(x=x, y=y)",
    ),
    'ds.guard("eror")': (
        ds.ArgumentError,
        "mode is 'eror', and it must be one of 'allow', 'log', 'warn', 'error'",
        "did you mean mode='error'?",
    ),
    "ds.memory_policy(2)": (
        ds.ArgumentError,
        "policy is 2, and it must be 'grow' or a fraction above 0 and at most 1",
        "ds.memory_policy('grow'), or ds.memory_policy(0.5) for half of each card",
    ),
    "ds.set_visible_devices(1)": (
        ds.ArgumentError,
        "indices is 1, and it must be a list of ints",
        "ds.set_visible_devices([1])",
    ),
    'ds.set_visible_devices("1")': (
        ds.ArgumentError,
        "indices is '1', and it must be a list of ints",
        "ds.set_visible_devices([1])",
    ),
    'ds.set_visible_devices("0,1")': (
        ds.ArgumentError,
        "indices is '0,1', and it must be a list of ints",
        "ds.set_visible_devices([0, 1])",
    ),
    'ds.set_visible_devices(["gpu:1"])': (
        ds.ArgumentError,
        "indices is ['gpu:1'], and it must be a list of ints",
        "ds.set_visible_devices([1])",
    ),
    "ds.set_visible_devices([0, 0])": (
        ds.ArgumentError,
        "indices is [0, 0], and it must be made of different ints of 0 or more",
        "name each card once, from 0 on: ds.set_visible_devices([0])",
    ),
    'ds.device("cuda:a")': (
        ds.DeviceSpecError,
        "'cuda:a' is not a device: 'a' is not an index",
        "write the index as a number, such as 'cuda:0'; accepted are 'cpu', 'gpu:1', 'cuda:1', '/GPU:1', an int (a GPU "
        "index), or a framework's own device object",
    ),
    "ds.on(x)": (
        ds.DeviceSpecError,
        "an object of type ndarray is not a device",
        "ds.device_of(x) is the device of a tensor x; otherwise write 'cpu', 'gpu:1', 'cuda:1', '/GPU:1', an int (a "
        "GPU index), or a framework's own device object",
    ),
}

STARTS_EARLIER = ("ds.set_visible_devices", "ds.memory_policy")
"""Calls that must come before a framework starts: their code is parsed, and run by separate tests."""


def names() -> dict[str, Any]:
    """Return the arguments under the names that documentation and hints give them."""
    x = np.arange(4.0).reshape(2, 2)
    devices = ["gpu:0", "gpu:1"]
    return {
        "ds": ds,
        "x": x,
        "y": ds.ones(3),
        "a": x,
        "parts": [x, x],
        "inputs": [x, x],
        "tensors": [x.copy(), x.copy()],
        "tree": {"a": x, "b": x},
        "obj": {"a": x, "b": x},
        "model": {"a": x, "b": x},
        "fn": abs,
        "fns": [abs, abs],
        "device": "cpu",
        "devices": devices,
    }


def code_in(text: str) -> Iterator[str]:
    """Yield each devshim call in a text, up to its closing parenthesis."""
    at = text.find("ds.")
    while at >= 0:
        depth, end = 1, text.index("(", at) + 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[at:end]
        at = text.find("ds.", end)


@pytest.mark.parametrize("call", TEXTS)
def test_the_text(call: str, cards: object) -> None:
    cls, problem, hint = TEXTS[call]
    with pytest.raises(ds.DevshimError) as caught:
        eval(call, names())
    assert type(caught.value) is cls
    assert (caught.value.problem, caught.value.hint) == (problem, hint)
    assert str(caught.value) == f"{problem}\n\nHint: {hint}"


@pytest.mark.parametrize("call", TEXTS)
def test_the_code_of_the_hint_runs(call: str, cards: object) -> None:
    found = names()
    if "Placement(devices)" in TEXTS[call][2]:
        found["devices"] = {"": "gpu:0"}
    for code in code_in(TEXTS[call][2]):
        if not code.startswith(STARTS_EARLIER):
            eval(code, dict(found))


def test_most_hints_are_code() -> None:
    assert sum("ds." in hint for _, _, hint in TEXTS.values()) > 50


@pytest.mark.parametrize("number", range(2, 65))
def test_a_number_of_devices_gives_as_many(number: int) -> None:
    for gpus in (0, number):
        ds.simulate(gpus)
        x = np.arange(64.0)
        with pytest.raises(ds.ArgumentError, match=f"was given {number}") as caught:
            ds.split(x, number)
        (code,) = code_in(str(caught.value.hint))
        assert len(eval(code, {"ds": ds, "tree": x})) == number


def test_what_is_given_by_place_to_be_refused_is_not_in_the_signature() -> None:
    assert list(inspect.signature(ds.ones).parameters) == ["shape", "dtype", "device", "like"]
    for fn in (ds.ones, ds.zeros, ds.empty, ds.full, ds.random.uniform, ds.random.normal, ds.require_same_device):
        kinds = {each.kind for each in inspect.signature(fn).parameters.values()}
        assert inspect.Parameter.VAR_POSITIONAL not in kinds


def test_a_list_of_functions_that_can_be_called_itself_is_a_list() -> None:
    class Functions(list[Any]):
        def __call__(self) -> None: ...

    assert ds.parallel(Functions([abs, abs]), [-1, -2]) == [1, 2]
    assert ds.parallel(iter([abs, abs]), (each for each in (-1, -2))) == [1, 2]

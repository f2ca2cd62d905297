"""Tests of errors: one exception tree, the same wording on each framework, and a hint that says what to type next."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

REFUSED: dict[str, tuple[Callable[[Any], object], type[ds.DevshimError], type[Exception], str]] = {
    "no device": (lambda x: ds.place(x, "gup:1"), ds.DeviceSpecError, ValueError, "'gup:1' is not a device"),
    "missing device": (
        lambda x: ds.place(x, "gpu:99"),
        ds.DeviceNotFoundError,
        LookupError,
        "gpu:99 was asked for, and",
    ),
    "no tensor": (
        lambda x: ds.device_of({}),
        ds.NotATensorError,
        TypeError,
        "ds.device_of takes a tensor of an installed framework, and this object is of type dict",
    ),
    "bad shape": (
        lambda x: ds.zeros(-1),
        ds.ArgumentError,
        ValueError,
        "shape is -1, and it must be made of lengths of 0 or more",
    ),
    "bad dtype": (
        lambda x: ds.zeros(1, dtype="f7"),
        ds.ArgumentError,
        ValueError,
        "dtype is 'f7', and it must be one of",
    ),
    "bad copy": (
        lambda x: ds.place(x, "cpu", copy=cast(Any, 2)),
        ds.ArgumentError,
        ValueError,
        "copy is 2, and it must be None, ",
    ),
    "sharing numbers": (
        lambda x: ds.asarray([1], copy=False),
        ds.CopyNeededError,
        ValueError,
        "copy=False was given, and Python numbers cannot share its memory: ",
    ),
    "objects": (
        lambda x: ds.from_numpy(np.array([object()])),
        ds.ConversionError,
        TypeError,
        "an array of dtype object has no counterpart in a tensor framework",
    ),
    "swapped arguments": (
        lambda x: ds.place("cpu", x),
        ds.DeviceSpecError,
        ValueError,
        "ds.place takes the device second, and was given 'cpu' first and ",
    ),
    "a shape in pieces": (
        lambda x: cast(Any, ds.ones)(2, 3),
        ds.ArgumentError,
        ValueError,
        "ds.ones takes the shape as one argument, and was given 2",
    ),
    "one device for several": (
        lambda x: ds.split(x, cast(Any, "cpu")),
        ds.ArgumentError,
        ValueError,
        "ds.split takes a list of devices, and was given 'cpu'",
    ),
    "one tensor for several": (
        lambda x: ds.gather(x, "cpu"),
        ds.ArgumentError,
        ValueError,
        "ds.gather takes a list of parts, and was given a",
    ),
    "a function for several": (
        lambda x: ds.parallel(cast(Any, abs), [x]),
        ds.ArgumentError,
        ValueError,
        "ds.parallel takes a list of functions, and was given a function",
    ),
    "a tensor for a function": (
        lambda x: ds.run(cast(Any, x), abs),
        ds.ArgumentError,
        ValueError,
        "ds.run takes a function first, and was given a",
    ),
    "no names": (
        lambda x: cast(Any, ds.require_same_device)(x, x),
        ds.ArgumentError,
        ValueError,
        "ds.require_same_device takes its arguments by name, which its error shows, and was given 2 without",
    ),
    "a tensor for a device": (
        lambda x: ds.place(x, x),
        ds.DeviceSpecError,
        ValueError,
        "ds.place takes one device, and was given a",
    ),
    "no path": (
        lambda x: ds.load(cast(Any, 5)),
        ds.ArgumentError,
        ValueError,
        "ds.load takes the path of a file, and was given 5",
    ),
    "swapped path": (
        lambda x: ds.save("new.safetensors", x),
        ds.ArgumentError,
        ValueError,
        "ds.save takes the path second, and was given 'new.safetensors' first and a",
    ),
    "a device for a framework": (
        lambda x: ds.convert(x, "cpu"),
        ds.BackendNotFoundError,
        ImportError,
        "ds.convert takes a framework second, and was given the device 'cpu'",
    ),
    "no backend": (lambda x: ds.use("nobody"), ds.BackendNotFoundError, ImportError, "no backend is called 'nobody'"),
    "no gpus": (lambda x: ds.simulate(-1), ds.ArgumentError, ValueError, "gpus is -1, and it must be 0 to 1024"),
}


NOT_NUMBERS = {
    ("1", "2"): "obj[0] is '1'",
    (1.0, (2.0, b"3")): "obj[1][1] is b'3'",
    ((1, None),): "obj[0][1] is None",
    (1, Fraction(1, 2)): "obj[1] is a Fraction",
    (frozenset({1}),): "obj[0] is a frozenset",
}


class ErrorTests(Kit):
    """The text that a user reads when a call is refused."""

    @pytest.mark.parametrize("case", REFUSED)
    def test_errors_have_the_same_text_on_every_framework(self, case: str) -> None:
        """The text starts with the same words on every framework, followed by a blank line and a hint."""
        call, cls, builtin, words = REFUSED[case]
        error = self.caught(call, self.tensor())
        assert type(error) is cls
        assert isinstance(error, builtin)
        assert error.problem.startswith(words)
        assert error.hint
        assert str(error) == f"{error.problem}\n\nHint: {error.hint}"
        assert "\n" not in error.problem

    @pytest.mark.parametrize("case", REFUSED)
    def test_errors_can_be_pickled(self, case: str) -> None:
        """An error survives pickling and copying, which it needs to cross processes."""
        error = self.caught(REFUSED[case][0], self.tensor())
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error)
            assert str(again) == str(error)
            assert again.hint == error.hint

    def test_an_unreadable_value_keeps_the_frameworks_own_error(self) -> None:
        """If the framework raised first, its error is the cause."""
        error = self.caught(lambda x: ds.asarray([[1, 2], [3]]), None)
        assert type(error) is ds.ConversionError
        assert error.__cause__ is not None
        assert error.problem.startswith(f"{self.adapter.title} cannot read these values: ")

    @pytest.mark.parametrize("values", NOT_NUMBERS, ids=str)
    @pytest.mark.parametrize("dtype", [None, "float32"], ids=str)
    def test_a_list_with_text_or_none_is_refused(self, values: Any, dtype: str | None) -> None:
        """`asarray` names the first item that is not a number, also with a dtype, for which NumPy would read text."""
        error = self.caught(lambda x: ds.asarray(values, dtype=dtype), None)
        assert type(error) is ds.ConversionError
        assert error.problem == f"{self.adapter.title} cannot read these values: {NOT_NUMBERS[values]}"

    def caught(self, call: Callable[[Any], object], x: Tensor) -> ds.DevshimError:
        """Return the error that a call raises."""
        with pytest.raises(ds.DevshimError) as caught:
            call(x)
        return caught.value

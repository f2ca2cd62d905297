"""Tests of the refusals of `value_and_grad`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor


class GradientRefusalTests(Kit):
    """Clear errors for arguments and results that cannot be differentiated."""

    @feature("value_and_grad")
    def test_what_cannot_be_differentiated_is_refused_by_its_path(self) -> None:
        """Integers, bools and Python numbers are refused; the message gives the argument and the key path."""
        x = ds.from_numpy(np.ones((1, 1), np.float32))
        for bad in (ds.asarray([1, 2], dtype="int32"), ds.asarray([True], dtype="bool"), 3, 0.5, np.float32(1)):
            with pytest.raises(ds.ArgumentError) as caught:
                ds.value_and_grad(lambda t: t["a"][1][0, 0])({"a": [bad, x]})
            assert "['a'][0] in argument 0" in caught.value.problem
            assert caught.value.hint
        with pytest.raises(ds.NotATensorError, match="argument 0"):
            ds.value_and_grad(lambda t: x[0, 0])({"a": None})
        for argnums in (1, -2, (0, 0), (), True, "w"):
            with pytest.raises(ds.ArgumentError):
                ds.value_and_grad(lambda t: (t * t)[0, 0], argnums)(x)  # type: ignore[arg-type]
        with pytest.raises(ds.ArgumentError):
            ds.value_and_grad(x)

    @feature("value_and_grad")
    def test_an_array_of_numpy_among_tensors_is_refused_by_its_path(self) -> None:
        """A second call says the same as the first, which has made NumPy known; the order of leaves does not matter."""
        x, array = self.tensor(), np.ones(3, np.float32)
        for tree in ({"x": x, "n": array}, {"n": array, "x": x}, {"m": x, "n": array, "x": x}):
            for _ in range(2):
                with pytest.raises(ds.ArgumentError, match=r"found one of NumPy at \['n'\] in argument 0"):
                    ds.value_and_grad(lambda t: t["x"][0, 0])(tree)
        for args, at in (((array, x), 0), ((x, array), 1)):
            with pytest.raises(ds.ArgumentError, match=f"found one of NumPy as argument {at}"):
                ds.value_and_grad(lambda s, t: x[0, 0], (0, 1))(*args)

    @feature("value_and_grad")
    def test_other_results_than_a_scalar_are_refused(self) -> None:
        """The function must return a scalar tensor of a floating dtype."""
        x = self.tensor()
        results: list[tuple[Callable[[Tensor], Any], str]] = [
            (lambda t: t * t, "scalar"),
            (lambda t: (t * t)[0, :1], r"it returned shape \(1,\)"),
            (lambda t: 1.0, "returns a tensor"),
            (lambda t: None, "returns a tensor"),
            (lambda t: ((t * t)[0, 0], 3), "returns a tensor"),
            (lambda t: ds.asarray([1, 2], dtype="int32")[0], "floating"),
        ]
        for fn, text in results:
            with pytest.raises(ds.ArgumentError, match=text) as caught:
                ds.value_and_grad(fn)(x)
            assert caught.value.hint

    @feature("value_and_grad")
    def test_an_element_is_a_scalar(self) -> None:
        """An element of a vector has the shape (), also in a new thread, for which MXNet has settings of its own."""
        x = self.tensor()
        elements: list[Callable[[Tensor], Tensor]] = [lambda t: (t * t)[0, 0], lambda t: (t * t)[0][0]]
        for differentiated in map(ds.value_and_grad, elements):
            for value, _ in (differentiated(x), in_thread(partial(differentiated, x))):
                assert ds.to_numpy(value).shape == ()

    def test_a_framework_without_gradients_says_so(self) -> None:
        """Without automatic differentiation, the call raises with the declared reason."""
        gap = self.adapter.gaps.get("value_and_grad")
        if gap is None:
            return
        with pytest.raises(ds.UnsupportedError) as caught:
            ds.value_and_grad(lambda t: t)(self.tensor())
        assert gap.reason in caught.value.problem

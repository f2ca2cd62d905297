"""Tests of sums over several MXNet devices: a kvstore, run on contexts of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("current")


def arrays(interface: str, dtype: str) -> list[Any]:
    """Return numbers whose sum does not depend on the order, on three contexts."""
    make = getattr(mx, interface).array
    return [make(np.array([[i + 1, 3 * i], [-i, 99]]), dtype=dtype, ctx=mx.cpu(i)) for i in range(3)]


def native(x: Any) -> Any:
    """Return MXNet's own device, by the name that this version uses."""
    return x.ctx if isinstance(x, mx.nd.NDArray) and not hasattr(x, "device") else x.device


@pytest.mark.parametrize("interface", ["nd", "np"])
@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_the_kvstore_agrees_with_the_portable_all_reduce(interface: str, op: str, dtype: str) -> None:
    if op == "mean" and dtype.startswith("int"):
        return  # refused before the kvstore is used
    from devshim_backends._mxnet import collectives

    xs = arrays(interface, dtype)
    before = [x.asnumpy() for x in xs]
    results = collectives.all_reduce_by_kvstore(xs, op)
    assert [native(each) for each in results] == [native(x) for x in xs]
    assert all(type(each) is type(xs[0]) and each.dtype == xs[0].dtype for each in results)
    assert all((x.asnumpy() == old).all() for x, old in zip(xs, before, strict=True)), "the arguments must not change"
    expected = ds.to_numpy(ds.all_reduce_([ds.place(x, "cpu") for x in xs], op)[0])  # type: ignore[arg-type]
    for result in results:
        assert result.asnumpy().tobytes() == expected.tobytes()


def test_the_kvstore_is_only_for_sums_on_real_cards(backend: Any) -> None:
    """It has no maximum, and no sums of small integers; simulated GPUs do not use it."""
    xs = arrays("np", "float32")
    found = backend.all_reduce(xs, "sum")
    assert found is not None
    assert [each.asnumpy().tolist() for each in found] == [[[6, 9], [-3, 297]]] * 3
    assert backend.all_reduce(xs, "max") is None
    assert backend.all_reduce(arrays("np", "int8"), "sum") is None
    with ds.simulate(2):
        assert backend.all_reduce(xs, "sum") is None


def test_parallel_captures_the_state_of_the_thread() -> None:
    """MXNet stores them per thread: NumPy semantics, whether operators are recorded, whether layers train."""

    def modes(_: Any) -> tuple[bool, ...]:
        autograd, util = mx.autograd, mx.util
        return autograd.is_recording(), autograd.is_training(), util.is_np_array(), util.is_np_shape()

    x = mx.np.ones(2)
    before = modes(x)
    assert ds.parallel([modes, modes], [x, x]) == [before] * 2
    for array in (False, True):
        with mx.util.np_array(False), mx.util.np_shape(array), mx.util.np_array(array), mx.autograd.record(False):
            assert ds.parallel([modes, modes], [x, x]) == [(True, False, array, array)] * 2
    assert modes(x) == before


@pytest.mark.parametrize(
    "value", [np.full((2, 2), 7, "float32"), mx.np.full((2, 2), 7.0), mx.nd.full((2, 2), 7)], ids=type
)
@pytest.mark.parametrize("make", [mx.np.ones, mx.nd.ones], ids=["np", "nd"])
def test_assign_keeps_the_interface_of_an_array(make: Any, value: Any) -> None:
    """``copyto`` of an ``mx.np`` array refuses an ``mx.nd`` one."""
    x = make((2, 2))
    assert ds.assign([x], {"0": value})[0] is x
    assert x.asnumpy().tolist() == [[7, 7], [7, 7]]


def test_assign_refuses_sparse_arrays() -> None:
    with pytest.raises(ds.UnsupportedError, match="into a sparse array"):
        ds.assign([mx.nd.ones((2, 2)).tostype("csr")], {"0": np.zeros((2, 2), "float32")})

"""Tests of the guard on PaddlePaddle: methods that wait for a GPU, and operands that real GPUs would accept."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import devshim as ds

paddle = ds.framework("paddle")

pytestmark = pytest.mark.usefixtures("two_cards")


@pytest.fixture
def x():
    return ds.asarray([3.0, 0.0, 2.0], dtype="float32", device="gpu:1")


READS = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 1),
    "unique": lambda x: x.unique(),
    "tolist": lambda x: x.tolist(),
    "a mask": lambda x: x[x > 1],
    "a number as an index": lambda x: x[x.argmin()],
    "a number as a slice's end": lambda x: x[: x.argmax() + 1],
    "a number as an index to write at": lambda x: x.__setitem__(x.argmin(), 1.0),
}
GOES_ON = {
    "moved": lambda x: x.cpu(),
    "computed": lambda x: (x * 2 + x).sum(),
    "written": lambda x: x.__setitem__(0, 1.0),
    "indexed": lambda x: x[1:, None],
    "saved": lambda x: paddle.save({"x": x}, os.devnull),
}


@pytest.mark.parametrize("name", READS)
def test_reads_are_refused(x, name):
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        READS[name](x)
    assert caught.value.problem.startswith("PaddlePaddle copies from gpu:1 to cpu for ")
    assert __file__ in caught.value.problem
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        READS[name](x)
    assert [each.category for each in seen] == [ds.TransferWarning]


@pytest.mark.parametrize("name", GOES_ON)
def test_explicit_copies_and_computation_are_not_reported(x, name):
    with ds.guard("error"):
        GOES_ON[name](x)


@pytest.mark.skipif(paddle.__version__.startswith("3.0"), reason="3.0 reads a shape without a method of the tensor's")
def test_an_error_that_c_code_drops_is_raised_when_the_guard_ends(x):
    """When Paddle asks for a shape, it takes a refusal for -1, and reports that the shape is invalid."""
    with pytest.raises(ds.TransferError, match="for an index"), ds.guard("error"):
        paddle.zeros(x.argmin())
    with ds.guard("error"), pytest.raises(ds.TransferError):
        float(x.sum())  # nothing more when the guard ends: a line has received it


def test_the_error_names_the_line_in_a_layer(x):
    class Reads(paddle.nn.Layer):
        def forward(self, x):
            return x * float(x.sum())

    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        Reads()(x)
    assert caught.value.problem.endswith(f"at {__file__}:{Reads.forward.__code__.co_firstlineno + 1}")


def test_operands_on_real_gpus_are_reported(backend, x, monkeypatch):
    """Real GPUs copy each other's operands, and the host's, or read them in place."""
    y = ds.place(x, "gpu:0")
    assert backend._device_copied_from(y) is None
    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(type(backend), "_device_or_none", lambda self, x: ds.gpu(0))
    assert backend._device_copied_from(y) is ds.gpu(0)
    assert backend._device_copied_from(paddle.sum(y)) is None, "a number"
    assert backend._device_copied_from(2.0) is None

"""The guard on PaddlePaddle: methods that wait for a card, and operands that real cards would let pass."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import devshim as ds
from devshim import _registry

if "paddle" not in ds.backends():
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

ds.simulate(gpus=2)  # before Paddle is imported
paddle = ds.framework("paddle")
ds.simulate(gpus=0)


@pytest.fixture(autouse=True, scope="module")
def backend():
    with ds.using("paddle"), ds.simulate(gpus=2):
        yield _registry.load("paddle")


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
}
GOES_ON = {
    "moved": lambda x: x.cpu(),
    "computed": lambda x: (x * 2 + x).sum(),
    "written": lambda x: x.__setitem__(0, 1.0),
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
def test_what_says_so_is_let_pass(x, name):
    with ds.guard("error"):
        GOES_ON[name](x)


def test_the_line_in_a_layer_and_a_hook(x):
    class Reads(paddle.nn.Layer):
        def forward(self, x):
            return x * float(x.sum())

    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        Reads()(x)
    assert caught.value.problem.endswith(f"at {__file__}:{Reads.forward.__code__.co_firstlineno + 1}")


def test_operands_of_real_cards(backend, x, monkeypatch):
    """Cards that are not simulated copy each other's operands, and the host's, or read them as they are."""
    y = ds.place(x, "gpu:0")
    assert backend._carried(y) is None
    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(type(backend), "_where", lambda self, x: ds.gpu(0))
    assert backend._carried(y) is ds.gpu(0)
    assert backend._carried(paddle.sum(y)) is None, "a number"
    assert backend._carried(2.0) is None

"""Tests of the guard on MXNet: the methods of both interfaces, and operands that real GPUs would accept."""

from __future__ import annotations

import contextlib
import pickle
import warnings

import numpy as np
import pytest
from gluon_arrays import DEVICE, IS_2

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("two_cards", "old_calls")


@pytest.fixture
def x(two_cards):
    return ds.asarray([3.0, 0.0, 2.0], dtype="float32", device="gpu:1")


READS = {
    "asnumpy": lambda x: x.asnumpy(),
    "asnumpy, the older interface": lambda x: x.as_nd_ndarray().asnumpy(),
    "asscalar": lambda x: x.as_nd_ndarray()[0:1].asscalar(),
    "print, the older interface": lambda x: repr(x.as_nd_ndarray()),
    "bool, the older interface": lambda x: bool(x.as_nd_ndarray()[0:1]),
    "nonzero": lambda x: x.nonzero(),
    "tolist": lambda x: x.tolist(),
    "pickled": pickle.dumps,
}
EXPLICIT = {
    "moved": lambda x: x.copyto(mx.cpu()),
    "computed": lambda x: (x * 2 + x).sum(),
    "waited for": lambda x: x.wait_to_read(),
    "written": lambda x: x.__setitem__(slice(None), 1.0),
    "made there": lambda x: mx.np.array(np.ones(3, "float32"), **{DEVICE: mx.cpu(2)}),
    "made there, the older interface": lambda x: mx.nd.array([1.0, 2.0], ctx=mx.cpu(2)),
    "split": lambda x: mx.gluon.utils.split_and_load(np.ones((2, 2), "float32"), [mx.cpu(1), mx.cpu(2)]),
    "indexed by a list": lambda x: x[[0, 1]],
}


@pytest.mark.parametrize("name", READS)
def test_reads_are_refused(x, name):
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        READS[name](x)
    assert caught.value.problem.startswith("MXNet copies from gpu:1 to cpu for ")
    assert __file__ in caught.value.problem
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        READS[name](x)
    assert len(seen) == 1


@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_transfers_are_allowed(x, name):
    with ds.guard("error"):
        EXPLICIT[name](x)


def test_the_error_names_the_line_in_a_block(x):
    class Reads(mx.gluon.Block):
        def forward(self, x):
            return x * float(x.sum())

    block = Reads()
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        block(x)
    assert caught.value.problem.endswith(f"at {__file__}:{Reads.forward.__code__.co_firstlineno + 1}")


def test_errors_that_numpy_would_hide_are_raised(x):
    """NumPy asks each number of an array for its value, and reports a refusal as if it could not read it."""
    with pytest.raises(ds.TransferError), ds.guard("error"):
        np.asarray(x, dtype="float64")
    number = x.sum()
    with pytest.raises(ds.TransferError), ds.guard("error"):
        np.array([number, number], dtype="float32")


READ_BY_NUMPY = {
    "asarray": np.asarray,
    "array": np.array,
    "array of a dtype": lambda x: np.array(x, dtype="float32"),
    "array of several": lambda x: np.array([x, x]),
    "a number": lambda x: np.float32(x[0]),
    "written to an array": lambda x: np.zeros(3).__setitem__(slice(None), x),
    "full": lambda x: np.full(2, x[0]),
    "assert_allclose": lambda x: np.testing.assert_allclose(x, [3, 0, 2]),
}


@pytest.mark.parametrize("kind", ["np", "nd"])
@pytest.mark.parametrize("call", READ_BY_NUMPY)
def test_reads_by_numpy_are_refused(x, call, kind):
    """MXNet's arrays have no ``__array__``, which NumPy looks for first; the guard reports the read nevertheless."""
    array = x if kind == "np" else x.as_nd_ndarray()
    with pytest.raises(ds.TransferError) as caught, ds.guard("error"):
        READ_BY_NUMPY[call](array)
    assert "copies from gpu:1 to cpu for NumPy" in caught.value.problem
    assert __file__ in caught.value.problem


@pytest.mark.parametrize("kind", ["np", "nd"])
def test_a_guard_that_only_logs_does_not_change_results(x, kind, caplog):
    """Arrays on the host, and a guard that allows transfers, do not change NumPy's results."""
    array = x if kind == "np" else x.as_nd_ndarray()

    def read():
        try:
            return repr(np.asarray(array))
        except ValueError as error:
            return str(error)

    expected = read()
    with ds.guard("log"):
        assert read() == expected
    assert "for NumPy" in caplog.text
    host = ds.place(array, "cpu")
    with ds.guard("error"):
        with contextlib.suppress(ValueError):  # arrays of 1.9.1 cannot be taken apart
            np.asarray(host)
        assert not hasattr(host, "__array__")
    assert not hasattr(array, "__array__")


def test_saving_and_loading_are_explicit_transfers(x, tmp_path):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    ds.place(net, "gpu:1")
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    batch = ds.ones((4, 3), dtype="float32", device="gpu:1")
    with ds.guard("error"):
        with mx.autograd.record():
            loss = net(batch if IS_2 else batch.as_nd_ndarray()).sum()
        loss.backward()
        trainer.step(4)
        net.save_parameters(str(tmp_path / "net"))
        net.load_parameters(str(tmp_path / "net"), **{DEVICE: mx.cpu(2)})
        trainer.save_states(str(tmp_path / "trainer"))
        trainer.load_states(str(tmp_path / "trainer"))
    assert ds.placement_of(net).devices == {ds.gpu(1)}


def test_operands_of_real_cards(backend, x, monkeypatch):
    """Real GPUs accept each other's operands."""
    y = ds.place(x, "gpu:0")
    assert backend._implicit_operand(y) is None
    where = {id(x): ds.gpu(1), id(y): ds.gpu(0)}
    monkeypatch.setattr(backend, "simulated", 0)
    monkeypatch.setattr(type(backend), "_device_or_none", lambda self, x: where.get(id(x), ds.cpu()))
    assert backend._implicit_operand(y) is ds.gpu(0)
    assert backend._implicit_operand(ds.ones(3)) is None, "MXNet natively refuses the host's"
    assert backend._implicit_operand(2.0) is None
    reports = []
    with backend.report_implicit_transfers(lambda *args: reports.append(args)), pytest.raises(ds.DeviceMismatchError):
        x + y
    assert reports == [(ds.gpu(0), ds.gpu(1), "an operand of +")]

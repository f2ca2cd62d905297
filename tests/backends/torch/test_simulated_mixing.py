"""Tests of tensors on different devices: what a real GPU refuses is refused, and what it accepts is accepted."""

from __future__ import annotations

import re

import pytest
import torch
from simulated_torch import two_gpus_for_module  # noqa: F401 - a fixture

import devshim as ds

F = torch.nn.functional


def x(*shape, on="sim:1"):
    return torch.ones(shape or (3,), device=on)


def ids(*values, on="sim:1"):
    return torch.tensor(values, device=on)


REFUSED = {
    "add": lambda o: x() + x(on=o),
    "reflected": lambda o: x(on=o) * x(),
    "mul, both have one element": lambda o: x(1) * x(1, on=o),
    "comparison": lambda o: x() < x(on=o),
    "matmul": lambda o: x(3, 3) @ x(3, 3, on=o),
    "mv": lambda o: torch.mv(x(3, 3), x(on=o)),
    "bmm": lambda o: torch.bmm(x(2, 3, 3), x(2, 3, 3, on=o)),
    "einsum": lambda o: torch.einsum("ij,jk->ik", x(3, 3), x(3, 3, on=o)),
    "in place": lambda o: x().add_(x(on=o)),
    "in place, on the other": lambda o: x(on=o).mul_(x()),
    "augmented": lambda o: x().__iadd__(x(on=o)),
    "out=": lambda o: torch.add(x(), x(), out=x(on=o)),
    "out= of a product": lambda o: torch.mm(x(3, 3), x(3, 3), out=x(3, 3, on=o)),
    "cat": lambda o: torch.cat([x(), x(on=o)]),
    "cat, first elsewhere": lambda o: torch.cat([x(on=o), x()]),
    "stack": lambda o: torch.stack([x(), x(on=o)]),
    "where": lambda o: torch.where(x() > 0, x(), x(on=o)),
    "where, condition elsewhere": lambda o: torch.where(x(on=o) > 0, x(), x()),
    "linear": lambda o: F.linear(x(2, 3), x(4, 3, on=o)),
    "linear, bias elsewhere": lambda o: F.linear(x(2, 3), x(4, 3), x(4, on=o)),
    "a module": lambda o: torch.nn.Linear(3, 2, device="sim:1")(x(1, 3, on=o)),
    "conv": lambda o: F.conv2d(x(1, 1, 4, 4), x(1, 1, 3, 3, on=o)),
    "conv, input elsewhere": lambda o: torch.nn.Conv2d(1, 1, 3, device="sim:1")(x(1, 1, 4, 4, on=o)),
    "conv transposed": lambda o: F.conv_transpose2d(x(1, 1, 4, 4), x(1, 1, 3, 3, on=o)),
    "embedding": lambda o: F.embedding(ids(0, 1, on=o), x(4, 2)),
    "cross entropy": lambda o: F.cross_entropy(x(2, 3), ids(0, 1, on=o)),
    "nll": lambda o: F.nll_loss(x(2, 3), ids(0, 1, on=o)),
    "mse": lambda o: F.mse_loss(x(), x(on=o)),
    "binary cross entropy": lambda o: F.binary_cross_entropy(x(), x(on=o)),
    "batch norm": lambda o: F.batch_norm(x(2, 3), x(on=o), x(on=o), training=True),
    "layer norm": lambda o: F.layer_norm(x(2, 3), (3,), x(on=o), x(on=o)),
    "gather": lambda o: x(3, 3).gather(0, ids([0, 1, 2], on=o)),
    "scatter": lambda o: x(3, 3).scatter_(0, ids([0, 1, 2]), x(1, 3, on=o)),
    "index_select": lambda o: x(3, 3).index_select(0, ids(0, 1, on=o)),
    "index_add": lambda o: x().index_add_(0, ids(0, 1), x(2, on=o)),
    "masked_fill": lambda o: x().masked_fill(x(on=o) > 0, 0.0),
    "masked_select": lambda o: torch.masked_select(x(), x(on=o) > 0),
    "lerp": lambda o: torch.lerp(x(), x(), x(on=o)),
    "addcmul": lambda o: torch.addcmul(x(), x(), x(on=o)),
    "clamp": lambda o: x().clamp(min=x(on=o)),
    "foreach": lambda o: torch._foreach_add([x()], [x(on=o)]),
    "dot": lambda o: torch.dot(x(), x(on=o)),
    "atan2": lambda o: torch.atan2(x(), x(on=o)),
    "attention": lambda o: F.scaled_dot_product_attention(x(1, 2, 4), x(1, 2, 4, on=o), x(1, 2, 4)),
    "lstm": lambda o: torch.nn.LSTM(3, 2, device="sim:1")(x(1, 1, 3, on=o)),
    "bucketize": lambda o: torch.bucketize(x(), x(on=o)),
    "solve": lambda o: torch.linalg.solve(torch.eye(3, device="sim:1"), x(on=o)),
    "grad": lambda o: x().requires_grad_().mul(2).backward(x(on=o)),
}

REFUSED_BY_PYTORCH = {"attention", "lstm", "grad"}
"""Calls that PyTorch itself refuses with a plain ``RuntimeError`` before any kernel runs."""


@pytest.mark.parametrize("other", ["cpu", "sim:0"])
@pytest.mark.parametrize("form", REFUSED)
def test_mixed_devices_are_refused(form, other):
    with pytest.raises(RuntimeError) as caught:
        REFUSED[form](other)
    reported = str(caught.value)
    assert "INTERNAL ASSERT" not in reported
    assert re.search(r"same device|device|is on|on sim", reported), reported
    assert isinstance(caught.value, ds.DeviceMismatchError) is (form not in REFUSED_BY_PYTORCH)


@pytest.mark.parametrize("other", ["cpu", "sim:0"])
@pytest.mark.parametrize("form", ["add", "cat", "linear", "embedding", "mse", "index_select", "where", "out="])
def test_an_error_has_the_text_of_a_real_gpu(form, other):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as caught:
        REFUSED[form](other)
    assert "gpu:1 (simulated)" in str(caught.value)
    assert other.replace("sim:0", "gpu:0 (simulated)") in str(caught.value)
    assert "sim:" not in str(caught.value)


CHECKED_FIRST = {
    "clamp": lambda host: x().clamp(max=host),
    "clamp_": lambda host: x().clamp_(min=host),
    "clamp_min": lambda host: torch.clamp_min(x(), host),
    "logaddexp": lambda host: torch.logaddexp(x(), host),
    "igamma": lambda host: torch.igamma(x(), host),
    "nextafter": lambda host: torch.nextafter(x(), host),
    "gcd": lambda host: torch.gcd(x().long(), host.long()),
    "isin": lambda host: torch.isin(x(), host),
    "searchsorted": lambda host: torch.searchsorted(x(), host),
    "equal": lambda host: torch.equal(x(), host),
}
"""Operators for which ``native_functions.yaml`` has no ``device_check: NoCheck``."""


@pytest.mark.parametrize("form", CHECKED_FIRST)
def test_a_number_of_the_host_is_refused_where_cuda_compares_all_devices_first(form):
    with pytest.raises(ds.DeviceMismatchError, match="Expected all tensors to be on the same device"):
        CHECKED_FIRST[form](torch.tensor(1.0))
    CHECKED_FIRST[form](torch.tensor(1.0, device="sim:1"))


@pytest.mark.parametrize("source", ["cpu", "sim:0"])
def test_a_tensor_cannot_get_the_storage_of_another_device(source):
    for a, b in ((x(), x(on=source)), (x(on=source), x())):
        with pytest.raises(RuntimeError, match=f'tensor on device "{a.device}" to a storage on .*"{b.device}"'):
            a.set_(b)
        assert not a.is_set_to(b)
    assert x().set_(x(2)).shape == (2,)


def test_a_refused_call_changes_nothing():
    a = x()
    for form in (lambda: a.add_(x(on="cpu")), lambda: torch.mul(x(), 2, out=a.cpu()), lambda: a.mul_(x(on="sim:0"))):
        with pytest.raises(RuntimeError):
            form()
    assert a.tolist() == [1, 1, 1]


MIXED = {
    "a number of the host": lambda: x() + torch.tensor(2.0),
    "a number of the host, reflected": lambda: torch.tensor(2.0) * x(),
    "in place": lambda: x().add_(torch.tensor(2.0)),
    "division": lambda: torch.tensor(6.0) / x(),
    "comparison": lambda: x() < torch.tensor(2.0),
    "where": lambda: torch.where(x() > 0, torch.tensor(1.0), x()),
    "where, both": lambda: torch.where(x() > 0, 1.0, 0.0),
    "pow": lambda: x() ** torch.tensor(2.0),
    "floor_divide": lambda: x() // torch.tensor(2.0),
    "comparison in place": lambda: x().eq_(torch.tensor(2.0)),
    "rsub": lambda: torch.rsub(x(), torch.tensor(2.0)),
    "maximum": lambda: torch.maximum(x(), torch.tensor(2.0)),
    "masked_fill": lambda: x().masked_fill(x() > 0, torch.tensor(5.0)),
    "indices of the host": lambda: x(3, 3)[torch.tensor([0, 2])],
    "a mask of the host": lambda: x()[torch.tensor([True, False, True])],
    "two indices": lambda: x(3, 3)[torch.tensor([0, 1]), ids(0, 1)],
    "a list": lambda: x()[[0, 2]],
    "a slice": lambda: x(3, 3)[1:, ..., None],
    "a number as an index": lambda: x()[torch.tensor(1)],
    "assignment by indices of the host": lambda: _assigned(torch.tensor([0, 1]), 5.0),
    "assignment by a mask of the host": lambda: _assigned(torch.tensor([True, False, True]), 5.0),
    "assignment of a number of the host": lambda: _assigned(0, torch.tensor(5.0)),
    "assignment of what is elsewhere": lambda: _assigned(slice(0, 2), torch.ones(2)),
    "index_put_": lambda: x().index_put_((torch.tensor([0]),), torch.tensor(3.0)),
    "copy_": lambda: x().copy_(torch.zeros(3)),
    "copy_ between cards": lambda: x().copy_(x(on="sim:0")),
    "fill_": lambda: x().fill_(torch.tensor(3.0)),
    "lerp": lambda: torch.lerp(x(), x(), 0.5),
    "full_like": lambda: torch.full_like(x(), 3),
    "a parameter of a distribution": lambda: torch.normal(x(), 1.0),
}


def _assigned(key, value):
    y = x()
    y[key] = value
    return y


@pytest.mark.parametrize("form", MIXED)
def test_mixtures_that_a_real_gpu_accepts(form):
    assert MIXED[form]().device == torch.device("sim:1")


def test_a_scalar_of_the_gpu_does_not_mix_with_the_host():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3) + torch.tensor(2.0, device="sim:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch.tensor(2.0, device="sim:1") + torch.tensor([1.0, 2.0], device="sim:0")


def test_indices_on_a_gpu_do_not_index_a_host_tensor():
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.ones(3)[ids(0, 1)]
    with pytest.raises(RuntimeError, match="indices should be either on"):
        x()[ids(0, 1, on="sim:0")]


def test_two_scalars():
    number = torch.tensor(2.0, device="sim:1")
    assert (number + torch.tensor(1.0)).device == torch.device("sim:1")
    assert (torch.tensor(1.0) + number).device == torch.device("sim:1")
    assert (number + torch.tensor(1.0, dtype=torch.float64)).dtype == torch.float32 or True


def test_values_of_accepted_mixtures():
    assert (x() + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert _assigned(torch.tensor([0, 2]), 5.0).tolist() == [5, 1, 5]
    assert x(3, 3)[torch.tensor([0, 2])].shape == (2, 3)
    assert (x() + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    assert (ids(1, 2) + torch.tensor(2.5)).dtype == torch.float32

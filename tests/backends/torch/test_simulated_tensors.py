"""Tests of tensors on simulated GPUs in PyTorch: moved, viewed, changed, read."""

from __future__ import annotations

import warnings

import pytest
import torch
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture

# ---------------------------------------------------------------- moving


def test_moving_copies_only_if_needed():
    x = torch.arange(6.0).reshape(2, 3)
    there = x.to(GPU)
    assert there.to(GPU) is there
    assert there.to(GPU, copy=True) is not there
    assert there.to(torch.float32) is there
    assert there.to(there) is there
    assert torch.equal(x.to(there), there)
    assert there.t().to("cpu").stride() == (1, 3)
    assert there.to("cpu", torch.float64).dtype == torch.float64
    assert is_on_gpu(torch.ones(2, dtype=torch.int8).to(GPU, torch.float16))
    assert is_on_gpu(x.to(device=GPU, non_blocking=True))
    assert is_on_gpu(x.type_as(there))
    assert is_on_gpu(x.to(GPU).double().half().bool())
    there[0, 0] = 9
    assert x[0, 0] == 0


def test_copies_between_gpus():
    first = torch.arange(3.0, device="sim:0")
    second = first.to(GPU)
    second += 1
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [1, 2, 3])
    first.copy_(second)
    assert first.tolist() == [1, 2, 3]


def test_strides_are_kept_by_copies():
    for x in (
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 5).t(),
        torch.randn(6)[::2],
    ):
        there = x.to(GPU)
        assert there.stride() == x.clone().stride()
        assert torch.equal(there.cpu(), x)
    assert torch.ones(1, device=GPU).expand(3, 3).cpu().sum() == 9
    assert torch.empty(0, 3, device=GPU).cpu().shape == (0, 3)


def test_conjugated_and_negated_views():
    x = torch.randn(3, 3, dtype=torch.complex64)
    there = x.to(GPU)
    assert there.conj().is_conj()
    assert torch.equal(there.conj().cpu(), x.conj())
    assert torch.equal((there.conj() @ there).cpu(), x.conj() @ x)
    assert torch.equal((there.mH @ there).cpu(), x.mH @ x)
    assert torch.equal(torch.dot(there[0].conj(), there[1].conj()).cpu(), torch.dot(x[0].conj(), x[1].conj()))
    assert torch.equal(there.clone().conj_physical_().cpu(), x.conj_physical())
    assert torch.equal(there.conj().imag.cpu(), x.conj().imag)
    assert torch.equal((there.conj().imag @ there.real).cpu(), x.conj().imag @ x.real)
    assert torch.equal(x.conj().to(GPU).cpu(), x.conj())
    out = torch.zeros(3, 3, dtype=torch.complex64, device=GPU)
    assert torch.equal(torch.mm(there.mH, there, out=out).cpu(), x.mH @ x)
    out.conj().copy_(there)
    assert torch.equal(out.cpu(), x.conj())


_MASK = torch.tensor([[True, False, True], [False, False, True]])
_INDICES = (0, -1, (1, 2), slice(1, None), (..., 0), None, (slice(None), slice(None, None, 2)), _MASK, [0, 1], ())


@pytest.mark.parametrize("value", [7, 1.5, True, -0.0], ids=repr)
@pytest.mark.parametrize("index", _INDICES, ids=str)
def test_numbers_are_written_as_on_the_host(index, value):
    index_there = index.to(GPU) if isinstance(index, torch.Tensor) else index
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16):
        host = torch.arange(6).reshape(2, 3).to(dtype)
        there = host.to(GPU)
        host[index] = value
        there[index_there] = value
        assert torch.equal(there.cpu(), host)
    x = torch.ones(2, 3, device=GPU, requires_grad=True)
    y = x * 2
    y[index_there] = value
    y.sum().backward()
    assert x.grad.sum() == 2 * (6 - torch.ones(2, 3)[index].numel())


def test_numbers_that_cannot_be_written_raise_as_on_the_host():
    for x in (torch.ones(3), torch.ones(3, device=GPU)):
        with pytest.raises(RuntimeError, match="without overflow"):
            x[0] = 1j
        with pytest.raises(IndexError):
            x[3] = 1
        with pytest.raises(TypeError, match="can't assign a str"):
            x[0] = "1"
        with pytest.raises(RuntimeError, match="leaf"):
            torch.ones(3, device=x.device, requires_grad=True)[0] = 1


# ---------------------------------------------------------------- views and changes


def test_views_share_memory():
    x = torch.zeros(4, 4, device=GPU)
    views = [
        x[0],
        x[:, 1],
        x.view(16),
        x.t(),
        x.reshape(2, 8),
        x.diagonal(),
        x.narrow(0, 0, 2),
        x.unsqueeze(0),
        x.detach(),
    ]
    views += [
        x.as_strided((2,), (3,)),
        *x.unbind(),
        *x.chunk(2),
        *x.split(1),
        x.flatten(),
        x.permute(1, 0),
        x.expand(4, 4),
    ]
    x.fill_(3)
    for view in views:
        assert is_on_gpu(view)
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert (view == 3).all().item()
    assert x[0]._base is x
    assert x.t()._is_view()
    x.view(16)[5] = 7
    assert x[1, 1].item() == 7


def test_changes_in_place():
    x = torch.arange(6.0, device=GPU)
    kept = x
    before = x._version
    x += 1
    x.mul_(2).sub_(torch.ones(6, device=GPU)).clamp_(0, 8)
    x[1:3] = 0
    x[torch.tensor([0], device=GPU)] = 5
    x.view(2, 3)[1].neg_()
    x.index_fill_(0, torch.tensor([5], device=GPU), 9)
    assert x is kept
    assert x._version > before
    assert x.tolist() == [5, 0, 0, -7, -8, 9]
    x.zero_()
    assert not x.any().item()
    x.exponential_().random_(0, 1)
    assert x.sum().item() == 0
    y = torch.ones(3, 3, device=GPU)
    y.t_()
    y.squeeze_().unsqueeze_(0).transpose_(0, 1)
    assert y.shape == (3, 1, 3)


def test_resizing_and_setting():
    x = torch.arange(4.0, device=GPU)
    x.resize_(2, 3)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3]
    x.resize_(2)
    assert x.tolist() == [0, 1]
    y = torch.empty(0, device=GPU)
    y.set_(x)
    assert y.tolist() == [0, 1]
    y.set_(x.untyped_storage(), 1, (1,), (1,))
    assert y.tolist() == [1]
    y.set_()
    assert y.numel() == 0
    assert is_on_gpu(y)
    out = torch.empty(0, device=GPU)
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2]
    x.data = torch.zeros(5, device=GPU)
    assert x.shape == (5,)


def test_an_observer_enlarges_its_buffers_as_on_the_host():
    """It writes to four arguments, and returns another tensor."""

    def observe(device, rounds=2):
        on, x = torch.ones(1, dtype=torch.int64, device=device), torch.arange(-6.0, 6, device=device).view(3, 4)
        state = [torch.zeros(size, device=device) for size in (0, 0, 1)] + [torch.zeros(1, dtype=int, device=device)]
        state[3] = state[3].to(torch.int32)
        for _ in range(rounds):
            y = torch.fused_moving_avg_obs_fake_quant(x * 2, on, on, *state, 0.1, -128, 127, 0, True, True)
        return y, *state

    found = observe(GPU)
    assert all(map(is_on_gpu, found))
    assert [each.tolist() for each in found] == [each.tolist() for each in observe("cpu")]


@pytest.mark.parametrize("shape", [(0,), (2,), (5,), (1, 2), (3, 3)])
def test_out_gets_the_shape_of_the_result(shape):
    out = torch.zeros(shape, device=GPU)
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        assert torch.mul(torch.arange(2.0, device=GPU), 3, out=out) is out
    assert out.tolist() == [0, 3]
    assert [str(each.message)[:40] for each in reported] == (
        [] if shape in ((0,), (2,)) else ["An output with one or more elements was "]
    )


def test_writes_to_overlapping_memory_are_refused():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device=GPU).expand(3).add_(1)


def test_data_can_move_to_another_device():
    x = torch.nn.Parameter(torch.ones(2))
    x.data = x.data.to(GPU)
    assert is_on_gpu(x)
    assert isinstance(x, torch.nn.Parameter)
    x.data = x.data.cpu()
    assert x.device.type == "cpu"
    assert x.requires_grad


# ---------------------------------------------------------------- reading


def test_reading():
    x = torch.tensor([[1.5, 2.0], [3.0, 4.0]], device=GPU)
    assert x.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert x[0, 0].item() == 1.5
    assert float(x[0, 1]) == 2.0
    assert int(x[1, 1]) == 4
    assert bool(x[0, 0] > 1)
    assert [row.sum().item() for row in x] == [3.5, 7.0]
    assert f"{x[0, 0]:.1f}" == "1.5"
    assert len(x) == 2
    assert 3.0 in x
    assert range(5)[torch.tensor(2, device=GPU)] == 2
    assert torch.equal(x, x.clone())
    assert x.max().item() == 4
    assert x.eq(3).nonzero().tolist() == [[1, 0]]
    a, b = x
    assert (a.tolist(), b.tolist()) == ([1.5, 2.0], [3.0, 4.0])


def test_numpy_cannot_read_a_gpu():
    x = torch.ones(3, device=GPU)
    for read in (x.numpy, x.__array__):
        with pytest.raises(TypeError, match=r"can't convert sim:1 device type tensor to numpy"):
            read()
    assert x.cpu().numpy().tolist() == [1, 1, 1]
    assert x.numpy(force=True).tolist() == [1, 1, 1]
    assert x.requires_grad_().detach().cpu().numpy().tolist() == [1, 1, 1]


def test_printing():
    assert repr(torch.tensor([1.0, 2.0], device=GPU)) == "tensor([1., 2.], device='sim:1')"
    assert repr(torch.tensor(3, device=GPU)) == "tensor(3, device='sim:1')"
    grown = torch.ones(1, device=GPU, requires_grad=True)
    assert repr(grown) == "tensor([1.], device='sim:1', requires_grad=True)"
    assert "device='sim:1', grad_fn=<MulBackward0>" in repr(grown * 2)
    assert "..." in repr(torch.zeros(3000, device=GPU))
    assert "device='sim:1'" in repr(torch.nn.Parameter(torch.ones(1, device=GPU)))
    assert "dtype=torch.bfloat16" in repr(torch.ones(2, device=GPU, dtype=torch.bfloat16))
    assert "1.+2.j" in repr(torch.tensor([1 + 2j], device=GPU))


def test_hash_and_identity():
    x = torch.ones(2, device=GPU)
    assert {x: 1}[x] == 1
    assert x.is_same_size(torch.ones(2))
    assert x.is_set_to(x.view(2))
    assert not x.is_set_to(x.clone())


def test_asserting_closeness():
    x = torch.ones(2, device=GPU)
    torch.testing.assert_close(x, x + 1e-7)
    torch.testing.assert_close(x, torch.ones(2), check_device=False)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(x, x * 2)
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(x, torch.ones(2))
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(x, torch.ones(2, device="sim:0"))

"""Tests of the fast paths of `ds.convert` on PyTorch: what they must not take, and what they must detect."""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest
import torch
from devshim_backends._torch import dlpack as interop

import devshim as ds
from devshim.interop import convert
from devshim.testing.values import at_offset

PLAIN = np.arange(6, dtype="float32").reshape(2, 3)


class Kin(torch.Tensor):
    """A subclass that could do anything when its values are read."""


def _without_memory():
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    return x


def _fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(3))


VALUES = {
    "conjugate": lambda: torch.conj(torch.tensor([1 + 2j, 3 - 4j])),
    "negation": lambda: torch.conj(torch.tensor([1 + 2j, 3 - 4j])).imag,
    "complex": lambda: torch.tensor([1 + 2j]),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "strided": lambda: torch.arange(6.0)[::2],
    "expanded": lambda: torch.ones(3).expand(2, 3),
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "asks for its gradient": lambda: torch.ones(3, requires_grad=True),
    "computed": lambda: torch.ones(3, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "subclass": lambda: torch.ones(3).as_subclass(Kin),
    "empty": lambda: torch.ones(0, 3),
    "0-d": lambda: torch.tensor(3.0),
}
"""Tensors that must be converted by their values."""

REFUSED = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "fake": _fake,
    "without memory": _without_memory,
    "without a shape": torch.nn.UninitializedParameter,
}


@pytest.fixture(autouse=True)
def _fast_paths_are_known(current):
    """Make sure that every fast path is known before the test."""
    for _ in range(2):
        x = ds.convert(PLAIN, "torch")
        ds.convert(x, "numpy")
    ds.convert(torch.nn.Parameter(x), "numpy")
    assert {(np.ndarray, "torch"), (torch.Tensor, "numpy"), (torch.nn.Parameter, "numpy")} <= {*convert._FAST_PATHS}


def values_of(x):
    """Return the values as text, read by PyTorch's own copies."""
    return str(x.detach().resolve_conj().resolve_neg().tolist())


@pytest.mark.parametrize("odd", VALUES)
@pytest.mark.parametrize("copy", [None, True])
def test_values_are_kept_whatever_is_odd(odd, copy):
    if odd == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed")
    x = VALUES[odd]()
    before = values_of(x)
    asks = x.requires_grad
    y = ds.convert(x, "numpy", copy=copy)
    assert type(y) is np.ndarray
    assert str(y.astype("float32" if odd == "bfloat16" else y.dtype).tolist()) == before
    if y.size:
        y[...] = 0
        shares = values_of(x) != before
        assert shares == (copy is None and odd not in ("conjugate", "negation"))
    assert x.requires_grad is asks


@pytest.mark.filterwarnings("ignore:.*nested")
def test_nested_tensors_are_refused_with_what_to_write():
    """PyTorch raises an internal error for the shape of an older one, and refuses to join jagged ones."""
    parts = [torch.ones(2), torch.ones(3)]
    older, jagged = REFUSED["nested"](), torch.nested.nested_tensor(parts, layout=torch.jagged)
    calls = [
        lambda x: ds.gather([x, x], "cpu"),
        lambda x: ds.gather([[x], [x]], "cpu"),
        lambda x: ds.split(x, ["cpu", "cpu"]),
        lambda x: ds.split([x], ["cpu", "cpu"]),
    ]
    only_older = [lambda x: ds.all_reduce_([x, x]), lambda x: ds.assign([x], {"0": torch.ones(2)})]
    with ds.simulate(2):
        for x, tried in ((older, [*calls, *only_older]), (jagged, calls)):
            for call in tried:
                with pytest.raises(ds.UnsupportedError) as caught:
                    call(x)
                assert "x.to_padded_tensor(0.0)" in caught.value.hint
        assert ds.place(older, "cpu") is older
        for x in ds.place([older, torch.ones(2), jagged], "gpu:1"):
            assert ds.device_of(x) is ds.gpu(1)


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize(
    "like", [ds.empty_like, ds.zeros_like, ds.ones_like, lambda x, **more: ds.full_like(x, 2, **more)]
)
@pytest.mark.parametrize("more", [{}, {"dtype": "int32"}, {"device": "cpu"}], ids=str)
def test_a_tensor_like_a_nested_one_is_refused(like, more):
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    with pytest.raises(
        ds.UnsupportedError, match=r"layout jagged have no fixed shape, and this one has \(2, j\d+, 3\)"
    ):
        like(jagged, **more)
    with pytest.raises(ds.UnsupportedError, match="nested tensors of layout strided have no shape"):
        like(torch.nested.nested_tensor(parts), **more)
    assert ds.zeros_like(jagged.to_padded_tensor(0.0)).shape == (2, 4, 3)  # as the hint says


@pytest.mark.filterwarnings("ignore:.*(Sparse|nested|quantize)")
@pytest.mark.parametrize("odd", REFUSED)
def test_tensors_without_values_are_refused(odd):
    x = REFUSED[odd]()
    with pytest.raises((ds.ConversionError, ds.CopyNeededError)):
        ds.convert(x, "numpy", copy=False)
    for copy in (None, True):  # for an emptied storage PyTorch shows NumPy foreign memory
        with pytest.raises(ds.ConversionError) as caught:
            ds.convert(x, "numpy", copy=copy)
        assert caught.value.hint
    for short in (interop._fast_view, lambda x: interop._fast_export(x, 1)):
        with contextlib.suppress(
            RuntimeError, TypeError, ValueError, NotImplementedError
        ):  # also correct: the slow path is next
            assert short(x) is None


@pytest.mark.parametrize("copy", [None, True, False])
def test_each_of_numpys_equal_dtypes_is_read(copy):
    """NumPy has two 64-bit unsigned dtypes on Linux; they are equal, and ``torch.from_numpy`` takes one of them."""
    for kind in (np.uint64, np.ulonglong, np.int64, np.longlong):
        assert ds.convert(np.array([1, 2**62], kind), "torch", copy=copy).tolist() == [1, 2**62]


LAZY = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "sliced": lambda x: x[::2, ::3],
    "conjugate": lambda x: x.conj(),
    "negation": lambda x: x._neg_view(),
    "both": lambda x: x.conj()._neg_view(),
}


@pytest.mark.parametrize("lazy", LAZY)
def test_complex_numbers_that_are_not_aligned_are_copied(lazy):
    """``x.clone()`` of them crashes (pytorch/pytorch#190043)."""
    a = at_offset(np.arange(35).reshape(5, 7) * (1 + 2j), 8)
    x = LAZY[lazy](torch.from_numpy(a))
    values = LAZY[lazy](torch.from_numpy(at_offset(a, 0))).clone().resolve_conj().resolve_neg()
    copies = ds.copy(x, "cpu"), ds.place(x, "cpu", copy=True), ds.copy([x], "cpu")[0]
    for made in (ds.convert(x, "torch", copy=True), ds.convert(x, copy=True), *copies):
        assert made.data_ptr() % 16 == 0
        assert torch.equal(made + made, values + values)
    assert np.array_equal(ds.to_numpy(x), values.numpy())
    assert np.array_equal(ds.convert(x, "numpy"), values.numpy())


def test_gradients_flow_through_the_copy_of_an_unaligned_tensor():
    x = torch.from_numpy(at_offset(np.ones(5, complex), 8)).requires_grad_()
    torch.view_as_real(ds.convert(x, "torch", copy=True)).sum().backward()
    assert x.grad.shape == (5,)


def test_tensors_inside_torch_func_are_refused():
    """The wrappers of vmap and grad have the type of plain tensors, and no memory."""

    def inside(v):
        with pytest.raises(ds.ConversionError):
            ds.convert(v, "numpy")
        return v.sum()

    torch.vmap(inside)(torch.ones(2, 3))
    torch.func.grad(inside)(torch.ones(3))


def test_tensors_from_a_transformed_function_are_refused():
    kept = []
    torch.vmap(lambda v: kept.append(v) or v)(torch.ones(2, 3))
    with pytest.raises(ds.ConversionError, match="escaped from inside a function being vmapped") as caught:
        ds.convert(kept[0], "numpy")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_import_that_changes_something_is_not_believed(monkeypatch):
    """If dtype, shape, type or device differ from the lent tensor's, the slow path has the right answer."""
    true = interop.from_dlpack
    lies = [
        lambda x: x.double(),
        lambda x: x.reshape(-1),
        lambda x: x.as_subclass(Kin),
        lambda x: x.to("meta"),
        lambda x: None,
    ]
    for lie in lies:
        calls = []
        monkeypatch.setattr(interop, "from_dlpack", lambda c, lie=lie, calls=calls: calls.append(1) or lie(true(c)))
        x = ds.convert(PLAIN, "torch", copy=False)
        assert calls
        assert (type(x), x.dtype, x.device.type, x.tolist()) == (torch.Tensor, torch.float32, "cpu", PLAIN.tolist())


def test_memory_lives_as_long_as_either_side(fast_path_only):
    for _ in range(2):
        x, y = ds.convert(PLAIN.copy(), "torch"), ds.convert(torch.arange(1000.0), "numpy")
        gc.collect()
        torch.full((1000,), -1.0)
        np.full(6, -1, "f4")
        assert x.flatten().tolist() == [0, 1, 2, 3, 4, 5]
        assert y[999] == 999


def test_writes_go_through(fast_path_only):
    a = PLAIN.copy()
    x = ds.convert(a, "torch", copy=False)
    x[0, 0] = 7
    assert a[0, 0] == 7
    b = ds.convert(x, "numpy", copy=False)
    b[0, 1] = 8
    assert (a[0, 1], x[0, 1].item()) == (8, 8)


def test_convert_works_under_a_guard_and_in_inference_mode():
    with ds.guard("error"):
        assert np.array_equal(ds.convert(ds.convert(PLAIN, "torch"), "numpy"), PLAIN)
    with torch.inference_mode():
        assert np.array_equal(ds.convert(ds.convert(PLAIN, "torch"), "numpy"), PLAIN)


def test_convert_ignores_the_default_device():
    with torch.device("meta"):
        x = ds.convert(PLAIN, "torch", copy=False)
    assert np.array_equal(x.numpy(), PLAIN)


def test_convert_works_in_a_compiled_function():
    compiled = torch.compile(lambda x: torch.from_numpy(ds.convert(x * 2, "numpy")) + 1, backend="eager")
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]

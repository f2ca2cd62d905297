"""Tests of float16 on simulated GPUs of MXNet, where the kernels for the CPU do not know it (see half_operators.py)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gluon_arrays import DEVICE

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("two_cards", "old_calls")
GPU = mx.cpu(2)
"""MXNet's name for the second simulated GPU."""
IMAGE, SQUARE = (1, 2, 5, 5), (3, 3)
CONVOLUTION = {"kernel": (3, 3), "num_filter": 3}
LSTM = {"mode": "lstm", "state_size": 5, "num_layers": 1}

OPERATORS = {
    "FullyConnected": (((2, 3), (4, 3), (4,)), {"num_hidden": 4}),
    "Convolution": ((IMAGE, (3, 2, 3, 3), (3,)), CONVOLUTION),
    "Deconvolution": ((IMAGE, (2, 3, 3, 3)), {**CONVOLUTION, "no_bias": True}),
    "RNN": (((3, 2, 4), (220,), (1, 2, 5), (1, 2, 5)), LSTM),
    "dot": ((SQUARE, SQUARE), {}),
    "batch_dot": (((2, 3, 4), (2, 4, 5)), {}),
    "GridGenerator": (((1, 6),), {"transform_type": "affine", "target_shape": (3, 3)}),
    "SpatialTransformer": (
        ((1, 2, 4, 4), (1, 6)),
        {"target_shape": (3, 3), "transform_type": "affine", "sampler_type": "bilinear"},
    ),
    "contrib.AdaptiveAvgPooling2D": (((1, 2, 4, 4),), {"output_size": 2}),
    "contrib.interleaved_matmul_selfatt_qk": (((3, 2, 12),), {"heads": 2}),
    "contrib.interleaved_matmul_selfatt_valatt": (((3, 2, 12), (4, 3, 3)), {"heads": 2}),
    "contrib.interleaved_matmul_encdec_qk": (((3, 2, 4), (3, 2, 8)), {"heads": 2}),
    "contrib.interleaved_matmul_encdec_valatt": (((3, 2, 8), (4, 3, 3)), {"heads": 2}),
    "np.dot": ((SQUARE, SQUARE), {}),
    "np.matmul": ((SQUARE, SQUARE), {}),
    "np.tensordot": ((SQUARE, SQUARE), {"axes": 1}),
    "np.inner": ((SQUARE, SQUARE), {}),
    "npx.fully_connected": (((2, 3), (4, 3), (4,)), {"num_hidden": 4, "no_bias": False}),
    "npx.batch_dot": (((2, 3, 4), (2, 4, 5)), {}),
    "npx.convolution": ((IMAGE, (3, 2, 3, 3), (3,)), CONVOLUTION),
}
"""Name of an operator -> the shapes of its arguments, and its options."""


def operator(name: str) -> Any:
    found = mx if name.startswith("np") else mx.nd
    for part in name.split("."):
        found = getattr(found, part)
    return found


def arrays(name: str, dtype: str, native: Any) -> list[Any]:
    """Return the arguments of an operator, with the values of float16."""
    rng = np.random.default_rng(0)
    make = mx.np.array if name.startswith("np") else mx.nd.array
    values = [rng.random(shape).astype("float16") for shape in OPERATORS[name][0]]
    device = {DEVICE: native} if name.startswith("np") else {"ctx": native}
    return [make(value, dtype=dtype, **device) for value in values]


def results(name: str, dtype: str, native: Any) -> list[Any]:
    """Return an operator's first result, and the gradients of its arguments."""
    args = arrays(name, dtype, native)
    for x in args:
        x.attach_grad()
    with mx.autograd.record():
        found = operator(name)(*args, **OPERATORS[name][1])
        first = found[0] if isinstance(found, (list, tuple)) else found
        total = first.sum()
    total.backward()
    return [first, *(x.grad for x in args)]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_results_and_gradients_are_those_of_float32_rounded(name: str) -> None:
    half = results(name, "float16", GPU)
    for found, expected in zip(half, results(name, "float32", GPU), strict=True):
        assert np.dtype(found.dtype) == np.float16
        assert ds.device_of(found) is ds.gpu(1)
        assert np.allclose(found.asnumpy().astype("float32"), expected.asnumpy(), rtol=0.01, atol=0.02)


def test_the_host_keeps_the_errors_of_mxnet() -> None:
    x = mx.nd.ones(SQUARE, dtype="float16")
    with pytest.raises(mx.MXNetError, match="float16"):
        mx.nd.dot(x, x).asnumpy()


def test_two_dtypes_are_refused_as_on_a_real_gpu() -> None:
    x, y = (mx.nd.ones(SQUARE, dtype=dtype, ctx=GPU) for dtype in ("float16", "float32"))
    with pytest.raises(mx.MXNetError):
        mx.nd.dot(x, y).asnumpy()


@pytest.mark.parametrize("name", ["np.dot", "np.matmul", "dot"])
def test_an_array_for_the_result_is_written(name: str) -> None:
    x, y = arrays(name, "float16", GPU)
    out = (x * 0).copy()
    operator(name)(x, y, out=out)
    assert np.allclose(out.asnumpy(), x.asnumpy().astype("float32") @ y.asnumpy(), atol=0.01)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_hybridized_block_computes_with_each_dtype(dtype: str) -> None:
    block = mx.gluon.nn.Dense(2, in_units=3)
    block.initialize(ctx=GPU)
    for each in (dtype, "float32", "float16", dtype):
        block.hybridize(False)  # 2.0 warns otherwise
        block.cast(each)
        block.hybridize()
        x = (mx.np if mx.util.is_np_array() else mx.nd).ones((4, 3), dtype=each, ctx=GPU)
        found = block(x)
        assert np.dtype(found.dtype).name == each
        assert np.allclose(found.asnumpy(), x.asnumpy() @ block.weight.data(GPU).asnumpy().T, atol=0.01)


class Loop(mx.gluon.HybridBlock):  # type: ignore[misc]  # MXNet is Any to the type checker
    """A loop of products."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.contrib.foreach(lambda row, total: (row, F.dot(total, total)), x, F.sum(x, axis=0))[1]


@pytest.mark.skipif("hasattr(mx, 'Device')", reason="MXNet 2.0 has no hybrid_forward")
def test_a_loop_in_a_hybridized_block_is_refused() -> None:
    x = mx.nd.ones((2, 3, 3), ctx=GPU) * 0.1
    block = Loop()
    assert np.allclose(block(x.astype("float16")).asnumpy(), block(x).asnumpy(), atol=0.01)
    block.hybridize()
    assert block(x).shape == (3, 3)
    with pytest.raises(ds.UnsupportedError, match="dot in float16 inside foreach") as caught:
        block(x.astype("float16"))
    assert "do not hybridize" in str(caught.value)
    assert "test_half_precision.py" in str(caught.value)


class NumpyLoop(mx.gluon.HybridBlock):  # type: ignore[misc]  # MXNet is Any to the type checker
    """A loop of products in 2.0."""

    def forward(self, x: Any) -> Any:
        return mx.npx.foreach(lambda row, total: (row, mx.np.dot(total, total)), x, x.sum(axis=0))[1]


ONLY_2 = pytest.mark.skipif("not hasattr(mx, 'Device')", reason="MXNet 1.9 has no deferred compute")


@ONLY_2
def test_a_loop_of_2_0_is_refused_in_a_graph() -> None:
    x = mx.np.ones((2, 3, 3), **{DEVICE: GPU}) * 0.1
    blocks = [NumpyLoop(), NumpyLoop()]
    for block in blocks:
        block.hybridize()
    assert blocks[0](x).shape == (3, 3)
    with pytest.raises(ds.UnsupportedError, match="dot in float16 inside foreach") as caught:
        blocks[1](x.astype("float16"))
    assert "use a Python loop" in str(caught.value)


def products(rows: Any, start: Any) -> Any:
    return mx.npx.foreach(
        lambda row, state: (mx.np.dot(row, state[0]), [mx.np.tanh(mx.np.dot(state[0], row)), state[1] + 1]), rows, start
    )


def powers(rows: Any, start: Any) -> Any:
    """Multiply; MXNet needs the variables of the condition first."""
    return mx.npx.while_loop(
        lambda count, x: count < 2, lambda count, x: (x, [count + 1, mx.np.dot(x, x)]), start[::-1], max_iterations=2
    )


def branch(rows: Any, start: Any) -> Any:
    return [
        mx.npx.cond(
            lambda row, x: mx.np.dot(row, x).sum() < 1,
            lambda row, x: x,
            lambda row, x: mx.npx.fully_connected(row, x, no_bias=True, num_hidden=3),
            [rows[1], start[0]],
        )
    ]


@ONLY_2
@pytest.mark.parametrize("loop", [products, powers, branch])
def test_a_loop_of_2_0_computes_in_float16(loop: Any) -> None:
    """MXNet 2.0 has no gradients of while_loop."""
    found = {}
    for dtype in ("float16", "float32"):
        rows = (mx.np.arange(18, **{DEVICE: GPU}).reshape(2, 3, 3) / 20).astype(dtype)
        x, count = rows[0] + 0.25, mx.np.zeros(1, dtype="int32", **{DEVICE: GPU})
        rows.attach_grad()
        x.attach_grad()
        with nullcontext() if loop is powers else mx.autograd.record():
            results = loop(rows, [x, count])
        flat = [x for each in results for x in (each if isinstance(each, list) else [each])]
        assert {str(np.dtype(each.dtype)) for each in flat} <= {dtype, "int32"}
        if loop is not powers:
            mx.autograd.backward(flat[0])
            flat += [rows.grad, x.grad]
        found[dtype] = [each.asnumpy().astype("float64") for each in flat]
    assert all(np.allclose(*pair, atol=0.02) for pair in zip(*found.values(), strict=True))


@ONLY_2
def test_a_loop_of_2_0_inside_another_is_refused() -> None:
    rows = mx.np.ones((2, 3, 3), dtype="float16", **{DEVICE: GPU})
    state = mx.np.zeros((), **{DEVICE: GPU})

    def body(row: Any, state: Any) -> Any:
        return mx.npx.foreach(lambda x, state: (mx.np.dot(x, x), state), row, state)

    with pytest.raises(ds.UnsupportedError, match="dot in float16 inside foreach"):
        mx.npx.foreach(body, rows, state)


@pytest.mark.skipif("hasattr(mx, 'Device')", reason="MXNet 2.0 has no executors and no modules")
def test_executors_compute_in_float16() -> None:
    x, w = (mx.nd.ones(shape, dtype="float16", ctx=GPU) for shape in ((2, 3), (3, 2)))
    product = mx.sym.dot(mx.sym.Variable("x"), mx.sym.Variable("w"), name="product")
    executor = product.bind(GPU, {"x": x, "w": w}, args_grad={"w": w.zeros_like()})
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 2), dtype="float16", ctx=GPU))
    assert executor.outputs[0].asnumpy().tolist() == [[3, 3], [3, 3]]
    assert executor.grad_dict["w"].asnumpy().tolist() == [[2, 2]] * 3
    assert list(executor.output_dict) == ["product_output"]
    executor = product.simple_bind(GPU, type_dict={"x": "float16"}, x=(2, 3), w=(3, 2))
    assert {np.dtype(each.dtype).name for each in executor.arg_arrays} == {"float16"}
    assert np.dtype(executor.forward()[0].dtype) == np.float16

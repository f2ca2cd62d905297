"""Operators that Paddle's build for the CPU lacks, or has with other arguments, on simulated GPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from devshim_backends._paddle.capabilities import CUDA_KERNELS

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEVICES = ["cpu", "gpu:0"]


@pytest.fixture
def paddle() -> Iterator[Any]:
    ds.simulate(2)
    with ds.using("paddle"), ds.simulate(2, native_names=True):
        yield import_module("paddle")


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nn.functional.margin_cross_entropy": (
        lambda p: p.nn.functional.margin_cross_entropy(p.ones([4, 4]) / 2, p.zeros([4], "int64")),
        "call paddle.nn.functional.cross_entropy",
    ),
    "nn.functional.flash_attention.flash_attn_unpadded": (
        lambda p: p.nn.functional.flash_attention.flash_attn_unpadded(
            *[p.ones([8, 2, 8], "float16")] * 3, *[p.to_tensor([0, 8], dtype="int32")] * 2, 8, 8, 0.3
        ),
        "use paddle.nn.functional.scaled_dot_product_attention",
    ),
    "vision.ops.decode_jpeg": (lambda p: p.vision.ops.decode_jpeg(p.ones([20], "uint8")), "decode on the host"),
    "tensor.top_p_sampling": (lambda p: p.tensor.top_p_sampling(p.ones([2, 4]), p.ones([2])), "use paddle.multinomial"),
    "incubate.nn.functional.fused_multi_head_attention": (
        lambda p: p.incubate.nn.FusedMultiHeadAttention(8, 2)(p.ones([1, 4, 8])),
        "use paddle.nn.functional.scaled_dot_product_attention",
    ),
    "incubate.nn.functional.fused_feedforward": (
        lambda p: p.incubate.nn.FusedFeedForward(8, 2)(p.ones([1, 4, 8])),
        "use the operators of paddle.nn.functional",
    ),
    "nn.quant.weight_quantize": (
        lambda p: p.nn.quant.weight_quantize(p.ones([64, 32], "float16")),
        "quantize a copy on the host",
    ),
    "operator lu": (lambda p: p.linalg.lu(p.eye(3), pivot=False), "run this part on a real GPU"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_without_a_kernel_is_refused_with_the_line(paddle: Any, name: str) -> None:
    call, instead = REFUSED[name]
    with pytest.raises(ds.UnsupportedError, match=r"which .*test_cuda_kernels\.py:\d+ calls") as caught:
        call(paddle)
    assert name in str(caught.value)
    assert instead in str(caught.value)


def test_what_the_check_reports_is_a_name_of_paddle(paddle: Any) -> None:
    """Some exist only in some versions, so each module must have one of its names."""
    found: dict[str, bool] = {}
    for name in CUDA_KERNELS:
        path, _, attribute = name.rpartition(".")
        owner: Any = paddle
        for part in path.split(".")[1:]:
            owner = getattr(owner, part, None)
        found[path] = found.get(path, False) or hasattr(owner, attribute)
    assert [path for path, is_there in found.items() if not is_there] == []


def test_paddle_refuses_a_dtype_and_tensors_on_the_host_itself(paddle: Any) -> None:
    with pytest.raises(RuntimeError, match=r"int8\) of kernel `exp` is not registered"):
        paddle.exp(paddle.ones([2], "int8"))
    x = paddle.ones([4, 4]).cpu() / 2
    with pytest.raises(Exception, match="margin_cross_entropy") as caught:
        paddle.nn.functional.margin_cross_entropy(x, paddle.zeros([4], "int64").cpu())
    assert not isinstance(caught.value, ds.DevshimError)


# ---------------------------------------------------------------- composed operators
def test_causal_attention_of_long_sequences(paddle: Any) -> None:
    """Paddle calls an operator for GPUs from 32 rows on."""
    x = paddle.randn([1, 40, 2, 8])
    attention = paddle.nn.functional.scaled_dot_product_attention
    mask = paddle.triu(paddle.full([1, 1, 40, 40], -np.inf), 1)
    assert np.allclose(attention(x, x, x, is_causal=True), attention(x, x, x, mask), atol=1e-5)
    assert attention(*[x.astype("float16")] * 3, is_causal=True).dtype == paddle.float16


def test_flash_attention(paddle: Any) -> None:
    module = import_module("paddle.nn.functional.flash_attention")
    x, few = paddle.randn([1, 40, 4, 8]).astype("float16"), paddle.randn([1, 40, 2, 8]).astype("float16")
    many = paddle.repeat_interleave(few, 2, 2)
    with module.sdp_kernel(enable_math=False, enable_flash=True, enable_mem_efficient=False):
        found = module.flash_attention(x, few, few, causal=True)[0]
    expected = paddle.nn.functional.scaled_dot_product_attention(x, many, many, is_causal=True)
    assert (found.dtype, str(found.place)) == (paddle.float16, "Place(gpu:0)")
    assert np.allclose(found.numpy(), expected.numpy(), atol=1e-2)


def test_masked_softmax(paddle: Any) -> None:
    x = paddle.randn([1, 2, 32, 32])
    x.stop_gradient = False
    found = paddle.incubate.softmax_mask_fuse_upper_triangle(x)
    found[0, 0, 3].square().sum().backward()
    kept = paddle.nn.functional.softmax(x[0, 0, 3, :4]).numpy()
    assert np.allclose(found.numpy()[0, 0, 3], [*kept, *[0] * 28], atol=1e-6)
    assert str(found.place) == str(x.grad.place) == "Place(gpu:0)"
    assert np.isfinite(x.grad.numpy()).all()
    mask = paddle.full([1, 1, 32, 32], -1e4)
    mask[..., 0] = 0.0
    masked = paddle.incubate.softmax_mask_fuse(x, mask)
    assert masked.numpy()[..., 0].min() == 1


def test_an_operator_in_a_compiled_function_is_refused(paddle: Any) -> None:
    def lose(x: Any) -> Any:
        return paddle.nn.functional.margin_cross_entropy(x, paddle.zeros([4], "int64"))

    with pytest.raises(ds.UnsupportedError, match=r"do not support paddle\.nn\.functional\.margin_cross_entropy"):
        paddle.jit.to_static(lose, full_graph=True)(paddle.ones([4, 4]) / 2)


def test_operators_in_a_compiled_function(paddle: Any) -> None:
    def attend(x: Any) -> Any:
        return paddle.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = paddle.randn([1, 40, 2, 8])
    found = paddle.jit.to_static(attend, full_graph=True)(x)
    assert np.allclose(found.numpy(), attend(x).numpy(), atol=1e-5)
    assert str(found.place) == "Place(gpu:0)"


def test_fused_linear_layers(paddle: Any) -> None:
    functional = paddle.incubate.nn.functional
    x, weight, bias = paddle.randn([2, 3]), paddle.randn([4, 3]), paddle.randn([4])
    expected = x.numpy() @ weight.numpy().T + bias.numpy()
    assert np.allclose(functional.fused_linear(x, weight, bias, transpose_weight=True), expected, atol=1e-6)
    found = functional.fused_linear_activation(x, weight, bias, trans_y=True, activation="relu")
    assert np.allclose(found, expected.clip(0), atol=1e-6)


def test_rms_norm(paddle: Any) -> None:
    if not hasattr(paddle.nn.functional, "rms_norm"):  # in Paddle 3.0
        return
    x, weight = paddle.randn([5, 2, 3]), paddle.randn([2, 3])
    found, factor = paddle.nn.functional.rms_norm(x, [2, 3], weight, 1e-5)
    expected = 1 / np.sqrt(np.square(x.numpy()).mean((1, 2)) + 1e-5)
    assert np.allclose(factor.numpy(), expected, atol=1e-5)
    assert np.allclose(found.numpy(), x.numpy() * expected.reshape(-1, 1, 1) * weight.numpy(), atol=1e-5)


# ---------------------------------------------------------------- strided operators
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "bool", "int8", "complex64"])
def test_elements_at_strides(paddle: Any, device: str, dtype: str) -> None:
    x = paddle.arange(12, dtype="float32").reshape([3, 4]).astype(dtype).to(device)
    size = 2 if dtype.endswith("16") else {"bool": 1, "int8": 1, "complex64": 8}.get(dtype, 4)
    found = [
        (paddle.as_strided(x, [2, 2], [5, 1], offset=size), [[1, 2], [6, 7]]),
        (paddle.as_strided(x, [], []), 0),
        (paddle.unfold(x, 0, 2, 1), [[[0, 4], [1, 5], [2, 6], [3, 7]], [[4, 8], [5, 9], [6, 10], [7, 11]]]),
        (paddle.zeros([2], dtype).to(device).set_(x, shape=[2], stride=[3]), [0, 3]),
        (paddle.zeros([2], dtype).to(device).set_(x, shape=[2, 2]), [[0, 1], [2, 3]]),
    ]
    for tensor, expected in found:
        wide = tensor.astype("float32" if dtype != "complex64" else dtype).numpy()
        assert np.array_equal(wide, np.array(expected) != 0 if dtype == "bool" else expected)
        assert (ds.dtype_of(tensor), str(ds.device_of(tensor))) == (dtype, device)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_elements_at_strides(paddle: Any, device: str) -> None:
    x = paddle.ones([4]).to(device)
    x.stop_gradient = False
    (paddle.as_strided(x, [2, 2], [1, 1]).sum() + paddle.unfold(x, 0, 2, 2).sum()).backward()
    assert x.grad.tolist() == [2, 3, 2, 1]
    with pytest.raises(ValueError, match="cannot take slices of 9"):
        paddle.unfold(x, 0, 9, 1)


def test_strided_kernels_stay_off(paddle: Any) -> None:
    flag = "FLAGS_use_stride_kernel"
    paddle.set_flags({flag: True})
    assert paddle.get_flags(flag) == {flag: True}
    assert (paddle.arange(6.0).reshape([2, 3]).T + 1).tolist() == [[1, 4], [2, 5], [3, 6]]


# ---------------------------------------------------------------- the current device, and arguments as on real GPUs
def test_least_squares_take_the_drivers_of_gpus(paddle: Any) -> None:
    x, y = paddle.to_tensor([[1.0, 3.0], [3.0, 2.0], [5.0, 6.0]]), paddle.ones([3, 1])
    found = paddle.linalg.lstsq(x, y)[0]
    assert str(found.place) == "Place(gpu:0)"
    assert np.allclose(found, np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0], atol=1e-5)
    with pytest.raises(ValueError, match="for CUDA inputs"):
        paddle.linalg.lstsq(x, y, driver="gelsd")


def test_the_default_device_is_a_gpu(paddle: Any) -> None:
    if hasattr(paddle, "get_default_device"):  # not in Paddle 3.0
        assert str(paddle.get_default_device()) == "cuda:0"


def test_dlpack_names_no_simulated_gpu(paddle: Any) -> None:
    x = paddle.ones([2])
    for export in (x.__dlpack_device__, x.__dlpack__, lambda: np.from_dlpack(x)):
        with pytest.raises(ds.UnsupportedError, match=r"copy it first: x\.cpu\(\)"):
            export()
    assert x.cpu().__dlpack_device__()[0] == 1


def test_arguments_that_only_gpus_take(paddle: Any) -> None:
    x = paddle.zeros([2])
    assert paddle.lerp(x, x + 1, 0.25).tolist() == x.lerp_(x + 1, 0.25).tolist() == [0.25, 0.25]
    shape = paddle.to_tensor([2, 2])
    assert paddle.unflatten(paddle.ones([3, 4]), 1, shape).shape == [3, 2, 2]
    assert paddle.ones([3, 4]).unflatten(1, shape).shape == [3, 2, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_creation_in_low_precision(paddle: Any, dtype: str) -> None:
    for found, expected in (
        (paddle.arange(0.5, 2, 0.5, dtype=dtype), [0.5, 1, 1.5]),
        (paddle.linspace(0, 1, 3, dtype=dtype), [0, 0.5, 1]),
        (paddle.eye(2, dtype=dtype), [[1, 0], [0, 1]]),
    ):
        assert found.astype("float32").tolist() == expected
        assert (ds.dtype_of(found), str(found.place)) == (dtype, "Place(gpu:0)")


def test_ranges_for_nvidias_profiler_do_nothing(paddle: Any) -> None:
    nvtx = import_module("paddle.device.cuda").nvtx if hasattr(paddle.device.cuda, "nvtx") else paddle.cuda.nvtx
    nvtx.range_push("step")
    nvtx.range_pop()

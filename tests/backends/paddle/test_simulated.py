"""Tests of PaddlePaddle on simulated GPUs: the effects of native functions, and the state without simulation."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track:UserWarning")  # of every BatchNorm

GPU, OTHER_GPU = "gpu:1", "gpu:0"
DIRECTIONS = [(GPU, "cpu"), ("cpu", GPU), (OTHER_GPU, GPU)]


@pytest.fixture
def paddle() -> Iterator[Any]:
    with ds.using("paddle"), ds.simulate(gpus=2):
        yield import_module("paddle")


def make(shape: tuple[int, ...], device: str, dtype: str = "float32") -> Any:
    return ds.from_numpy((np.arange(np.prod(shape)).reshape(shape) % 3 + 1).astype(dtype), device)


def paddle_name(device: str) -> str:
    return device if device == "cpu" else f"sim_{device}"


# ---------------------------------------------------------------- the default device
def test_where_makes_its_numbers_on_the_default_device(paddle: Any) -> None:
    """``paddle.where`` makes tensors of its numbers on the default device, and real GPUs cannot combine two devices."""
    condition = ds.asarray([True, False], device=GPU)
    with pytest.raises(ds.DeviceMismatchError, match=r"paddle\.where needs its tensors on one device"):
        paddle.where(condition, 1, 0)
    for found in (ds.run(paddle.where, condition, 1, 0), ds.namespace(condition).where(condition, 1, 0)):
        assert found.tolist() == [1, 0]
        assert str(ds.device_of(found)) == GPU


# ---------------------------------------------------------------- tensors without elements
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tensors_without_elements_keep_their_device_and_dtype(paddle: Any, dtype: str) -> None:
    """Paddle leaves the results of operators with such tensors on the host, even those that have elements."""
    x = ds.zeros((0, 3), dtype=dtype, device=GPU)
    sums = paddle.sum(x), paddle.sum(x, axis=0), paddle.mean(x)
    for found in (x + x, paddle.reshape(x, [-1]), paddle.exp(x), *sums, paddle.einsum("ij,kj->ik", x, x)):
        assert (ds.dtype_of(found), str(ds.device_of(found))) == (dtype, GPU)
    assert [found.tolist() for found in sums[:2]] == [0, [0, 0, 0]]
    assert str(ds.device_of(paddle.all(x))) == GPU
    assert paddle.shape(x).place.is_cpu_place() is paddle.shape(ds.zeros((2, 3), like=x)).place.is_cpu_place()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tensors_without_elements_stay_on_their_device(paddle: Any, dtype: str) -> None:
    """Paddle moves the tensor that an operator changes in place to the host."""
    x = ds.zeros((0, 3), dtype=dtype, device=GPU)
    for change in (x.abs_, lambda: x.add_(x), lambda: paddle.assign(x.clone(), x)):
        change()
        assert (ds.dtype_of(x), str(ds.device_of(x))) == (dtype, GPU)
    x[0:0] = 1.0
    assert (ds.dtype_of(x), str(ds.device_of(x))) == (dtype, GPU)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_without_elements_are_on_the_device_of_their_tensor(paddle: Any, dtype: str) -> None:
    """Paddle leaves them on the host."""
    x = ds.zeros((0, 3), dtype=dtype, device=GPU)
    x.stop_gradient = False
    seen: list[str] = []
    hook = x.register_hook(lambda gradient: seen.append(str(ds.device_of(gradient))))
    (x * 2).astype("float32").sum().backward()
    hook.remove()
    for nested in (False, True):
        [gradient] = paddle.grad((x * x).sum(), [x], create_graph=nested)
        seen.append(str(ds.device_of(gradient)))
    found = (x.grad, x._grad_ivar(), x.grad + x)
    assert [*seen, *(str(ds.device_of(each)) for each in found)] == [GPU] * 6
    assert {ds.dtype_of(each) for each in found} == {dtype}
    unused = ds.ones((2,), like=x)
    unused.stop_gradient = False
    assert paddle.grad((x * x).sum(), [x, unused], allow_unused=True)[1] is None


def test_unique_numbers_of_float16_are_float16(paddle: Any) -> None:
    """Its argument for a dtype is that of the indices."""
    values, indices = paddle.unique(ds.ones((4,), dtype="float16", device=GPU), return_index=True)
    assert (ds.dtype_of(values), ds.dtype_of(indices)) == ("float16", "int64")


# ---------------------------------------------------------------- views
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("shape", [[2, 6], [-1, 3], [0, 1], [12]], ids=str)
def test_a_view_of_another_shape(paddle: Any, device: str, shape: list[int]) -> None:
    x = make((12,), device)
    x.stop_gradient = False
    view = (x * 2).view(shape)
    assert np.array_equal(view.numpy(), (2 * x.numpy()).reshape([12 if size == 0 else size for size in shape]))
    assert str(ds.device_of(view)) == device
    (view * view).sum().backward()
    assert x.grad.tolist() == (8 * x.numpy()).tolist()
    assert view.view_as(make((3, 4), device)).shape == [3, 4]
    with pytest.raises(ValueError, match="shape"):
        x.view([5, 5])


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_a_view_of_another_dtype(paddle: Any, device: str, dtype: str) -> None:
    """The Paddle loader of safetensors makes each tensor as a view of bytes."""
    x = make((2, 4), device).astype(dtype)
    back = x.view("uint8").view(dtype)
    assert (ds.dtype_of(back), back.shape, str(ds.device_of(back))) == (dtype, [2, 4], device)
    assert back.astype("float32").tolist() == x.astype("float32").tolist()
    with pytest.raises(ValueError, match="must be multiple of 8"):
        make((3,), device, "uint8").view("int64")


# ---------------------------------------------------------------- mixing devices
def _changed(x: Any, how: Callable[[Any], Any]) -> Any:
    target = ds.copy(x, ds.device_of(x))
    how(target)
    return target


def _in_place(x: Any, y: Any) -> Any:
    x += y
    return x


def _set(x: Any, key: Any, y: Any) -> None:
    x[key] = y


def _layer(make_layer: Callable[[Any], Any], y: Any, *inputs: Any) -> Any:
    """Call a layer on the device of y."""
    with ds.on(ds.device_of(y)):
        layer = make_layer(import_module("paddle").nn)
    return layer(*inputs)


MIXES: dict[str, Callable[..., Any]] = {
    "add": lambda p, x, y, i: x + y,
    "subtract": lambda p, x, y, i: x - y,
    "multiply": lambda p, x, y, i: y * x,
    "divide": lambda p, x, y, i: x / y,
    "power": lambda p, x, y, i: x**y,
    "equal": lambda p, x, y, i: x == y,
    "less": lambda p, x, y, i: x < y,
    "matmul": lambda p, x, y, i: x @ y,
    "paddle.matmul": lambda p, x, y, i: p.matmul(x, y),
    "maximum": lambda p, x, y, i: p.maximum(x, y),
    "in place": lambda p, x, y, i: _changed(x, lambda z: _in_place(z, y)),
    "add_": lambda p, x, y, i: _changed(x, lambda z: z.add_(y)),
    "set all": lambda p, x, y, i: _changed(x, lambda z: _set(z, slice(None), y)),
    "set some": lambda p, x, y, i: _changed(x, lambda z: _set(z, (slice(1, 3), 0), y[0, :2])),
    "concat": lambda p, x, y, i: p.concat([x, y]),
    "stack": lambda p, x, y, i: p.stack([x, y]),
    "add_n": lambda p, x, y, i: p.add_n([x, y]),
    "where": lambda p, x, y, i: p.where(x > 1, x, y),
    "where condition": lambda p, x, y, i: p.where(y > 1, x, x),
    "gather": lambda p, x, y, i: p.gather(x, i),
    "index_select": lambda p, x, y, i: p.index_select(x, i),
    "masked_select": lambda p, x, y, i: p.masked_select(x, y > 1),
    "scatter": lambda p, x, y, i: p.scatter(x, i, x),
    "einsum": lambda p, x, y, i: p.einsum("ij,jk->ik", x, y),
    "addmm": lambda p, x, y, i: p.addmm(x, x, y),
    "linear": lambda p, x, y, i: p.nn.functional.linear(x, y),
    "linear bias": lambda p, x, y, i: p.nn.functional.linear(x, x, y[0]),
    "Linear": lambda p, x, y, i: _layer(lambda nn: nn.Linear(4, 4), y, x),
    "conv2d": lambda p, x, y, i: p.nn.functional.conv2d(x.reshape([1, 1, 4, 4]), y.reshape([1, 1, 4, 4])),
    "BatchNorm1D": lambda p, x, y, i: _layer(lambda nn: nn.BatchNorm1D(4), y, x),
    "LSTM": lambda p, x, y, i: _layer(lambda nn: nn.LSTM(4, 3), y, x.reshape([1, 4, 4])),
    "embedding": lambda p, x, y, i: p.nn.functional.embedding(i, x),
    "cross_entropy": lambda p, x, y, i: p.nn.functional.cross_entropy(x, i),
    "mse_loss": lambda p, x, y, i: p.nn.functional.mse_loss(x, y),
    "attention": lambda p, x, y, i: _layer(lambda nn: nn.MultiHeadAttention(4, 2), y, x.reshape([1, 4, 4])),
    "backward": lambda p, x, y, i: (_changed(x, lambda z: setattr(z, "stop_gradient", False)) * 2).backward(y),
}


@pytest.mark.parametrize("direction", DIRECTIONS, ids=">".join)
@pytest.mark.parametrize("name", MIXES)
def test_operators_refuse_tensors_on_different_devices(paddle: Any, name: str, direction: tuple[str, str]) -> None:
    """Natively, Paddle gives a result on either device, or moves the tensor that is written to."""
    x, y, i = make((4, 4), direction[0]), make((4, 4), direction[1]), ds.from_numpy(np.arange(4), direction[1])
    with pytest.raises(ds.DeviceMismatchError) as caught:
        MIXES[name](paddle, x, y, i)
    assert isinstance(caught.value, ValueError)  # as Paddle's own refusals are
    assert all(text in caught.value.problem for text in ("paddle.", "argument 0", *direction))
    assert caught.value.hint is not None
    assert "x = ds.place(x, '" in caught.value.hint
    assert ds.device_of(x) is ds.device(direction[0])


ALLOWED: dict[str, Callable[..., Any]] = {
    "0-d host tensor": lambda p, x, i: x * ds.asarray(2.0),
    "0-d host tensor first": lambda p, x, i: ds.asarray(2.0) + x,
    "index": lambda p, x, i: x[i],
    "mask": lambda p, x, i: x[ds.place(x, "cpu") > 1],
    "set by index": lambda p, x, i: _changed(x, lambda z: _set(z, i, 1.0)),
    "bound": lambda p, x, i: x[0 : ds.asarray(2)],
    "shape": lambda p, x, i: p.reshape(x, ds.asarray([2, 8])),
    "shape of parts": lambda p, x, i: p.reshape(x, [ds.asarray(2), 8]),
    "tile": lambda p, x, i: p.tile(x, ds.asarray([2, 1])),
    "limit": lambda p, x, i: p.clip(x, ds.asarray(2.0), 3.0),
    "set_value": lambda p, x, i: _changed(x, lambda z: z.set_value(p.ones([4, 4]))),
    "copy_": lambda p, x, i: _changed(x, lambda z: z.copy_(p.ones([4, 4]), True)),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_mixes_that_real_gpus_allow_are_computed(paddle: Any, name: str) -> None:
    y = ALLOWED[name](paddle, make((4, 4), GPU), ds.from_numpy(np.array([0, 1]), "cpu"))
    assert ds.device_of(y) is ds.device(GPU)


def test_an_index_on_another_gpu_is_refused(paddle: Any) -> None:
    with pytest.raises(ds.DeviceMismatchError):
        make((4, 4), GPU)[ds.from_numpy(np.array([0, 1]), OTHER_GPU)]


# ---------------------------------------------------------------- layers, losses and optimizers
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "Linear": (lambda nn: nn.Linear(4, 3), (2, 4)),
    "Conv2D": (lambda nn: nn.Conv2D(2, 3, 3), (2, 2, 5, 5)),
    "BatchNorm2D": (lambda nn: nn.BatchNorm2D(2), (2, 2, 5, 5)),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), (2, 4)),
    "Embedding": (lambda nn: nn.Embedding(5, 3), (2, 4)),
    "sparse Embedding": (lambda nn: nn.Embedding(5, 3, sparse=True), (2, 4)),
    "LSTM": (lambda nn: nn.LSTM(4, 3, num_layers=2, direction="bidirect"), (2, 5, 4)),
    "GRU": (lambda nn: nn.GRU(4, 3), (2, 5, 4)),
    "LSTMCell": (lambda nn: nn.LSTMCell(4, 3), (2, 4)),
    "attention": (lambda nn: nn.MultiHeadAttention(4, 2), (2, 5, 4)),
    "Transformer": (lambda nn: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), (2, 5, 4)),
    "Dropout2D": (lambda nn: nn.Dropout2D(0.5), (2, 2, 5, 5)),
}


@pytest.mark.parametrize("moved", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_the_cpus_numbers(paddle: Any, name: str, moved: bool) -> None:
    """Layers are made on a GPU, or moved there by Paddle's own ``Layer.to``, and called without a default device."""
    make_layer, shape = LAYERS[name]

    def results(device: str) -> list[np.ndarray]:
        ds.random.seed(1)
        with ds.on("cpu" if moved else device):
            layer = make_layer(paddle.nn)
        layer.to(paddle_name(device))
        ds.random.seed(2)
        x = make(shape, device, "int64" if "Embedding" in name else "float32")
        x.stop_gradient = False
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        (y * y).sum().backward()
        found = [y, *(each.grad for each in (x, *layer.parameters()) if each.grad is not None)]
        assert {ds.device_of(each) for each in found} == {ds.device(device)}
        return [ds.to_numpy(each) if each.is_dense() else each.numpy() for each in found[:1]] + [
            np.asarray(each.numpy()) for each in found[1:] if each.is_dense()
        ]

    for expected, got in zip(results("cpu"), results(GPU), strict=False):
        assert np.abs(expected - got).max() <= 1e-6


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda p, w: p.optimizer.SGD(0.1, parameters=w),
    "Momentum": lambda p, w: p.optimizer.Momentum(0.1, parameters=w),
    "Adam": lambda p, w: p.optimizer.Adam(0.1, parameters=w),
    "Adam of many": lambda p, w: p.optimizer.Adam(0.1, parameters=w, use_multi_tensor=True),
    "AdamW": lambda p, w: p.optimizer.AdamW(0.1, parameters=w),
    "RMSProp": lambda p, w: p.optimizer.RMSProp(0.1, parameters=w),
    "Lamb": lambda p, w: p.optimizer.Lamb(0.1, parameters=w),
    "clipped": lambda p, w: p.optimizer.Adam(0.1, parameters=w, grad_clip=p.nn.ClipGradByGlobalNorm(0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_their_state_where_the_weights_are(paddle: Any, name: str) -> None:
    """Paddle creates moments on the default device, and on the first step moves the weights there."""

    def trained(device: str) -> list[np.ndarray]:
        ds.random.seed(1)
        net = paddle.nn.Linear(4, 3)
        net.to(paddle_name(device))
        optimizer = OPTIMIZERS[name](paddle, net.parameters())
        for _ in range(2):
            (net(make((2, 4), device)) ** 2).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        state = [x for x in optimizer.state_dict().values() if isinstance(x, paddle.Tensor)]
        assert {ds.device_of(x) for x in (*net.parameters(), *state)} == {ds.device(device)}
        return [x.numpy() for x in net.parameters()]

    for expected, got in zip(trained("cpu"), trained(GPU), strict=True):
        assert np.abs(expected - got).max() <= 1e-6


def test_views_are_copies(paddle: Any) -> None:
    """Paddle has no kernel that makes a view on a plug-in's device contiguous, so views are copies, on the host too."""
    for device in ("cpu", GPU):
        x = ds.ones((4, 4), device=device)
        x[1:3].fill_(0.0)
        x.t().fill_(0.0)
        assert ds.to_numpy(x).sum() == 16
        assert (x.t() @ x.transpose([1, 0])).tolist() == [[4.0] * 4] * 4


@pytest.mark.filterwarnings("ignore::UserWarning")  # Paddle (3.3) reads the place of traced values
def test_whole_programs_train_as_on_the_host(paddle: Any) -> None:
    """Paddle computes them on the host: gradients, running means and several results come back to the GPU."""
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    if paddle.__version__.startswith("3.0"):
        with pytest.raises(ds.TracingError, match="full_graph=True"):
            _train_whole(paddle, ds.from_numpy(data, GPU), GPU)
        return
    found = {device: _train_whole(paddle, ds.from_numpy(data, device), device) for device in ("cpu", GPU)}
    for expected, got in zip(found["cpu"], found[GPU], strict=True):
        assert ds.device_of(got) is ds.device(GPU)
        assert np.allclose(ds.to_numpy(got), ds.to_numpy(expected), atol=1e-6)


def _train_whole(paddle: Any, x: Any, device: str) -> list[Any]:
    """Return the state, gradients and results of a model that was compiled as one program, after two steps."""
    paddle.seed(1)
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.BatchNorm1D(2))
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    compiled = paddle.jit.to_static(ds.place(model, device), full_graph=True)
    optimizer = paddle.optimizer.Adam(0.1, parameters=model.parameters())
    for _ in range(2):
        optimizer.clear_grad()
        result = compiled(x)
        (result * result * result).mean().backward()
        optimizer.step()
    after = model.state_dict()
    assert all(not np.array_equal(before[name], value.numpy()) for name, value in after.items())
    x.stop_gradient = False
    both = paddle.jit.to_static(several, full_graph=True)(x)
    both["sum"][0].backward()
    gradients = [p.grad for p in model.parameters() if not p.stop_gradient]
    return [result, both["double"], x.grad, *after.values(), *gradients]


def several(x: Any) -> Any:
    return {"double": x * 2.0, "sum": [(x * x).sum()]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_is_float32_that_is_rounded(paddle: Any, dtype: str) -> None:
    """The results, and the gradient of a tensor that several operators use."""
    nn = paddle.nn.functional
    functions = {
        "matmul": lambda x: x @ x.t(),
        "add": lambda x: x + x * 2.0,
        "softmax": lambda x: nn.softmax(x, -1),
        "mean": lambda x: x.mean(1),
        "index": lambda x: x[1:, ::2],
        "layer_norm": lambda x: nn.layer_norm(x, 4),
        "where": lambda x: paddle.where(x > 0.5, x, -x),
        "concat": lambda x: paddle.concat([x, x.exp()]),
    }
    values = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
    for name, function in functions.items():
        low = ds.from_numpy(values, GPU).astype(dtype)
        high = low.astype("float32")
        gradients = []
        for x in (low, high):
            x.stop_gradient = False
            y = function(x)
            assert y.dtype == x.dtype, name
            (y.astype("float32") ** 3).sum().backward()
            gradients.append(x.grad.astype("float32").numpy())
        got, expected = function(low), function(high).astype(dtype)
        assert ds.device_of(got) is ds.device(GPU)
        assert got.astype("float32").tolist() == expected.astype("float32").tolist(), name
        assert low.grad.dtype == low.dtype
        assert np.allclose(*gradients, rtol=0.01 if dtype == "float16" else 0.05, atol=0.02), name


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "RMSProp", "Adagrad", "Lamb"])
def test_master_weights_keep_what_float16_would_lose(paddle: Any, name: str) -> None:
    """A step of 1e-5 changes no float16 weight of 1.0, and it changes the master weight."""
    one = paddle.nn.initializer.Constant(1.0)
    model = ds.place(paddle.nn.Linear(1, 2, paddle.ParamAttr(initializer=one), bias_attr=False), GPU)
    model.to(dtype="float16")
    weight = model.weight
    optimizer = getattr(paddle.optimizer, name)(1e-5, parameters=[weight])
    optimizer._multi_precision = True  # as paddle.amp.decorate does
    x = ds.ones((1, 1), device=GPU).astype("float16")
    for _ in range(5):
        model(x).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    (master,) = optimizer._master_weights.values()
    assert weight.dtype == paddle.float16
    assert ds.device_of(weight) is ds.device_of(master) is ds.device(GPU)
    assert 0.99 < float(master[0, 0]) < 1.0
    assert weight.astype("float32").tolist() == master.astype("float16").astype("float32").tolist()


# ---------------------------------------------------------------- memory
def test_a_full_gpu_raises_in_the_backward_pass(paddle: Any) -> None:
    """There the error is also devshim's own, and a ``MemoryError`` like Paddle's; nothing is left behind."""
    with ds.simulate(gpus=2, memory=2**20):
        x = ds.ones(2**16, device=GPU)
        x.stop_gradient = False
        y = (x * x).sum()
        filler = ds.ones(2**16 + 2**15, device=GPU)
        with pytest.raises(ds.OutOfMemoryError, match=r"^gpu:1 is out of memory: 262,144 .*, \d+,\d+ bytes are free"):
            y.backward()
        del x, y, filler
        gc.collect()
        assert ds.memory(GPU).used == 0


def test_a_failed_operator_does_not_keep_its_operands(paddle: Any) -> None:
    """They are freed with the last name of the program, not when garbage is collected."""

    def fail() -> None:
        x = ds.ones(2**17, device=GPU)
        with pytest.raises(ds.OutOfMemoryError):
            x + x + 1

    with ds.simulate(gpus=2, memory=2**20):
        gc.collect()
        gc.disable()
        try:
            fail()
            assert ds.memory(GPU).used == 0
        finally:
            gc.enable()


def test_requested_bytes_are_those_of_the_tensor(paddle: Any) -> None:
    """Paddle would round them up to whole chunks before the plug-in sees them."""
    with ds.simulate(gpus=2, memory=4096):
        x = ds.ones(1000, device=GPU)
        with pytest.raises(ds.OutOfMemoryError, match="out of memory: 4,000 bytes were requested, 0 bytes are free"):
            x + 1
        with pytest.raises(MemoryError, match="out of memory: 12 bytes"):
            paddle.to_tensor([1.0, 2.0, 3.0], place=ds.device(GPU).native())


def test_a_fault_fires_in_paddles_own_operator(paddle: Any) -> None:
    """It fires once, although Paddle requests a failed allocation twice."""
    with ds.simulate(gpus=2, faults=ds.Fault(GPU, "allocation", at=2)):
        x = ds.ones(4, device=GPU)
        with pytest.raises(ds.OutOfMemoryError, match="out of memory: 16 bytes"):
            x + x
        assert (x + x).tolist() == [2.0] * 4


def test_a_vanished_gpu_fails_paddles_own_copies(paddle: Any) -> None:
    with ds.simulate(gpus=2, faults=ds.Fault(GPU, "vanish", at=2)):
        x = ds.ones(4, device=GPU)
        with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed during an allocation of 16 bytes"):
            x + x
        with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed during a copy of 16 bytes"):
            x.numpy()
        assert ds.ones(4, device=OTHER_GPU).sum() == 4


# ---------------------------------------------------------------- on, off and on again
def test_the_number_of_gpus_can_change_at_any_time(paddle: Any) -> None:
    """Paddle itself counts devices once.

    The visible ones change, and tensors on hidden GPUs wait until they are restored.
    """
    x = make((4,), GPU)
    with ds.simulate(gpus=4):
        assert paddle.device.get_available_custom_device() == [f"sim_gpu:{i}" for i in range(4)]
        y = ds.place(x, "gpu:3")
    assert ds.device_count() == 2
    with pytest.raises(ds.SimulationError, match="gpu:3 was removed"):
        y + y
    with pytest.raises(ds.DeviceNotFoundError):
        ds.gpu(3).native()
    with ds.simulate(gpus=0):
        assert ds.device_count() == 0
        assert paddle.device.get_all_custom_device_type() == []
        with pytest.raises(ds.SimulationError, match="gpu:1 was removed"):
            x + x
    assert ds.device_count() == 2
    assert (x + x).tolist() == [2.0, 4.0, 6.0, 2.0]
    with ds.simulate(gpus=4):
        assert (y + y).tolist() == [2.0, 4.0, 6.0, 2.0]


def test_the_last_gpu_of_as_many_as_paddle_counts(paddle: Any) -> None:
    """Paddle itself refuses memory on the 17th custom device, so devshim refuses to show it."""
    with ds.simulate(16):
        assert ds.device_of(ds.ones(3, device="gpu:15")) is ds.gpu(15)
        with pytest.raises(ds.SimulationError, match="can show 16 simulated GPUs at most, and 17 were requested"):
            ds.simulate(17)
        assert ds.device_count() == 16


def test_switching_off_restores_paddles_functions(paddle: Any) -> None:
    def seen() -> tuple[Any, ...]:
        tensor = vars(paddle.Tensor)
        return paddle._C_ops.add, paddle.nn.functional.relu, tensor["__add__"], vars(paddle.nn.Layer)["__call__"]

    ours = seen()
    with ds.simulate(gpus=0):
        own = seen()
    assert not set(ours) & set(own)
    assert seen() == ours or all(getattr(new, "__wrapped__", None) for new in seen())


def test_the_default_device_stays_the_hosts(paddle: Any) -> None:
    """With a plug-in Paddle uses its first GPU by default; and a hidden GPU cannot be the default."""
    assert paddle.get_device() == "cpu"
    assert ds.device_of(paddle.zeros([2])) is ds.cpu()
    with ds.simulate(gpus=4):
        paddle.set_device("sim_gpu:3")
        assert ds.device_of(paddle.zeros([2])) is ds.gpu(3)
    assert paddle.get_device() == "cpu"


def test_threads_compute_on_gpus_of_their_own(paddle: Any) -> None:
    """A scope belongs to one thread, although Paddle's default device belongs to the process."""
    from concurrent.futures import ThreadPoolExecutor

    def body(i: int) -> bool:
        gpu = ds.gpu(i % 2)
        with ds.on(gpu):
            return all(ds.device_of(paddle.zeros([2]) + paddle.ones([2])) is gpu for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(body, range(8)))


# ---------------------------------------------------------------- requesting GPUs
def test_gpus_are_requested_before_the_import(run_python: Callable[..., str]) -> None:
    """They are requested by the environment, for any code that imports Paddle; Paddle's own log does not mention it."""
    code = """
import devshim as ds
ds.use("paddle")
import paddle
assert paddle.device.get_available_custom_device() == ["sim_gpu:0", "sim_gpu:1", "sim_gpu:2"]
assert paddle.get_device() == "cpu" and ds.device_count() == 3
import os
assert not [name for name in os.environ if name == "CUSTOM_DEVICE_ROOT" or name.startswith(("FLAGS_", "GLOG_"))]
"""
    run_python("-c", code, DEVSHIM_SIMULATE_GPUS="3")


@pytest.mark.parametrize(
    "first", ["import paddle; import devshim as ds", "import devshim as ds; ds.use('paddle'); import paddle"]
)
def test_a_request_after_the_import_says_what_to_move(run_python: Callable[..., str], first: str) -> None:
    code = f"""
{first}
ds.use("paddle")
try:
    ds.simulate(gpus=2)
except ds.SimulationError as error:
    assert "PaddlePaddle cannot simulate GPUs now: it was imported before" in error.problem, error.problem
    assert "move ds.simulate(...) above `import paddle`" in error.hint
else:
    raise AssertionError("no error")
assert ds.device_count() == 0 and ds.ones(2).sum() == 2
"""
    run_python("-c", code)


def test_gpus_are_requested_after_devshims_own_import(run_python: Callable[..., str]) -> None:
    """Counting imports Paddle, and GPUs can still be simulated then; after the first tensor they cannot."""
    code = """
import devshim as ds
ds.use("paddle")
assert ds.device_count() == 0
ds.simulate(gpus=2)
x = ds.ones(3, device="gpu:1")
assert ds.memory("gpu:1").used == 512 and (x + x).sum() == 6
from devshim_backends._paddle import devices
assert not devices.only_host, "a copy to the host must be looked at from now on"
assert str(ds.copy(x, "cpu").place) == "Place(cpu)" and str(ds.copy(x, "gpu:1").place) == "Place(sim_gpu:1)"
del x
assert ds.memory("gpu:1").used == 0
"""
    run_python("-c", code)
    code = """
import devshim as ds
ds.use("paddle")
ds.ones(2)
try:
    ds.simulate(gpus=2)
except ds.SimulationError as error:
    assert "it has already created tensors" in error.problem, error.problem
else:
    raise AssertionError("no error")
"""
    run_python("-c", code)


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128"])
@pytest.mark.parametrize("target", ["cpu", "gpu:1"])
def test_a_tensor_that_came_with_strides_is_copied(paddle, dtype, target):
    """While GPUs are simulated, PaddlePaddle (3.3.1) reads strides only for NumPy; its operators raise SystemError."""
    array = np.arange(6).astype(dtype).reshape(2, 3)
    x = paddle.utils.dlpack.from_dlpack(array.T.__dlpack__())
    for made in (ds.copy(x, target), ds.place([x], target, copy=True)[0]):
        assert ds.device_of(made) == ds.device(target)
        assert ds.to_numpy(made + made).tolist() == (array + array).T.tolist()

"""einops, array-api-compat, safetensors and optax beside devshim, on every framework that they support.

Each computes on a simulated GPU that is not the default device, and its results stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import array_api_compat
import einops
import numpy as np
import pytest

import devshim as ds

INSTALLED = set(ds.backends())
SUPPORTED = {
    "einops": ["numpy", "torch", "tensorflow", "paddle", "jax"],
    "array_api_compat": ["numpy", "torch", "jax"],
    "safetensors": {"numpy": "numpy", "torch": "torch", "tensorflow": "tensorflow", "jax": "flax"},
    "optax": ["jax"],
}
"""The frameworks of each library; in safetensors, with the name of its module.

On simulated GPUs, ``safetensors.paddle.load_file`` (0.8) fails: PaddlePaddle (3.3.1) then has no kernel for the view of
the file's memory that it makes.
"""
GPU = "gpu:1"
A = np.arange(24, dtype="float32").reshape(2, 3, 4)


@pytest.fixture
def x(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a tensor of a framework on the second simulated GPU."""
    with ds.using(request.param), ds.simulate(gpus=2):
        yield ds.from_numpy(A, GPU)


def on(library: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test on the installed frameworks that a library supports."""
    return pytest.mark.parametrize("x", [each for each in SUPPORTED[library] if each in INSTALLED], indirect=True)


def check(x: Any, expected: Any, device: str = GPU) -> None:
    """Check a tensor's device and its numbers."""
    assert ds.device_of(x) is ds.device(device)
    assert ds.to_numpy(x).shape == np.shape(expected)
    np.testing.assert_allclose(ds.to_numpy(x), expected, rtol=1e-6)


EINOPS: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.rearrange(x, "a b (c d) -> d (a b) c", d=2),
    "list": lambda x: einops.rearrange([x, x], "n a b c -> a (n b) c"),
    "reduce": lambda x: einops.reduce(x, "a b (c d) -> a c", "max", d=2),
    "repeat": lambda x: einops.repeat(x, "a b c -> a (b r) c", r=2),
    "einsum": lambda x: einops.einsum(x, x, "a b c, a d c -> a b d"),
    "pack": lambda x: einops.pack([x, x[:, :1]], "a * c")[0],
    "unpack": lambda x: einops.unpack(x, [[1], [2]], "a * c")[1],
}


@on("einops")
@pytest.mark.parametrize("name", EINOPS)
def test_einops_computes_where_the_tensor_is(name: str, x: Any) -> None:
    result = EINOPS[name](x)
    assert type(result) is type(x)
    check(result, EINOPS[name](A))


@pytest.mark.parametrize("x", sorted(INSTALLED & set(SUPPORTED["einops"]) - {"numpy"}), indirect=True)
def test_gradients_flow_through_einops(x: Any) -> None:
    def loss(x: Any) -> Any:
        return einops.reduce(einops.rearrange(x, "a b c -> (a b) c") ** 2, "r c -> ", "sum")

    value, grad = ds.value_and_grad(loss)(x)
    check(value, (A**2).sum())
    check(grad, 2 * A)


@on("einops")
def test_parts_of_a_batch_are_rearranged_on_their_gpus(x: Any) -> None:
    inputs = ds.split(x, ["gpu:0", GPU])
    parts = ds.parallel([lambda part: einops.rearrange(part, "a b c -> a (c b)")] * 2, inputs)
    assert [ds.device_of(part) for part in parts] == [ds.gpu(0), ds.gpu(1)]
    check(ds.gather(parts, GPU), einops.rearrange(A, "a b c -> a (c b)"))


@on("array_api_compat")
def test_the_namespace_of_array_api_compat_computes_where_the_tensor_is(x: Any) -> None:
    xp, expected = array_api_compat.array_namespace(x), array_api_compat.array_namespace(A)
    for compute in (
        lambda xp, x: xp.sum(xp.tanh(x), axis=0),
        lambda xp, x: xp.concat([x, x], axis=1),
        lambda xp, x: xp.permute_dims(xp.expand_dims(x, axis=0), (0, 3, 1, 2)),
        lambda xp, x: xp.vecdot(x, x),
    ):
        check(compute(xp, x), compute(expected, A))
        check(compute(ds.namespace(x), x), compute(expected, A))


@pytest.mark.parametrize("x", sorted(INSTALLED & {"torch", "jax"}), indirect=True)
def test_devices_of_array_api_compat_are_devices_of_devshim(x: Any) -> None:
    native = array_api_compat.device(x)
    assert ds.device(native) is ds.gpu(1)
    check(array_api_compat.to_device(ds.from_numpy(A), ds.gpu(1).native()), A)
    check(array_api_compat.array_namespace(x).zeros((2,), device=native), np.zeros(2))


@on("safetensors")
def test_files_of_safetensors_are_files_of_devshim(x: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["x"]
    library, path = import_module(f"safetensors.{SUPPORTED['safetensors'][name]}"), tmp_path / "a.safetensors"
    library.save_file({"layer.weight": x}, path)
    assert list(ds.load(path)) == ["layer.weight"]
    loaded = ds.load(path, into={"layer": {"weight": ds.zeros((2, 3, 4), dtype="float32", device=GPU)}})
    check(loaded["layer"]["weight"], A)
    ds.save({"layer": {"weight": x}}, path)
    check(ds.place(library.load_file(path)["layer.weight"], GPU), A)


@pytest.fixture
def optax() -> ModuleType:
    return import_module("optax")


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "lion", "rmsprop"])
@on("optax")
def test_optax_trains_where_the_parameters_are(name: str, x: Any, optax: ModuleType) -> None:
    rate = {"learning_rate": optax.cosine_decay_schedule(0.1, 10)}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), getattr(optax, name)(**rate))
    losses = {}
    for device in ("cpu", GPU):
        params = ds.place({"w": ds.from_numpy(A[0]), "b": ds.zeros(3, dtype="float32")}, device)
        state = ds.place(optimizer.init(params), device)
        losses[device] = []
        for _ in range(3):
            value, grads = ds.value_and_grad(lambda p: ((p["w"].sum(1) + p["b"]) ** 2).mean())(params)
            updates, state = optimizer.update(grads, state, params)
            params = optax.apply_updates(params, updates)
            losses[device].append(float(value))
        assert ds.placement_of([params, state]).devices == {ds.device(device)}
    assert losses["cpu"] == losses[GPU]
    assert losses[GPU][0] > losses[GPU][-1]

"""einops, array-api-compat, safetensors and optax together with devshim, on every framework that they support.

Each computes on a simulated GPU that is not the default device, and its results stay there.
"""

from __future__ import annotations

import subprocess
import sys
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


FILES = {
    "float32": A,
    "float64": A.astype("float64") / 3,
    "int64": A.astype("int64") + 2**40,
    "int32": A.astype("int32"),
    "uint8": A.astype("uint8"),
    "bool": A > 3,
    "float16": A.astype("float16"),
    "one number": np.array(2.5, "float32"),
}
"""Arrays to save with one library, and to load with the other."""


UNWRITTEN = {"safetensors.tensorflow": {"one number"}}
"""Arrays that a module of safetensors (0.8) cannot save: it takes the address of a NumPy scalar."""

UNREAD = {"safetensors.flax": {"float64", "int64"}}
"""Arrays that a module of safetensors returns with another dtype: JAX without ``jax_enable_x64`` makes 32 bits."""


def check_files(library: ModuleType, device: str, folder: Path, write: Callable[[Any], Any] = lambda x: x) -> None:
    """Check that devshim loads the library's files, and the library those of devshim."""
    theirs, ours = folder / "theirs.safetensors", folder / "ours.safetensors"
    tensors = {name: ds.from_numpy(a, device) for name, a in FILES.items()}
    written = {
        f"layer.{name}": write(x) for name, x in tensors.items() if name not in UNWRITTEN.get(library.__name__, ())
    }
    library.save_file(written, theirs)
    ds.save({"layer": tensors}, ours)
    loaded, read = ds.load(theirs, device), library.load_file(ours)
    assert (sorted(loaded), sorted(read)) == (sorted(written), sorted(f"layer.{name}" for name in FILES))
    for name in UNREAD.get(library.__name__, ()):
        del read[f"layer.{name}"]
    for path, x in [*loaded.items(), *((path, ds.asarray(x, device=device)) for path, x in read.items())]:
        a = FILES[path.removeprefix("layer.")]
        assert (ds.dtype_of(x), ds.device_of(x)) == (str(a.dtype), ds.device(device))
        np.testing.assert_array_equal(ds.to_numpy(x), a)
    into = {"layer": {"int64": ds.zeros(A.shape, dtype="int64", device=device)}}
    only = {"layer.int64": write(tensors["int64"])}  # ``safetensors.tensorflow`` changes the dict that it saves
    library.save_file(only, theirs)
    np.testing.assert_array_equal(ds.to_numpy(ds.load(theirs, into=into)["layer"]["int64"]), FILES["int64"])


@on("safetensors")
def test_files_of_safetensors_are_files_of_devshim(x: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["x"]
    check_files(import_module(f"safetensors.{SUPPORTED['safetensors'][name]}"), GPU, tmp_path)


@pytest.mark.skipif("paddle" not in INSTALLED, reason="PaddlePaddle is not installed")
def test_files_of_safetensors_are_files_of_devshim_on_paddle(tmp_path: Path) -> None:
    """In a process without simulated GPUs, where ``load_file`` works."""
    code = "import safetensors.paddle, devshim as ds, test_libraries as t; ds.use('paddle'); "
    code += f"t.check_files(safetensors.paddle, 'cpu', t.Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True, timeout=120)


@pytest.mark.skipif("mxnet" not in INSTALLED, reason="MXNet is not installed")
def test_files_of_arrays_are_files_of_devshim_on_mxnet(tmp_path: Path) -> None:
    """The library has no module for MXNet, so MXNet's tensors go through NumPy."""
    with ds.using("mxnet"), ds.simulate(gpus=2):
        check_files(import_module("safetensors.numpy"), GPU, tmp_path, write=ds.to_numpy)


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

"""Tests of the guard on JAX: captures of compiled functions, reads by NumPy, and JAX's own guard besides ours."""

from __future__ import annotations

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import pjit
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla
from jax._src.numpy.array_methods import _IndexUpdateRef

import devshim as ds

HOST = np.ones((2, 2), "float32")


def line():
    return sys._getframe(1).f_lineno


pytestmark = pytest.mark.usefixtures("two_cards")


@pytest.fixture
def x(two_cards):
    return ds.asarray([[1.0, 2.0], [3.0, 4.0]], dtype="float32", device="gpu:1")


@jax.jit
def scaled(x, by):
    return x * by


COPIED_ARGUMENTS = {
    "an argument of jit": lambda x: scaled(x, HOST),
    "one in a tree": lambda x: jax.jit(lambda tree: tree["x"] + tree["a"])({"x": x, "a": HOST}),
    "one uncommitted": lambda x: scaled(x, jnp.ones((2, 2))),
    "integers uncommitted": lambda x: scaled(x, jnp.arange(2)),
    "integers": lambda x: scaled(x, np.arange(2)),
    "add": lambda x: jnp.add(x, HOST),
    "add, uncommitted": lambda x: jnp.add(x, jnp.ones((2, 2))),
    "dot": lambda x: jnp.dot(HOST, x),
    "where": lambda x: jnp.where(x > 1, x, HOST),
    "in a gradient": lambda x: jax.grad(lambda y: (y * HOST).sum())(x),
    "in vmap": lambda x: jax.vmap(jnp.add)(x, HOST),
    "the first of two, uncommitted": lambda x: jnp.ones((2, 2)) + x,
    "stack": lambda x: jnp.stack([x, HOST]),
    "concatenate, uncommitted": lambda x: jnp.concatenate([jnp.ones((2, 2)), x]),
    "einsum": lambda x: jnp.einsum("ij,jk", x, HOST),
    "select": lambda x: jnp.select([x > 1], [HOST]),
    "an array of both": lambda x: jnp.array([x, HOST]),
    "values to choose from": lambda x: jax.random.choice(
        jax.device_put(jax.random.key(0), ds.gpu(1).native()), np.arange(3)
    ),
}
UPDATES = {
    "set": lambda x: x.at[0].set(HOST[0]),
    "add": lambda x: x.at[0].add(jnp.ones(2)),
    "values": lambda x: x.at[0].multiply(values=HOST[0]),
    "an index": lambda x: x.at[np.array([0, 1])].get(),
    "one of several": lambda x: x.at[:, np.array([0, 1])].min(0.0),
}
ALLOWED = {
    "numbers": lambda x: scaled(x, 2.0) + 1,
    "a NumPy scalar": lambda x: scaled(x, np.float32(2)),
    "a 0-d array on the host": lambda x: x + jnp.float32(2),
    "indices": lambda x: (x[0], x[0, 1], x[:, 1], x[::-1], x[-1:]),
    "at, a number": lambda x: x.at[0].set(1.0).at[0, 1].add(2),
    "creation": lambda x: (jnp.zeros(3), jnp.arange(4), jnp.eye(2), jnp.full((2,), 7)),
    "creation of host values": lambda x: (jnp.array([1.0, 2]), jnp.array(HOST), jnp.asarray(HOST)),
    "indices of a list": lambda x: ds.run(lambda x: x[jnp.array([0, 1])], x),
    "device_put": lambda x: jax.device_put(HOST, x.sharding),
    "stack": lambda x: (jnp.stack([x, x]), jnp.concatenate([x[0], x[1]]), jnp.einsum("ij,jk", x, x)),
    "an insertion": lambda x: jnp.insert(x[0], 1, 2.0),
    "device_get": jax.device_get,
    "a gradient": lambda x: jax.grad(lambda y: (y * y).sum())(x),
    "scan": lambda x: jax.lax.scan(lambda total, row: (total + row, row), x[0], x),
    "draws": lambda x: jax.random.normal(jax.device_put(jax.random.PRNGKey(0), x.sharding), (2, 2)) + x,
    "asarray, which names the device": lambda x: (
        jnp.asarray(HOST, device=x.sharding),
        jnp.array([1.0], device=x.sharding),
    ),
}


@pytest.mark.parametrize("name", COPIED_ARGUMENTS)
def test_arguments_that_a_compiled_function_copies_are_refused(x, name):
    expected = COPIED_ARGUMENTS[name](x)
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        COPIED_ARGUMENTS[name](x)
    assert caught.value.problem.startswith("JAX copies from cpu to gpu:1 for an argument of a compiled function")
    assert __file__ in caught.value.problem
    with ds.guard("error", host_to_device="allow"):
        assert (np.asarray(ds.to_numpy(COPIED_ARGUMENTS[name](x))) == ds.to_numpy(expected)).all()


@pytest.mark.parametrize("name", UPDATES)
def test_values_that_an_update_copies_are_refused(x, name):
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        UPDATES[name](x)
    assert caught.value.problem.startswith(
        "JAX copies from cpu to gpu:1 for an index or a value (an implicit transfer) at"
    )
    assert __file__ in caught.value.problem
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        UPDATES[name](x)
    assert len(seen) == 1


@pytest.mark.parametrize("name", ALLOWED)
def test_numbers_and_explicit_transfers_are_allowed(x, name):
    with ds.guard("error"):
        ALLOWED[name](x)
    with ds.guard("error"), ds.on("gpu:1"):
        ALLOWED[name](x)


def test_numpy_arguments_are_refused_if_the_default_device_is_a_gpu():
    with ds.guard("error"):
        jnp.sin(HOST)  # on the host
        with ds.on("gpu:1"), pytest.raises(ds.TransferError) as caught:
            jnp.sin(HOST)
    assert (
        f"cpu to gpu:1 for an argument of a compiled function (an implicit transfer) at {__file__}:"
        in caught.value.problem
    )


READS = {
    "NumPy": np.asarray,
    "print()": str,
    "tolist()": lambda y: y.tolist(),
    "float()": lambda y: float(y.mean()),
    "bool()": lambda y: bool(y.mean() > 0),
}


@pytest.mark.parametrize("what", READS)
def test_reads_of_a_sharded_array_are_refused(what):
    mesh = jax.sharding.Mesh(np.array([ds.gpu(0).native(), ds.gpu(1).native()]), ("card",))
    y = jax.device_put(HOST, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("card")))
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        READS[what](y)
    assert caught.value.problem.startswith(
        f"JAX copies from gpu:0 to cpu for {what} (an implicit transfer) at {__file__}:"
    )
    with ds.guard("error"):
        jax.device_get(y)
        assert (y * 2 + 1).shape == (2, 2)


def test_arguments_that_pmap_copies_are_refused():
    doubled = jax.pmap(lambda row: row * 2, devices=[ds.gpu(0).native(), ds.gpu(1).native()])
    if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 8):
        pytest.skip("before JAX 0.8, pmap is not a compiled function and copies its arguments itself")
    for batch in (HOST, jnp.ones((2, 2))):
        with ds.guard("error"), pytest.raises(ds.TransferError, match="cpu to gpu:0 for an argument"):
            doubled(batch)


def test_each_implicit_transfer_is_reported_once(x):
    with warnings.catch_warnings(record=True) as seen, ds.guard("warn"):
        warnings.simplefilter("always")
        x + HOST
        x[np.array([0, 1])]
        float(x[0, 0])
        np.asarray(x)
        np.asarray(x)
    reasons = [str(each.message).partition(" for ")[2].partition(" (an")[0] for each in seen]
    assert reasons == ["an operand of +", "an index", "float()", "NumPy", "NumPy"]


def test_jaxs_own_guard_refuses_the_same_arguments(x):
    """For arrays that have axes, JAX's own guard detects nothing on these devices that ours does not."""
    for name, call in COPIED_ARGUMENTS.items():
        with pytest.raises(Exception, match="Disallowed"), jax.transfer_guard("disallow"):
            call(x)
        assert name


def test_the_reported_line_is_in_the_callback(x):
    """A host callback of JAX is the user's code, with any reads."""
    lines = []

    def body(value):
        lines.append(line() + 1)
        return float(x[0, 0]) + value

    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        jax.tree_util.tree_map(body, {"a": 1.0})
    assert caught.value.problem.endswith(f"at {__file__}:{lines[0]}")


def test_pickling_is_refused(x):
    import pickle

    with ds.guard("error"), pytest.raises(ds.TransferError):
        pickle.dumps(x)


def test_a_memoryview_is_refused(x):
    with pytest.raises(ds.TransferError, match=r"for NumPy \(an implicit transfer"), ds.guard("error"):
        memoryview(x)
    assert memoryview(x).nbytes == 16


def test_the_patches_are_removed_afterwards(x):
    def patched():
        functions = pjit._get_fastpath_data, ArrayImpl.__array__, ArrayImpl.__dict__["_value"]
        return (*functions, pxla.InputsHandler.__call__, _IndexUpdateRef.set)

    before = patched()
    with ds.guard("error"):
        assert all(now is not then for now, then in zip(patched(), before, strict=True))
    assert all(now is then for now, then in zip(patched(), before, strict=True))


def test_only_functions_that_copy_to_a_gpu_leave_the_fast_path(monkeypatch):
    """On real GPUs; the host's fast paths stay enabled."""
    received, uncommitted, key = [], jnp.ones((2, 2)), jax.random.key(0)
    monkeypatch.setattr(pjit, "_get_fastpath_data", lambda executable, *_: received.append(executable) or "fast")

    class Executable:
        def __init__(self, platform):
            native = type("Native", (), {"client": type("Client", (), {"platform": platform})})
            self.unsafe_call = type("Call", (), {"_local_devices": (native,)})

    on_host, on_gpu = Executable("cpu"), Executable("gpu")
    with ds.guard("error"):
        assert pjit._get_fastpath_data(on_host, None, [HOST]) == "fast"
        assert pjit._get_fastpath_data(on_gpu, None, [HOST]) is None
        assert pjit._get_fastpath_data(on_gpu, None, [uncommitted]) is None
        assert pjit._get_fastpath_data(on_gpu, None, [2.0, np.array(1.0), key]) == "fast"
    assert received == [on_host, on_gpu]

"""Tests of the framework's own collectives below `ds.world`, in real processes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from listening import is_loopback, listening
from one_host import host as host

import devshim as ds

pytestmark = pytest.mark.usefixtures("host")
ENGINES = {"torch": "gloo", "jax": "gloo", "tensorflow": "ring", "paddle": "gloo"}


def name() -> str:
    """Return the framework of the tests; skip those that have no engine, a gap that the support table names."""
    found = ds.framework().__name__.split(".")[0]
    if found not in ENGINES:
        pytest.skip(f"{found} declares the gap 'ranks'")
    return found


def job(framework: str) -> Any:
    """Return what a rank computes with the engine, and what describes it."""
    ds.use(framework)
    world = ds.world()
    mine = [ds.full((3, 2), world.rank + i + 1.0, device=d) for i, d in enumerate(world.devices)]
    summed = [(ds.to_numpy(x).tolist(), str(ds.device_of(x))) for x in world.all_reduce_(mine)]
    (mean,) = world.all_reduce_([{"x": ds.full((), float(world.rank))}], "mean")
    return summed, float(ds.to_numpy(mean["x"])), world.describe(), listening({os.getpid()})


def test_the_engine_sums_on_simulated_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = name()
    monkeypatch.setenv("DEVSHIM_ENGINE", "native")
    for summed, mean, text, addresses in ds.launch(job, framework, ranks_per_host=2, simulate=2, timeout=60):
        assert summed == [([[8, 8]] * 3, "gpu:0"), ([[8, 8]] * 3, "gpu:1")]
        assert mean == 0.5
        assert f"sums: {ENGINES[framework]} of {framework}" in text
        if framework != "tensorflow":
            assert addresses or framework in ("jax", "paddle")  # they close what a rank has listened on
            assert all(map(is_loopback, addresses)), addresses


def test_without_a_wish_only_engines_on_loopback_start() -> None:
    framework = name()
    used = f"{ENGINES[framework]} of {framework}"
    for summed, _, text, addresses in ds.launch(job, framework, ranks_per_host=2, simulate=2, timeout=60):
        assert summed[0][0] == [[8, 8]] * 3
        assert (used in text) is (framework != "tensorflow")
        assert ("its servers listen on all addresses of the host" in text) is (framework == "tensorflow")
        assert all(map(is_loopback, addresses)), addresses


def prints(framework: str) -> None:
    ds.use(framework)
    world = ds.world()
    world.all_reduce_([ds.ones(3, dtype="float32")])
    print(f"rank {world.rank} is done", flush=True)


def test_a_rank_prints_only_what_its_program_prints(capfd: pytest.CaptureFixture[str]) -> None:
    """The engine's own lines, such as those of gloo when it connects, are not in standard output."""
    ds.launch(prints, name(), ranks_per_host=2, simulate=1, timeout=60)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line.partition("] ")[2] for line in lines) == ["rank 0 is done", "rank 1 is done"], lines


DTYPES = ("bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "float16", "bool", "complex64")


def large(world: ds.World) -> None:
    """Add and average a tensor that an engine adds in several parts, the last of which is smaller."""
    values = [np.random.default_rng(rank).normal(size=5_000_003).astype("float32") for rank in range(world.size)]
    for op in ("sum", "mean"):
        (total,) = world.all_reduce_([ds.from_numpy(values[world.rank])], op)
        expected = np.sum(values, axis=0, dtype="float32") / (world.size if op == "mean" else 1)
        np.testing.assert_array_equal(ds.to_numpy(total), expected)


def with_nan(world: ds.World, dtype: str) -> None:
    """Combine values with NaN and infinity, which the order of the ranks must not change."""
    rows = np.array([[np.nan, 1, np.inf, -np.inf], [1, np.nan, -np.inf, -np.inf]])
    combined = {"max": np.maximum, "min": np.minimum, "sum": np.add, "mean": lambda a, b: (a + b) / 2}
    for op, combine in combined.items():
        for of_rank in (rows, rows[::-1]):
            (found,) = world.all_reduce_([ds.asarray(of_rank[world.rank].tolist(), dtype=dtype)], op)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(ds.to_numpy(found).astype("float64"), combine(*of_rank))


def dtypes(framework: str) -> list[Any]:
    """Return the sums of tensors of every dtype that devshim and the framework have, one by one and together."""
    ds.use(framework)
    world = ds.world()
    mine = {}
    for dtype in DTYPES:
        if dtype != "bool" and not (framework == "jax" and "64" in dtype):  # JAX has 64 bits on request
            mine[dtype] = ds.full((3,), 2 + world.rank, dtype=dtype)
    alone = []
    for name, x in mine.items():
        (total,) = world.all_reduce_([ds.place(x, "cpu", copy=True)])
        alone.append((name, ds.to_numpy(total).astype("complex64").tolist(), str(ds.to_numpy(total).dtype)))
    (together,) = world.all_reduce_([dict(mine)])
    large(world)
    for dtype in mine:
        if "float" in dtype:
            with_nan(world, dtype)
    return [
        *alone,
        *((n, ds.to_numpy(x).astype("complex64").tolist(), str(ds.to_numpy(x).dtype)) for n, x in together.items()),
    ]


def test_every_dtype_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = name()
    for results in ds.launch(dtypes, framework, ranks_per_host=2, timeout=60):
        assert len(results) >= 12
        for dtype, values, found in results:
            assert (values, found) == ([5, 5, 5], dtype)


def unlike(framework: str) -> None:
    ds.use(framework)
    world = ds.world()
    with pytest.raises(ds.RanksDisagreeError, match=r"rank 0 on .*: all_reduce, .*; rank 1 on .*: all_gather"):
        world.all_gather(3) if world.rank else world.all_reduce_([ds.ones(2, dtype="float32")])
    world.all_reduce_([ds.from_numpy(np.ones(3 + world.rank, "float32"))])


def test_ranks_that_disagree_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_ENGINE", "native")
    with pytest.raises(ds.RanksDisagreeError, match=r"rank \d on .*float32 \([34],\); rank \d on .*float32 \([34],\)"):
        ds.launch(unlike, name(), ranks_per_host=2, timeout=60)

"""Tests of the framework's own collectives below `ds.world`, in real processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing_ranks import LONG, busy, meet
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
    """Return what a rank computes with the engine, what describes it, and the errors of ranks that disagree."""
    ds.use(framework)
    world = ds.world()
    mine = [ds.full((3, 2), world.rank + i + 1.0, device=d) for i, d in enumerate(world.devices)]
    summed = [(ds.to_numpy(x).tolist(), str(ds.device_of(x))) for x in world.all_reduce_(mine)]
    (mean,) = world.all_reduce_([{"x": ds.full((), float(world.rank))}], "mean")
    print(f"rank {world.rank} is done", flush=True)
    return summed, float(ds.to_numpy(mean["x"])), world.describe(), listening({os.getpid()}), disagreements(world)


def disagreements(world: ds.World) -> list[str]:
    """Return the errors of a sum beside another call, and of sums of unlike tensors."""
    calls: list[Callable[[], Any]] = [
        lambda: world.all_gather(3) if world.rank else world.all_reduce_([ds.ones(2, dtype="float32")]),
        lambda: world.all_reduce_([ds.from_numpy(np.ones(3 + world.rank, "float32"))]),
    ]
    found = []
    for call in calls:
        with pytest.raises(ds.RanksDisagreeError) as error:
            call()
        found.append(error.value.problem)
    return found


DISAGREEMENTS = [
    r"the ranks do not agree on step 3: rank 0 on .*: all_reduce, sum of float32 \(2,\); rank 1 on .*: all_gather",
    r"the ranks do not agree on step 4: rank 0 on .*: all_reduce, sum of float32 \(3,\); rank 1 on .* \(4,\)",
]


def test_the_engine_sums_on_simulated_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = name()
    monkeypatch.setenv("DEVSHIM_ENGINE", "native")
    for summed, mean, text, addresses, errors in ds.launch(job, framework, ranks_per_host=2, simulate=2, timeout=60):
        assert [re.fullmatch(*each) is not None for each in zip(DISAGREEMENTS, errors, strict=True)] == [True, True]
        assert summed == [([[8, 8]] * 3, "gpu:0"), ([[8, 8]] * 3, "gpu:1")]
        assert mean == 0.5
        assert f"sums: {ENGINES[framework]} of {framework}" in text
        if framework != "tensorflow":
            assert addresses or framework in ("jax", "paddle")  # they close what a rank has listened on
            assert all(map(is_loopback, addresses)), addresses


def test_without_a_wish_only_engines_on_loopback_start(capfd: pytest.CaptureFixture[str]) -> None:
    """A rank prints only what its program prints, and not the lines of gloo when it connects."""
    framework = name()
    used = f"{ENGINES[framework]} of {framework}"
    for summed, _, text, addresses, errors in ds.launch(job, framework, ranks_per_host=2, simulate=2, timeout=60):
        assert [re.fullmatch(*each) is not None for each in zip(DISAGREEMENTS, errors, strict=True)] == [True, True]
        assert summed[0][0] == [[8, 8]] * 3
        assert (used in text) is (framework != "tensorflow")
        assert ("its servers listen on all addresses of the host" in text) is (framework == "tensorflow")
        assert all(map(is_loopback, addresses)), addresses
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


def parted(framework: str, folder: str, other: str) -> None:
    """Start an engine on rank 0 by a sum; the other rank has not chosen that framework, or returns."""
    rank = int(os.environ["RANK"])
    ds.use("numpy" if rank and other == "barrier" else framework)
    x = ds.ones(2)
    meet(folder, "imported")
    if rank == 0:
        ds.world().all_reduce_([x])
    elif other == "barrier":
        ds.world().barrier()


SOON = 15


def test_a_start_that_another_rank_never_joins_is_an_error_soon(tmp_path: Path) -> None:
    """Both jobs at once: they mostly wait."""
    framework = name()
    if framework in ("jax", "tensorflow"):
        pytest.skip("its engine does not start in a sum")

    def failed(other: str) -> tuple[Any, float]:
        folder = tmp_path / other
        folder.mkdir()
        with pytest.raises(ds.WorldError) as caught:
            ds.launch(parted, framework, str(folder), other, ranks_per_host=2, timeout=LONG)
        return caught.value, time.time() - max(each.stat().st_mtime for each in folder.iterdir())

    with ThreadPoolExecutor(2) as pool:
        (differs, first), (late, second) = pool.map(failed, ("barrier", "return"))
    assert isinstance(differs, ds.RanksDisagreeError)
    start = f"rank 0 on host0: start of the ranks of {framework}"
    assert f"do not agree on step 1: {start}; rank 1 on host0: barrier without an engine" in differs.problem
    assert isinstance(late, ds.RankLateError)
    assert late.late == (1,)
    assert "rank 1 on host0 has returned; rank 0 on host0 waits at test_engines.py:" in late.problem
    assert max(first, second) < SOON * busy()

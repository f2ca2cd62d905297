"""Arrays that are sharded over several devices: where they are, and what gathers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import devshim as ds

GPU0, GPU1, CPU = ds.gpu(0), ds.gpu(1), ds.cpu()
ROWS = [0.0, 1.0, 2.0, 3.0]


@pytest.fixture(autouse=True)
def _cards(three_cards: object) -> None:
    pass


def sharded(*axes: str) -> Any:
    mesh = Mesh([GPU0.native("jax"), GPU1.native("jax")], ("rows",))
    return jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec(*axes)))


@pytest.mark.parametrize("axes", [("rows",), ()], ids=["sharded", "replicated"])
def test_a_placement_has_the_device_of_each_part(axes: tuple[str, ...]) -> None:
    x = sharded(*axes)
    assert dict(ds.placement_of(x).items()) == {"shards.0": GPU0, "shards.1": GPU1}
    found = ds.placement_of({"a": [x], "b": jnp.ones(2)})
    assert dict(found.items()) == {"a.0.shards.0": GPU0, "a.0.shards.1": GPU1, "b": CPU}
    assert found.devices == {GPU0, GPU1, CPU}
    assert f"{8 if axes else 16} bytes" in repr(found)


@pytest.mark.parametrize("axes", [("rows",), ()], ids=["sharded", "replicated"])
@pytest.mark.parametrize("device", [GPU0, GPU1, CPU], ids=str)
def test_place_gathers_an_array(device: ds.Device, axes: tuple[str, ...]) -> None:
    x = sharded(*axes)
    for placed in (ds.place(x, device), ds.place([{"a": x}, 1], device)[0]["a"]):
        assert placed.devices() == {device.native("jax")}
        assert placed.committed
        assert ds.to_numpy(placed).tolist() == ROWS
    assert len(x.devices()) == 2
    for given in (x, [x]):
        with pytest.raises(ds.CopyNeededError, match="its data is on several devices"):
            ds.place(given, device, copy=False)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(x, "gpu:7")


def test_a_ledger_records_every_part_of_an_array_in_a_tree() -> None:
    tree = {"a": sharded("rows"), "b": sharded(), "c": ds.ones(2, device=GPU1)}
    with ds.transfers() as log:
        placed = ds.place(tree, GPU1)
    assert {ds.device_of(x) for x in placed.values()} == {GPU1}
    found = sorted((str(record.source), record.bytes) for record in log.records)
    assert found == [("gpu:0", 8), ("gpu:0", 16), ("gpu:1", 8)]


def test_gradients_flow_back_to_the_parts() -> None:
    x = sharded("rows")
    gradient = jax.grad(lambda t: (ds.place(t, GPU1) ** 2).sum())(x)
    assert gradient.sharding == x.sharding
    assert ds.to_numpy(gradient).tolist() == [0, 2, 4, 6]


def test_save_gathers_an_array(tmp_path: Path) -> None:
    ds.save({"a": sharded("rows")}, tmp_path / "a.safetensors")
    loaded = ds.load(tmp_path / "a.safetensors", GPU1)["a"]
    assert ds.device_of(loaded) is GPU1
    assert ds.to_numpy(loaded).tolist() == ROWS


def test_an_array_on_a_removed_gpu_is_refused_and_still_has_a_placement() -> None:
    with ds.simulate(2):
        x = sharded("rows")
    with ds.simulate(1):
        assert ds.placement_of(x).devices == {GPU0, GPU1}
        with pytest.raises(ds.SimulationError, match="gpu:1 was removed"):
            ds.place(x, GPU0)

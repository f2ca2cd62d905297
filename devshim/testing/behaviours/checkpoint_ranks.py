"""Tests of checkpoints that all ranks write together: rows, other numbers of ranks, and errors of one rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.models import ModelKit
from devshim.testing.thread_ranks import on_ranks
from devshim.testing.values import DTYPES, bits, feature, hook, sample
from devshim.world.world import World

if TYPE_CHECKING:
    from devshim.devices.device import Device

TABLE = np.arange(33, dtype="float32").reshape(11, 3)


class RankCheckpointTests(ModelKit):
    """`save` and `load` with ``world``, and `Rows`."""

    @feature("checkpoints")
    def test_rows_load_with_other_numbers_of_ranks(self, device: Device, other_device: Device, tmp_path: Path) -> None:
        """Rows that 4 ranks wrote are equal to the bit on 1, 3 and 7 ranks, and whole without ranks."""
        path = tmp_path / "run"

        def save(world: World) -> None:
            rows = ds.Rows(ds.from_numpy(TABLE[world.part(11)], device))
            ds.save({"table": rows, "n": 3, "same": ds.from_numpy(TABLE[0], device)}, path, world=world)

        assert on_ranks(4, save) == [None] * 4
        for size in (1, 3, 7):
            found = on_ranks(size, lambda world: ds.load(path, other_device, world=world))
            assert [each["n"] for each in found] == [3] * size
            assert all(ds.device_of(each["table"].part) is other_device for each in found)
            parts = [ds.to_numpy(each["table"].part) for each in found]
            assert bits(np.concatenate(parts)) == bits(TABLE)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            assert all(bits(ds.to_numpy(each["same"])) == bits(TABLE[0]) for each in found)
        whole = ds.load(path, other_device)
        assert bits(ds.to_numpy(whole["table"])) == bits(TABLE)

    @feature("checkpoints")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_survives_as_rows(self, device: Device, dtype: str, tmp_path: Path) -> None:
        """Every bit of rows survives, where a rank has none and the others have different numbers."""
        a, path = np.concatenate([sample(dtype)] * 3), tmp_path / "run"
        bounds = [0, 1, 1, len(a)]

        def mine(world: World, values: np.ndarray) -> Any:
            return {"x": ds.Rows(ds.from_numpy(values[bounds[world.rank] : bounds[world.rank + 1]], device))}

        assert on_ranks(3, lambda world: ds.save(mine(world, a), path, world=world)) == [None] * 3
        found = on_ranks(3, lambda world: ds.load(path, into=mine(world, np.zeros_like(a)), world=world))
        assert [self.adapter.shape(each["x"].part)[0] for each in found] == [1, 0, len(a) - 1]
        assert bits(np.concatenate([ds.to_numpy(each["x"].part) for each in found])) == bits(a)
        assert all(ds.device_of(each["x"].part) is device for each in found)
        halves = on_ranks(2, lambda world: ds.load(path, device, world=world)["x"].part)
        assert bits(np.concatenate([ds.to_numpy(each) for each in halves])) == bits(a)

    @feature("checkpoints", "models")
    @hook("model", "optimizer")
    def test_a_model_is_written_once_by_all_ranks(self, device: Device, tmp_path: Path) -> None:
        """A model and its optimizer are divided over the files of the ranks, and load as from one file."""
        model = ds.place(self.model(), device)
        state = [model, self.optimizer(model)]
        path, expected = tmp_path / "run", self.state_of(model)
        assert on_ranks(2, lambda world: ds.save(state, path, world=world)) == [None] * 2
        parts = [each for each in path.iterdir() if each.suffix == ".safetensors"]
        names = [set(ds.load(each)) for each in parts]
        assert not names[0] & names[1]
        assert all(names)
        fresh: list[Any] = [made := self.model(), self.optimizer(made)]
        ds.load(path, device, into=fresh)
        self.check_on(fresh[0], device)
        self.check_equal(self.state_of(fresh[0]), expected)

    @feature("checkpoints")
    def test_an_error_of_one_rank_is_raised_on_all(self, device: Device, tmp_path: Path) -> None:
        """The other ranks name the rank and the cause, and the old checkpoint is intact."""
        path, x = tmp_path / "run", ds.from_numpy(TABLE, device)
        assert on_ranks(2, lambda world: ds.save({"x": x}, path, world=world)) == [None] * 2
        old = sorted(os.listdir(path))
        found = on_ranks(2, lambda world: ds.save({"x": x, "bad": object() if world.rank else 1}, path, world=world))
        assert type(found[1]) is ds.ArgumentError
        assert "rank 1 on host1" in str(found[0])
        assert "is of type object" in str(found[0])
        assert sorted(os.listdir(path)) == old
        assert bits(ds.to_numpy(ds.load(path)["x"])) == bits(TABLE)

    @feature("checkpoints")
    def test_a_load_that_fails_on_one_rank_changes_no_rank(self, device: Device, tmp_path: Path) -> None:
        """A rank with an unequal target stops the load on all ranks."""
        path, x = tmp_path / "run", ds.from_numpy(TABLE, device)
        assert on_ranks(2, lambda world: ds.save({"x": x}, path, world=world)) == [None] * 2
        small = ds.from_numpy(TABLE[:2], device)
        found = on_ranks(2, lambda world: ds.load(path, into={"x": small if world.rank else x}, world=world))
        assert all(isinstance(each, ds.CheckpointError) for each in found)
        assert "rank 1 on host1" in str(found[0])

    @feature("checkpoints")
    def test_rows_are_refused_where_one_file_is_written(self, device: Device, tmp_path: Path) -> None:
        """One process cannot write a tensor of which it has only some rows; the error says what to type."""
        with pytest.raises(ds.ArgumentError, match=r"world=ds\.world\(\)"):
            ds.save({"x": ds.Rows(ds.from_numpy(TABLE, device))}, tmp_path / "run")
        with pytest.raises(ds.ArgumentError, match="takes a tensor"):
            ds.Rows([1, 2])
        moved = ds.place({"x": ds.Rows(ds.from_numpy(TABLE))}, device)
        assert ds.device_of(moved["x"].part) is device

"""Tests of checkpoints: a saved value loads bit for bit, on any device; a bad file changes nothing."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.behaviours.models import ModelKit
from devshim.testing.values import DTYPES, bits, feature, hook, numbers, sample

if TYPE_CHECKING:
    from devshim.devices.device import Device


@dataclasses.dataclass
class Layer:
    """A weight, and functions that are not data."""

    weight: Any
    functions: list[Any]


class CheckpointTests(ModelKit):
    """`save` and `load`."""

    @feature("checkpoints")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_survives_save_and_load(self, device: Device, dtype: str, tmp_path: Path) -> None:
        """Every bit, dtype and shape is preserved, from any device to any device."""
        a = sample(dtype)
        ds.save({"x": ds.from_numpy(a, device), "none": ds.from_numpy(a[:0])}, tmp_path / "t.safetensors")
        for target in (device, ds.cpu()):
            back = ds.load(tmp_path / "t.safetensors", target)
            assert list(back) == ["x", "none"]
            assert ds.device_of(back["x"]) is target
            assert self.adapter.dtype_name(back["x"]) == dtype
            assert bits(ds.to_numpy(back["x"])) == bits(a)
            assert self.adapter.shape(back["none"]) == a[:0].shape

    @feature("checkpoints")
    def test_loaded_tensors_own_their_memory(self, device: Device, tmp_path: Path) -> None:
        """Overwriting a tensor does not change its neighbours, or what the next load returns."""
        path = tmp_path / "t.safetensors"
        ds.save({str(i): ds.from_numpy(numbers() + i) for i in range(3)}, path)
        first = ds.load(path, device)
        if self.can_scribble(device):
            self.scribble(first["1"])
            assert not self.same_numbers(first["1"], numbers() + 1)
        second = ds.load(path, device)
        del first["1"]
        gc.collect()  # the memory of one tensor is freed without the others
        for i, found in ((0, first), (2, first), (0, second), (1, second), (2, second)):
            assert self.same_numbers(found[str(i)], numbers() + i)

    @feature("checkpoints")
    def test_load_restores_the_structure_of_a_tree(self, other_device: Device, tmp_path: Path) -> None:
        """Lists, tuples, dicts and plain values come back in the same structure."""
        x = ds.from_numpy(numbers(), other_device)
        tree = {"a": [x, (x, 3)], "b": {"name": "net", "rate": 0.5, "on": True, "none": None}, "c": []}
        path = tmp_path / "t.safetensors"
        ds.save(tree, path)
        back = ds.load(path, other_device)
        assert back["b"] == tree["b"]
        assert back["c"] == []
        assert type(back["a"][1]) is tuple
        assert back["a"][1][1] == 3
        assert self.same_numbers(back["a"][0], numbers())
        assert ds.device_of(back["a"][1][0]) is other_device

    @feature("checkpoints")
    def test_key_paths_join_files_and_trees(self, other_device: Device, tmp_path: Path) -> None:
        """A flat file of another program fills a nested tree, and the file of a nested tree a flat dict."""
        from safetensors.numpy import load_file, save_file

        x = numbers().astype("float32")
        path = tmp_path / "t.safetensors"
        nested: dict[str, Any] = {"layers": [{"weight": ds.from_numpy(x, other_device)}], "n": 3}
        save_file({"layers.0.weight": x + 1}, path)
        found = ds.load(path, into=nested)
        assert found["n"] == 3
        assert self.same_numbers(found["layers"][0]["weight"], x + 1)
        assert ds.device_of(found["layers"][0]["weight"]) is other_device
        ds.save({"layers": found["layers"]}, path)
        assert list(load_file(path)) == list(ds.leaves({"layers": found["layers"]})) == ["layers.0.weight"]
        flat = ds.load(path, other_device, into={"layers.0.weight": ds.from_numpy(x)})
        assert self.same_numbers(flat["layers.0.weight"], x + 1)
        with pytest.raises(ds.CheckpointError, match=r"lacks 'layers\.0\.bias'"):
            ds.load(path, into={"layers.0.weight": ds.from_numpy(x), "layers.0.bias": ds.from_numpy(x)})

    @feature("checkpoints")
    def test_code_in_an_object_is_not_saved(self, tmp_path: Path) -> None:
        """A function among the fields of a class keeps its value from `into`, and is None without it."""
        path = tmp_path / "t.safetensors"
        ds.save(Layer(ds.from_numpy(numbers()), [abs, len]), path)
        assert ds.load(path).functions == [None, None]
        back = ds.load(path, into=Layer(ds.from_numpy(numbers() + 1), [min, max]))
        assert back.functions == [min, max]
        assert self.same_numbers(back.weight, numbers())
        with pytest.raises(ds.ArgumentError, match=r"\['loss'\]"):
            ds.save({"x": ds.from_numpy(numbers()), "loss": abs}, path)

    @feature("checkpoints", "models")
    @hook("model", "optimizer")
    def test_training_continues_from_a_checkpoint(self, away: tuple[Device, Device], tmp_path: Path) -> None:
        """A model and optimizer that are loaded into new ones on another device continue training unchanged."""
        first = [ds.place(model := self.model(), away[0]), self.optimizer(model)]
        self.train_step(first[0], first[1], *self.data(away[0]), lambda: None)
        path = tmp_path / "run.safetensors"
        ds.save(first, path)
        second: list[Any] = [model := self.model(), self.optimizer(model)]
        ds.place(second, away[1])
        assert ds.load(path, away[1], into=second) is second
        self.check_on(second[0], away[1])
        for pair, device in ((first, away[0]), (second, away[1])):
            self.train_step(pair[0], pair[1], *self.data(device), lambda: None)
        self.check_same_training(self.weights(second[0]), self.weights(first[0]))

    def weights(self, model: Any) -> dict[str, Any]:
        """Return a model's parameters and buffers."""
        kept = {path: leaf for path, leaf in self.leaves_of(model).items() if leaf.kind in ("parameter", "buffer")}
        return {path: ds.to_numpy(leaf.read()) for path, leaf in kept.items()}

    @feature("checkpoints", "models")
    @hook("model")
    def test_a_bad_file_changes_nothing(self, device: Device, tmp_path: Path) -> None:
        """A truncated file, one with a flipped bit, and one that is not a checkpoint are refused.

        The model is unchanged.
        """
        model = ds.place(self.model(), device)
        before, path = self.weights(model), tmp_path / "m.safetensors"
        ds.save(model, path)
        content = path.read_bytes()
        for leaf in self.leaves_of(model).values():
            leaf.write(ds.full_like(leaf.read(), 3))
        changed = self.weights(model)
        flipped = bytearray(content)
        flipped[-3] ^= 4
        for bad in (content[:-1], content[: len(content) // 2], b"", bytes(flipped), b"\xff" * 100, content + b"x"):
            path.write_bytes(bad)
            with pytest.raises(ds.CheckpointError) as caught:
                ds.load(path, device, into=model)
            assert str(path) in caught.value.problem
            self.check_equal(self.weights(model), changed)
        path.write_bytes(content)
        assert ds.load(path, device, into=model) is model
        self.check_equal(self.weights(model), before)

    @feature("checkpoints")
    def test_save_replaces_the_file_atomically(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A save that fails leaves the old file, and no other file beside it."""
        path = tmp_path / "t.safetensors"
        ds.save([ds.from_numpy(numbers())], path)
        old = path.read_bytes()

        def refuse(*_: object) -> None:
            raise OSError("asked to")

        monkeypatch.setattr("os.replace", refuse)
        with pytest.raises(OSError, match="asked to"):
            ds.save([ds.from_numpy(numbers() + 1)], path)
        assert path.read_bytes() == old
        assert [each.name for each in tmp_path.iterdir()] == [path.name]

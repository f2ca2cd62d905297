"""Tests of refused allocations: they leave nothing on any device, even while the error and its traceback are alive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.behaviours.simulated_gpus import used_bytes
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.devices.device import Device


def _tree() -> dict[str, Any]:
    small = [ds.ones((128,), dtype="float32") for _ in range(5)]
    return {"a": small[0], "b": small[1:]}


def _counts() -> list[int | None]:
    return [ds.memory(each).used for each in ds.devices("gpu")]


def _both() -> list[ds.Device]:
    return ds.devices("gpu")[:2]


def _save(folder: Path) -> Path:
    ds.save(_tree(), folder / "tree.safetensors")
    return folder / "tree.safetensors"


CALLS: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {
    "place": (lambda _: _tree(), lambda tree: ds.place(tree, "gpu:0")),
    "copy": (lambda _: _tree(), lambda tree: ds.copy(tree, "gpu:0")),
    "copy there": (lambda _: ds.place(_tree(), "gpu:0"), lambda tree: ds.copy(tree, "gpu:0")),
    "broadcast": (lambda _: _tree(), lambda tree: ds.broadcast(tree, _both())),
    "split": (lambda _: [_tree()["b"]], lambda tree: ds.split(tree, _both())),
    "gather": (lambda _: [_tree(), _tree()], lambda trees: ds.gather([tree["b"] for tree in trees], "gpu:0")),
    "load": (_save, lambda path: ds.load(path, "gpu:0")),
    "convert": (lambda _: ds.ones((128,), dtype="float32"), lambda x: ds.convert(x, device="gpu:0")),
    "from_numpy": (lambda _: np.ones((128,), "float32"), lambda a: [ds.from_numpy(a, "gpu:0") for _ in range(3)]),
    "zeros": (lambda _: 128, lambda n: [ds.zeros(n, device="gpu:0") for _ in range(3)]),
}
"""Call -> its prepared argument, and the call itself."""
COLLECTIVE = {"split", "gather"}


class RefusedAllocationTests(Kit):
    """The traceback of an error keeps its frames alive, so these must not refer to tensors."""

    @feature("simulate_memory")
    @pytest.mark.parametrize("call", CALLS)
    def test_a_refused_tensor_leaves_no_memory_in_use(self, gpu: Device, call: str, tmp_path: Path) -> None:
        """If any allocation fails, nothing of the call is on a GPU inside ``except ds.OutOfMemoryError``."""
        if call in COLLECTIVE and "several" in self.adapter.gaps:
            return
        prepare, work = CALLS[call]
        given = prepare(tmp_path)
        assert self._failures(lambda: work(given)) >= 1

    @feature("simulate_memory", "models")
    @hook("model")
    def test_a_refused_model_leaves_no_memory_in_use(self, gpu: Device) -> None:
        """A model that does not fit leaves nothing on a GPU inside ``except ds.OutOfMemoryError``."""
        model = self.model()
        assert self._failures(lambda: ds.place(model, "gpu:0")) >= 1

    @feature("simulate_memory", "models")
    @hook("optimizer")
    def test_a_refused_optimizer_leaves_no_memory_in_use(self, gpu: Device) -> None:
        """A model and optimizer that do not fit leave nothing on a GPU inside ``except ds.OutOfMemoryError``."""
        model = self.model()
        optimizer = self.optimizer(model)
        assert self._failures(lambda: ds.place([model, optimizer], "gpu:0")) >= 1

    def _failures(self, work: Callable[[], Any]) -> int:
        """Make the first, second and third allocation of a call fail, and return how many of them the call made."""
        found = 0
        for at in (1, 2, 3):
            gpus, names = ds.device_count(), self.adapter.native_names
            with ds.simulate(gpus=gpus, native_names=names):  # which also empties TensorFlow's cache of constants
                before = [used_bytes(each) for each in ds.devices("gpu")]  # without garbage cycles of earlier tests
            faults = [ds.Fault(each, "allocation", at=at) for each in ds.devices("gpu")]
            with ds.simulate(gpus=gpus, faults=faults, native_names=names):
                try:
                    work()
                except ds.OutOfMemoryError:
                    if _counts() != before:  # reference cycles may not have been collected yet
                        assert [used_bytes(each) for each in ds.devices("gpu")] == before
                    found += 1
                else:
                    break  # the call has finished moving
        return found


__all__ = ["RefusedAllocationTests"]

"""Claims about models, optimizers and checkpoints, with the tour's small network in each framework's own API."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, differences, expect
from devshim.cli.chapters.networks import network_api

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CLAIMS"]

CLAIMS = Claims("models")

_STEPS = 4
_CLOSE = 1e-2
"""The relative difference allowed between CPU and GPU: GPUs round float32 products to TF32 in some frameworks."""


def _rows(count: int = 6) -> Any:
    return ds.asarray([[i + j / 4 - 3 for j in range(3)] for i in range(count)], dtype="float32")


def _weights(net: Any) -> list[np.ndarray[Any, Any]]:
    return [ds.to_numpy(weight) for weight in network_api().weights(net)]


def _expect_close(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        apart, most = abs(a - b).max(), abs(b).max()
        expect(apart <= _CLOSE * most, f"{what} is up to {apart} off, beside {most} at most on the CPU")


def _expect_equal(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        wrong = differences(a, b)
        expect(not wrong, f"{what}: {wrong}")


def _train(where: Sequence[Any], visits: Sequence[Any] = ()) -> list[np.ndarray[Any, Any]]:
    """Train one step on each device, and move to other devices and back after each step."""
    net = network_api().net()
    optimizer = network_api().optimizer(net)
    for device in where:
        net, optimizer = ds.place([net, optimizer], device)
        net, optimizer = network_api().learn(net, optimizer, ds.place(_rows(), device))
        for visited in visits:
            net, optimizer = ds.place([net, optimizer], visited)
            expect(ds.placement_of(net).devices == {ds.device(visited)}, f"not all of the model is on {visited}")
    return _weights(net)


@CLAIMS.add("A model on a GPU answers on that GPU, with the CPU's numbers.")
def forward(at: Setting) -> None:
    """Run the network on the CPU and on the last GPU."""
    wanted = ds.to_numpy(network_api().forward(network_api().net(), _rows()))
    net = ds.place(network_api().net(), at.last)
    found = network_api().forward(net, ds.place(_rows(), at.last))
    expect(ds.placement_of(net).devices == {at.last}, f"the model is on {ds.placement_of(net).devices}")
    expect(ds.device_of(found) is at.last, f"the answer is on {ds.device_of(found)}")
    _expect_close("the answer", [ds.to_numpy(found)], [wanted])


@CLAIMS.add(
    "A model and its optimizer that visit every GPU between steps end with the same bits as if they had stayed."
)
def visiting(at: Setting) -> None:
    """Train on the CPU; move to the GPUs and back between steps."""
    stayed = _train(["cpu"] * _STEPS)
    moved = _train(["cpu"] * _STEPS, [at.first, at.last, "cpu"])
    _expect_equal("a weight after visits", moved, stayed)


@CLAIMS.add("Training that moves between CPU and GPUs ends close to training on the CPU.")
def training(at: Setting) -> None:
    """Train one step on each device in turn."""
    wanted = _train(["cpu"] * _STEPS)
    found = _train([at.first, "cpu", at.last, at.first])
    _expect_close("a weight", found, wanted)


@CLAIMS.add("A model split over all GPUs by Placement.balanced answers as on one.", cards=2)
def split(at: Setting) -> None:
    """Apply a balanced plan."""
    wanted = ds.to_numpy(network_api().forward(network_api().net(), _rows()))
    net = network_api().net()
    plan = ds.Placement.balanced(net, ds.try_all_gpus()[:2])
    net = ds.place(net, plan)
    expect(len(ds.placement_of(net).devices) == 2, f"the model is on {ds.placement_of(net).devices}")
    found = ds.to_numpy(network_api().forward(net, ds.place(_rows(), at.first)))
    _expect_close("the answer", [found], [wanted])


@CLAIMS.add("A checkpoint saved from a GPU loads to the GPU, to the CPU and into a model, equal to the bit.")
def checkpoint(at: Setting) -> None:
    """Save and load a tree and a model."""
    with TemporaryDirectory(prefix="devshim-certify-") as folder:
        path = Path(folder) / "tree.safetensors"
        tree = {
            "a": ds.random.normal(size=(300, 30), device=at.last),
            "b": [ds.arange(5, dtype="int32", device=at.last)],
        }
        ds.save(tree, path)
        wanted = ds.to_numpy(tree["a"])
        for device in (at.first, at.last, ds.cpu()):
            back = ds.load(path, device)
            expect(ds.placement_of(back).devices == {device}, f"loaded to {ds.placement_of(back).devices}")
            _expect_equal(f"loaded to {device}", [ds.to_numpy(back["a"])], [wanted])
        net = ds.place(network_api().net(), at.first)
        ds.save(net, path)
        other = ds.load(path, at.last, into=network_api().net())
        expect(ds.placement_of(other).devices == {at.last}, "the model loaded is elsewhere")
        _expect_equal("a weight of the model loaded", _weights(other), _weights(net))

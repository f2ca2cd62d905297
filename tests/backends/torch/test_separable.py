"""Containers whose tensors cannot be cut, joined or summed separately; and those for which that is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils import _pytree

import devshim as ds

GPUS = ["gpu:0", "gpu:1"]

CALLS = {
    "split": lambda x: ds.split({"a": x}, GPUS),
    "gather": lambda x: ds.gather([x, x], "gpu:1"),
    "all_reduce_": lambda x: ds.all_reduce_([[ds.place(x, "gpu:0")], [ds.place(x, "gpu:1")]]),
}


class Shaped:
    """A container whose static data has the shape of its tensors."""

    def __init__(self, x: Any, shape: Any) -> None:
        self.x, self.shape = x, shape


_pytree.register_pytree_node(
    Shaped,
    lambda node: ([node.x], node.shape),
    lambda children, shape: Shaped(*children, shape),
    serialized_type_name="test_separable.Shaped",
)


@pytest.fixture(autouse=True)
def _cards(three_cards: object) -> None:
    pass


@pytest.mark.parametrize("call", CALLS)
def test_packed_sequences_are_refused(call: str) -> None:
    """Each batch size counts rows of the data."""
    packed = pack_sequence([torch.ones(4), torch.ones(2)])
    with pytest.raises(ds.UnsupportedError, match=rf"ds\.{call} cannot \w+ objects of the class PackedSequence"):
        CALLS[call](packed)
    assert packed.data.tolist() == [1] * 6
    moved = ds.place(packed, "gpu:1")
    assert ds.device_of(moved.data) is ds.gpu(1)


def test_a_class_whose_static_data_has_the_shape_is_only_summed() -> None:
    made = Shaped(torch.ones(4, 3), torch.Size([4]))
    for call in ("split", "gather"):
        with pytest.raises(ds.UnsupportedError, match=r"static data has the shape \(4,\), which would stay"):
            CALLS[call](made)
    first, _ = CALLS["all_reduce_"](made)
    assert first[0].x.tolist() == [[2] * 3] * 4
    assert [part.x.shape for part in ds.split(made, GPUS, axis=1)] == [(4, 2), (4, 1)]

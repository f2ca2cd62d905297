"""The plan of a save by ranks: a description of the tree, which all ranks share, and the tensors of each rank.

Requirements of this module:

* Every rank makes the same plan from the same tree, before any value is copied. A tensor that all ranks have is written
  by one of them, so that all write about as many bytes.
* A rank copies only the values that it writes.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints import file
from devshim.checkpoints.rows import bounds_of, even_bounds, require_tensor
from devshim.checkpoints.structure import strip_values
from devshim.checkpoints.writer import Writer, is_on_device
from devshim.devices.device import CPU
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import CheckpointError, ConversionError, DevshimError
from devshim.registry import registry
from devshim.tensors import arguments
from devshim.transfers import batch
from devshim.trees import key_paths
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from devshim.checkpoints.rows import Rows
    from devshim.contract.backend import Backend, Tensor
    from devshim.trees.key_paths import Cell

__all__ = ["SAME", "Plan", "require_equal_forms"]

SAME = "pass the same tree on all ranks; wrap a tensor of which each rank has some rows in ds.Rows"


class Plan(Writer):
    """The description of a tree, without values.

    Attributes:
        contents: The metadata, as for one file.
        counts: The rows that this rank has of each `Rows`, in the order of the tensors.
    """

    shares = False  # a rank reads its arrays twice: for the checksums, and to write them

    def __init__(self, obj: Any) -> None:
        super().__init__()
        self._pending: list[tuple[Hashable, Backend, Tensor, str]] = []
        self._cut: dict[int, int] = {}
        self.contents: dict[str, Any] = self.metadata_of(obj)
        self.counts: list[int] = list(self._cut.values())

    def _fetch(self, found: Iterable[tuple[Hashable, Backend, Tensor, str]]) -> None:
        """Copy nothing yet."""

    def _tensor(self, backend: Backend, x: Tensor, name: str, place: str, key: Hashable) -> int:
        if key not in self._known:
            try:
                if isinstance(x, np.ma.MaskedArray):
                    arguments.numpy_array(x)  # refuses a masked array
                found = backend.random_key(x)
                data = x if found is None else found[1]
                dtype, shape, device = backend.dtype_name(data), backend.shape(data), backend.device_of(x)
                if not file.is_known(dtype):
                    msg = f"a checkpoint file cannot store the dtype {dtype}"
                    raise ConversionError(msg, "cast it to 'float64' first")
            except DevshimError as error:
                if place:
                    error.add_leaf(place)
                raise
            self._known[key] = len(self._tensors)
            self._pending.append((key, backend, x, place))
            self._add(backend, x, self._free(name or "tensor"), dtype, shape, device)
        return self._known[key]

    def _rows(self, rows: Rows, cell: Cell, below: str) -> int:
        require_tensor(rows)
        backend = registry.backend_for(rows.part)
        assert backend is not None  # `require_tensor`
        path = key_paths.path_text(cell)
        number = self._tensor(backend, rows.part, path, brackets(cell), (id(rows.part), "rows"))
        self._cut[number] = self._tensors[number]["shape"][0]
        return number

    # ------------------------------------------------------------------ the same on all ranks
    @property
    def digest(self) -> str:
        """A text that is equal on two ranks if they save the same tree, apart from values and the numbers of rows."""
        structure = strip_values(self.contents["nodes"])
        return hashlib.sha256(json.dumps([self.forms(), structure]).encode()).hexdigest()

    def forms(self) -> list[list[Any]]:
        """Return the name, dtype, shape and generator of each tensor; the shape of rows is that of one row."""
        return [
            [
                entry["name"],
                entry["dtype"],
                entry["shape"][number in self._cut :],
                "rows" if number in self._cut else "",
                entry.get("key", ""),
            ]
            for number, entry in enumerate(self._tensors)
        ]

    def divide(self, counts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Complete the description by the rows of all ranks, and return the numbers of the tensors of each rank.

        Args:
            counts: For each rank, the rows that it has of each `Rows`.
        """
        size = len(counts)
        chosen: list[list[int]] = [[] for _ in range(size)]
        loads = [0] * size
        cuts: list[list[int]] = []
        for which, number in enumerate(self._cut):
            entry = self._tensors[number]
            bounds = bounds_of([each[which] for each in counts])
            row = _bytes(entry["dtype"], entry["shape"][1:])
            entry["shape"] = [bounds[-1], *entry["shape"][1:]]
            entry["cut"] = None
            if bounds != even_bounds(bounds[-1], size):
                if bounds not in cuts:
                    cuts.append(bounds)
                entry["cut"] = cuts.index(bounds)
            for rank in range(size):
                chosen[rank].append(number)
                loads[rank] += row * (bounds[rank + 1] - bounds[rank])
        whole = [number for number in range(len(self._tensors)) if number not in self._cut]
        sizes = {number: _bytes(self._tensors[number]["dtype"], self._tensors[number]["shape"]) for number in whole}
        for number in sorted(whole, key=lambda each: -sizes[each]):
            rank = min(range(size), key=loads.__getitem__)
            self._tensors[number]["part"] = rank
            loads[rank] += sizes[number]
            chosen[rank].append(number)
        self.contents["cuts"] = cuts
        return chosen

    # ------------------------------------------------------------------ the values of this rank
    def copy(self, chosen: Sequence[int]) -> dict[str, np.ndarray]:
        """Copy some tensors to the host, and return them by name, in the form that they have in a file."""
        pending = batch.TransferBatch(str)
        for number in chosen:
            key, backend, x, place = self._pending[number]
            if is_on_device(backend, x):
                pending.add(key, backend, backend.detach(x), CPU, place)
        self._arrived.update(pending.copy())
        made = {}
        for number in chosen:
            key, backend, x, place = self._pending[number]
            entry = self._tensors[number]
            try:
                array = self._host_array(backend, x, key)
            except DevshimError as error:
                if place:
                    error.add_leaf(place)
                raise
            first = len(array) if number in self._cut else None
            expected = entry["shape"] if first is None else [first, *entry["shape"][1:]]
            if (array.dtype.name, list(array.shape)) != (entry["dtype"], expected):
                msg = f"{entry['name']!r} is {entry['dtype']}, and NumPy has it as {array.dtype} {array.shape}"
                raise ConversionError(msg, "convert it to a dtype that NumPy has")
            made[entry["name"]] = file.to_stored_form(array)
        return made


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * numpy_dtype(dtype).itemsize


def require_equal_forms(mine: Sequence[Any], first: Sequence[Any], who: str) -> None:
    """Raise CheckpointError for the first tensor in which the plan of a rank differs from that of rank 0."""
    for ours, theirs in zip([*mine, None], [*first, None], strict=False):
        if ours != theirs:
            msg = f"the ranks do not save the same tree: {who} has {_words(ours)}, and rank 0 has {_words(theirs)}"
            raise CheckpointError(msg, SAME)


def _words(form: Any) -> str:
    if form is None:
        return "no further tensor"
    name, dtype, shape, rows, _ = form
    return f"{name!r}, {dtype} {'with rows of' if rows else 'of'} shape {tuple(shape)}"

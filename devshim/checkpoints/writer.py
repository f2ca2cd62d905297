"""The metadata of a checkpoint, and the values of its tensors in host memory.

The metadata is JSON: ``tensors`` (name, dtype, shape, checksum, device, framework), ``nodes`` (the structure,
`devshim.checkpoints.structure`; for a model, its leaves, layers and extra state), and the versions of the software.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints import file
from devshim.checkpoints.matching import KEPT
from devshim.checkpoints.rows import Rows
from devshim.checkpoints.structure import encode_tree
from devshim.contract.blocks import join_path
from devshim.devices.device import CPU
from devshim.errors import ArgumentError, ConversionError, CopyNeededError, DevshimError
from devshim.errors.formatting import type_name
from devshim.registry import registry
from devshim.registry.versions import version_of
from devshim.tensors import arguments
from devshim.transfers import batch, engine
from devshim.transfers.sources import source_of
from devshim.trees import key_paths
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.contract.models import Layer
    from devshim.devices.device import Device
    from devshim.trees.key_paths import Cell

__all__ = ["VERSION", "Writer", "is_on_device"]

VERSION = 1
"""The version of the metadata; a reader refuses files with another version."""


class Writer:
    """A checkpoint under construction.

    Attributes:
        shares: True if arrays may be the tensors' own memory, because each is read once, when it is written.
        arrays: Name -> values in the form that they have in the file.
    """

    shares: bool = True

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: set[str] = set()
        self._tensors: list[dict[str, Any]] = []
        self._known: dict[Hashable, int] = {}
        self._frameworks: dict[str, str | None] = {}
        self._arrived: dict[Hashable, Tensor] = {}

    def metadata_of(self, obj: Any) -> dict[str, Any]:
        """Bring all values to the host, and return the metadata of the file, without the checksums."""
        from devshim._version import __version__

        nodes = self._nodes(obj, "")
        return {
            "version": VERSION,
            "devshim": __version__,
            "frameworks": self._frameworks,
            "tensors": self._tensors,
            "nodes": nodes,
        }

    def _nodes(self, tree: Any, below: str) -> list[Any]:
        """Return the table of a tree whose tensors' names start with a prefix."""
        flat = flatten(tree)  # raises for a cycle
        done = [(node, found) for *_, node, found in flat.containers if not isinstance(node, Rows)]
        self._fetch(((id(x), "tree"), backend, x, brackets(cell)) for _, cell, x, backend in flat.leaves)
        cells: dict[int, Cell] = {id(tree): (None, None)}
        for node, (keys, children, _) in reversed(done):  # containers come after their children
            for key, child in zip(keys, children, strict=True):
                cells.setdefault(id(child), (cells[id(node)], key))
        owners = {id(obj): backend for *_, obj, backend in flat.models}

        def refer(value: Any) -> list[Any] | None:
            if isinstance(value, Rows):
                return ["rows", self._rows(value, cells[id(value)], below)]
            backend = registry.backend_for(value)
            if backend is not None:
                cell = cells[id(value)]
                name = join_path(below, key_paths.path_text(cell))
                return ["tensor", self._tensor(backend, value, name, brackets(cell), (id(value), "tree"))]
            if id(value) in owners:
                return ["whole", self._object(owners[id(value)], value, cells[id(value)])]
            return None

        return encode_tree(tree, done, cells, refer)

    def _rows(self, rows: Rows, cell: Cell, below: str) -> int:
        """Return the index of a tensor of which this process has some rows."""
        where = brackets(cell)
        msg = f"{where or 'this'} is a ds.Rows: one rank's rows of a tensor, which a single file cannot store"
        raise ArgumentError(msg, "ds.save(tree, path, world=ds.world()) lets all ranks save together")

    def _object(self, backend: Backend, obj: Any, cell: Cell) -> dict[str, Any]:
        """Return the description of a model or optimizer."""
        prefix = key_paths.path_text(cell)
        leaves = [leaf for leaf in backend.leaves(obj) if leaf.kind in KEPT]
        name_some = []
        names = [join_path(prefix, leaf.path) for leaf in leaves]
        self._fetch(
            ((id(leaf.owner), leaf.kind), backend, leaf.read(), name) for leaf, name in zip(leaves, names, strict=True)
        )
        for leaf, name in zip(leaves, names, strict=True):
            key = (id(leaf.owner), leaf.kind)  # tied parameters are saved once
            name_some.append([leaf.path, leaf.kind, self._tensor(backend, leaf.read(), name, name, key)])
        is_model = any(leaf.kind == "parameter" for leaf in leaves)
        extra_state = backend.get_extra_state(obj)
        return {
            "framework": backend.name,
            "title": backend.title,
            "library": backend.library(obj),
            "class": type_name(obj),
            "leaves": name_some,
            "layers": [_layer(layer) for layer in backend.layers(obj) if layer.weights] if is_model else [],
            "facts": None if extra_state is None else self._nodes(extra_state, join_path(prefix, "facts")),
        }

    def _fetch(self, found: Iterable[tuple[Hashable, Backend, Tensor, str]]) -> None:
        """Copy tensors on devices to the host, those of one framework in one call.

        Args:
            found: The tensors: key, framework, tensor, and its name for errors.
        """
        pending = batch.TransferBatch(str)
        for key, backend, x, place in found:
            if key not in self._known and is_on_device(backend, x):
                pending.add(key, backend, backend.detach(x), CPU, place)
        self._arrived.update(pending.copy())

    def _values(self, backend: Backend, x: Tensor, key: Hashable) -> np.ndarray:
        """Return a tensor's values in host memory: its own, if NumPy can see it and this writer reads it only once."""
        arrived = self._arrived.pop(key, None)
        found = backend.random_key(x if arrived is None else arrived)
        if found is not None:
            return backend.to_numpy(found[1], copy=True)
        if arrived is None:
            if self.shares:
                with suppress(CopyNeededError):
                    return engine.to_host(backend, x, copy=False)
            return engine.to_host(backend, x, copy=True)
        try:
            return backend.to_numpy(arrived, copy=False)  # the copy was made above
        except CopyNeededError:
            return backend.to_numpy(arrived, copy=True)

    def _tensor(self, backend: Backend, x: Tensor, name: str, place: str, key: Hashable) -> int:
        """Return the index of a tensor in the file; copy it to the host the first time."""
        if key not in self._known:
            try:
                device = source_of(backend, x)
                array = self._host_array(backend, x, key)
                stored = file.to_stored_form(array)
            except DevshimError as error:
                if place:
                    error.add_leaf(place)
                raise
            name = self._free(name or "tensor")
            self._known[key] = len(self._tensors)
            self.arrays[name] = stored
            self._add(backend, x, name, array.dtype.name, array.shape, device)["crc32"] = None  # `write` finds it
        return self._known[key]

    def _host_array(self, backend: Backend, x: Tensor, key: Hashable) -> np.ndarray:
        """Return a tensor's values in host memory, after checking that a file can store them."""
        if isinstance(x, np.ma.MaskedArray):
            arguments.numpy_array(x)  # refuses a masked array: a copy would lose the mask
        array = arguments.numpy_array(self._values(backend, x, key))
        if not file.is_known(array.dtype.name):
            msg = f"a checkpoint file cannot store the dtype {array.dtype}"
            raise ConversionError(msg, "cast it to 'float64' first")
        return array

    def _add(
        self, backend: Backend, x: Tensor, name: str, dtype: str, shape: Sequence[int], device: Device
    ) -> dict[str, Any]:
        """Describe one more tensor, and return its description."""
        if backend.name not in self._frameworks:
            self._frameworks[backend.name] = version_of(backend.name)
        entry = {
            "name": name,
            "dtype": dtype,
            "shape": list(shape),
            "device": str(device),
            "framework": backend.name,
        }
        random_key = backend.random_key(x)
        if random_key is not None:
            entry["key"] = random_key[0]
        self._tensors.append(entry)
        return entry

    def _free(self, name: str) -> str:
        """Return an unused name: two different paths may have the same text (``{"a": {"b": x}, "a.b": y}``)."""
        name = name.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be written
        free, number = name, 1
        while free in self._names or free == "__metadata__":
            number += 1
            free = f"{name}#{number}"
        self._names.add(free)
        return free


def is_on_device(backend: Backend, x: Tensor) -> bool:
    """Return True if a tensor is on one device other than the host; other tensors are read, or refused, one by one."""
    try:
        return not backend.is_tracer(x) and backend.device_of(x) is not CPU
    except DevshimError:
        return False


def _layer(layer: Layer) -> dict[str, Any]:
    weights = {}
    for role, weight in layer.weights.items():
        metadata = {name: value for name, value in vars(weight).items() if value}
        path, axes = metadata.pop("path"), metadata.pop("axes", None)
        weights[role] = [path, axes, metadata] if metadata else [path, axes]
    for name, value in layer.settings.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        if not all(isinstance(part, (bool, int, float, str, type(None))) for part in parts):
            msg = f"the setting {name!r} of the layer {layer.path!r} is not a plain value"
            raise ArgumentError(msg, "this is a bug of the adapter: please report it")
    return {"kind": layer.kind, "path": layer.path, "weights": weights, "facts": dict(layer.settings)}

"""Parse and validate checkpoint metadata: nothing in the file is trusted, and every entry is checked before use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.checkpoints.file import CODES, damaged_error, is_known
from devshim.checkpoints.layouts import require_sound
from devshim.checkpoints.stored import CODE, StoredObject, StoredTensor
from devshim.checkpoints.structure import decode_tree
from devshim.checkpoints.writer import VERSION
from devshim.contract.models import Weight
from devshim.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devshim.checkpoints.file import OpenFile
    from devshim.checkpoints.ranks_read import Folder
    from devshim.trees.key_paths import Cell

__all__ = ["Contents", "extra_state_of"]

_DTYPES = {code: dtype for dtype, code in CODES.items()}
_DTYPES["C64"] = "complex64"
"""The dtypes that the library returns as NumPy arrays from other programs' files; no 8-bit floats (safetensors 0.8)."""


class Contents:
    """The tree of a file.

    Attributes:
        tree: The tree, with a `StoredTensor` or `StoredObject` for each tensor, model and optimizer.
        found: These, each with its first position in the tree.
    """

    def __init__(self, file: OpenFile | Folder) -> None:
        self._file = file
        self._metadata = file.metadata
        self.found: list[tuple[Any, Cell]]
        self.tree: Any
        if file.metadata is None:
            self.tree = {name: _read_foreign(file, name) for name in file.forms}
            self.found = [(tensor, ((None, None), name)) for name, tensor in self.tree.items()]
            return
        try:
            self._tensors = _tensors(file)
            self._objects: dict[int, StoredObject] = {}
            self.tree, found = decode_tree(file.metadata.get("nodes"), self._refer)
            self.found = [(thing, cell) for thing, cell in found if thing is not CODE]
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise damaged_error(file.path, f"its description of its contents is invalid: {error}") from error

    def _refer(self, node: list[Any]) -> Any:
        kind, what = node
        if kind == "code":
            return CODE
        if kind in ("tensor", "rows"):
            return _tensor_at(self._tensors, what, kind == "rows")
        if kind != "whole":
            raise ValueError("its kind is unknown")
        if id(node) not in self._objects:
            self._objects[id(node)] = _object(what, self._tensors)
        return self._objects[id(node)]

    def build(self, made: Mapping[int, Any]) -> Any:
        """Return the tree with each stored object replaced by the object of its id in ``made``, and code by None."""
        if self._metadata is None:
            return {name: made[id(tensor)] for name, tensor in self.tree.items()}
        made = {**made, id(CODE): None}
        return decode_tree(self._metadata["nodes"], lambda node: made[id(self._refer(node))])[0]


def extra_state_of(file: OpenFile | Folder, stored: StoredObject, read: Callable[[StoredTensor], Any]) -> Any:
    """Return the extra state of a model or optimizer in the checkpoint, besides its leaves, or None."""
    if stored.extra_state is None:
        return None
    tensors = _tensors(file)
    try:
        return decode_tree(stored.extra_state, lambda node: read(_tensor_at(tensors, node[1])))[0]
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        raise damaged_error(file.path, f"its description of a {stored.cls} is invalid: {error}") from error


def _tensors(file: OpenFile | Folder) -> list[StoredTensor]:
    """Return the file's descriptions of its tensors, after checking that the names are those of its header."""
    metadata = file.metadata
    if metadata.get("version") != VERSION:
        msg = f"the file is of version {metadata.get('version')!r}, and this devshim reads version {VERSION}"
        raise CheckpointError(msg, "install the devshim that wrote it, or a newer one")
    found = []
    for entry in metadata["tensors"]:
        name, dtype, shape, crc32 = entry["name"], entry["dtype"], entry["shape"], entry.get("crc32")
        texts = isinstance(name, str) and isinstance(dtype, str)
        if not texts or not isinstance(shape, list) or type(crc32) is not (type(None) if file.is_folder else int):
            msg = "the description of a tensor is malformed"
            raise ValueError(msg)
        if not is_known(dtype) or not all(type(size) is int and size >= 0 for size in shape):
            msg = "a tensor has an invalid dtype or shape"
            raise ValueError(msg)
        key = entry.get("key", "")
        if not isinstance(key, str) or (key and not shape):
            msg = "a random key has an invalid form"
            raise ValueError(msg)
        found.append(StoredTensor(name, dtype, tuple(shape), crc32, key, file.is_folder and "cut" in entry))
    if sorted(tensor.name for tensor in found) != sorted(file.forms):
        msg = "its tensors are not those that it describes"
        raise ValueError(msg)
    return found


def _tensor_at(tensors: list[StoredTensor], number: Any, is_cut: bool = False) -> StoredTensor:
    if type(number) is not int or not 0 <= number < len(tensors):
        msg = "a description refers to a missing tensor"
        raise ValueError(msg)
    if tensors[number].is_cut != is_cut:
        msg = "a description has rows where a whole tensor belongs, or the reverse"
        raise ValueError(msg)
    return tensors[number]


def _object(metadata: Mapping[str, Any], tensors: list[StoredTensor]) -> StoredObject:
    """Return a model or optimizer as the file describes it."""
    framework, title, cls = metadata["framework"], metadata["title"], metadata["class"]
    library = metadata.get("library", framework)  # files from before Keras was portable between frameworks lack it
    texts = framework, title, cls, library
    leaves = {path: (kind, _tensor_at(tensors, number)) for path, kind, number in metadata["leaves"]}
    if not all(isinstance(text, str) for text in [*texts, *leaves, *(kind for kind, _ in leaves.values())]):
        msg = "the description of a model is malformed"
        raise ValueError(msg)
    if len(leaves) != len(metadata["leaves"]):
        msg = "two leaves of a model have the same name"
        raise ValueError(msg)
    layers = []
    for layer in metadata["layers"]:
        if not (isinstance(layer["kind"], str) and isinstance(layer["path"], str) and isinstance(layer["facts"], dict)):
            msg = "the description of a layer is malformed"
            raise ValueError(msg)
        weights = {role: _weight(weight, leaves) for role, weight in layer["weights"].items()}
        layers.append({**layer, "weights": weights})
    return StoredObject(framework, title, cls, leaves, layers, metadata["facts"], library)


def _weight(description: Sequence[Any], leaves: Mapping[str, tuple[str, StoredTensor]]) -> Weight:
    """Return a weight as the file describes it: its path, its axes, and the rest of its layout."""
    path, axes, *rest = description
    more = rest[0] if rest else {}
    weight = Weight(
        path,
        _numbers(axes),
        None if more.get("folded") is None else tuple(_numbers(sizes) or () for sizes in more["folded"]),
        _numbers(more.get("order")),
        _numbers(more.get("part")),  # type: ignore[arg-type]  # two numbers, or `require_sound` refuses it
        str(more.get("unclear", "")),
    )
    require_sound(weight, leaves[path][1].shape)
    return weight


def _numbers(description: Any) -> tuple[int, ...] | None:
    if description is None:
        return None
    if not isinstance(description, list) or not all(type(number) is int for number in description):
        msg = "the layout of a weight is malformed"
        raise ValueError(msg)
    return tuple(description)


def _read_foreign(file: OpenFile | Folder, name: str) -> StoredTensor:
    """Return a tensor of a file that devshim did not write."""
    code, shape = file.forms[name]
    if code not in _DTYPES:
        raise damaged_error(file.path, f"the tensor {name[:40]!r} is {code}, which the library cannot give to NumPy")
    return StoredTensor(name, _DTYPES[code], shape, None)

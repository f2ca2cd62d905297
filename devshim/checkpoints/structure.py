"""The structure of a saved tree, as JSON: a flat table of nodes, each made of earlier nodes.

Requirements of this module:

* Nothing in a file is ever run, imported, or looked up by its name: the result consists of plain Python containers.
  A named tuple or dataclass comes back with its name and fields, in a class made for it; to get the real class, load
  `into` an instance.
* A table cannot nest, contain itself, or grow when it is read: reading a hostile file costs no more than its length.
* The order, the types of keys and numbers, and containers that occur twice are preserved.
"""

from __future__ import annotations

import collections
import dataclasses
import keyword
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices import parsing
from devshim.devices.device import Device
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ArgumentError, DevshimError
from devshim.errors.formatting import type_name
from devshim.trees.key_paths import brackets
from devshim.trees.not_moved import is_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.trees.key_paths import Cell

__all__ = ["decode_tree", "encode_tree", "strip_values"]


# ---------------------------------------------------------------------- writing
def encode_tree(
    tree: Any, done: list[tuple[Any, Any]], cells: dict[int, Cell], refer: Callable[[Any], Any]
) -> list[Any]:
    """Return the table of a tree; its last node is the tree.

    Args:
        tree: Any object.
        done: Its containers, each after those in it (`devshim.trees.flatten`).
        cells: The position of each container, by its id, for messages.
        refer: Returns the node of a tensor, model or optimizer, and None for anything else.

    Raises:
        ArgumentError: It contains an object that cannot be stored in a form that is read without running code.
    """
    table: list[Any] = []
    known: dict[int, int] = {}

    def add(node: list[Any]) -> int:
        table.append(node)
        return len(table) - 1

    def child(value: Any, container: Any, key: Any) -> int:
        if id(value) not in known:
            node = refer(value)
            if node is None:
                return add(_plain(value, cells.get(id(container)), key))
            known[id(value)] = add(node)
        return known[id(value)]

    def child_of_class(value: Any, container: Any, key: Any) -> int:
        if id(value) not in known and is_code(value):
            return add(["code", type_name(value)])
        return child(value, container, key)

    def add_key(key: Any, cell: Cell | None) -> int:
        if type(key) is tuple:
            return add(["tuple", [add_key(each, cell) for each in key]])
        return add(_key(key, cell))

    programs = _of_classes(done)
    for node, (keys, children, _) in done:
        refer_to = child_of_class if id(node) in programs else child
        refs = [refer_to(value, node, key) for key, value in zip(keys, children, strict=True)]
        kind, more = _kind(node, keys)
        if kind in ("dict", "ordered", "registered"):
            more = [*more, [add_key(key, cells.get(id(node))) for key in keys]]
        known[id(node)] = add([kind, refs, *more])
    if not done or done[-1][0] is not tree:
        child(tree, None, None)
    return table


def strip_values(table: list[Any]) -> list[Any]:
    """Return the structure that a table describes: its containers, keys and tensors, without the plain values."""
    keys = {ref for kind, *rest in table if kind in _WITH_KEYS for ref in rest[-1]}
    return [
        node if number in keys or node[0] in _CONTAINERS else node[:2] if node[0] in ("tensor", "rows") else None
        for number, node in enumerate(table)
    ]


def _of_classes(done: list[tuple[Any, Any]]) -> set[int]:
    """Return the ids of the containers that are instances of classes, or in one: code in these is not data."""
    found: set[int] = set()
    for node, (keys, children, _) in reversed(done):  # containers come after their children
        if id(node) in found or _kind(node, keys)[0] in ("data", "registered"):
            found.add(id(node))
            found.update(map(id, children))
    return found


def _kind(node: Any, keys: list[Any]) -> tuple[str, list[Any]]:
    """Return the kind of a container in the table, and what is stored of it besides its children."""
    cls = type(node)
    if isinstance(node, dict):
        return ("ordered" if isinstance(node, collections.OrderedDict) else "dict"), []
    if isinstance(node, (list, collections.UserList)):
        return "list", []
    if isinstance(node, Mapping) and not hasattr(node, "maps"):
        return "dict", []
    fields = getattr(cls, "_fields", None) if isinstance(node, tuple) and hasattr(cls, "_make") else None
    if fields is not None:
        return ("named", [cls.__name__, keys]) if list(fields) == keys else ("registered", [type_name(node)])
    if isinstance(node, tuple):
        return "tuple", []
    if dataclasses.is_dataclass(node) and set(keys) <= {field.name for field in dataclasses.fields(node)}:
        return "data", [cls.__name__, list(keys)]  # a registered dataclass may leave fields out
    return "registered", [type_name(node)]


def _plain(value: Any, cell: Cell | None, key: Any) -> list[Any]:
    """Return the node of a value that is not a container or a tensor."""
    cls = type(value)
    if value is None or cls in (bool, str):
        return ["value", value]
    if cls is int:
        return ["value", value] if -(2**63) <= value < 2**63 else ["int", hex(value)]
    if cls is float:
        return ["float", value.hex()]
    if cls is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if cls is bytes:
        return ["bytes", value.hex()]
    if cls is Device:
        return ["device", str(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return ["number", value.dtype.name, value.astype(value.dtype.newbyteorder("<")).tobytes().hex()]
    where = brackets((cell, key)) if cell is not None else ""
    msg = f"ds.save stores tensors, numbers, text and None, but {where or 'this'} is of type {type_name(value)}"
    raise ArgumentError(msg, "leave it out, or save its parts in a dict or list")


def _key(key: Any, cell: Cell | None) -> list[Any]:
    try:
        return _plain(key, None, None)
    except ArgumentError as error:
        where = brackets(cell) if cell is not None else ""
        msg = (
            f"ds.save stores keys that are text, numbers, or tuples of them, but {where or 'the tree'} has one of type "
            f"{type_name(key)}"
        )
        raise ArgumentError(msg, "use text as keys") from error


# ---------------------------------------------------------------------- reading
def decode_tree(table: Any, refer: Callable[[list[Any]], Any]) -> tuple[Any, list[tuple[Any, Cell]]]:
    """Return the tree of a table, and each object that ``refer`` made with its first position in the tree.

    Args:
        table: Any JSON value.
        refer: Returns the object for a node of a kind that this module does not know; raises ValueError.

    Raises:
        ValueError: It is not a valid table.
    """
    if not isinstance(table, list) or not table:
        raise ValueError("its table of nodes is empty")
    made: list[Any] = []
    referred: list[int] = []
    for node in table:
        if not isinstance(node, list) or not node or not isinstance(node[0], str):
            raise ValueError("a node has no kind")
        try:
            if node[0] not in _KINDS:
                referred.append(len(made))
                made.append(refer(node))
            else:
                made.append(_build_node(node, made))
        except (TypeError, IndexError, OverflowError, KeyError, DevshimError) as error:
            msg = f"a node of kind {node[0][:20]!r} is invalid: {error}"
            raise ValueError(msg) from error
    cells = _cells(table, made)
    return made[-1], [(made[i], cells[i]) for i in referred if i in cells]


def _cells(table: list[Any], made: list[Any]) -> dict[int, Cell]:
    """Return the first position of each node; containers come after their children, so start from the end."""
    cells: dict[int, Cell] = {len(table) - 1: (None, None)}
    for i in range(len(table) - 1, -1, -1):
        kind, *rest = table[i]
        if i not in cells or kind not in _CONTAINERS:
            continue
        keys: Any = range(len(rest[0]))
        if kind in _WITH_KEYS:
            keys = [made[each] for each in rest[-1]]
        elif kind in ("named", "data"):
            keys = rest[2]
        for key, ref in zip(keys, rest[0], strict=True):
            cells.setdefault(ref, (cells[i], key))
    return cells


def _build_node(node: list[Any], made: list[Any]) -> Any:
    kind, *rest = node
    if kind in _VALUES:
        return _VALUES[kind](*rest)
    children = [made[each] for each in _indices(rest[0], len(made))]
    if kind in _WITH_KEYS:
        keys = [made[each] for each in _indices(rest[-1], len(made))]
        found = dict(zip(keys, children, strict=True))
        if len(found) != len(keys) or not all(type(key) in _KEYS or isinstance(key, np.generic) for key in keys):
            msg = "a key occurs twice, or is invalid"
            raise ValueError(msg)
        return collections.OrderedDict(found) if kind == "ordered" else found
    if kind in ("list", "tuple"):
        return children if kind == "list" else tuple(children)
    (name,), fields = _names([rest[1]]), _names(rest[2])
    if len(fields) != len(children):
        msg = "the numbers of fields and values differ"
        raise ValueError(msg)
    if kind == "named":
        return collections.namedtuple(name, fields)(*children)
    return dataclasses.make_dataclass(name, [(field, object) for field in fields], eq=False)(*children)


def _names(names: Any) -> list[str]:
    """Return the names, after checking that each is a plain identifier."""
    for each in names:
        if not isinstance(each, str) or not each.isidentifier() or keyword.iskeyword(each) or len(each) > 200:
            raise ValueError("a field name is invalid")
    return list(names)


def _indices(refs: Any, count: int) -> list[int]:
    """Return the indices, after checking that each refers to an earlier node."""
    if not isinstance(refs, list) or not all(type(each) is int and 0 <= each < count for each in refs):
        msg = "a node does not refer to an earlier node"
        raise ValueError(msg)
    return refs


def _value(value: Any) -> Any:
    if value is not None and type(value) not in (bool, str, int):
        raise ValueError("a value is invalid")
    return value


def _number(dtype: str, text: str) -> Any:
    (value,) = np.frombuffer(bytes.fromhex(text), numpy_dtype(dtype).newbyteorder("<"))
    return value.astype(numpy_dtype(dtype))


_VALUES: dict[str, Callable[..., Any]] = {
    "value": _value,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
    "device": parsing.device,
    "number": _number,
}
_WITH_KEYS = frozenset({"dict", "ordered", "registered"})
_CONTAINERS = _WITH_KEYS | {"list", "tuple", "named", "data"}
_KINDS = _CONTAINERS | set(_VALUES)
_KEYS = frozenset({bool, int, float, complex, str, bytes, type(None), tuple, Device})

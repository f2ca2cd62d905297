"""The structure of what is saved, as JSON: a flat table of nodes, each made of nodes before it.

Requirements this module answers:

* Nothing of a file is ever run, imported, or looked up by its name: what comes back is made of Python's own containers.
  A named tuple or dataclass comes back with its name and fields in a class made for it; the real class is whoever
  loads `into` an instance.
* A table cannot nest, contain itself, or grow when it is read: what a hostile file says costs what the file is long.
* Order, the types of keys and numbers, and containers that stand in two places are kept.
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.trees.key_paths import Cell

__all__ = ["decoded", "encoded"]


# ---------------------------------------------------------------------- writing
def encoded(tree: Any, done: list[tuple[Any, Any]], cells: dict[int, Cell], refer: Callable[[Any], Any]) -> list[Any]:
    """Return the table of a tree; its last node is the tree.

    Args:
        tree: Anything.
        done: Its containers, each after those in it (`devshim.trees.trees.scan`).
        cells: Where each container stands, by its id, for messages.
        refer: Returns the node of a tensor, model or optimizer, and None for anything else.

    Raises:
        ArgumentError: Something in it can be written down in no way that could be read without running code.
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

    def add_key(key: Any, cell: Cell | None) -> int:
        if type(key) is tuple:
            return add(["tuple", [add_key(each, cell) for each in key]])
        return add(_key(key, cell))

    for node, (keys, children, _) in done:
        refs = [child(value, node, key) for key, value in zip(keys, children, strict=True)]
        kind, more = _kind(node, keys)
        if kind in ("dict", "ordered", "registered"):
            more = [*more, [add_key(key, cells.get(id(node))) for key in keys]]
        known[id(node)] = add([kind, refs, *more])
    if not done or done[-1][0] is not tree:
        child(tree, None, None)
    return table


def _kind(node: Any, keys: list[Any]) -> tuple[str, list[Any]]:
    """What a container is called in the table, and what is kept of it besides its children."""
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
        return "data", [cls.__name__, list(keys)]  # a registered one may leave fields out
    return "registered", [type_name(node)]


def _plain(value: Any, cell: Cell | None, key: Any) -> list[Any]:
    """The node of a value that is neither container nor tensor."""
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
    raise ArgumentError(
        f"ds.save keeps tensors, numbers, text and None, and {where or 'this'} is of type {type_name(value)}",
        "leave it out, or save its parts in a dict or list",
    )


def _key(key: Any, cell: Cell | None) -> list[Any]:
    try:
        return _plain(key, None, None)
    except ArgumentError as error:
        where = brackets(cell) if cell is not None else ""
        raise ArgumentError(
            f"ds.save keeps keys that are text, numbers, or tuples of them, and {where or 'the tree'} has one of type "
            f"{type_name(key)}",
            "use text as keys",
        ) from error


# ---------------------------------------------------------------------- reading
def decoded(table: Any, refer: Callable[[list[Any]], Any]) -> tuple[Any, list[tuple[Any, Cell]]]:
    """Return the tree of a table, and with each thing that ``refer`` made where it stands in the tree first.

    Args:
        table: Anything that JSON can be.
        refer: Returns what a node of another kind than this module's stands for; raises ValueError.

    Raises:
        ValueError: It is no table.
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
                made.append(_made(node, made))
        except (TypeError, IndexError, OverflowError, KeyError, DevshimError) as error:
            raise ValueError(f"a node of kind {node[0][:20]!r} makes no sense: {error}") from error
    cells = _cells(table, made)
    return made[-1], [(made[i], cells[i]) for i in referred if i in cells]


def _cells(table: list[Any], made: list[Any]) -> dict[int, Cell]:
    """Where each node stands first; containers come after what is in them, so from the end on each is known."""
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


def _made(node: list[Any], made: list[Any]) -> Any:
    kind, *rest = node
    if kind in _VALUES:
        return _VALUES[kind](*rest)
    children = [made[each] for each in _indices(rest[0], len(made))]
    if kind in _WITH_KEYS:
        keys = [made[each] for each in _indices(rest[-1], len(made))]
        found = dict(zip(keys, children, strict=True))
        if len(found) != len(keys) or not all(type(key) in _KEYS or isinstance(key, np.generic) for key in keys):
            raise ValueError("a key stands twice, or is none")
        return collections.OrderedDict(found) if kind == "ordered" else found
    if kind in ("list", "tuple"):
        return children if kind == "list" else tuple(children)
    (name,), fields = _names([rest[1]]), _names(rest[2])
    if len(fields) != len(children):
        raise ValueError("there are not as many fields as values")
    if kind == "named":
        return collections.namedtuple(name, fields)(*children)
    return dataclasses.make_dataclass(name, [(field, object) for field in fields], eq=False)(*children)


def _names(names: Any) -> list[str]:
    """Names that are nothing but names."""
    for each in names:
        if not isinstance(each, str) or not each.isidentifier() or keyword.iskeyword(each) or len(each) > 200:
            raise ValueError("a name is none")
    return list(names)


def _indices(refs: Any, count: int) -> list[int]:
    """Numbers of nodes that stand before."""
    if not isinstance(refs, list) or not all(type(each) is int and 0 <= each < count for each in refs):
        raise ValueError("a node refers to none before it")
    return refs


def _value(value: Any) -> Any:
    if value is not None and type(value) not in (bool, str, int):
        raise ValueError("a value is none")
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

"""Objects without movable tensors: an error for an object by itself, a warning for one inside a tree.

Requirements of this module:

* No tensor stays behind silently. A number, a loader or another object given to `place` raises `NotATensorError`, with
  the line to write instead. An object of an unknown class that holds tensors, inside a tree, causes one warning per
  type.
* Only attributes are inspected, and members of lists, tuples and dicts, down to the attributes of an attribute's
  attributes: a graph of PyTorch Geometric keeps its tensors there. No code of the objects runs, so no property and no
  iterator; except that of pandas, whose columns of objects are in memory that only pandas reads.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
import weakref
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from devshim.errors import NotATensorError
from devshim.errors.formatting import list_some, show, type_name
from devshim.registry import registry as registry_module
from devshim.trees import key_paths, multi_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devshim.devices.device import Device
    from devshim.trees.flatten import Flattened
    from devshim.trees.key_paths import Cell

__all__ = ["NotMovedWarning", "check", "is_code", "refuse", "warn"]

_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
"""Objects that are not inspected: their contents are not data of the tree."""
_VIEWS: tuple[Any, ...] = (type({}.values()), type({}.items()))
_SECOND = {"leaves": "", "placement_of": "", "assign": ", values"}
"""The second argument of the calls that take no device."""
_MOST = 256
"""The largest number of attributes or members of an object that are inspected."""
_MOST_IN_ALL = 1024
"""The largest number of values that are inspected in the objects of an object."""
_DEEPEST = 2
"""How many objects deep the search goes: 0 is the attributes of the given object."""
_MOST_AGAIN = 64
"""How many objects the search goes through at every call, and the largest number of members of each."""
_WITHOUT: set[type] = set()
"""Types of which one object took a longer search that found nothing: others are inspected only at the surface."""
_WARNED: set[type] = set()


class NotMovedWarning(UserWarning):
    """A warning: an object in a tree holds tensors that did not move, because devshim does not know its class."""


def check(call: str, flat: Flattened, device: Device | None = None) -> None:
    """Refuse a tree that is only an object of another kind; warn about such objects in a tree.

    None is an empty tree, so that a program can place an optional value without checking it first.

    Raises:
        NotATensorError: The object is all that was given.
    """
    compiler = flat.compiler
    if flat.containers or flat.tensors or flat.models or flat.tree is None:
        if flat.others and compiler is None:  # otherwise the warning would come once, while the function is compiled
            warn(call, flat.others)
    elif compiler is None:
        raise refuse(call, flat.tree, device)
    else:
        compiler.raise_error(_refuse_class, (call, type(flat.tree).__name__))


def warn(call: str, others: Iterable[tuple[Cell, Any]]) -> None:
    """Warn about each object among the leaves of a tree that holds tensors, once for each type."""
    for cell, leaf in others:
        cls = type(leaf)
        names = [] if cls in _WARNED else _tensors_in(leaf)
        if names:
            if len(_WARNED) < 4096:  # bounded, so that types created in a loop are not all kept alive
                _WARNED.add(cls)
            _warn(call, cell, leaf, names)


def _warn(call: str, cell: Cell, leaf: Any, names: list[str]) -> None:
    from devshim.transfers.cells import cell_suffix
    from devshim.transfers.observers import user_frame

    frame, where = user_frame(), key_paths.path_text(cell)
    shown = list_some(names, 3, str.strip)
    problem = (
        f"ds.{call}{cell_suffix(frame)} did not move the tensors of the {type_name(leaf)} at {where!r} ({shown}): "
        f"the class is not a container that devshim knows\n\n"
        f"Hint: place them one by one, or register the class as a pytree with your framework or with optree"
    )
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__") or ""
    warnings.warn_explicit(problem, NotMovedWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def refuse(call: str, x: object, device: object = None) -> NotATensorError:
    """Return the error for an object that holds no tensor that can move, with what to write instead.

    Args:
        call: The public call, such as ``"place"``.
        x: The given object.
        device: The requested device, for the hint.
    """
    names = _tensors_in(x)
    found = "its class is not a container that devshim knows" if names else "there is no tensor in it"
    return NotATensorError(
        f"ds.{call} takes a tensor, a tree of tensors, a model or an optimizer, and was given {show(x)}: {found}",
        _instead(call, x, names, "device" if device is None else repr(str(device))),
    )


def _refuse_class(call: str, name: str) -> NotATensorError:
    """Return the error of `refuse` for a call in a compiled function, which knows the name of the object's class."""
    return NotATensorError(
        f"ds.{call} takes a tensor, a tree of tensors, a model or an optimizer, and was given an object of type {name}",
        "pass a tensor, or a dict or list of them; ds.asarray(x) makes one of a number",
    )


def _instead(call: str, x: Any, names: list[str], device: str) -> str:
    """Return what to write instead of an object, for each kind that a program may pass; ``names`` are its tensors."""
    to = _SECOND.get(call, f", {device}")
    if isinstance(x, (str, bytes)):
        return "turn text into numbers first, such as token ids" + ("; a device is the second argument" if to else "")
    column = next(_columns(x), None) if names else None
    if column is not None:
        return f"pass the tensors of a column as a list: ds.{call}(x{column[2]}.tolist(){to})"
    if isinstance(x, (bool, int, float, complex, range)) or hasattr(type(x), "__array__"):
        return f"make a tensor of it: ds.asarray(x, device={device})"
    if isinstance(x, (set, frozenset)):
        return f"a set has no order: pass a list, ds.{call}(list(x){to})"
    if isinstance(x, _CODE):
        return "pass tensors, and not code; ds.run(fn, x) calls a function where its arguments are"
    if isinstance(x, functools.partial):
        return f"partial(x.func, *ds.{call}(x.args{to}), **ds.{call}(x.keywords{to}))"
    if isinstance(x, _VIEWS):
        return f"a view of a dict is not a tree: pass the dict, or ds.{call}(list(x){to})"
    name = next((name for name in _near(x) if not name.startswith("_")), None)
    if name is not None and call not in ("place", "copy"):
        return f"pass its tensors, as in ds.{call}({{{name!r}: x.{name}}}), or register its class as a pytree"
    if name is not None:
        return f"place its tensors, as in x.{name} = ds.{call}(x.{name}, {device}), or register its class as a pytree"
    if names and call in ("place", "copy") and hasattr(type(x), "to"):
        return f"an object with a method of its own moves itself: x = x.to(ds.device({device}).native())"
    if hasattr(type(x), "__next__"):
        return f"pass what it yields: [ds.{call}(item{to}) for item in x]"
    if hasattr(type(x), "__iter__") or hasattr(type(x), "__getitem__"):
        first = "pass the tensors in it, or each batch" if names else "pass each batch"
        return f"{first}: for batch in x: {'' if call in _SECOND else 'batch = '}ds.{call}(batch{to})"
    return "pass the tensors in it, one at a time or in a dict or list"


def _tensors_in(x: Any) -> list[str]:
    """Return the attributes that are tensors or models, as Python writes them; words for those of a set or view."""
    if isinstance(x, _CODE):
        return []
    if isinstance(x, (set, frozenset, *_VIEWS)):
        is_view, members = isinstance(x, _VIEWS), cast("Any", x)
        values = islice(members.mapping.values() if is_view else members, _MOST)
        return [f" of the {'dict' if is_view else 'set'}"] if any(map(_moves, values)) else []
    return [f".{name}" for name in _near(x)] or [f".{name}" for name in _deep(x)]


def _near(x: Any, most: int = _MOST) -> list[str]:
    """Return the attributes that are tensors or models, or lists, tuples and dicts of them; ``most`` as `_members`."""
    return [name for name, value in _attributes(x) if _moves(value) or any(map(_moves, _members(value, most)))]


def _deep(x: Any) -> list[str]:
    """Return the first attribute that holds an object with a tensor, if any: the nearest objects are searched first."""
    cls = type(x)
    if cls in _WITHOUT or callable(x):  # the search takes long, and code is searched by its own rules
        return []
    seen, level = {id(x)}, list(_attributes(x))
    for _ in range(_DEEPEST):
        below: list[tuple[str, Any]] = []
        for name, value in _flat(level, seen):
            if _near(value, _MOST_AGAIN):
                return [name]
            below += [(name, each) for _, each in _attributes(value)]
        level = below
    if len(seen) > _MOST_AGAIN and len(_WITHOUT) < 4096:
        _WITHOUT.add(cls)
    return []


def _flat(level: list[tuple[str, Any]], seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the objects among values and their members, each once, with the names of the attributes they are in.

    The list of values is used up.
    """
    while level and len(seen) < _MOST_IN_ALL:
        name, value = level.pop()
        cls = type(value)
        if cls in registry_module.LEAF_TYPES or issubclass(cls, _CODE) or id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(cls, (dict, list, tuple)):
            level += [(name, each) for each in _members(value)]
        elif not issubclass(cls, (set, frozenset)):
            yield name, value


def is_code(value: Any) -> bool:
    """Return True if a leaf is a function, a class, or an object without attributes that marks a place."""
    cls = type(value)
    if multi_map.is_leaf(value) and not isinstance(value, type):
        return False
    is_marker = cls is object or (cls.__mro__ == (cls, object) and getattr(value, "__dict__", None) == {})
    return (callable(value) or is_marker) and not _near(value)


def _members(value: Any, most: int = _MOST) -> list[Any]:
    """Return the members of a list, tuple or dict, at most so many; a subclass's own code does not run."""
    cls = type(value)  # not isinstance, which asks an object for its class
    if issubclass(cls, dict):
        return list(islice(dict.values(value), most))
    if issubclass(cls, list):
        return list(islice(list.__iter__(value), most))
    return list(islice(tuple.__iter__(value), most)) if issubclass(cls, tuple) else []


def _moves(value: Any) -> bool:
    """Return True if `place` moves a value: a tensor, a model or an optimizer."""
    cls = type(value)
    if cls in registry_module.LEAF_TYPES:
        return False
    if registry_module.backend_for(value) is not None:
        return True
    owner = None if issubclass(cls, (dict, list, tuple)) else registry_module.backend_of_type(cls)
    return owner is not None and owner.is_model(cls)


def _attributes(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in an instance's dict and slots, and in the members of a C class (`functools.partial`)."""
    if type(x) in weakref.ProxyTypes:
        return
    try:
        held = object.__getattribute__(x, "__dict__")  # not a `__getattr__` of its own
    except AttributeError:
        held = None
    if type(held) is dict:
        yield from list(held.items())[:_MOST]
    for name, values, _ in _columns(x):
        yield name, values
    for cls in type(x).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(x)
                except AttributeError:
                    continue  # never set


def _columns(x: Any) -> Iterator[tuple[str, list[Any], str]]:
    """Yield the name, the first values and the index of each column of objects in a series or a table of pandas.

    The values include the members of lists, tuples and dicts.
    """
    pandas: Any = sys.modules.get("pandas")
    series, table = getattr(pandas, "Series", None), getattr(pandas, "DataFrame", None)
    if series is None or table is None:  # not imported, or not completely
        return
    if isinstance(x, series):
        found = [("array", x, "")]
    else:
        names = list(x.columns[:_MOST]) if isinstance(x, table) else []
        found = [(str(name), x.iloc[:, i], f"[{name!r}]") for i, name in enumerate(names)]
    for name, column, index in found:
        if column.dtype == object:
            cells = list(column.array[:_MOST])
            yield name, [*cells, *(each for cell in cells for each in _members(cell, _MOST_AGAIN))], index

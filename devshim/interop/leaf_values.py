"""`leaves` and `assign`: read and write the tensors of a model, optimizer or tree by key path.

Requirements of this module:

* The paths are those of `devshim.placement_of`, so that one name serves for placing, reading and writing.
* Nothing is left half-written: every value is checked and copied to its device before the first one is written.
* A model or optimizer keeps its parameter objects and ties. In a tree, a tensor that can be overwritten stays the same
  object; around others the containers are rebuilt, as by `devshim.place`.
* No value is cast or broadcast: another dtype or shape is usually a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from devshim.contract.blocks import join_path
from devshim.errors import ArgumentError, DevshimError
from devshim.errors.formatting import list_some, show, type_name
from devshim.errors.messages import bad_argument
from devshim.interop import convert as conversion
from devshim.models.moving import defer_sigint
from devshim.registry import tracing
from devshim.tensors import arguments
from devshim.transfers import engine
from devshim.trees import not_moved
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.contract.models import Leaf

T = TypeVar("T")

__all__ = ["assign", "leaves"]


def leaves(obj: object) -> dict[str, Tensor]:
    """Return the tensors of a model, optimizer or tree by key path, without a copy.

    Args:
        obj: A model: its parameters and buffers. An optimizer: its state. A tree: every tensor, and those of the models
            and optimizers in it. A tensor: itself, at the empty path.

    Returns:
        Path -> the framework's own tensor, on its device. Paths are those of `placement_of`: keys joined by dots, such
        as ``"0.weight"`` and ``"inputs.1"``. The tensors of a model share its memory, but not its graph. To change
        them, use `assign`.

    Raises:
        ArgumentError: Two tensors have one path, such as ``{"a.b": x, "a": {"b": y}}``.
        NotATensorError: The object is not a tensor, a model or a container.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> list(ds.leaves({"w": ds.ones(2), "rest": [3, ds.zeros(1)]}))
    ['w', 'rest.1']
    """
    tracing.refuse("leaves", "list them outside, and pass the tensors to the compiled function")
    return {slot.path: slot.read() for slot in _Slots(obj, "leaves").by_path.values()}


def assign(obj: T, values: Mapping[str, Tensor]) -> T:
    """Write values into a model, optimizer or tree by key path, all or nothing; use the result.

    Args:
        obj: As for `leaves`. Paths that ``values`` does not name keep their values.
        values: Path -> a tensor of any framework on any device, a NumPy array, or a NumPy scalar, of the same
            dtype and shape as the tensor at that path. It is copied to the device of that tensor.

    Returns:
        A model or optimizer: the same object, changed in place. A tree: the same object if each named tensor could be
        overwritten; otherwise (JAX, TensorFlow except for variables, read-only NumPy arrays) a new tree of the same
        types, and ``obj`` is unchanged. A program that still needs the old values on every framework assigns to a copy
        of the tree (`copy`).

    Raises:
        ArgumentError: A path does not exist, and the error names the nearest one; a dtype or shape differs; or the
            values of two tied parameters differ.
        NotATensorError: A value is not a tensor or array.
        OutOfMemoryError: A device has too little memory for the values in addition to the present ones.

    After any error, nothing has changed. No gradient flows from the object to the values.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> state = {"w": ds.zeros(2, dtype="float32"), "epoch": 3}
    >>> state = ds.assign(state, {"w": ds.ones(2, dtype="float32")})
    >>> state["w"].tolist(), state["epoch"]
    ([1.0, 1.0], 3)
    """
    tracing.refuse("assign", "assign outside, or return the new values from the compiled function")
    if not isinstance(values, Mapping):
        raise bad_argument("values", values, "a dict of key paths and values", "ds.assign(obj, {'0.weight': value})")
    slots = _Slots(obj, "assign")
    found = slots.named(list(values))
    new: dict[tuple[int, str], tuple[str, Tensor]] = {}
    try:
        for slot in found:
            value = values[slot.path]
            first, _ = new.get(slot.key, (slot.path, None))
            if first != slot.path and values[first] is not value:
                msg = f"{show(first)} and {show(slot.path)} are one tensor, and were given two values"
                raise ArgumentError(msg, f"name one of them, or give both the same value: values[{first!r}]")
            if slot.key not in new:
                new[slot.key] = (slot.path, slot.copy_value(value))
        written: T = slots.write({key: x for key, (_, x) in new.items()})
        return written
    except BaseException:
        new.clear()  # the traceback would keep the copies and their memory alive
        raise


class _Slot:
    """One tensor of a tree, or one leaf of a model or optimizer in it."""

    def __init__(self, path: str, backend: Backend, x: Tensor | None, leaf: Leaf | None = None) -> None:
        self.path, self._backend, self._x, self.leaf = path, backend, x, leaf
        self.key = (id(x), "") if leaf is None else (id(leaf.owner), leaf.kind)
        """The identity that tied leaves share."""

    def read(self) -> Tensor:
        """Return the tensor."""
        return self._x if self.leaf is None else self.leaf.read()

    def copy_value(self, value: object) -> Tensor:
        """Return a value as a new tensor of this one's framework, on its device; check its dtype and shape."""
        x, backend = self.read(), self._backend
        if isinstance(value, np.generic):
            value = np.asarray(value)  # NumPy's operators return such numbers for arrays without axes
        try:
            source, given = arguments.tensor_of(value, "assign")
        except DevshimError as error:
            error.add_leaf(self.path)
            raise
        want, have = (backend.dtype_name(x), backend.shape(x)), (source.dtype_name(given), source.shape(given))
        if want != have:
            wrong = f"the value for {show(self.path)} is {have[0]} of shape {have[1]}"
            msg = f"{wrong}, and the tensor is {want[0]} of {want[1]}"
            hint = (
                f"make it {want[0]} first" if want[1] == have[1] else f"ds.leaves(obj)[{self.path!r}] shows its shape"
            )
            raise ArgumentError(msg, hint)
        try:
            name: Any = backend.name
            return backend.detach(conversion.convert(given, name, backend.device_of(x), copy=True))
        except DevshimError as error:
            error.add_leaf(self.path)
            raise

    def is_overwritten(self) -> bool:
        """Return True if `Backend.assign` can overwrite the tensor of a tree."""
        backend, x = self._backend, self._x
        can_write = backend.supports_inplace(x) and backend.is_writable(x) and not backend.has_overlap(x)
        return backend.is_variable(x) or can_write

    def overwrite(self, value: Tensor) -> Callable[[], None]:
        """Overwrite the tensor of a tree; return a function that undoes this."""
        backend, x = self._backend, self._x
        before = engine.move(backend, x, backend.device_of(x))
        backend.assign(x, value)
        return lambda: backend.assign(x, before)

    def replace(self, value: Tensor) -> Callable[[], None]:
        """Replace the data of a leaf; return a function that undoes this."""
        leaf = self.leaf
        assert leaf is not None
        before = leaf.read()
        leaf.write(value)
        return lambda: leaf.write(before)


class _Slots:
    """All tensors of a model, optimizer or tree, by path."""

    def __init__(self, obj: object, call: str) -> None:
        self._flat = flatten(obj)
        self._flat.others.clear()  # nothing moves
        not_moved.check(call, self._flat)
        self.by_path: dict[str, _Slot] = {}
        self._type = type_name(obj)
        for slot in self._iter_slots():
            if slot.path in self.by_path:
                why = "a key contains a dot" if "." in slot.path else "two keys have the same text"
                msg = f"two tensors have the path {show(slot.path)}: {why}"
                raise ArgumentError(msg, "rename the key, or use a part of the tree that has it once")
            self.by_path[slot.path] = slot

    def _iter_slots(self) -> Iterator[_Slot]:
        for _, cell, x, backend in self._flat.leaves:
            yield _Slot(path_text(cell), backend, x)
        for _, cell, model, backend in self._flat.models:
            for leaf in backend.leaves(model):
                if leaf.kind not in ("gradient", "unsaved"):
                    yield _Slot(join_path(path_text(cell), leaf.path), backend, None, leaf)

    def named(self, paths: list[str]) -> list[_Slot]:
        """Return the slots with these paths; name those that do not exist, and the nearest ones."""
        unknown = [path for path in paths if path not in self.by_path]
        if not unknown:
            return [self.by_path[path] for path in paths]
        from devshim.registry.argument_hints import nearest

        names = list_some(unknown, 3, show)
        count = len(self.by_path)
        have = f"{count} tensor{'s' if count > 1 else ''}" if count else "no tensors yet"
        close = nearest(unknown[0], list(self.by_path))
        hint = f"did you mean {close!r}? " if close else ""
        msg = f"this {self._type} has no tensor at {names}; it has {have}"
        raise ArgumentError(msg, f"{hint}ds.leaves(obj) lists the paths")

    def write(self, new: dict[tuple[int, str], Tensor]) -> Any:
        """Write values by `_Slot.key`, and return the object, or a new tree."""
        slots = {id(slot): slot for slot in self.by_path.values() if slot.key in new}.values()
        replaced = {slot.key[0]: new[slot.key] for slot in slots if slot.leaf is None and not slot.is_overwritten()}
        tensors = {slot.key: slot for slot in slots if slot.leaf is None and slot.key[0] not in replaced}
        undo: list[Callable[[], None]] = []
        with defer_sigint():
            try:
                result = self._flat.rebuild(replaced)
                undo.extend(slot.overwrite(new[key]) for key, slot in tensors.items())
                undo.extend(slot.replace(new[slot.key]) for slot in slots if slot.leaf is not None)
            except BaseException:
                for each in reversed(undo):
                    each()
                raise
            finally:
                undo.clear()
        return result

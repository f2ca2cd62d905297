"""Patches that run an object's hook: Python looks up ``__call__`` on classes, so the classes are patched.

Requirements this module answers:

* The methods that a hook can wrap are patched on the classes that define them while any object has a hook. For all
  other objects of such a class, the patch only looks for a hook.
* Afterwards the classes are as before, unless other code has patched a method as well: then devshim's wrapper stays
  inside that patch and only calls the original.
* ``build`` is an attribute of each Keras layer, so it is patched on the layer.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

from devshim_backends._tensorflow.models.traversal import is_layer, is_optimizer

if TYPE_CHECKING:
    from devshim_backends._tensorflow.models.hooks import Wire

__all__ = ["put", "serve_unplaced", "wire_of"]

MARK = "_devshim_wire"
"""The attribute of an object that stores its hook."""

_OF_LAYERS = (
    *("__call__", "compile", "fit", "evaluate", "predict"),
    *("train_on_batch", "test_on_batch", "predict_on_batch", "train_step", "test_step", "predict_step"),
    *("add_weight", "set_weights", "load_weights", "load_own_variables", "reset_state", "reset_states"),
)
_OF_OPTIMIZERS = ("apply", "build", "update_step", "finalize_variable_values", "load_own_variables")

_LOCK = threading.RLock()
"""The lock for installing and uninstalling hooks; reentrant, as the garbage collector may uninstall one meanwhile."""
_wired: dict[int, weakref.ref[Any]] = {}
_exchanged: dict[tuple[type, str], tuple[Any, Any]] = {}
"""Maps patched methods to the original and devshim's wrapper."""
_unplaced: list[Wire] = []
"""The hook for optimizers without one of their own, while any model is on several devices."""


def wire_of(x: Any) -> Wire | None:
    """Return an object's hook, or None."""
    found: Wire | None = vars(x).get(MARK)
    return found


def put(x: Any, wire: Wire | None) -> None:
    """Install a hook on an object, or uninstall it."""
    with _LOCK:
        if wire is None:
            vars(x).pop(MARK, None)
            _put_build(x, None)
            _gone(id(x))
            return
        vars(x)[MARK] = wire
        if id(x) not in _wired:
            key = id(x)
            _wired[key] = weakref.ref(x, lambda _: _gone(key))
        _exchange(x)
        _put_build(x, wire)


def _gone(key: int) -> None:
    with _LOCK:
        _wired.pop(key, None)
        if not _wired:
            _put_back()


# ---------------------------------------------------------------------- on classes
def _exchange(x: Any) -> None:
    """Patch the methods that a hook can wrap, on the classes that define them."""
    names = _OF_OPTIMIZERS if is_optimizer(x) else _OF_LAYERS if is_layer(x) else ("__call__",)
    for name in names:
        _exchange_on(type(x), name)


def _exchange_on(cls: type, name: str) -> None:
    with _LOCK:
        owner = next((each for each in cls.__mro__ if name in vars(each)), None)
        if owner is not None and (owner, name) not in _exchanged:
            theirs = vars(owner)[name]
            ours = _method(name, theirs) if isinstance(theirs, types.FunctionType) else _Descriptor(name, theirs)
            _exchanged[owner, name] = theirs, ours
            setattr(owner, name, ours)


def serve_unplaced(wire: Wire) -> None:
    """Use this hook when an optimizer without one applies gradients, until no object has a hook."""
    import keras

    _unplaced[:] = [wire]
    for cls in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        _exchange_on(cls, "apply")


def _put_back() -> None:
    with _LOCK:
        _unplaced.clear()
        while _exchanged:
            (cls, name), (theirs, ours) = _exchanged.popitem()
            if vars(cls).get(name) is ours:
                setattr(cls, name, theirs)


def _method(name: str, theirs: Any) -> Any:
    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        wire = vars(self).get(MARK) or (next(iter(_unplaced), None) if name == "apply" else None)
        if wire is None:
            return theirs(self, *args, **kwargs)
        return wire.run(name, self, theirs.__get__(self, type(self)), args, kwargs)

    return method


class _Descriptor:
    """A method that is not a plain function, such as one under ``tf.function``; its attributes stay reachable."""

    def __init__(self, name: str, theirs: Any) -> None:
        self._name, self._theirs = name, theirs

    def __get__(self, x: Any, cls: type | None = None) -> Any:
        bound = self._theirs.__get__(x, cls) if hasattr(self._theirs, "__get__") else self._theirs
        wire = None if x is None else vars(x).get(MARK)
        return bound if wire is None else _Bound(self._name, wire, x, bound)


class _Bound:
    """Such a method, bound to an object that has a hook."""

    def __init__(self, name: str, wire: Wire, obj: Any, bound: Any) -> None:
        self._name, self._wire, self._obj, self._bound = name, wire, obj, bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wire.run(self._name, self._obj, self._bound, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)


# ---------------------------------------------------------------------- on layers
def _put_build(x: Any, wire: Wire | None) -> None:
    """Make a Keras layer's ``build`` run its hook, or restore the original."""
    build = vars(x).get("build")
    if build is None:
        return
    inner = getattr(build, "_devshim_inner", build)
    if wire is None:
        vars(x)["build"] = inner
        return

    @functools.wraps(inner)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        return wire.run("build", x, inner, args, kwargs)

    scoped._devshim_inner = inner  # type: ignore[attr-defined]  # to restore the original later
    vars(x)["build"] = scoped

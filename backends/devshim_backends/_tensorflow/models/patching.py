"""Patches that run an object's hook: Python looks up ``__call__`` on classes, so the classes are patched.

An object's hook is in its attribute ``_devshim_hook``. While any object has one, the methods that a hook can wrap are
replaced, on the classes that define them, by wrappers: a wrapper gives the call to the hook of its object, and calls
the original method of an object without a hook.

Requirements of this module:

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

from devshim_backends._tensorflow.models.traversal import is_layer, is_metric, is_optimizer

if TYPE_CHECKING:
    from devshim_backends._tensorflow.models.split_forward import CallHook

__all__ = ["hook_of", "hook_other_optimizers", "set_hook"]

HOOK = "_devshim_hook"
"""The attribute of an object that stores its hook."""

_LAYER_METHODS = (
    *("__call__", "compile", "fit", "evaluate", "predict"),
    *("train_on_batch", "test_on_batch", "predict_on_batch", "train_step", "test_step", "predict_step"),
    *("add_weight", "set_weights", "load_weights", "load_own_variables", "reset_state", "reset_states"),
)
_METRIC_METHODS = ("__call__", "update_state", "result", "reset_state", "add_variable", "load_own_variables")
_OPTIMIZER_METHODS = ("apply", "build", "update_step", "finalize_variable_values", "load_own_variables")

_LOCK = threading.RLock()
"""The lock for installing and uninstalling hooks; reentrant, as the garbage collector may uninstall one meanwhile."""
_hooked: dict[int, weakref.ref[Any]] = {}
"""Maps the `id` of each object with a hook to a weak reference."""
_patched: dict[tuple[type, str], tuple[Any, Any]] = {}
"""Maps patched methods to the original and devshim's wrapper."""
_other_optimizers: list[CallHook] = []
"""The hook for optimizers that have none, while any model is on several devices."""


def hook_of(x: Any) -> CallHook | None:
    """Return an object's hook, or None."""
    hook: CallHook | None = vars(x).get(HOOK)
    return hook


def set_hook(x: Any, hook: CallHook | None) -> None:
    """Install a hook on an object, or uninstall it."""
    with _LOCK:
        if hook is None:
            vars(x).pop(HOOK, None)
            _patch_build(x, None)
            _forget(id(x))
            return
        vars(x)[HOOK] = hook
        if id(x) not in _hooked:
            key = id(x)
            _hooked[key] = weakref.ref(x, lambda _: _forget(key))
        for name in _hooked_methods(x):
            _patch_method(type(x), name)
        _patch_build(x, hook)


def _hooked_methods(x: Any) -> tuple[str, ...]:
    if is_optimizer(x):
        return _OPTIMIZER_METHODS
    if is_layer(x):
        return _LAYER_METHODS
    return _METRIC_METHODS if is_metric(x) else ("__call__",)


def hook_other_optimizers(hook: CallHook) -> None:
    """Use a hook when an optimizer that has none applies gradients, until no object has a hook."""
    import keras

    _other_optimizers[:] = [hook]
    for cls in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        _patch_method(cls, "apply")


def _forget(key: int) -> None:
    """Record that an object has no hook any more; after the last one, the classes get their methods back."""
    with _LOCK:
        _hooked.pop(key, None)
        if not _hooked:
            _restore_methods()


# ---------------------------------------------------------------------- on classes
def _patch_method(cls: type, name: str) -> None:
    """Patch a method on the class that defines it, if any does."""
    with _LOCK:
        owner = next((each for each in cls.__mro__ if name in vars(each)), None)
        if owner is None or (owner, name) in _patched:
            return
        original = vars(owner)[name]
        wrap: Any = _wrap_function if isinstance(original, types.FunctionType) else _WrappedDescriptor
        _patched[owner, name] = original, wrap(name, original)
        setattr(owner, name, _patched[owner, name][1])


def _restore_methods() -> None:
    with _LOCK:
        _other_optimizers.clear()
        while _patched:
            (cls, name), (original, wrapper) = _patched.popitem()
            if vars(cls).get(name) is wrapper:
                setattr(cls, name, original)


def _wrap_function(name: str, original: Any) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        hook = vars(self).get(HOOK) or (next(iter(_other_optimizers), None) if name == "apply" else None)
        if hook is None:
            return original(self, *args, **kwargs)
        return hook.invoke(name, self, original.__get__(self, type(self)), args, kwargs)

    return method


class _WrappedDescriptor:
    """A method that is not a plain function, such as one under ``tf.function``; its attributes stay reachable."""

    def __init__(self, name: str, original: Any) -> None:
        self._name, self._original = name, original

    def __get__(self, x: Any, cls: type | None = None) -> Any:
        bound = self._original.__get__(x, cls) if hasattr(self._original, "__get__") else self._original
        hook = None if x is None else vars(x).get(HOOK)
        return bound if hook is None else _BoundMethod(self._name, hook, x, bound)


class _BoundMethod:
    """A patched method, bound to an object that has a hook."""

    def __init__(self, name: str, hook: CallHook, obj: Any, bound: Any) -> None:
        self._name, self._hook, self._obj, self._bound = name, hook, obj, bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._hook.invoke(self._name, self._obj, self._bound, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)


# ---------------------------------------------------------------------- on layers
def _patch_build(x: Any, hook: CallHook | None) -> None:
    """Make a Keras layer's ``build`` run its hook, or restore the original."""
    build = vars(x).get("build")
    if build is None:
        return
    original = getattr(build, "_devshim_original_build", build)
    if hook is None:
        vars(x)["build"] = original
        return

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return hook.invoke("build", x, original, args, kwargs)

    hooked._devshim_original_build = original  # type: ignore[attr-defined]  # to restore the original later
    vars(x)["build"] = hooked

"""Import hooks: prepare the import of a framework together with others, or refuse an import that would crash.

Three frameworks need care. MXNet uses NumPy names that NumPy has removed. Importing TensorFlow before Paddle (or, with
older versions, Paddle before TensorFlow) crashes with a segmentation fault, unless the second is loaded with
its own symbols first. Paddle's simulated GPUs must be registered before Paddle is imported. An adapter's
``import_hooks.py`` provides a context manager, ``import_context``, with its framework's needs. The finder below enters
it for the execution of the framework's root module, whether devshim, the program or a library runs the ``import``.

Simulated GPUs must exist before a framework starts its devices, which its first operator does. A program may request
them, import the framework directly, and compute before it calls devshim again. So the adapter is loaded immediately
after the import.

The finder is installed when a framework is first requested (`use`, `using`, `simulate`, a load), never by
only ``import devshim``.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from devshim.registry import simulation_request
from devshim.registry.discovery import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    ContextFactory = Callable[[], AbstractContextManager[None]]

_WATCHED: dict[str, ContextFactory] = {}
_AFTER_IMPORT: dict[str, list[Callable[[], None]]] = {}
"""Functions of adapters that run after the import of a library that uses their framework."""


load_adapter: Callable[[str], object] | None = None
"""Loads the adapter of a framework: `devshim.registry.registry.load`, which `devshim.registry.registry` sets here."""


class _Finder:
    """An import finder that lets the other finders find the watched root modules, and wraps their loaders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        make_context = _WATCHED.get(name)
        if make_context is None:
            return None
        for finder in sys.meta_path:  # not only Python's: an editable installation adds its own finder
            find = None if finder is _Finder else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                _wrap(spec, make_context)
                return spec
        return None


def _wrap(spec: ModuleSpec, make_context: ContextFactory) -> None:
    """Make the loader execute this spec's module, once, inside ``make_context()``."""
    loader, name = spec.loader, spec.name
    own = getattr(loader, "__dict__", None)
    # Skip a class, which is a built-in loader that many modules share, and a loader that is wrapped already.
    if loader is None or isinstance(loader, type) or own is None or "exec_module" in own:
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if module.__name__ != name:  # one loader may serve many modules, like a zip file's loader
            execute(module)
            return
        own.pop("exec_module", None)
        with make_context(), _simulated_import_context(name):
            execute(module)
        _load_simulating_adapter(name)
        for call in _AFTER_IMPORT.pop(name, ()):
            call()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _simulated_import_context(name: str) -> AbstractContextManager[None]:
    """Return a context with the further needs of a framework's import for simulated GPUs; most have none."""
    make_context = getattr(load_hooks(name), "simulated_import_context", None)
    found: AbstractContextManager[None] = (
        nullcontext() if make_context is None or not simulation_request.is_requested() else make_context()
    )
    return found


def _load_simulating_adapter(name: str) -> None:
    """Load a framework's adapter if simulated GPUs are requested, unless the adapter itself is importing it."""
    target = BUILTIN.get(name)
    if (
        load_adapter is not None
        and target is not None
        and target.partition(":")[0] not in sys.modules
        and simulation_request.is_requested()
    ):
        load_adapter(name)


def prepare_import(name: str) -> None:
    """Prepare every later import of a framework; import nothing now."""
    _WATCHED.setdefault("keras", nullcontext)  # from the start: Keras may import a framework, which loads its adapter
    if name in _WATCHED or name in sys.modules:
        return
    hooks = load_hooks(name)
    _WATCHED[name] = nullcontext if hooks is None else hooks.import_context
    _install_finder()


def _install_finder() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def call_after_import(name: str, call: Callable[[], None]) -> None:
    """Call an adapter's function once a library that uses its framework is imported: now, if it already is."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if name in sys.modules and not getattr(spec, "_initializing", False):
        call()
        return
    _AFTER_IMPORT.setdefault(name, []).append(call)
    _WATCHED.setdefault(name, nullcontext)
    _install_finder()


def load_hooks(name: str) -> ModuleType | None:
    """Return the adapter's ``import_hooks`` module, or None if it has none; import no framework."""
    from importlib import import_module
    from importlib.util import find_spec

    if name not in BUILTIN:
        return None
    hooks = BUILTIN[name].partition(":")[0].replace(".backend", ".import_hooks")
    return import_module(hooks) if find_spec(hooks) is not None else None


def clashes(name: str) -> tuple[str, ...]:
    """Return known problems of importing a framework together with those imported already, a sentence each."""
    hooks = load_hooks(name)
    found: tuple[str, ...] = hooks.clashes() if hooks is not None else ()
    return found

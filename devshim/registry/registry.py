"""The registry of backends: find the backend of a name or an object, and load adapters; only this module loads them.

Requirements of this module:

* Nothing is imported that the user did not ask for. A name is looked up in a static table; only if it is missing there,
  in the entry points of other distributions. An object is recognized by the root package of its type, which is imported
  already, or the object could not exist.
* From the second time on, finding an object's backend costs one dictionary lookup on ``type(x)``: `TENSORS`.
* A backend that is missing, is broken, or is claimed by two distributions raises a different error.
* Importing a framework into the process of another one is handled here: see `devshim.registry.import_hooks`.
"""

from __future__ import annotations

import sys
from _thread import RLock  # importing threading takes 3 ms, and only its lock is needed

from devshim._compiler_marks import constant_under_compile
from devshim._lazy import Later, load_listeners
from devshim.errors import BackendBrokenError, BackendConflictError, BackendError, DevshimError, messages
from devshim.registry import discovery, environment, import_hooks
from devshim.registry.discovery import (
    BUILTIN,
    canonical_name,
    imported_names,
    is_imported,
    is_installed,
    load_capabilities,
    not_installed_error,
    third_party,
    title_of,
)

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from devshim.contract.backend import Backend, Gap

ROOTS = {**{name: name for name in BUILTIN}, **discovery.LIBRARIES}
"""Root package of a type -> the backend for it."""

TENSORS: dict[type, Backend] = {}
"""The backend of every tensor type seen so far: the hot path of every public call."""

HOST_FLAGS: dict[type, str] = {}
"""Tensor type -> the attribute that is True for host memory (`FastPaths.host_flag`), for the types seen so far."""

LEAF_TYPES: frozenset[type] = frozenset({bool, int, float, complex, str, bytes, type(None), type, type(...)})
"""Types whose values are not tensors or trees of tensors."""

LENT: dict[str, str] = {}
"""A backend -> the loaded one that may also serve its tensors in host memory (see `devshim.registry.lending`)."""

_OTHERS: dict[type, None] = dict.fromkeys((*LEAF_TYPES, list, tuple, dict, set, slice, range))
"""Types known not to be tensors, initially some built-in ones. A dictionary, because torch.compile (2.13)
cannot guard a set that grows while it traces."""

_LENDING: Any = Later("devshim.registry.lending")  # it imports NumPy
LOADED: dict[str, Backend] = {}
"""The backends loaded so far, by name; only this module adds to it."""
_LOCK = RLock()


def loaded_backends() -> list[Backend]:
    """Return the backends loaded so far."""
    return list(LOADED.values())


def imported_backends() -> list[Backend]:
    """Return the loaded backends and those of all imported frameworks, which are loaded now if necessary."""
    builtin = [load(name) for name in imported_names() if name in BUILTIN]
    return list(dict.fromkeys([*builtin, *loaded_backends()]))


_CONTAINERS: list[Backend] = []
"""The loaded backends that have their own containers."""


def backends_with_containers() -> list[Backend]:
    """Return the backends that define `Backend.tree_flatten_one_level`, for the imported frameworks."""
    for name in discovery.WITH_CONTAINERS:
        if name in sys.modules and name not in LOADED and is_imported(name):
            try:
                load(name)
            except BackendError:
                continue  # a framework without a working adapter has no tensors that could move
    return _CONTAINERS


def load(name: str) -> Backend:
    """Return the one backend of a name; the first call imports its framework.

    Raises:
        BackendNotFoundError: The backend does not exist, or its framework is not installed.
        BackendBrokenError: The framework is installed and its import fails.
        BackendConflictError: Two distributions claim the name, or the import would crash this process.
    """
    found = LOADED.get(name)
    if found is not None:
        return found
    name = canonical_name(name)
    environment.warn_about_unread()
    load_listeners()
    with _LOCK:
        if name not in LOADED:
            made = _make(name)
            _on_loaded(made)
            LOADED[name] = made
    return LOADED[name]


_ON_LOAD: list[Callable[[Backend], None]] = []


def on_load(notify: Callable[[Backend], None]) -> None:
    """Call a function with each backend that is loaded from now on, before anything else uses it."""
    _ON_LOAD.append(notify)


def _on_loaded(backend: Backend) -> None:
    """Prepare a new backend, and notify the functions registered with `on_load`."""
    from devshim.contract import capabilities
    from devshim.contract.backend import Backend as Contract
    from devshim.devices import parsing, platforms

    backend.has_containers = type(backend).tree_flatten_one_level is not Contract.tree_flatten_one_level
    if backend.has_containers:
        _CONTAINERS.append(backend)
    left_out = capabilities.undeclared_gaps(backend, Contract)  # type: ignore[type-abstract]
    if left_out:
        type(backend).gaps = {**left_out, **backend.gaps}
    backend.fast_paths = type(backend).fast_paths  # read on every placement: an instance attribute is found faster
    if backend.host_tensors:
        _LENDING.start_lending(backend)
    backend.dtypes_lacking = platforms.missing_dtypes(backend.platform("gpu"))
    parsing.forget_platforms()
    for notify in _ON_LOAD:
        notify(backend)


def _make(name: str) -> Backend:
    target = _target(name)
    if not is_installed(name):
        raise not_installed_error(name)
    import_hooks.prepare_import(name)
    module_name, _, class_name = target.partition(":")
    try:
        from importlib import import_module

        made: Backend = getattr(import_module(module_name), class_name)()
    except DevshimError:
        raise
    except Exception as error:
        raise messages.broken(name, title_of(name), error) from error
    _check(name, made, target)
    return made


def _check(name: str, made: object, target: str) -> None:
    """Raise an error if a third party's registered object is not an adapter, or belongs to another framework."""
    from devshim.contract.backend import Backend as Contract

    if not isinstance(made, Contract) or made.name != name:
        what = f"a backend called {made.name!r}" if isinstance(made, Contract) else "not a devshim.backend.Backend"
        msg = f"the backend name {name!r} is registered for {target}, which is {what}"
        raise BackendBrokenError(msg, "this is a defect of the distribution that registers it: see backends/README.md")


def _target(name: str) -> str:
    """Return the ``module:class`` behind a name; raise an error if there is more than one claimant."""
    points = third_party().get(name, [])
    claims = [f"{point.value} of {point.dist.name if point.dist else 'an unnamed distribution'}" for point in points]
    if name in BUILTIN:
        if claims:
            raise _conflict_error(name, ["devshim itself", *claims])
        return BUILTIN[name]
    if len(claims) > 1:
        raise _conflict_error(name, claims)
    return points[0].value.partition("[")[0].strip()  # an entry point may name extras after its object


def _conflict_error(name: str, claims: list[str]) -> BackendConflictError:
    return BackendConflictError(
        f"the backend name {name!r} is claimed by {len(claims)}: {'; '.join(claims)}",
        "uninstall all but one of them",
    )


def backend_of_type(cls: type) -> Backend | None:
    """Return the backend whose framework defines a type or one of its bases, or None.

    The framework is imported already, so loading its adapter imports no other framework.
    """
    for root in dict.fromkeys([_root(base) for base in _MRO.__get__(cls)]):
        # Nearest first: a third party's tensors may subclass ndarray. A type may claim any module as its own; that
        # imports nothing.
        name = _of_keras() if root == "keras" else ROOTS.get(root)
        name = name or (root if root not in _PLAIN and root in third_party() else None)
        if name is not None and is_imported(root):
            return load(name)
    return None


def _of_keras() -> str | None:
    """Return the imported framework on which Keras 3 runs in this process; None for one that has no models."""
    config: Any = sys.modules.get("keras.src.backend.config")
    name = getattr(config, "_BACKEND", None)
    return name if name in BUILTIN and is_imported(name) and "models" not in gaps(name) else None


def _root(cls: type) -> str:
    """Return the root package of a type; empty if its metaclass raises when the module is read."""
    try:
        return str(cls.__module__).partition(".")[0]
    except Exception:
        return ""


_MRO = type.__dict__["__mro__"]  # a metaclass can hide it
_PLAIN = {"builtins", "collections", "typing", "enum", "abc", "types", "pathlib", "datetime"}
_PLAIN |= {"__main__", "devshim", "devshim_backends"}
"""Roots that never belong to a framework: no entry points are read for their types."""


def backend_for(x: object) -> Backend | None:
    """Return the backend of a tensor, or None for any other object; the result is cached by type."""
    cls = type(x)
    found = TENSORS.get(cls)
    if found is not None or cls in _OTHERS:
        return found
    name = _tensor_framework(cls)
    if name in LENT:
        lent: Backend = _LENDING.backend_for(LOADED[name], x)
        return lent
    if name is not None:
        TENSORS[cls] = found = LOADED[name]
        if name in LENT:  # another thread has just added it
            TENSORS.pop(cls, None)
        if found.fast_paths.host_flag:
            HOST_FLAGS[cls] = found.fast_paths.host_flag
    elif len(_OTHERS) < 4096:  # bounded, so that types created in a loop are not all kept alive
        _OTHERS[cls] = None
    return found


@constant_under_compile
def _tensor_framework(cls: type) -> str | None:
    """Load the backend whose tensors are instances of a type, and return its name; None for any other type."""
    backend = backend_of_type(cls)
    return backend.name if backend is not None and backend.is_tensor(cls) else None


def model_backend(node: Any) -> Backend | None:
    """Return the backend of a model or optimizer, or None for anything else."""
    if isinstance(node, (dict, list, tuple)):
        return None
    name = _model_framework(type(node))
    if name is None:
        return None
    owner = load(name)
    if "models" in owner.gaps:
        from devshim.contract import capabilities

        owner.raise_error(capabilities.unsupported_error, (owner, "models"))
    return owner


@constant_under_compile
def _model_framework(cls: type) -> str | None:
    """Return the name of the backend whose models or optimizers are instances of a type; None for any other type."""
    owner = backend_of_type(cls)
    return owner.name if owner is not None and owner.is_model(cls) else None


@constant_under_compile
def load_maker(cls: type) -> str | None:
    """Load the backend whose framework defines a type, and return its name; None for other types."""
    backend = backend_of_type(cls)
    return None if backend is None else backend.name


def gaps(name: str) -> Mapping[str, Gap]:
    """Return the features that a backend lacks; the framework of a built-in backend is not imported."""
    found: Mapping[str, Gap] = load_capabilities(name).GAPS if name in BUILTIN else load(name).gaps
    return found


def limits(name: str) -> Mapping[str, str]:
    """Return the missing parts of a backend's features; the framework of a built-in backend is not imported."""
    found: Mapping[str, str] = load_capabilities(name).LIMITS if name in BUILTIN else load(name).limits
    return found


import_hooks.load_adapter = load

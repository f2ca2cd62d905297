"""The known frameworks, and which of them are installed or imported, found without importing any.

A static table answers without `importlib.metadata`, whose import takes 12 to 33 ms. It is imported only if a
distribution of others has entry points for backends (`devshim.registry.installed_metadata`). An entry point's name is
the framework's root import name, so looking it up loads nothing.
"""

from __future__ import annotations

import sys

from devshim.errors import BackendNotFoundError

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
    from typing import Any, Literal, TypeAlias

    BackendName: TypeAlias = Literal["torch", "tensorflow", "mxnet", "paddle", "jax", "cupy", "numpy"] | str
    """A framework's name, a nickname, or the name of a third-party backend."""

__all__ = [
    "BUILTIN",
    "DISTRIBUTIONS",
    "GROUP",
    "NICKNAMES",
    "TITLES",
    "canonical_name",
    "compiling_calls",
    "imported_names",
    "installed_names",
    "is_imported",
    "is_installed",
    "known_names",
    "load_capabilities",
    "not_installed_error",
    "third_party",
    "title_of",
    "unsimulated_calls",
]

GROUP = "devshim.backends"

BUILTIN: dict[str, str] = {
    "torch": "devshim_backends._torch.backend:TorchBackend",
    "tensorflow": "devshim_backends._tensorflow.backend:TensorflowBackend",
    "mxnet": "devshim_backends._mxnet.backend:MxnetBackend",
    "paddle": "devshim_backends._paddle.backend:PaddleBackend",
    "jax": "devshim_backends._jax.backend:JaxBackend",
    "cupy": "devshim_backends._cupy.backend:CupyBackend",
    "numpy": "devshim_backends._numpy.backend:NumpyBackend",
}
TITLES = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "paddle": "PaddlePaddle",
    "jax": "JAX",
    "cupy": "CuPy",
    "numpy": "NumPy",
}
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tf-nightly"),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu"),
    "mxnet": ("mxnet", "mxnet-cu112", "mxnet-cu110", "mxnet-cu102", "mxnet-native"),
    "jax": ("jax",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-rocm-7-0"),
}
"""The distributions that provide a framework under a name other than its import name."""

NICKNAMES = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "mx": "mxnet",
    "paddlepaddle": "paddle",
    "cp": "cupy",
    "np": "numpy",
}

LIBRARIES = {"jaxlib": "jax", "flax": "jax"}
"""Another root package -> the framework to which its types belong."""

WITH_CONTAINERS = ("torch", "tensorflow", "jax")
"""The frameworks that have a registry of containers: their adapters define `Backend.tree_flatten_one_level`."""

REQUIRED_BY_OTHERS = ("numpy",)
"""The frameworks that others install: each is the only framework only if no other is installed."""

_entry_points: dict[str, list[EntryPoint]] | None = None


def title_of(name: str) -> str:
    """Return a framework's name in its official spelling, such as ``PyTorch``; an unknown name unchanged."""
    return TITLES.get(name, name)


def canonical_name(name: str) -> str:
    """Return the backend's name for a name or nickname; raise `BackendNotFoundError` for an unknown one."""
    if not isinstance(name, str):
        msg = f"a backend is named by text, not by {type(name).__name__}"
        raise BackendNotFoundError(msg, _list_known())
    for each in (name, NICKNAMES.get(name.lower(), name.lower())):  # third-party names may have capitals
        if each in BUILTIN or each in third_party():
            return each
    msg = f"no backend is called {name[:40]!r}"
    raise BackendNotFoundError(msg, _nearest(name) + _list_known())


def _nearest(name: str) -> str:
    """Return the backend that a misspelt name probably means, as the start of a hint; empty without a close one."""
    from difflib import get_close_matches

    close = get_close_matches(name[:40].lower(), [*known_names(), *NICKNAMES], 1)
    return f"did you mean {NICKNAMES.get(close[0], close[0])!r}? " if close else ""


def known_names() -> list[str]:
    """Return the names of all backends, built in or third-party, installed or not."""
    return [*BUILTIN, *(name for name in third_party() if name not in BUILTIN)]


def third_party() -> Mapping[str, list[EntryPoint]]:
    """Return the entry points of other distributions by name; they are read once."""
    global _entry_points
    points = _entry_points
    if points is None:
        from devshim.registry.installed_metadata import may_have_entry_points

        found: dict[str, list[EntryPoint]] = {}
        if may_have_entry_points(GROUP):
            from importlib.metadata import entry_points

            for point in entry_points(group=GROUP):
                found.setdefault(point.name, []).append(point)
        _entry_points = points = found
    return points


def is_installed(name: str) -> bool:
    """Return True if the framework could be imported, without importing it."""
    if name in sys.modules:
        return is_imported(name)
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and not _is_folder(name, spec)


def is_imported(name: str) -> bool:
    """Return True if this process has imported the framework, through devshim or not."""
    module = sys.modules.get(name)  # None is how Python marks a blocked import
    return module is not None and not _is_folder(name, getattr(module, "__spec__", None))


def _is_folder(name: str, spec: ModuleSpec | None) -> bool:
    """Return True for the spec of a plain folder with the name of a built-in framework: it has no file.

    Another library, such as MLX, may itself be a namespace package, whose spec looks the same.
    """
    is_namespace = spec is not None and spec.origin is None and spec.submodule_search_locations is not None
    return is_namespace and name in BUILTIN


def installed_names() -> list[str]:
    """Return the names of the backends whose framework is installed, in the table's order."""
    return [name for name in known_names() if is_installed(name)]


def imported_names() -> list[str]:
    """Return the names of the backends whose framework this process has imported, through devshim or not."""
    return [name for name in known_names() if is_imported(name)]


def unsimulated_calls(name: str) -> Mapping[str, str]:
    """Return the native calls that a built-in backend cannot simulate, with reasons; imports no framework."""
    calls: Mapping[str, str] = load_capabilities(name).NOT_SIMULATED
    return calls


def compiling_calls(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the native functions that compile sources, with their first parameters; imports no framework."""
    calls: Mapping[str, tuple[str, ...]] = getattr(load_capabilities(name), "COMPILES_SOURCES", {})
    return calls


def load_capabilities(name: str) -> Any:
    """Return the module ``capabilities`` of a built-in backend; imports no framework."""
    from importlib import import_module

    return import_module(BUILTIN[name].replace(".backend:", ".capabilities:").partition(":")[0])


def not_installed_error(name: str) -> BackendNotFoundError:
    """Return the error for a framework that is not installed; it lists those that are."""
    have = ", ".join(installed_names()) or "none"
    extra = f"pip install 'devshim[{name}]'" if name in BUILTIN else f"install {name}"
    return BackendNotFoundError(f"{title_of(name)} is not installed; installed here: {have}", extra)


def _list_known() -> str:
    return f"the backends are {', '.join(known_names())}; installed here: {', '.join(installed_names()) or 'none'}"

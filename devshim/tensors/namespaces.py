"""`namespace`: the array-API namespace of a framework, with the framework's own functions and tensors.

Requirements of this module:

* Names, argument names and results are those of the array API standard (https://data-apis.org/array-api). A function
  that a framework lacks is missing, and the error names it.
* Nothing is wrapped: functions take and return the framework's own tensors, and compute where their arguments are.
* A namespace is built once for each framework, and looking one up works inside the framework's compiler.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from devshim._compiler_marks import constant_under_compile
from devshim.contract import capabilities
from devshim.contract.namespaces import CREATION, FFT, FUNCTIONS, LINALG, VERSION
from devshim.devices.dtypes import DTYPES
from devshim.errors import ConversionError, UnsupportedError, messages
from devshim.errors.types import JoinedError
from devshim.registry import current, numpy_scalars, registry
from devshim.tensors import namespace_checks, namespace_creation, namespace_info
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Backend

__all__ = ["namespace"]

CONSTANTS: Mapping[str, float | None] = {
    "e": math.e,
    "inf": math.inf,
    "nan": math.nan,
    "newaxis": None,
    "pi": math.pi,
}
"""The standard's constants."""

EXTENSIONS: dict[str, tuple[str, ...]] = {"linalg": LINALG, "fft": FFT}
"""The standard's extensions: name -> the names of the functions."""

NAMES = frozenset((*FUNCTIONS, *CREATION, *DTYPES, *CONSTANTS, *EXTENSIONS))
"""All names that a namespace may have; float16 and bfloat16 are added to those of the standard."""


class _MissingNameError(JoinedError, UnsupportedError, AttributeError):
    """A function of the array API that a framework lacks: ``hasattr(xp, name)`` is False."""


class Namespace:
    """The array-API namespace of one framework, or one of its extensions.

    Each function, dtype and constant is an attribute. ``dir(xp)`` lists those that the framework has.
    """

    def __init__(self, backend: str, title: str, prefix: str, members: Mapping[str, Any]) -> None:
        self.__dict__.update(members)
        self._backend, self._title, self._prefix = backend, title, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            msg = f"this namespace has no attribute {name!r}"
            raise AttributeError(msg)
        raise _missing(self._backend, self._title, self._prefix, name)

    def __dir__(self) -> list[str]:
        return sorted(name for name in vars(self) if not name.startswith("_"))

    def __repr__(self) -> str:
        full = EXTENSIONS.get(self._prefix, NAMES)
        extension = f"{self._prefix} of the " if self._prefix else ""
        return f"<{extension}array-API namespace of {self._title}: {len(dir(self))} of {len(full)} names>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self._backend, self._prefix))


def namespace(x: object = None) -> Any:
    """Return the array-API namespace of a tensor's framework.

    Its attributes are the functions of the array API standard (``xp.tanh(x)``, ``xp.sum(x, axis=0)``,
    ``xp.linalg.svd(x)``), its dtypes (``xp.float32``) and its constants (``xp.pi``). The functions are the framework's
    own, or thin wrappers if these differ from the standard: they take and return the framework's own tensors, and
    compute on the device of their arguments, simulated GPUs included. Creation functions (``xp.zeros``) take
    ``device=``, as devshim's functions do. docs/array-api.md lists what each framework lacks. NumPy's functions
    refuse tensors of other frameworks, which they would copy to the host, without gradients.

    Args:
        x: A tensor, or a tree of tensors of one framework; without it, the namespace is that of the current framework.

    Returns:
        The same object for every tensor of a framework.

    Raises:
        NotATensorError: ``x`` contains no tensor.
        ArgumentError: The tensors in ``x`` belong to several frameworks.
        UnsupportedError: The framework's adapter has no namespace; or, when an attribute is read, the framework lacks
            the function. The latter is also an ``AttributeError``, so ``hasattr(xp, "fft")`` works.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> def normalized(x):  # the rows of x, on every framework and device
        ...     xp = ds.namespace(x)
        ...     return x / xp.linalg.vector_norm(x, axis=-1, keepdims=True)
        >>> normalized(ds.asarray([[3.0, 4.0]]))
        array([[0.6, 0.8]])
    """
    backend = registry.TENSORS.get(type(x))
    if backend is None:
        backend = current.current() if x is None else registry.backend_for(x) or _backend_of_tree(x)
    _prepare(backend.name)  # before the first read of the dictionary: torch.compile reads its keys once
    return _SPACES[backend.name]


_SPACES: dict[str, Namespace] = {}
"""Backend -> its namespace."""


def _backend_of_tree(x: object) -> Backend:
    """Return the one backend of the tensors in a tree."""
    flat = flatten(x)
    found = dict.fromkeys([*flat.backends, *(backend for *_, backend in flat.models)])
    if not found:
        scalar = next((leaf for _, leaf in flat.others if numpy_scalars.is_scalar(leaf)), None)
        found = dict.fromkeys([owner for owner, _ in filter(None, [numpy_scalars.with_backend(scalar)])])
    if not found:
        raise messages.not_a_tensor(x, "namespace")
    if len(found) > 1:
        raise messages.several_frameworks("ds.namespace", sorted(found, key=lambda each: each.title), next(iter(found)))
    return next(iter(found))


@constant_under_compile
def _prepare(name: str) -> bool:
    """Build the namespace of a backend on its first use."""
    if name not in _SPACES:
        backend = registry.load(name)
        if "namespace" in backend.gaps:
            raise capabilities.unsupported_error(backend, "namespace")
        _SPACES.setdefault(name, _build(backend))
    return True


def _build(backend: Backend) -> Namespace:
    """Return a new namespace of a backend."""
    native = backend.array_api()
    functions = {**namespace_checks.checked(backend, native), **namespace_creation.functions(backend, native)}
    members: dict[str, Any] = {name: functions[name] for name in (*FUNCTIONS, *CREATION) if name in functions}
    members |= {**CONSTANTS, **_dtypes(backend)}
    for extension, names in EXTENSIONS.items():
        inside = {name: functions[f"{extension}.{name}"] for name in names if f"{extension}.{name}" in functions}
        if inside:
            members[extension] = Namespace(backend.name, backend.title, extension, inside)
    info = namespace_info.Info(backend, functions)
    members |= {"__array_namespace_info__": lambda: info, "__array_api_version__": VERSION}
    return Namespace(backend.name, backend.title, "", members)


def _dtypes(backend: Backend) -> dict[str, Any]:
    """Return the framework's dtypes by name."""
    found = {}
    for name in DTYPES:
        try:
            found[name] = backend.dtype(name)
        except ConversionError:
            continue
    return found


def _missing(backend: str, title: str, prefix: str, name: str) -> Exception:
    full = f"{prefix}.{name}" if prefix else name
    if name not in EXTENSIONS.get(prefix, NAMES):
        msg = f"the array API standard has no {full!r}"
        return _MissingNameError(msg, f"ds.framework({backend!r}) has the functions of {title} that no standard names")
    msg = f"{title} has no {full!r} of the array API standard"
    return _MissingNameError(msg, "dir(xp) lists what it has; test for a name with hasattr(xp, name)")


def _unpickle(backend: str, prefix: str) -> Namespace:
    """Return the namespace of a pickle or a deep copy: the one object of this process."""
    _prepare(backend)
    space = _SPACES[backend]
    restored: Namespace = getattr(space, prefix) if prefix else space
    return restored

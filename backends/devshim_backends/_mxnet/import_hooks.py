"""Import hooks that let MXNet, last released in 2022, be imported with current versions of NumPy and Python.

Requirements that this module meets:

* MXNet 1.9.1 and 2.0.0b1 read names that NumPy 1.24 and 2.0 removed (apache/mxnet#21165), and ``distutils``, which
  Python 3.12 removed. MXNet gets these names, and no other package does: **NumPy is never modified.**  When a module
  of MXNet runs ``import numpy``, it receives a second module object with NumPy's contents and the removed names.
* NumPy 2 changed the text of its scalars, and MXNet passes them to its operators as text: see `_to_text`.
* MXNet reads some of the names (``np.bool``) only when a function is called, so the second module has to stay.
* The hooks work in every thread and after a failed import: the only thing to restore is one import hook, which handles
  only names below ``mxnet.``.

How it works: a module's ``__builtins__`` decide what its ``import`` statement does (Python's execution model, "Builtins
and restricted execution"), so every module below ``mxnet`` runs with its own ``__import__``.
"""

from __future__ import annotations

import builtins
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec

__all__ = ["clashes", "import_context"]

_ROOT = "mxnet"
_REMOVED_IN_1_20 = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")
"""Financial functions that NumPy 1.20 moved to a separate package (NEP 32); MXNet still lists them."""


@contextmanager
def import_context() -> Iterator[None]:
    """Run MXNet's own import inside this context: it then finds the NumPy and the ``distutils`` that it needs.

    Raises:
        ImportError: Python is 3.12 or later, and setuptools, which still contains ``distutils``, is not installed.
    """
    finder = next((each for each in sys.meta_path if isinstance(each, _Finder)), None)
    is_new = finder is None
    if finder is None:
        sys.meta_path.insert(0, finder := _Finder())
    try:
        with warnings.catch_warnings():  # escapes in docstrings, distutils.version: due to MXNet's age, not to the user
            warnings.simplefilter("ignore")
            yield
    except BaseException:
        if is_new:
            sys.meta_path.remove(finder)
        raise


def clashes() -> tuple[str, ...]:
    """Return the known conflicts with frameworks that this process has imported: always empty."""
    return ()


_OPERATORS = "mxnet._ctypes.ndarray"
"""The module that writes operators' arguments as text, and uses ``str`` for nothing else."""


def _to_text(value: object) -> str:
    """Return an operator's argument as text: in a list NumPy 2 writes ``np.int64(2)``, which MXNet cannot read."""
    if isinstance(value, (list, tuple)):
        value = type(value)([each.item() if type(each).__module__ == "numpy" else each for each in value])
    return str(value)


class _Finder:
    """A finder that finds the modules below ``mxnet`` where Python would, and lets `_Loader` run them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_ROOT + "."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """A loader that runs a module of MXNet with its own import statement."""

    def exec_module(self, module: ModuleType) -> None:
        own = {**vars(builtins), "__import__": _import}
        if module.__name__ == _OPERATORS:
            own["str"] = _to_text
        module.__dict__["__builtins__"] = own
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module for MXNet's modules; the arguments are those of `builtins.__import__`."""
    if level == 0 and name == "distutils.version" and fromlist:
        return _distutils_version()
    module = builtins.__import__(name, globals, locals, fromlist or (), level)
    return _numpy_for_mxnet(module) if level == 0 and module.__name__ == "numpy" else module


_MADE_MODULES: dict[str, ModuleType] = {}
"""The modules made for MXNet, each made once; two threads that make one at the same time make equal ones."""


def _distutils_version() -> ModuleType:
    """Return a ``distutils.version`` whose classes do not warn: MXNet 1.9 also creates them while it computes."""
    if "distutils.version" not in _MADE_MODULES:
        real, module = _import_distutils_version(), ModuleType("distutils.version")
        for name in ("StrictVersion", "LooseVersion"):
            base = getattr(real, name)
            setattr(module, name, type(name, (base,), {"__init__": _init_without_warning}))
        _MADE_MODULES["distutils.version"] = module
    return _MADE_MODULES["distutils.version"]


def _init_without_warning(self: Any, vstring: str | None = None) -> None:
    """Do what `distutils.version.Version.__init__` does, without its DeprecationWarning."""
    if vstring:
        self.parse(vstring)


def _import_distutils_version() -> ModuleType:
    if sys.version_info < (3, 12):
        return import_module("distutils.version")
    try:
        return import_module("setuptools._distutils.version")
    except ImportError as error:
        msg = "MXNet needs distutils, which Python 3.12 removed; setuptools includes it: pip install setuptools"
        raise ImportError(msg, name="distutils") from error


class _NumPy(ModuleType):
    """NumPy as MXNet expects it; names that are missing here are looked up in NumPy itself."""

    _real: ModuleType

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _numpy_for_mxnet(real: ModuleType) -> ModuleType:
    if "numpy" not in _MADE_MODULES:
        second = _NumPy("numpy")
        second.__dict__.update(vars(real), _real=real)
        for name, value in _removed_names(real).items():
            second.__dict__.setdefault(name, value)
        _MADE_MODULES["numpy"] = second
    return _MADE_MODULES["numpy"]


def _removed_names(np: Any) -> dict[str, object]:
    """Return the removed names that MXNet reads, with their old values; only those that NumPy lacks are used."""
    names: dict[str, object] = {name: _make_financial(name) for name in _REMOVED_IN_1_20}
    names.update(bool=bool, int=int, compat=SimpleNamespace(basestring=str))
    names.update(PZERO=0.0, NZERO=-0.0, NINF=-np.inf, PINF=np.inf, Inf=np.inf, NAN=np.nan, NaN=np.nan)
    names.update(alltrue=np.all, sometrue=np.any, product=np.prod, round_=np.round)
    names.update(trapz=getattr(np, "trapezoid", None), **_removed_functions(np))
    return names


def _removed_functions(np: Any) -> dict[str, object]:
    """Return the two removed functions that have no successor with the same behaviour under another name."""

    def in1d(ar1: object, ar2: object, assume_unique: bool = False, invert: bool = False) -> object:
        """Test whether each element of a flattened array is in a second array."""
        return np.isin(np.asarray(ar1).ravel(), ar2, assume_unique=assume_unique, invert=invert)

    def msort(a: object) -> object:
        """Return a copy of an array sorted along its first axis."""
        return np.sort(a, axis=0)

    return {"in1d": in1d, "msort": msort}


def _make_financial(name: str) -> Callable[..., object]:
    def fail(*args: object, **kwargs: object) -> object:
        msg = f"NumPy 1.20 removed {name} (NEP 32); the package numpy-financial includes it"
        raise RuntimeError(msg)

    fail.__name__ = name
    fail.__doc__ = f"Removed from NumPy 1.20: ``{name}`` is in the package numpy-financial."
    return fail

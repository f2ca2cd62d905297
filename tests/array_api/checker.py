"""Call the functions of a namespace and compare their results with those of array-api-strict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict as strict
import numpy as np
from cases import ALL, Case, Dtype

import devshim as ds

CREATION_WITHOUT_INPUT = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")
RANDOM = ("empty", "empty_like")
TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}


class Lacking(Exception):
    """The framework lacks a dtype of the arguments: the call says nothing about the function."""


def attribute(xp: Any, name: str) -> Any:
    """Return a function by its name, such as ``linalg.svd``; None if it is missing."""
    for part in name.split("."):
        xp = getattr(xp, part, None)
    return xp


def filled(value: Any, array: Callable[[np.ndarray], Any], dtype: Callable[[str], Any]) -> Any:
    """Return arguments with arrays and dtypes of a framework."""
    if isinstance(value, (np.ndarray, np.generic)):
        return array(np.asarray(value))
    if isinstance(value, Dtype):
        return dtype(value.name)
    if type(value) in (list, tuple):
        return type(value)(filled(each, array, dtype) for each in value)
    if isinstance(value, dict):
        return {key: filled(each, array, dtype) for key, each in value.items()}
    return value


def expected(name: str, call: Case) -> Any:
    """Return the reference's result, or the error that it raises."""

    def array(values: np.ndarray) -> Any:
        return strict.asarray(values)

    args = filled(call.args, array, lambda name: getattr(strict, name))
    options = filled(call.options, array, lambda name: getattr(strict, name))
    if name == "isin":  # array-api-strict 2.6.1 ignores ``invert``
        return strict.asarray(np.isin(*call.args, **call.options))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return attribute(strict, name)(*args, **options)
    except Exception as error:
        return error


def listed(result: Any) -> list[Any]:
    """Return the results of a call one by one."""
    if isinstance(result, (list, tuple)) and not (result and all(isinstance(each, int) for each in result)):
        return [part for each in result for part in listed(each)]
    if type(result).__name__ in ("finfo_object", "iinfo_object") or hasattr(result, "bits"):
        return [int(result.bits), float(result.max), float(result.min)]
    return [result]


def to_numpy(x: Any) -> Any:
    """Return a strict array's values; other values unchanged."""
    return np.asarray(x._array) if hasattr(x, "_array") else x


class Checker:
    """The check of one namespace on one device.

    Args:
        xp: The namespace.
        backend: The framework's name.
        device: The device of the arguments.
        foreign: True for a namespace of another project: it gets no devshim devices, and may return NumPy's scalars.
    """

    def __init__(self, xp: Any, backend: str, device: str, *, foreign: bool = False) -> None:
        from devshim.registry import registry

        self.xp, self.device, self.backend = xp, ds.device(device), registry.load(backend)
        self.foreign = foreign
        self.default_int = ds.dtype_of(ds.asarray(1))

    def check(self, name: str) -> str:
        """Return ``"pass"``, ``"missing"``, or a description of the first difference."""
        fn = attribute(self.xp, name)
        if fn is None:
            return "missing"
        checked = 0
        for call in ALL[name]:
            try:
                problem = self._check_call(name, fn, call)
            except Lacking:
                continue
            except Exception as error:  # a framework's own error is a result of this check
                problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
            if problem:
                return f"{self._shown(call)}: {problem}"
            checked += 1
        return "pass" if checked else "missing"

    def _check_call(self, name: str, fn: Any, call: Case) -> str:
        wanted = expected(name, call)
        args, options = (filled(part, self._array, self._dtype) for part in call)
        if not self.foreign and name in (*CREATION_WITHOUT_INPUT, "fft.fftfreq", "fft.rfftfreq"):
            options["device"] = self.device
        if isinstance(wanted, Exception):
            try:
                fn(*args, **options)
            except Exception:
                return ""
            return "no error"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = fn(*args, **options)
        pairs = self._comparable(name, call, got, wanted)
        return next(filter(None, (self._difference(name, a, b) for a, b in pairs)), "")

    def _comparable(self, name: str, call: Case, got: Any, wanted: Any) -> Iterator[tuple[Any, Any]]:
        """Yield pairs to compare: for factors that are not unique, their products."""
        if name in ("linalg.svd", "linalg.qr", "linalg.eig", "linalg.eigh"):
            yield from self._products(name, call, got, wanted)
            return
        if name == "linalg.eigvals":
            yield np.sort_complex(self._numpy(got)), np.sort_complex(to_numpy(wanted))
            return
        a, b = listed(got), listed(wanted)
        if len(a) != len(b):
            yield f"{len(a)} results", f"{len(b)} results"
        yield from zip(a, b, strict=False)

    def _products(self, name: str, call: Case, got: Any, wanted: Any) -> Iterator[tuple[Any, Any]]:
        parts = [self._numpy(part) for part in got]
        x = call.args[0]
        if name == "linalg.svd":
            yield got[1], wanted[1]
            k = parts[1].shape[-1]
            product = (parts[0][..., :k] * parts[1][..., None, :]) @ parts[2][..., :k, :]
        elif name == "linalg.qr":
            product = parts[0] @ parts[1]
            yield parts[0].shape, to_numpy(wanted[0]).shape
        else:
            if name == "linalg.eigh":
                yield got[0], wanted[0]
            product, x = x @ parts[1], parts[1] * parts[0][..., None, :]
        yield product, x.astype(product.dtype)

    def _difference(self, name: str, got: Any, wanted: Any) -> str:
        """Return how two results differ, or empty text."""
        if self.foreign and isinstance(got, np.generic):
            got = np.asarray(got)
        if hasattr(wanted, "_array"):
            if not self.backend.is_tensor(type(got)):
                return f"a {type(got).__name__} instead of a tensor"
            if ds.device_of(got) is not self.device:
                return f"on {ds.device_of(got)}"
            dtype, right = ds.dtype_of(got), str(to_numpy(wanted).dtype)
            if dtype != right:
                self._dtype(right)  # the framework may lack the dtype of the result
            if dtype != right and not self._is_default(name, dtype, right):
                return f"dtype {dtype} instead of {right}"
            got = self._numpy(got)
        elif type(wanted).__name__ == "DType" or "float" in str(wanted) or "int" in str(wanted):
            own = self._dtype(str(wanted).rpartition(".")[2]) if not isinstance(wanted, (float, int)) else wanted
            return "" if got == own else f"{got} instead of {wanted}"
        if name in RANDOM:
            return "" if np.shape(got) == np.shape(to_numpy(wanted)) else "another shape"
        a, b = np.asarray(got), np.asarray(to_numpy(wanted))
        if a.shape != b.shape:
            return f"shape {a.shape} instead of {b.shape}"
        tolerance = TOLERANCE.get(str(a.dtype), 0)
        if a.dtype.kind in "fc":
            same = np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            same = bool(np.array_equal(a, b))
        return "" if same else "other values"

    def _is_default(self, name: str, dtype: str, right: str) -> bool:
        """Return True if the standard leaves the dtype to the framework."""
        if right in ("int64", "uint64"):  # the default integer, and that of indices
            return dtype.lstrip("u") in (self.default_int, "int64")
        kept = name in (*CREATION_WITHOUT_INPUT, "asarray", "mean")
        return kept and {dtype, right} <= {"float32", "float64"}

    def _array(self, values: np.ndarray) -> Any:
        self._dtype(values.dtype.name)
        return ds.from_numpy(values, self.device)

    def _dtype(self, name: str) -> Any:
        found = getattr(ds.namespace(), name, None)
        if found is None:
            raise Lacking(name)
        return found

    def _numpy(self, x: Any) -> np.ndarray:
        return ds.to_numpy(x) if self.backend.is_tensor(type(x)) else np.asarray(x)

    def _shown(self, call: Case) -> str:
        def text(value: Any) -> str:
            if isinstance(value, (np.ndarray, np.generic)):
                return f"{value.dtype.name}{list(np.shape(value))}"
            if isinstance(value, Dtype):
                return value.name
            if type(value) in (list, tuple):
                return f"[{', '.join(map(text, value))}]"
            return repr(value)

        return ", ".join([*map(text, call.args), *(f"{key}={text(value)}" for key, value in call.options.items())])

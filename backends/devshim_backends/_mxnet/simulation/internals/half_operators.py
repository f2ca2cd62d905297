"""float16 on simulated GPUs: the operators whose kernels for it exist only for CUDA.

MXNet's kernels for the CPU know float16, except those of these operators: their errors say "FP16 gemm on cpu not
implemented!" or "only supported by CuDNN", and are raised when the result is read. On a simulated GPU such an operator
computes in a wider dtype and rounds its results, as the kernels of a real GPU do inside. The casts around it are
operators of MXNet, so gradients flow through them. Operators that CUDA does not have in float16 either keep MXNet's own
error, and so do all operators on the host.

`compute` runs one operator; ``half_graphs.py`` puts the casts into whole graphs.
"""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import _LIB

from devshim_backends._mxnet import tracing
from devshim_backends._mxnet.internals import numpy_operators
from devshim_backends._mxnet.internals.native import CODES, dtype_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["FUNCTIONS", "HANDLES", "NAMES", "compute", "has_float16", "is_needed"]

_INTERLEAVED = tuple(
    f"interleaved_matmul_{each}" for each in ("encdec_qk", "encdec_valatt", "selfatt_qk", "selfatt_valatt")
)
_EXTENSIONS = (
    *("batch_dot", "convolution", "deconvolution", "fully_connected", "rnn"),
    *("deformable_convolution", "modulated_deformable_convolution", *_INTERLEAVED),
)
"""Names in ``mx.npx``."""

_NAMES = frozenset(
    (
        *("FullyConnected", "Convolution", "Convolution_v1", "Deconvolution", "RNN", "dot", "batch_dot"),
        *("GridGenerator", "SpatialTransformer", "_contrib_AdaptiveAvgPooling2D"),
        *("_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"),
        *(f"_contrib_{name}" for name in _INTERLEAVED),
        *(f"_npx_{name}" for name in _EXTENSIONS),
        *("_np_dot", "_npi_dot", "_npi_matmul", "_npi_tensordot", "_npi_tensordot_int_axes"),
    )
)
_DECONVOLUTIONS = ("Deconvolution", "_npx_deconvolution")
NAMES = {**dict.fromkeys(_NAMES, "float32"), **dict.fromkeys(_DECONVOLUTIONS, "float64")}
"""The operators, by their names in MXNet's library -> the dtype in which they compute; a release may lack some.

oneDNN's deconvolution in float32 has no gradient of a weight that another operator made, such as a cast (1.9, 2.0):
"could not execute a primitive". That in float64 is MXNet's own.
"""


def _address(name: str) -> int | None:
    """Return the address of an operator in MXNet's registry, or None if this release lacks it."""
    handle = c_void_p()
    return handle.value if _LIB.NNGetOpHandle(name.encode(), byref(handle)) == 0 else None


HANDLES = {_address(name): dtype for name, dtype in NAMES.items()}
"""The operators by their addresses, as the older interface passes them."""
HANDLES.pop(None, None)


def _functions() -> dict[Any, str]:
    found = {}
    for path, names in (("numpy", ("dot", "matmul", "tensordot")), ("numpy_extension", _EXTENSIONS)):
        module = getattr(getattr(mx.nd, path, None), "_api_internal", None)
        for name in names:
            if hasattr(module, name):
                found[getattr(module, name)] = NAMES.get(f"_npx_{name}", "float32")
    return found


FUNCTIONS = _functions()
"""The functions of the NumPy interface that call them; the last argument may be an array for the result."""

_FLOAT16, _FLOATS = CODES["float16"], frozenset(CODES[name] for name in ("float16", "float32", "float64", "bfloat16"))
_CAST = _address("Cast")


def is_needed(arrays: Iterable[Any]) -> bool:
    """Return True if all arrays of floats among an operator's arguments are dense ones of float16."""
    floats = [x for x in arrays if dtype_code(x) in _FLOATS]
    if not floats or any(dtype_code(x) != _FLOAT16 or x.stype != "default" for x in floats):
        return False
    return not tracing.is_deferred()  # the graph gets the casts


def has_float16(arrays: Iterable[Any]) -> bool:
    """Return True if an array among the arguments of a loop or branch is of float16."""
    return any(dtype_code(x) == _FLOAT16 for x in arrays) and not tracing.is_deferred()


def compute(run: Callable[[list[Any]], Any], dtype: str, args: Iterable[Any], out: Any) -> Any:
    """Return an operator's results in float16, computed in a wider dtype.

    Args:
        run: Calls the operator with arguments.
        dtype: The wider dtype.
        args: The arguments.
        out: The arrays for its results, or None.
    """
    found = run([_widen(x, dtype) for x in args])
    if out is None:
        return _narrow(found)
    targets, results = ([each] if isinstance(each, mx.nd.NDArray) else list(each) for each in (out, found))
    for target, result in zip(targets, results, strict=False):
        _cast(result, "float16" if dtype_code(target) == _FLOAT16 else target.dtype, target)
    return out


def _widen(x: Any, dtype: str) -> Any:
    return _cast(x, dtype) if isinstance(x, mx.nd.NDArray) and dtype_code(x) == _FLOAT16 else x


def _narrow(values: Any) -> Any:
    if isinstance(values, mx.nd.NDArray):
        return _cast(values, "float16")
    return [_narrow(value) for value in values]


def _cast(x: Any, dtype: Any, out: Any = None) -> Any:
    return numpy_operators.invoke(_CAST, [x], ["dtype"], [str(dtype)], out, isinstance(x, mx.np.ndarray), False)

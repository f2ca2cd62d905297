"""`FastPaths`, the optional shortcuts of an adapter for its framework's plainest tensors.

Requirements of this module:

* An adapter without fast paths is complete: every call has a slow path that checks everything.
* A fast path is keyed on the exact type of a tensor, so that a subclass never takes it. It checks what it needs to know
  of the tensor itself, and returns None for a tensor that needs the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FastPaths"]


@dataclass(frozen=True)
class FastPaths:
    """Fast paths of one adapter; each may be left out. Mappings but `host_makers` are from the exact type of a tensor.

    Attributes:
        host_flag: The name of a tensor attribute that is exactly True if the data is in host memory, such as
            ``"is_cpu"``; empty if the framework has none that is fast.
        host_type: The exact type of the tensors that the adapter's methods make. If ``host_flag`` is empty, all
            tensors of this type are in host memory. None: the device of each new tensor is read.
        host_makers: Functions that make a tensor of the default dtype in host memory, regardless of the framework's own
            default device, by the name of the adapter's method. They take its arguments before the dtype, and may
            return None. They are for an adapter whose method takes longer. ``"empty_like"``, ``"ones_like"`` and
            ``"zeros_like"`` take a tensor of the adapter in host memory, and give the result its dtype and shape;
            ``full_like`` has none. A subclass of an adapter that overrides one of these methods, or makes tensors of
            another type, must set ``fast_paths``, too.
        reading: A function that returns True while the compiler reads the calling code, faster than
            ``Backend.compiling``. It may return False in code that the compiler runs, if tensors there are not of
            ``host_type``, and True elsewhere, where the slow path then serves the call.
        host_copy: Functions that copy a tensor to new host memory, as `Backend.copy_to` does. Each checks that its
            result is in host memory. While a ledger, guard or fault is active, the copy engine reports the copy around
            them.
        numpy_view: Functions that return a NumPy array over the tensor's memory. Each checks the array's dtype and
            shape. The array is read-only if the tensor must not be written.
        numpy_copy: Functions that return the tensor's values in new, writable NumPy memory, with the same checks, for
            an adapter whose ``to_numpy`` takes longer. They run only while nothing observes copies.
        dlpack_export: Functions from a tensor and the consumer's `Backend.alignment` to a fresh unversioned DLPack
            capsule, the dtype's array-API name, and the shape. Each returns None unless the tensor is on the host, in C
            order, aligned for the consumer, and writable (or all of the framework's tensors are immutable).
        dlpack_import: A function from the result of another framework's ``dlpack_export`` to a tensor. It checks
            device, dtype and shape.
    """

    host_flag: str = ""
    host_type: type | None = None
    reading: Callable[[], bool] | None = None
    host_makers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    host_copy: Mapping[type, Callable[[Any], Any | None]] = field(default_factory=dict)
    numpy_view: Mapping[type, Callable[[Any], np.ndarray | None]] = field(default_factory=dict)
    numpy_copy: Mapping[type, Callable[[Any], np.ndarray | None]] = field(default_factory=dict)
    dlpack_export: Mapping[type, Callable[[Any, int], tuple[Any, str, tuple[int, ...]] | None]] = field(
        default_factory=dict
    )
    dlpack_import: Callable[[Any, str, tuple[int, ...]], Any | None] | None = None

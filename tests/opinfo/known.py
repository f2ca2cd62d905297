"""The known facts about operators before the exam."""

from __future__ import annotations

UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""Operators with undefined values: only the result's device, shape and dtype can be compared."""

CUDAS_DRIVERS = {"linalg.lstsq": {"gels"}}
"""Operators whose ``driver=`` CUDA restricts. PyTorch draws only those drivers for a device that is named ``cuda``."""

KNOWN: dict[str, str] = {}
"""Operators that fail, each with its cause. The exam fails if one of them passes, or if another one fails."""

ALLOWED = 2
"""The number of operators that may fail."""

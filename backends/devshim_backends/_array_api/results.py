"""The named tuples that functions of ``linalg`` return."""

from __future__ import annotations

from typing import Any, NamedTuple


class EigResult(NamedTuple):
    """The result of ``eig`` and ``eigh``."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The result of ``qr``."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The result of ``slogdet``."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """The result of ``svd``."""

    U: Any
    S: Any
    Vh: Any

"""The argument ``driver`` of `torch.linalg.svd` and `torch.linalg.lstsq`: CUDA's libraries have other drivers.

A singular value decomposition is computed with the CPU's one driver. For least squares, CUDA has only ``gels``, which
needs a matrix of full rank, and which the CPU also has. For another matrix, its result on CUDA is undefined, by
the documentation of `torch.linalg.lstsq`; the CPU raises an error if a factor has a zero on its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

__all__ = ["kernels"]

_FOR_ANY_RANK = (
    "CUDA has only the driver gels, which is undefined for such a matrix: use torch.linalg.pinv(A) @ B, or "
    'driver="gelsd" on the CPU'
)
_SVD = ("gesvd", "gesvdj", "gesvda")


def _svd(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that accepts the drivers of cuSOLVER."""

    def kernel(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        if driver is not None and driver not in _SVD:
            msg = (
                f"torch.linalg.svd: unknown svd driver {driver} in svd_cusolver computation. Check doc at "
                "https://pytorch.org/docs/stable/generated/torch.linalg.svd.html"
            )
            raise RuntimeError(msg)
        return compute(*args, **kwargs)

    return kernel


def _least_squares(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that accepts only the driver of CUDA, which is also its default."""

    def kernel(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        if driver is not None and driver.lower() != "gels":
            msg = "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA"
            raise RuntimeError(msg)
        try:
            return compute(*args, driver="gels", **kwargs)
        except torch.linalg.LinAlgError as error:
            text = f"{error}\n\nHint: {_FOR_ANY_RANK}"
        raise torch.linalg.LinAlgError(text)

    return kernel


def kernels(as_one_call: Callable[[str], Callable[..., Any]]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels; the function returns the kernel that computes an operator on the CPU."""
    for name, wrap in _KERNELS.items():
        yield name, wrap(as_one_call(name))


_KERNELS: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    **dict.fromkeys(("_linalg_svd", "_linalg_svd.U"), _svd),
    **dict.fromkeys(("linalg_lstsq", "linalg_lstsq.out"), _least_squares),
}

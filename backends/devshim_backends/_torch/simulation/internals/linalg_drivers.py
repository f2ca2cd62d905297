"""The argument ``driver`` of `torch.linalg.svd` and `torch.linalg.lstsq`: CUDA's libraries have other drivers.

A singular value decomposition is computed with the CPU's one driver. For least squares, CUDA has only ``gels``, which
needs a matrix of full rank, and which the CPU also has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["kernels"]

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
        return compute(*args, driver="gels", **kwargs)

    return kernel


def kernels(as_one_call: Callable[[str], Callable[..., Any]]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels; the function returns the kernel that computes an operator on the CPU."""
    for name, wrap in _KERNELS.items():
        yield name, wrap(as_one_call(name))


_KERNELS: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    **dict.fromkeys(("_linalg_svd", "_linalg_svd.U"), _svd),
    **dict.fromkeys(("linalg_lstsq", "linalg_lstsq.out"), _least_squares),
}

"""The versions of NVIDIA's libraries that programs ask for; Paddle's own code reads those of its build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim_backends._paddle.simulation.native_names.internals.callers import for_programs, is_program

if TYPE_CHECKING:
    from collections.abc import Iterator

CUDA_VERSION = "13.0"
"""The version of CUDA that programs ask for, as on PyTorch: one for which Paddle has a build."""
CUDNN_VERSION = 91002
"""The version of cuDNN that programs ask for, as on PyTorch: 9.10.2."""


class _CudaVersion(str):
    """Replacement for ``paddle.version.cuda``, which is text and a function."""

    _build: str

    def __new__(cls, build: str) -> _CudaVersion:
        version = super().__new__(cls, CUDA_VERSION)
        version._build = build
        return version

    def __call__(self) -> str:
        return CUDA_VERSION if is_program() else self._build


def versions() -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace in ``paddle.version``: the owner, the attribute, the new value."""
    major, rest = divmod(CUDNN_VERSION, 10000)
    cudnn = f"{major}.{rest // 100}.{rest % 100}"
    yield paddle.version, "cuda", _CudaVersion(paddle.version.cuda())
    yield paddle.version, "cudnn", for_programs(paddle.version.cudnn, lambda: cudnn)

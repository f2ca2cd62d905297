"""The frames that an error passed: their variables are cleared, so that the tensors in them are freed immediately."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def clear_below(error: BaseException) -> None:
    """Clear the variables of the frames below the caller that an error passed; JAX hides some of those frames."""
    here = sys._getframe(1)
    failed: BaseException | None = error
    while failed is not None:
        trace = failed.__traceback__
        while trace is not None:
            frame: FrameType | None = trace.tb_frame
            while frame is not None and frame is not here:
                with suppress(RuntimeError):  # the frame is still running
                    frame.clear()
                frame = frame.f_back
            trace = trace.tb_next
        failed = failed.__cause__

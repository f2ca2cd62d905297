"""The reason in an error's sentence: the text after its first colon."""

from __future__ import annotations

import devshim as ds

__all__ = ["reason", "why_no_more"]


def reason(error: ds.DevshimError) -> str:
    """Return the reason from "what was asked, and what is true: why"."""
    return error.problem.partition(": ")[2] or error.problem


def why_no_more(have: int) -> str:
    """Return why the current framework has only ``have`` GPUs, from the error for the next one."""
    try:
        ds.require(ds.gpu(have))
    except ds.DeviceNotFoundError as error:
        return reason(error)
    return ""

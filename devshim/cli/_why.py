"""The reason inside an error's sentence: what follows its first colon."""

from __future__ import annotations

import devshim as ds

__all__ = ["reason", "why_no_more"]


def reason(error: ds.DevshimError) -> str:
    """Return why, out of "what was asked, and what is true: why"."""
    return error.problem.partition(": ")[2] or error.problem


def why_no_more(have: int) -> str:
    """Return why the current framework has no GPU after those it has, out of the refusal of the next one."""
    try:
        ds.require(ds.gpu(have))
    except ds.DeviceNotFoundError as error:
        return reason(error)
    return ""

"""The start of Ray in this process, or its connection to a cluster, also if its file names or arguments are not UTF-8.

Python stores other bytes as lone surrogates, which Ray cannot send. It sends the working directory and the program's
folder, from which its processes import, and the program with its arguments, which it only lists. In the C locale, all
names with letters other than those of ASCII may be such names. This replaces a class of Ray 2.60 during the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["init"]


def init(**options: Any) -> Any:
    """Call ``ray.init`` with these options."""
    import ray
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = _Folders()
    with _sendable_names():
        return ray.init(job_config=config, **options)


class _Folders(list[str]):
    """Folders from which Ray's processes import, without those that it cannot send."""

    def extend(self, folders: Iterable[str]) -> None:
        super().extend(folder for folder in folders if _sendable(folder) == folder)


@contextmanager
def _sendable_names() -> Iterator[None]:
    """Let Ray send the name of the program and its arguments with question marks for what is not UTF-8."""
    from ray import _raylet

    kind = _raylet.CoreWorker

    def start(*args: Any, **options: Any) -> Any:
        return kind(*[_sendable(each) if isinstance(each, str) else each for each in args], **options)

    _raylet.CoreWorker = start
    try:
        yield
    finally:
        _raylet.CoreWorker = kind


def _sendable(text: str) -> str:
    return text.encode(errors="replace").decode()

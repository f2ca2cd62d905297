"""The path of a checkpoint: checks of the user's argument, and the system's errors about paths as devshim's errors.

An error about a path is both a `CheckpointError` and the `OSError` that the system raised, so that programs that
catch `FileNotFoundError` keep working.
"""

from __future__ import annotations

import os
from errno import ENOENT, ENOTDIR
from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, CheckpointError
from devshim.errors.formatting import describe, show
from devshim.registry import argument_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "make_error",
    "missing_file_error",
    "missing_folder_error",
    "read_load_path",
    "read_save_path",
    "system_error",
]

_LISTED = 1000
"""The number of files in a folder that are searched for a similar name."""


class _SystemError(CheckpointError, OSError):
    """The system's error about a path."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (make_error, (self.problem, self.hint, self.errno, self.strerror, self.filename))


class _NotFoundError(_SystemError, FileNotFoundError):
    """The error for a path at which there is nothing."""


class _DeniedError(_SystemError, PermissionError):
    """The error for an operation that the system does not allow this user."""


for _cls in (_SystemError, _NotFoundError, _DeniedError):  # users catch them by this name
    _cls.__module__, _cls.__name__, _cls.__qualname__ = "devshim", "CheckpointError", "CheckpointError"


def make_error(problem: str, hint: str, number: int | None, text: str | None, path: str) -> CheckpointError:
    """Return an error with the fields of a system's error, and of its class."""
    kind = type(OSError(number, "")) if number is not None else OSError
    cls = {FileNotFoundError: _NotFoundError, PermissionError: _DeniedError}.get(kind, _SystemError)
    error = cls(problem, hint)
    error.errno, error.strerror, error.filename = number, text, path
    return error


def system_error(path: str, error: OSError, what: str, hint: str) -> CheckpointError:
    """Return an error about a path, with the fields of the system's own error.

    Args:
        path: The path.
        error: The system's error.
        what: What cannot be done, such as ``"cannot be read"``.
        hint: What to type.
    """
    return make_error(f"{show(path)} {what}: {error.strerror or error}", hint, error.errno, error.strerror, path)


# ---------------------------------------------------------------------- arguments
def read_save_path(obj: Any, path: Any) -> str:
    """Return the path given to ``ds.save(obj, path)`` as text.

    Raises:
        ArgumentError: It is not a path of a file, or the two are swapped.
    """
    if not isinstance(path, (str, bytes, os.PathLike)) and isinstance(obj, (str, os.PathLike)):
        msg = f"ds.save takes the path second, and was given {show(os.fspath(obj))} first and {describe(path)} second"
        raise ArgumentError(msg, f"the arguments are swapped: ds.save(obj, {show(os.fspath(obj))})")
    return _path_text(path, lambda text: f"ds.save(obj, {text})")


def read_load_path(path: Any, device: Any) -> str:
    """Return the path given to ``ds.load(path, device)`` as text.

    Raises:
        ArgumentError: It is not a path of a file, or the two are swapped.
    """
    if isinstance(device, (str, os.PathLike)) and argument_hints.device_source(device) is None:
        place = None if isinstance(path, os.PathLike) else argument_hints.device_source(path)
        if place is not None and not os.path.exists(str(path)):
            given = show(os.fspath(device))
            msg = f"ds.load takes the path first and the device second, and was given {place} first and {given} second"
            raise ArgumentError(msg, f"the arguments are swapped: ds.load({given}, {place})")
    return _path_text(path, lambda text: f"ds.load({text})")


def _path_text(path: Any, call: Callable[[str], str]) -> str:
    name = call("").partition("(")[0]
    try:
        text = os.fspath(path)
    except Exception as error:  # an object may raise anything from its own __fspath__
        msg = f"{name} takes the path of a file, and was given {describe(path)}"
        raise ArgumentError(msg, f"pass its path: {call(repr('checkpoint.safetensors'))}") from error
    if isinstance(text, bytes):
        msg = f"{name} takes a path as text, and was given bytes"
        raise ArgumentError(msg, call("os.fsdecode(path)"))
    if not text:
        msg = f"{name} was given an empty path"
        raise ArgumentError(msg, f"name a file: {call(repr('checkpoint.safetensors'))}")
    try:
        known = b"\0" not in os.fsencode(text)
    except UnicodeError:  # half a character: a lone surrogate
        known = False
    if not known:
        clean = "".join(c for c in text if c.isprintable())[:40]
        msg = f"{show(text)} contains a character that no file name can have"
        raise ArgumentError(msg, call(repr(clean or "x")))
    return str(text)


# ---------------------------------------------------------------------- missing files and folders
def missing_folder_error(folder: str) -> CheckpointError:
    """Return the error for a missing folder to save into."""
    hint = f"os.makedirs({show(folder)}) creates it"
    parts = folder.split(os.sep)
    if os.path.exists(folder):
        problem = f"{folder!r} is a file, not a folder"
        return make_error(problem, "save to another folder", ENOTDIR, "Not a directory", folder)
    if any(part.startswith("~") for part in parts):
        hint = "'~' is not expanded: ds.save(obj, os.path.expanduser(path))"
    return make_error(f"the folder {folder!r} does not exist", hint, ENOENT, "No such file or directory", folder)


def missing_file_error(path: str, error: OSError) -> CheckpointError:
    """Return the error for a missing file to load, with the most similar name in its folder."""
    folder, name = os.path.split(path)
    if path.startswith("~"):
        hint = f"'~' is not expanded: ds.load(os.path.expanduser({show(path)}))"
    elif os.path.isfile(folder):
        hint = f"{show(folder)} is a file, not a folder: did you mean ds.load({show(folder)})?"
    elif not os.path.isdir(folder or "."):
        hint = f"there is no folder {show(folder)}: the current folder is {show(os.getcwd())}"
    else:
        hint = _similar_file_hint(folder, name) or (
            f"pass the full path: the current folder is {show(os.getcwd())}"
            if not os.path.isabs(path)
            else f"ds.save(obj, {show(path)}) writes one"
        )
    return make_error(f"there is no file {show(path)} to load", hint, error.errno, error.strerror, path)


def _similar_file_hint(folder: str, name: str) -> str | None:
    """Return a hint at files of a folder that the user may have meant."""
    from difflib import get_close_matches
    from itertools import islice

    with os.scandir(folder or ".") as entries:
        names = [entry.name for entry in islice(entries, _LISTED) if entry.name[:1] != "." and entry.is_file()]
    stem = name.partition(".")[0]
    alike = [each for each in names if each.partition(".")[0] == stem] or get_close_matches(name, names, 1)
    if alike:
        return f"did you mean ds.load({os.path.join(folder, alike[0])!r})?"
    saved = sorted(each for each in names if each.endswith(".safetensors"))[:3]
    return f"in that folder are {', '.join(map(repr, saved))}" if saved else None

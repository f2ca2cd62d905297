"""Files and packages with TorchScript: they name the card of each tensor, so that another machine can load them.

C++ writes the device of a tensor as ``sim:1``, which a process without simulated GPUs cannot read. A file is a zip
archive. In its pickles, the device stands before the number of elements; each of these texts gets the card's name.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.package import PackageExporter

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import NAME

__all__ = ["install"]

_TEXT, _MEMO, _NUMBER = b"X(.)\0\0\0", b"(?:q.|r.{4})", b"(?:K.|M..|J.{4}|\x8a.{1,9}?)"
_DEVICE = re.compile(_TEXT + NAME.encode() + rb"(:\d+)(" + _MEMO + b"?" + _NUMBER + b"tQ)", re.DOTALL)
"""The device and the number of elements at the end of a tensor's entry in a pickle, and the opcodes after them."""
_WRITTEN_BY_PYTORCH = frozenset({"version", ".data/version", ".data/serialization_id"})

_VERSIONS = ("version", ".data/version")
"""The record with the version: in the file of a script, and in one of `torch.package`."""

_METHODS = {"save": "save_to_buffer", "_save_for_mobile": "_save_to_buffer_for_mobile"}
"""The methods that write a file -> those that return its content."""


def _name_cards(pickled: bytes) -> bytes:
    def renamed(found: re.Match[bytes]) -> bytes:
        text = b"cuda" + found[2]
        return b"X" + len(text).to_bytes(4, "little") + text + found[3]

    return _DEVICE.sub(renamed, pickled)


def _rewritten(archive: bytes) -> bytes:
    """Return an archive whose pickles name cards."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(archive))
    names = [name for name in reader.get_all_records() if name not in _WRITTEN_BY_PYTORCH]
    if not any(NAME.encode() in reader.get_record(name) for name in names if name.endswith(".pkl")):
        return archive
    made = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(made)
    version = next(name for name in _VERSIONS if reader.has_record(name))
    writer.set_min_version(int(reader.get_record(version)))
    for name in names:
        content = reader.get_record(name)
        if name.endswith(".pkl"):
            content = _name_cards(content)
        writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    return made.getvalue()


def _save_to_buffer(real: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return a replacement for a method of C++ that returns an archive."""

    @functools.wraps(real)
    def save_to_buffer(*args: Any, **kwargs: Any) -> bytes:
        return _rewritten(real(*args, **kwargs))

    return save_to_buffer


def _save(real: Callable[..., bytes]) -> Callable[..., None]:
    """Return a replacement for a method of C++ that writes a file, by the one that returns its content."""

    @functools.wraps(real)
    def save(self: Any, filename: Any, *args: Any, **kwargs: Any) -> None:
        Path(filename).write_bytes(_rewritten(real(self, *args, **kwargs)))

    return save


def _start_package(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``PackageExporter.__init__``, which collects what goes to a file object."""

    @functools.wraps(real)
    def init(self: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, (str, PathLike)):
            real(self, f, *args, **kwargs)
            self._devshim_target = Path(f), None
        else:
            content = io.BytesIO()
            real(self, content, *args, **kwargs)
            self.buffer, self._devshim_target = f, (f, content)

    return init


def _end_package(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the method of ``PackageExporter`` that ends the archive, which C++ writes."""

    @functools.wraps(real)
    def finalize_zip(self: Any) -> None:
        real(self)
        file, content = vars(self).pop("_devshim_target", (None, None))
        if content is not None:
            file.write(_rewritten(content.getvalue()))
            file.flush()
        elif file is not None and self.serialized_reduces:  # scripts
            archive = file.read_bytes()
            if (rewritten := _rewritten(archive)) is not archive:
                file.write_bytes(rewritten)

    return finalize_zip


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(PackageExporter, "__init__", _start_package(PackageExporter.__init__))
    patches.replace(PackageExporter, "_finalize_zip", _end_package(PackageExporter._finalize_zip))
    for kind in (torch._C.ScriptModule, torch._C.ScriptFunction):
        for file, buffer in _METHODS.items():
            real = getattr(kind, buffer, None)
            if real is not None:  # a function cannot be saved for a mobile device
                patches.replace(kind, file, _save(real))
                patches.replace(kind, buffer, _save_to_buffer(real))

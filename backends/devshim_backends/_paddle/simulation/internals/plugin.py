"""The plug-in for simulated GPUs: compile ``simulated_gpus.cc``, and make Paddle load it.

Paddle accepts a new kind of device from a shared library, its *plug-in*, which must be compiled against the headers in
Paddle's own wheel.  devshim therefore contains the source, and compiles it on first use. Paddle looks for plug-ins
only once, while it is imported, so the library must be ready before that.

Requirements that this module meets:

* The source is compiled once per Paddle version, in 0.3 s, into a folder that belongs to this user only
  (``cache_dir.py``). Several processes may compile at the same time: each writes its own file and renames it.
* `load_during_import` is the way that Paddle documents: the environment variable ``CUSTOM_DEVICE_ROOT`` is set during
  its import.
* `load_after_import` is for a Paddle that devshim itself imported, for example to count devices, and that has computed
  nothing: it is made to look for plug-ins again (3.0 to 3.3). After the first tensor it accepts no new device.

This module does not import Paddle: half of it runs before Paddle is imported.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.errors import SimulationError
from devshim.registry.versions import version_of
from devshim_backends._paddle.simulation.internals.cache_dir import private_folder, require_private_file

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FLAGS", "library", "load_after_import", "load_during_import", "load_error"]

SOURCE = Path(__file__).with_name("simulated_gpus.cc")
LIBRARY = "libdevshim_simulated_gpus.so"
HEADER = Path("include/paddle/phi/backends/device_ext.h")
COMPILERS = ("c++", "g++", "clang++")
_COMPILER_HINT = "install a working C++17 compiler (g++ or clang++), or name it in the environment variable CXX"

FLAGS: Mapping[str, str] = {
    # Each tensor is one allocation, given back when it is freed: only then is the used memory known to the byte.
    "FLAGS_free_idle_chunk": "1",
    # Paddle requests memory of a full GPU once, and not again after it has looked for memory to free.
    "FLAGS_free_when_no_cache_hit": "1",
    # Paddle has no plug-in kernel that makes a strided view contiguous, so LSTM and attention fail with views.
    "FLAGS_use_stride_kernel": "0",
}
"""Paddle's flags under simulation."""

_library: ctypes.CDLL | None = None
_load_error: SimulationError | None = None


def library() -> ctypes.CDLL | None:
    """Return the plug-in that Paddle has loaded, or None."""
    return _library


def load_error() -> SimulationError | None:
    """Return the reason why the plug-in could not be loaded when Paddle was imported, or None."""
    return _load_error


@contextmanager
def load_during_import(package: Path) -> Iterator[None]:
    """Make a Paddle that is imported inside this context load the plug-in; if that fails, `load_error` says why."""
    global _library, _load_error
    try:
        path, library = _open(package)
    except SimulationError as error:  # the import continues, for work on the CPU
        _load_error = error
        yield
        return
    # Paddle writes eight lines about loading a plug-in to standard error; its errors are still logged.
    quiet = {} if "GLOG_minloglevel" in os.environ else {"GLOG_minloglevel": "1"}
    with _environment({"CUSTOM_DEVICE_ROOT": str(path.parent), **FLAGS, **quiet}):
        yield
    _library = library
    if quiet:
        _library.devshim_log_level(os.fsencode(_core_library(package)), 0)


def load_after_import(package: Path) -> None:
    """Make a Paddle that is imported, but has made no tensor, load the plug-in now.

    Raises:
        SimulationError: It cannot be compiled, or this Paddle no longer accepts it.
    """
    global _library
    path, library = _open(package)
    with _environment({"CUSTOM_DEVICE_ROOT": str(path.parent)}):
        failed = library.devshim_attach(os.fsencode(_core_library(package)))
    if failed:
        msg = f"PaddlePaddle {version_of('paddle')} is already imported, and accepts no new devices after its import"
        raise SimulationError(msg, "move ds.simulate(...) above `import paddle` and above all other calls of devshim")
    _library = library


def _open(package: Path) -> tuple[Path, ctypes.CDLL]:
    """Return the path of the compiled plug-in, and its functions; Paddle opens the same file and shares its memory."""
    path = _build(package)
    try:
        return path, ctypes.CDLL(str(path))
    except OSError as error:
        msg = f"the compiled plug-in for PaddlePaddle's simulated GPUs cannot be loaded: {error}"
        raise SimulationError(
            msg,
            f"delete the folder {path.parent}, or set XDG_CACHE_HOME to a folder from which code may be loaded",
        ) from error


def _core_library(package: Path) -> Path:
    return package / "base" / "libpaddle.so"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ---------------------------------------------------------------- compiling
def _build(package: Path) -> Path:
    """Return the compiled plug-in for the Paddle in this package folder; its own folder contains nothing else."""
    other = os.environ.get("CUSTOM_DEVICE_ROOT")
    if other:
        msg = f"CUSTOM_DEVICE_ROOT={other} makes PaddlePaddle load another plug-in, so devshim cannot add its own"
        raise SimulationError(msg, "unset CUSTOM_DEVICE_ROOT, or use that plug-in's devices")
    source = _read(SOURCE, "the source of devshim's plug-in for PaddlePaddle", "install devshim again")
    header = _read(
        package / HEADER,
        "the header that a plug-in for PaddlePaddle is compiled against",
        "install Paddle's wheel again: pip install --force-reinstall paddlepaddle",
    )
    folder = private_folder("devshim", "paddle", f"{version_of('paddle')}-{_cache_key(source, header)}")
    target = folder / LIBRARY
    if not target.exists():
        _compile(package / "include", target)
    require_private_file(target)
    return target


def _read(path: Path, what: str, hint: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{what} cannot be read: {error}"
        raise SimulationError(msg, hint) from error


def _cache_key(source: bytes, header: bytes) -> str:
    """Return a hash of a compiled plug-in's inputs: source, Paddle's interface, machine (for shared homes)."""
    machine = " ".join((platform.system(), platform.machine(), *platform.libc_ver())).encode()
    return sha256(b"\0".join((source, header, machine))).hexdigest()[:16]


def _compile(include: Path, target: Path) -> None:
    """Compile into a file next to the target, and rename it: other processes may be doing the same."""
    handle, name = tempfile.mkstemp(prefix=".building-", dir=target.parent)
    os.close(handle)
    try:
        options = ("-O2", "-shared", "-fPIC", "-std=c++17", "-I", str(include))
        command = [*_compiler(), *options, str(SOURCE), "-o", name, "-ldl"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if process.returncode:
            output = process.stderr.strip()[-1500:]
            msg = f"devshim cannot compile PaddlePaddle's simulated GPUs with {command[0]}:\n\n{output}"
            raise SimulationError(msg, _COMPILER_HINT)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"devshim cannot compile PaddlePaddle's simulated GPUs: {error}"
        raise SimulationError(msg, _COMPILER_HINT) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _compiler() -> list[str]:
    configured = shlex.split(os.environ.get("CXX", ""))
    if configured:
        return configured
    compiler = next((path for path in map(shutil.which, COMPILERS) if path is not None), None)
    if compiler is None:
        msg = "devshim compiles PaddlePaddle's simulated GPUs on first use, and this machine has no C++ compiler"
        raise SimulationError(
            msg,
            "install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; conda: conda install "
            "-c conda-forge cxx-compiler), or name one in the environment variable CXX",
        )
    return [compiler]

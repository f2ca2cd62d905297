"""Paddle's plug-in for simulated GPUs: compiled on first use, and loaded while Paddle is imported or before it starts.

Requirements that this module meets:

* Paddle accepts a new kind of device as a shared library that is built against the headers in its own wheel, so devshim
  cannot ship one.  ``simulated_gpus.cc`` is compiled once per Paddle version, in 0.3 s, into a folder that belongs to
  this user only.
* Several processes may compile at once: each writes a file of its own and renames it, and all these files are equal.
* The way that Paddle documents is to set ``CUSTOM_DEVICE_ROOT`` in the environment during its import (`announced`).  If
  devshim itself imported Paddle, for example to count devices, and nothing has been computed yet, Paddle can still be
  made to look for devices again (`attach`, 2.6 to 3.3).  After that its allocators exist and it accepts no new device.

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
from devshim_backends._paddle.simulation.cache_dir import private_folder, require_own

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FLAGS", "announced", "attach", "library", "refusal"]

SOURCE = Path(__file__).with_name("simulated_gpus.cc")
LIBRARY = "libdevshim_simulated_gpus.so"
HEADER = Path("include/paddle/phi/backends/device_ext.h")
COMPILERS = ("c++", "g++", "clang++")

FLAGS: Mapping[str, str] = {
    # Each tensor is one allocation, given back when it is freed: only then is the used memory known to the byte.
    "FLAGS_free_idle_chunk": "1",
    # A full GPU is asked once, and not again after Paddle has looked for memory to give back.
    "FLAGS_free_when_no_cache_hit": "1",
    # Paddle has no plug-in kernel that makes a strided view contiguous, so LSTM and attention fail with views.
    "FLAGS_use_stride_kernel": "0",
}
"""Paddle's flags under simulation."""

_loaded: ctypes.CDLL | None = None
_refusal: SimulationError | None = None


def library() -> ctypes.CDLL | None:
    """Return the plug-in that Paddle has loaded, or None."""
    return _loaded


def refusal() -> SimulationError | None:
    """Return the reason why the plug-in could not be loaded when Paddle was imported, or None."""
    return _refusal


@contextmanager
def announced(package: Path) -> Iterator[None]:
    """Make a Paddle that is imported inside this context load the plug-in; if that fails, `refusal` has the reason."""
    global _loaded, _refusal
    try:
        built, found = _opened(package)
    except SimulationError as error:  # the import continues, for work on the CPU
        _refusal = error
        yield
        return
    # Paddle writes eight lines about loading a plug-in to standard error; its errors are still logged.
    is_suppressed = {} if "GLOG_minloglevel" in os.environ else {"GLOG_minloglevel": "1"}
    with _environment({"CUSTOM_DEVICE_ROOT": str(built.parent), **FLAGS, **is_suppressed}):
        yield
    _loaded = found
    if is_suppressed:
        _loaded.devshim_log_level(os.fsencode(_core(package)), 0)


def attach(package: Path) -> None:
    """Make a Paddle that is imported, but has made no tensor, load the plug-in now.

    Raises:
        SimulationError: It cannot be compiled, or this Paddle no longer accepts it.
    """
    global _loaded
    built, found = _opened(package)
    with _environment({"CUSTOM_DEVICE_ROOT": str(built.parent)}):
        failed = found.devshim_attach(os.fsencode(_core(package)))
    if failed:
        raise SimulationError(
            f"PaddlePaddle {version_of('paddle')} is imported, and takes no new devices any more",
            "move ds.simulate(...) above `import paddle` and above all other calls of devshim",
        )
    _loaded = found


def _opened(package: Path) -> tuple[Path, ctypes.CDLL]:
    """Return the path of the compiled plug-in, and its functions; Paddle opens the same file and shares its memory."""
    built = _built(package)
    try:
        return built, ctypes.CDLL(str(built))
    except OSError as error:
        raise SimulationError(
            f"PaddlePaddle's simulated GPUs are compiled, and cannot be loaded: {error}",
            f"delete the folder {built.parent}; or set XDG_CACHE_HOME to one from which code may be loaded",
        ) from error


def _core(package: Path) -> Path:
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
def _built(package: Path) -> Path:
    """Return the compiled plug-in for the Paddle in this package folder; its own folder contains nothing else."""
    other = os.environ.get("CUSTOM_DEVICE_ROOT")
    if other:
        raise SimulationError(
            f"PaddlePaddle is told to load another plug-in, from CUSTOM_DEVICE_ROOT={other}",
            "unset CUSTOM_DEVICE_ROOT, or use that plug-in's devices",
        )
    header = package / HEADER
    try:
        key = _key(SOURCE.read_bytes(), header.read_bytes())
    except OSError as error:
        raise SimulationError(
            f"this PaddlePaddle has not got the headers that a plug-in is compiled against: {error}",
            "install its wheel: pip install --force-reinstall paddlepaddle",
        ) from error
    folder = private_folder("devshim", "paddle", f"{version_of('paddle')}-{key}")
    target = folder / LIBRARY
    if not target.exists():
        _compile(package / "include", target)
    require_own(target)
    return target


def _key(source: bytes, header: bytes) -> str:
    """Return a hash of what a compiled plug-in depends on: source, Paddle's interface, machine (for shared homes)."""
    machine = " ".join((platform.system(), platform.machine(), *platform.libc_ver())).encode()
    return sha256(b"\0".join((source, header, machine))).hexdigest()[:16]


def _compile(include: Path, target: Path) -> None:
    """Compile into a file beside the target, and rename it: other processes may be doing the same."""
    handle, name = tempfile.mkstemp(prefix=".building-", dir=target.parent)
    os.close(handle)
    try:
        # Paddle 2.6's header uses the types of <cstdint> without including it.
        options = ("-O2", "-shared", "-fPIC", "-std=c++17", "-include", "cstdint", "-I", str(include))
        command = [*_compiler(), *options, str(SOURCE), "-o", name, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SimulationError(
                f"PaddlePaddle's simulated GPUs cannot be compiled with {command[0]}:\n\n{done.stderr.strip()[-1500:]}",
                "install a working C++17 compiler (g++ or clang++), or name it in the environment variable CXX",
            )
        os.chmod(name, 0o700)
        os.replace(name, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SimulationError(
            f"PaddlePaddle's simulated GPUs cannot be compiled: {error}",
            "install a working C++17 compiler (g++ or clang++), or name it in the environment variable CXX",
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    found = next((path for path in map(shutil.which, COMPILERS) if path is not None), None)
    if found is None:
        raise SimulationError(
            "PaddlePaddle's simulated GPUs are compiled on first use, and there is no C++ compiler here",
            "install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; conda: conda install "
            "-c conda-forge cxx-compiler), or name one in the environment variable CXX",
        )
    return [found]

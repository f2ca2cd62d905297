"""The packages of a Jupyter kernel in one folder, which is appended to the `sys.path` of each environment.

So no environment is modified, and an environment's own packages come first. If this interpreter has the same binary
interface, the folder has links to its packages; otherwise pip fills it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cache_folder", "kernel_command", "new_folder", "support_folder", "with_dependencies"]

_PACKAGE = "ipykernel"
_START = (
    "import sys; sys.path.append({folder!r}); from ipykernel.kernelapp import launch_new_instance as start; start()"
)


def cache_folder() -> Path:
    """Return the folder for environments, kernels and runs: DEVSHIM_TUTORIAL_CACHE, or one in the user's cache."""
    chosen = os.environ.get("DEVSHIM_TUTORIAL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "devshim" / "tutorial"


def new_folder(parent: Path) -> Path:
    """Make a new folder in a folder of the cache, and return it.

    Raises:
        DevshimError: The cache cannot be written.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=parent))
    except OSError as error:
        msg = f"the cache {cache_folder()} cannot be written: {error.strerror}"
        raise DevshimError(msg, "name another folder with the variable DEVSHIM_TUTORIAL_CACHE") from error


def kernel_command(python: Path, folder: Path) -> list[str]:
    """Return the command that starts a kernel in an environment; ``{connection_file}`` is filled in by Jupyter."""
    return [str(python), "-c", _START.format(folder=str(folder)), "-f", "{connection_file}"]


def support_folder(tag: str, python: str) -> Path:
    """Return a folder with the kernel's packages for an interpreter, and create it if it does not exist.

    Args:
        tag: The interpreter's binary interface, such as ``cpython-311``.
        python: Its version, such as ``3.11``.

    Raises:
        DevshimError: The packages cannot be installed, or the cache cannot be written.
    """
    try:
        packages = with_dependencies(_PACKAGE)
    except PackageNotFoundError as error:
        msg = f"devshim tutorial needs {error.name}, which is not installed"
        raise DevshimError(msg, "pip install 'devshim[tutorial]'") from error
    here = tag == sys.implementation.cache_tag
    text = " ".join([tag, *sorted(f"{each.name}={each.version}" for each in packages), *([sys.prefix] if here else [])])
    folder = cache_folder() / "kernels" / f"{tag}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        new = new_folder(folder.parent)
        try:
            if not (here and _link(packages, new)):
                _install(python, new, distribution(_PACKAGE).version)
            new.chmod(0o755)
            new.rename(folder)
        except OSError:  # another process made it meanwhile
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def with_dependencies(package: str) -> list[Distribution]:
    """Return an installed distribution and those that it needs.

    Raises:
        PackageNotFoundError: It, or one of those, is not installed.
    """
    found: dict[str, Distribution] = {}
    stack = [package]
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = distribution(name)
            stack += _requirements(found[name])
    return list(found.values())


def _requirements(package: Distribution) -> Iterator[str]:
    """Yield the names of the requirements of a distribution here, without its extras."""
    from packaging.requirements import Requirement

    for text in package.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield re.sub(r"[-_.]+", "-", needed.name).lower()


def _link(packages: list[Distribution], folder: Path) -> bool:
    """Link the files of distributions into a folder; False if one has no list of files, as an editable one."""
    for package in packages:
        names = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
        if not names or any(name.endswith(".pth") for name in names):
            return False
        for name in names:
            target = Path(str(package.locate_file(name)))
            if target.exists() and not (folder / name).exists():
                (folder / name).symlink_to(target)
    return True


def _install(python: str, folder: Path, version: str) -> None:
    """Let pip fill a folder with the packages for a version of Python."""
    chosen = ["--target", str(folder), "--python-version", python, "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *chosen]
    for each in (f"{_PACKAGE}=={version}", _PACKAGE):  # the newest one may need a newer Python
        done = subprocess.run([*command, each], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    msg = f"the packages of a kernel for Python {python} cannot be installed: {last}"
    raise DevshimError(msg, "check the network, or use an environment with the Python that runs devshim")

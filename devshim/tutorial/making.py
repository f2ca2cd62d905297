"""Create the environment of a framework from devshim's extras: once for each version of devshim and set of packages."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from devshim._version import __version__
from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial.environments import Environment, inspect, python_of
from devshim.tutorial.support import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["MADE", "create", "requirement"]

MADE = "made.json"
"""The file that marks a complete environment."""


def create(
    framework: str, packages: Sequence[str] = (), python: Path | None = None, notify: Callable[[str], object] = print
) -> Environment:
    """Create a virtual environment with a framework and devshim; return it if there is one already.

    Args:
        framework: The framework.
        packages: Further packages, as pip names them.
        python: The Python to use, or None for the running one.
        notify: Is called with what happens.

    Raises:
        DevshimError: The Python does not run, or pip cannot install the packages; nothing is left behind.
    """
    if framework not in discovery.BUILTIN:
        msg = f"devshim has no extra for {framework}"
        raise DevshimError(msg, f"create an environment with it, and name it: --env {framework}=FOLDER")
    base = _base(python)
    wanted = [requirement(framework), *packages]
    facts = {"devshim": __version__, "framework": framework, "packages": wanted, "python": str(base)}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_folder() / "environments" / f"{framework}-{key}"
    if not (folder / MADE).is_file():
        _make(folder, base, wanted, facts, notify)
    made = python_of(folder)
    if made is None:
        msg = f"{folder} has no Python"
        raise DevshimError(msg, f"remove it: rm -r {folder}")
    return inspect(framework, made, "created")


def _base(python: Path | None) -> Path:
    found = python_of("here" if python is None else python)
    if found is None:
        msg = f"{python} is not a Python"
        raise DevshimError(msg, "name one, such as --python /usr/bin/python3.12")
    return found


def _make(
    folder: Path, base: Path, wanted: Sequence[str], facts: dict[str, Any], notify: Callable[[str], object]
) -> None:
    """Create the folder; remove it if anything fails."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        notify(f"creating {folder}")
        _call([str(base), "-m", "venv", str(folder)])
        python = str(python_of(folder))
        notify(f"installing {', '.join(wanted)}")
        _call([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted])
        (folder / MADE).write_text(json.dumps(facts), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        lines = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        msg = f"{' '.join(command[1:4])} failed: {lines[-1] if lines else f'exit code {done.returncode}'}"
        raise DevshimError(
            msg, "check the network and the names; or create an environment yourself, and name it: --env"
        )


def requirement(framework: str) -> str:
    """Return the requirement of a framework and of this devshim: its version, or the folder it was installed from."""
    try:
        text = distribution("devshim").read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    url = urlparse(json.loads(text)["url"]) if text else None
    if url is not None and url.scheme == "file":
        return f"{unquote(url.path)}[{framework}]"
    return f"devshim[{framework}]=={__version__}"

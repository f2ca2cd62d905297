"""Create the environment of a framework from devshim's extras: once for each version of devshim and set of packages."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from devshim._version import __version__
from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial.environments import Environment, inspect, python_of
from devshim.tutorial.support import cache_folder, new_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["MADE", "create", "requirement"]

MADE = "made.json"
"""The file that marks a complete environment."""
_HINT = "check the network and the names; or create an environment yourself, and name it: --env"
_RAW = (24, 1)
"""The first version of pip that prints its progress for programs."""


def create(
    framework: str,
    packages: Sequence[str] = (),
    python: Path | None = None,
    notify: Callable[[str], object] = print,
    advance: Callable[[int, int], object] | None = None,
) -> Environment:
    """Create a virtual environment with a framework and devshim; return it if there is one already.

    Args:
        framework: The framework.
        packages: Further packages, as pip names them.
        python: The Python to use, or None for the running one.
        notify: Called with each event: each step, and each package that pip downloads.
        advance: Is called with the bytes of a download that have arrived, and its size.

    Raises:
        DevshimError: The Python does not run, pip cannot install the packages, or the cache cannot be written; nothing
            is left behind.
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
        _make(folder, base, wanted, facts, notify, advance)
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
    folder: Path,
    base: Path,
    wanted: Sequence[str],
    facts: dict[str, Any],
    notify: Callable[[str], object],
    advance: Callable[[int, int], object] | None,
) -> None:
    """Create the folder; remove it if anything fails."""
    shutil.rmtree(folder, ignore_errors=True)
    new_folder(folder.parent).rmdir()  # an error that names the cache, if it cannot be written
    try:
        notify("creating the folder")
        _call([str(base), "-m", "venv", str(folder)])
        python = str(python_of(folder))
        notify("looking for packages")
        _install(python, wanted, notify, advance)
        (folder / MADE).write_text(json.dumps(facts), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise _failure(command, f"{done.stdout}\n{done.stderr}".splitlines(), done.returncode)


def _failure(command: list[str], lines: list[str], code: int) -> DevshimError:
    said = [line for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("ERROR: ")] or said
    msg = f"{' '.join(command[1:4])} failed: {errors[-1] if errors else f'exit code {code}'}"
    return DevshimError(msg, _HINT)


def _install(
    python: str,
    wanted: Sequence[str],
    notify: Callable[[str], object],
    advance: Callable[[int, int], object] | None,
) -> None:
    """Let pip install packages, and read its progress from its output."""
    raw = ["--progress-bar", "raw"] if advance is not None and _pip_version(python) >= _RAW else []
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *raw, *wanted]
    lines: list[str] = []
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, errors="replace", **pipes) as process:
        try:
            for line in process.stdout or ():
                arrived = re.match(r"Progress (\d+) of (\d+)", line)
                if arrived and advance is not None:
                    advance(int(arrived[1]), int(arrived[2]))
                    continue
                lines.append(line.rstrip())
                step = _step(line)
                if step is not None:
                    notify(step)
        except BaseException:  # Ctrl-C
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(command, lines, process.returncode)


def _pip_version(python: str) -> tuple[int, ...]:
    done = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _step(line: str) -> str | None:
    """Return what a line of pip says that it does now; None for other lines."""
    found = re.match(r"\s*(Downloading|Using cached) (?:\S*/)?([^-/\s]+)-([^-\s]+)\S*( \(.*?\))?", line)
    if found:
        return f"{found[1].lower()} {found[2]} {found[3]}{found[4] or ''}"
    found = re.match(r"Installing collected packages: (.*)", line)
    return f"installing {len(found[1].split(','))} packages" if found else None


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

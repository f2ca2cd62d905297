"""Find the environment of each framework: where its Python is, and which versions it has.

An environment is named by a Python, by the folder of a virtual environment or a nox session, or by ``here``. It is
taken from the first of these that names one: the command line, ``[tool.devshim.tutorial.environments]`` in
pyproject.toml, the environments that ``devshim tutorial env create`` made, and the running Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devshim._version import __version__
from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial.support import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "HERE",
    "Environment",
    "choose",
    "find_created",
    "inspect",
    "python_of",
    "read_configured",
    "read_options",
    "resolve",
]

HERE = "here"
_TABLE = "tool.devshim.tutorial.environments"
_PROBE = """
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version(), "tag": sys.implementation.cache_tag, "version": None, "devshim": None}
for name in sys.argv[1:]:
    try:
        found["version"] = found["version"] or metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
try:
    import devshim
    found["devshim"] = devshim.__version__
except ImportError:
    pass
print(json.dumps(found))
"""
_SECONDS = 60


@dataclass(frozen=True)
class Environment:
    """The environment in which a framework runs.

    Attributes:
        framework: Its canonical name.
        python: The path of its Python.
        origin: Where its name comes from, such as ``pyproject.toml``.
        version: The framework's version in it.
        python_version: Its Python's version.
        tag: Its Python's binary interface, such as ``cpython-311``.
    """

    framework: str
    python: Path
    origin: str
    version: str
    python_version: str
    tag: str


def read_options(options: Iterable[str]) -> dict[str, str]:
    """Return the environments of options such as ``torch=.venvs/torch``.

    Raises:
        DevshimError: An option has another form.
    """
    found = {}
    for option in options:
        name, sign, value = option.partition("=")
        if not (sign and name and value):
            msg = f"{option!r} does not name an environment"
            raise DevshimError(msg, "write, for example: --env torch=.venvs/torch")
        found[discovery.canonical_name(name)] = value
    return found


def read_configured(start: Path) -> dict[str, Path | str]:
    """Return the environments in the nearest pyproject.toml of a folder and those above that has their table.

    Raises:
        DevshimError: The table is wrong.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        path = folder / "pyproject.toml"
        table = _table(path) if path.is_file() else None
        if table is not None:
            return {discovery.canonical_name(name): _locate(path, name, value) for name, value in table.items()}
    return {}


def _table(path: Path) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise DevshimError(msg, "correct the file, or name environments with --env") from error
    for key in _TABLE.split("."):
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found or None


def _locate(path: Path, name: str, value: object) -> Path | str:
    if not isinstance(value, str) or not value:
        msg = f"{path}: [{_TABLE}]: {name} must be the path of an environment, not {value!r}"
        raise DevshimError(msg, f'write, for example: {name} = ".venvs/{name}"')
    return HERE if value == HERE else path.parent / Path(value).expanduser()


def find_created(framework: str) -> Path | None:
    """Return the newest environment that ``devshim tutorial env create`` made for this version of devshim."""
    made = sorted(
        (cache_folder() / "environments").glob(f"{framework}-*/made.json"), key=lambda each: each.stat().st_mtime
    )
    current = [each.parent for each in made if json.loads(each.read_text(encoding="utf-8"))["devshim"] == __version__]
    return current[-1] if current else None


def choose(
    framework: str, options: Mapping[str, str], table: Mapping[str, Path | str]
) -> tuple[Path | str, str] | None:
    """Return the environment of a framework and where its name comes from, or None."""
    if framework in options:
        return options[framework], "--env"
    if framework in table:
        return table[framework], "pyproject.toml"
    made = find_created(framework)
    if made is not None:
        return made, "created"
    return (HERE, HERE) if discovery.is_installed(framework) else None


def python_of(place: Path | str) -> Path | None:
    """Return the Python of an environment, given as its folder, its Python or ``here``, or None."""
    if place == HERE:
        return Path(sys.executable)
    path = Path(place).expanduser().absolute()  # not resolved: a virtual environment's Python is a link
    candidates = [path, path / "bin" / "python", path / "Scripts" / "python.exe"]
    return next((each for each in candidates if each.is_file()), None)


def resolve(
    frameworks: Iterable[str], options: Mapping[str, str], table: Mapping[str, Path | str]
) -> dict[str, Environment | DevshimError]:
    """Return the environment of each framework, or the error that says why it has none."""
    names = list(frameworks)
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(zip(names, pool.map(lambda name: _resolve_one(name, options, table), names), strict=True))


def _resolve_one(
    framework: str, options: Mapping[str, str], table: Mapping[str, Path | str]
) -> Environment | DevshimError:
    found = choose(framework, options, table)
    if found is None:
        return _missing_error(framework, "there is no environment for it")
    place, origin = found
    python = python_of(place)
    if python is None:
        return _missing_error(framework, f"{place} ({origin}) has no Python")
    try:
        return inspect(framework, python, origin)
    except DevshimError as error:
        return error


def _missing_error(framework: str, why: str) -> DevshimError:
    title = discovery.title_of(framework)
    hint = f"devshim tutorial env create {framework}; or name one: --env {framework}=FOLDER, or in pyproject.toml"
    return DevshimError(f"{title} cannot run: {why}", hint)


def inspect(framework: str, python: Path, origin: str) -> Environment:
    """Return the environment of a Python, with the versions in it; the framework is not imported.

    Raises:
        DevshimError: The Python does not run, or the framework or this version of devshim is not installed in it.
    """
    found = _probe(framework, python)
    title = discovery.title_of(framework)
    if found["version"] is None:
        msg = f"{python} has no {title}"
        raise DevshimError(msg, f"{python} -m pip install 'devshim[{framework}]'")
    if found["devshim"] != __version__:
        has = f"devshim {found['devshim']}" if found["devshim"] else "no devshim"
        msg = f"{python} has {has}, and this is devshim {__version__}"
        raise DevshimError(msg, f"{python} -m pip install devshim=={__version__}")
    return Environment(framework, python, origin, found["version"], found["python"], found["tag"])


def _probe(framework: str, python: Path) -> dict[str, Any]:
    names = discovery.DISTRIBUTIONS.get(framework, (framework,))
    try:
        command = [str(python), "-c", _PROBE, *names]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        msg = f"{python} does not run: {lines[-1] if lines else type(error).__name__}"
        raise DevshimError(msg, f"name another environment: --env {framework}=FOLDER") from error
    return found

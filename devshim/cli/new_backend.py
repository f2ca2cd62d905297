"""`devshim new-backend`: write the files of a new distribution with a backend for another array library.

The class has every abstract method of `devshim.adapters.Backend`, read from the contract itself: its signature and its
docstring. Each method raises `NotImplementedError` until its author writes it, so the conformance
kit, which the new distribution's tests run, fails until the backend works.
"""

from __future__ import annotations

import inspect
import keyword
import sys
import textwrap
from pathlib import Path

from devshim.errors.formatting import show
from devshim.registry import discovery

__all__ = ["files", "main", "problem_with"]

MODULE = '''"""A devshim backend for {name}.

`backends/README.md` of devshim's sources explains each step, and has a complete backend in a hundred lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from devshim.adapters import Backend, Device, DeviceInfo, Gap, Tensor

import {name}  # or the submodule with its arrays: devshim loads this file when the first array of {name} appears


class {cls}(Backend):
    """{name}'s arrays, behind the operations from which devshim builds everything else."""

    name = "{name}"
    title = "{name}"  # as its authors write it
    immutable = False  # True if arrays cannot be written to, as in JAX
    gaps = {{
        # The features that {name} lacks, each with the reason; `devshim.adapters.FEATURES` lists all features.
        # "gradient": Gap("never", "{name} has no automatic differentiation"),
    }}
'''

METHOD = '''
    def {method}{signature}:
        """{doc}"""
        raise NotImplementedError("write {cls}.{method}")
'''

PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "devshim-{dashed}"
version = "0.1.0"
description = "A devshim backend for {name}"
# "{dashed}" is a guess: write the name of the distribution that contains {name}
dependencies = ["devshim", "{dashed}", "numpy"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."devshim.backends"]
{name} = "{name}_devshim:{cls}"

[tool.hatch.build.targets.wheel]
only-include = ["{name}_devshim.py"]

[tool.pytest.ini_options]
addopts = "-p devshim.testing.plugin"
testpaths = ["tests"]
"""

TESTS = '''"""Every behaviour of the devshim contract, tested on {name}."""

from devshim.testing import Conformance


class Test{cls}(Conformance):
    """The conformance kit; `devshim.testing.base.Kit` describes the hooks that some frameworks need."""

    backend = "{name}"
'''

README = """# devshim-{dashed}

A [devshim](https://pypi.org/project/devshim/) backend for {name}.

1. Write the methods of `{cls}` in `{name}_devshim.py`.
2. `pip install -e '.[test]'`, in an environment that has devshim and {name}.
3. `pytest` tests the host, and `pytest -m gpu` the other devices.

A feature that {name} lacks is a `Gap` with a reason; a feature without a method is one automatically. If a test fails
for a feature that {name} does not have, declare the gap: `devshim.adapters.FEATURES` names the features.
"""


def main(name: str, folder: Path) -> int:
    """Write the files, and print what they are for and what to do next.

    Args:
        name: The import name of the array library, without dots.
        folder: The folder to create, which must not exist.

    Returns:
        The exit code, 0.
    """
    written = files(name)
    for path, content in written.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
    print(f"Created {folder} with {', '.join(written)}.")
    print(f"Next: write the methods in {folder / f'{name}_devshim.py'}, then run")
    print(f"  cd {folder} && pip install -e '.[test]' && pytest")
    return 0


def problem_with(name: str, folder: Path) -> str | None:
    """Return why a backend of this name cannot be created in this folder, or None."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{show(name)} is not an import name; give the name that follows 'import' in programs, such as mylib"
    if name in discovery.BUILTIN:
        return f"devshim has a backend for {name} already; 'devshim doctor' shows whether it works here"
    if name in sys.stdlib_module_names or name == "devshim":
        return f"{name} is part of {'devshim' if name == 'devshim' else 'the standard library'}, not an array library"
    if folder.exists():
        return f"{folder} exists already; choose another folder with --folder"
    return None


def files(name: str) -> dict[str, str]:
    """Return the content of each file of the distribution, by its path."""
    cls = "".join(word.capitalize() for word in name.split("_")) + "Backend"
    words = {"name": name, "cls": cls, "dashed": name.replace("_", "-")}
    return {
        f"{name}_devshim.py": MODULE.format(**words) + "".join(_methods(cls)),
        "tests/test_conformance.py": TESTS.format(**words),
        "pyproject.toml": PYPROJECT.format(**words),
        "README.md": README.format(**words),
    }


def _methods(cls: str) -> list[str]:
    """Return the source of each abstract method, in the order of the contract."""
    from devshim.adapters import Backend

    found = []
    for method, function in vars(Backend).items():
        if method in Backend.__abstractmethods__:
            doc = textwrap.indent(inspect.getdoc(function) or "", " " * 8).strip()
            doc += "\n        " * ("\n" in doc)
            signature = str(inspect.signature(function)).replace("'", "")
            found.append(METHOD.format(cls=cls, method=method, signature=signature, doc=doc))
    return found

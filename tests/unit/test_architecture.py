"""Tests of the rules for the source: which module may import which, and that overrides fit.

Each rule is a function of source text that returns the violations. Each also gets a bad example, so that a rule that
detects nothing fails.
"""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import devshim as ds
from devshim.contract.backend import Backend
from devshim.registry import discovery

NEUTRAL = Path(ds.__file__).parent
ADAPTERS = Path(sys.modules["devshim_backends"].__path__[0])
FRAMEWORKS = {"torch", "tensorflow", "mxnet", "paddle", "jax", "jaxlib", "keras", "cupy"}
FOR_ADAPTERS = (
    *("adapters", "backend", "contract", "devices", "errors", "transfers.dlpack", "transfers.interrupts"),
    *("monitoring.instrumentation", "monitoring.use_checks", "registry.default_devices", "registry.import_hooks"),
    *(
        "registry.mismatches",
        "registry.missing_devices",
        "registry.versions",
        "simulation.memory",
        "simulation.late_patches",
        "simulation.patching",
        "simulation.properties",
    ),
    *("monitoring.buffer_protocol", "simulation.driver_numbers", "tensors.activations", "transfers.observers"),
    "trees.sequences",
)
"""The packages and modules of the neutral half that an adapter may import."""
SERVED_ARRAY_API = {"_tensorflow", "_paddle", "_mxnet", "_jax"}
"""The adapters whose namespaces use the package ``_array_api``."""
SERVES_KERAS = {"_tensorflow", "_torch", "_jax"}
FOR_COMMANDS = (
    "world",
    "adapters",
    "registry.discovery",
    "registry.current",
    "registry.environment",
    "registry.environment_values",
    "registry.processes",
    "registry.simulation_request",
    "simulation.runs",
    "simulation.usage",
    "devices.nvml",
    "certify",
    "tutorial",
    "errors",
    "cli",
)
LONGEST = {"contract/backend.py": 400}  # the contract: half of it is the docstrings of its methods
LONGEST_ADAPTER = {"backend.py": 400}
LIMIT = 300


def imports(source: str, package: str = "") -> Iterator[tuple[str, bool]]:
    """Yield each module that a source imports, with True if it is imported at run time (not for type checkers only)."""
    tree = ast.parse(source)
    typed = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for part in block.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in typed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package.split(".")[: -node.level + 1 or None], node.module or ""])
                if node.level
                else node.module
            )
            base = str(base).rstrip(".")
            yield from ((f"{base}.{alias.name}", id(node) not in typed) for alias in node.names)


def foreign_in_neutral(source: str) -> list[str]:
    """Return the neutral half's imports of frameworks and adapters, forbidden even for type checkers."""
    roots = [name.partition(".")[0] for name, _ in imports(source)]
    return [root for root in roots if root in FRAMEWORKS or root == "devshim_backends"]


def known_to_the_contract(source: str) -> list[str]:
    """Return what the contract imports at run time, where it may import nothing."""
    return [name for name, runs in imports(source) if runs and name.startswith("devshim")]


def is_below(name: str, modules: Iterable[str]) -> bool:
    """Return True if a dotted name is one of these modules, or something in one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def forbidden_to_an_adapter(source: str, package: str) -> list[str]:
    """Return an adapter's imports other than itself, its framework, and neutral modules made for adapters."""
    found = []
    for name, _ in imports(source, package):
        root, _, rest = name.partition(".")
        if root == "devshim" and not is_below(rest, FOR_ADAPTERS):
            found.append(name)
        if root == "devshim_backends" and rest.partition(".")[0] not in (package.split(".")[1], *shared_with(package)):
            found.append(name)
        if root in FRAMEWORKS - framework_of(package):
            found.append(name)
    return found


def shared_with(package: str) -> set[str]:
    """Return what an adapter may import besides itself: the packages that serve several adapters."""
    name = package.split(".")[1]
    return {each for each, served in {"_keras": SERVES_KERAS, "_array_api": SERVED_ARRAY_API}.items() if name in served}


def framework_of(package: str) -> set[str]:
    """Return the root packages that belong to an adapter's framework."""
    name = package.split(".")[1].removeprefix("_")
    keras = {"keras"} if f"_{name}" in SERVES_KERAS else set()
    return {name, "ml_dtypes"} | ({"jaxlib"} if name == "jax" else set()) | keras


def forbidden_to_a_command(source: str) -> list[str]:
    """Return a command's imports other than the public API and modules that inspect the machine."""
    names = [name.partition(".")[2] for name, _ in imports(source) if name.startswith("devshim.")]
    return [name for name in names if not is_below(name, FOR_COMMANDS) and name.partition(".")[0] not in ds.__all__]


def misfits(source: str) -> list[str]:
    """Return the methods of the contract that an adapter overrides with an incompatible signature."""
    found = []
    for cls in ast.walk(ast.parse(source)):
        if not isinstance(cls, ast.ClassDef):
            continue
        for method in cls.body:
            if (
                isinstance(method, ast.FunctionDef)
                and hasattr(Backend, method.name)
                and not method.name.startswith("__")
            ):
                found += [f"{cls.name}.{method.name}: {why}" for why in misfit(method)]
    return found


def misfit(method: ast.FunctionDef) -> list[str]:
    contract: Any = getattr(Backend, method.name)
    if not callable(contract):
        return []
    wanted = list(inspect.signature(contract).parameters.values())
    names = [argument.arg for argument in method.args.args]
    if method.args.vararg is not None or method.args.kwarg is not None or method.args.kwonlyargs:
        return ["takes other kinds of arguments"]
    if names[: len(wanted)] != [parameter.name for parameter in wanted]:
        return [f"takes {names}, the contract {[parameter.name for parameter in wanted]}"]
    defaults = [None] * (len(names) - len(method.args.defaults)) + [ast.unparse(node) for node in method.args.defaults]
    expected = [None if each.default is each.empty else repr(each.default) for each in wanted]
    if defaults[: len(wanted)] != expected or None in defaults[len(wanted) :]:
        return [f"has the defaults {defaults}, the contract {expected}"]
    return []


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def shown(path: Path) -> str:
    return str(path.relative_to(path.parents[2] if ADAPTERS in path.parents else NEUTRAL.parent))


@pytest.mark.parametrize("path", files(NEUTRAL), ids=shown)
def test_the_neutral_half_knows_no_framework(path: Path) -> None:
    assert foreign_in_neutral(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", files(ADAPTERS), ids=shown)
def test_an_adapter_knows_its_own_framework_and_what_is_made_for_it(path: Path) -> None:
    package = ".".join(["devshim_backends", *path.relative_to(ADAPTERS).parts[:-1]])
    assert forbidden_to_an_adapter(path.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize("path", files(ADAPTERS), ids=shown)
def test_overrides_fit_the_contract(path: Path) -> None:
    assert misfits(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", files(NEUTRAL / "cli"), ids=shown)
def test_commands_call_the_public_api(path: Path) -> None:
    assert forbidden_to_a_command(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [*files(NEUTRAL), *files(ADAPTERS)], ids=shown)
def test_a_file_has_one_concern(path: Path) -> None:
    longest = (
        LONGEST.get("/".join(path.parts[-2:]), LIMIT)
        if path.is_relative_to(NEUTRAL)
        else LONGEST_ADAPTER.get(path.name, LIMIT)
    )
    assert len(path.read_text(encoding="utf-8").splitlines()) <= longest


def test_the_contract_knows_nobody() -> None:
    for path in files(NEUTRAL / "contract"):
        known = known_to_the_contract(path.read_text(encoding="utf-8"))
        assert [
            name for name in known if not name.startswith(("devshim.contract.", "devshim.devices.", "devshim.errors"))
        ] == [], path


def test_the_registrys_table_names_the_folders() -> None:
    folders = {path.name for path in ADAPTERS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - {"_keras", "_array_api"} == {f"_{name}" for name in discovery.BUILTIN}
    for name, target in discovery.BUILTIN.items():
        module, _, cls = target.partition(":")
        source = (ADAPTERS / module.split(".")[1] / "backend.py").read_text(encoding="utf-8")
        (found,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls]
        given = {re.sub(r": [^=]* =", " =", ast.unparse(part)) for part in found.body}  # with or without an annotation
        assert {f"name = '{name}'", f"title = '{discovery.TITLES[name]}'"} <= given


@pytest.mark.parametrize("name", [name for name in ds.__all__ if name != "__version__"])
def test_every_public_name_is_documented_and_annotated(name: str) -> None:
    found = getattr(ds, name)
    assert inspect.getdoc(found)
    assert found.__module__.partition(".")[0] == "devshim" if not isinstance(found, ModuleType) else True
    if inspect.isfunction(found):
        signature = inspect.signature(found)
        assert signature.return_annotation is not signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not parameter.empty, parameter


def test_the_stub_says_what_the_package_gives() -> None:
    """If this fails, run `python tests/typing/stub.py --write`."""
    made = runpy.run_path(str(Path(__file__).parents[1] / "typing" / "stub.py"))["stub"](NEUTRAL)
    assert (NEUTRAL / "__init__.pyi").read_text(encoding="utf-8") == made


BAD = {
    "a framework": (foreign_in_neutral, "def f():\n    import torch.nn"),
    "a framework's part": (foreign_in_neutral, "from jax import numpy"),
    "a framework for types": (foreign_in_neutral, "if TYPE_CHECKING:\n    import tensorflow as tf"),
    "an adapter": (foreign_in_neutral, "from devshim_backends._torch import backend"),
    "the contract": (known_to_the_contract, "from devshim.registry import registry as _registry"),
    "another adapter": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"),
        "from devshim_backends._torch import x",
    ),
    "another adapter from above": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"),
        "from .._torch.devices import x",
    ),
    "another framework": (lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"), "import torch"),
    "Keras's objects in an adapter of none": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._paddle"),
        "from devshim_backends._keras import contents",
    ),
    "an adapter in what adapters share": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._keras"),
        "from devshim_backends._torch import x",
    ),
    "a framework in what adapters share": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._keras"),
        "import torch",
    ),
    "the public half": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"),
        "from devshim.tensors.placing import place",
    ),
    "the public package": (lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"), "from devshim import place"),
    "the registry in a command": (forbidden_to_a_command, "from devshim.registry import registry as _registry"),
    "another name": (misfits, "class B:\n    def count(self, sort): ..."),
    "another order": (misfits, "class B:\n    def cast(self, dtype, x): ..."),
    "a lost default": (misfits, "class B:\n    def copy_to(self, x, device, non_blocking): ..."),
    "another default": (misfits, "class B:\n    def copy_to(self, x, device, non_blocking=True): ..."),
    "one too many": (misfits, "class B:\n    def nbytes(self, x, exactly): ..."),
    "one too few": (misfits, "class B:\n    def full(self, shape, value, dtype): ..."),
    "anything": (misfits, "class B:\n    def dtype(self, *args, **kwargs): ..."),
}


@pytest.mark.parametrize("name", BAD)
def test_the_rules_see_what_breaks_them(name: str) -> None:
    rule, source = BAD[name]
    assert rule(source)


GOOD = {
    "itself": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"),
        "import jax\nfrom .devices import x\nimport numpy",
    ),
    "the contract": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._jax"),
        "from devshim.contract.backend import Backend",
    ),
    "Keras's objects": (
        lambda s: forbidden_to_an_adapter(s, "devshim_backends._torch"),
        "import keras\nfrom devshim_backends._keras import contents",
    ),
    "types": (known_to_the_contract, "if TYPE_CHECKING:\n    from devshim.devices.device import Device"),
    "an override": (misfits, "class B:\n    def copy_to(self, x, device, non_blocking=False): ..."),
    "one more with a default": (misfits, "class B:\n    def nbytes(self, x, exactly=True): ..."),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_rules_let_the_rest_pass(name: str) -> None:
    rule, source = GOOD[name]
    assert rule(source) == []

"""`devshim run --check`: the calls in a program that simulated GPUs cannot run, found by reading its code.

The program is not run, and no framework is imported. The check reads the program's file and the modules that it imports
from its own folder, also indirectly. It compares each dotted name with the tables of the adapters (``NOT_SIMULATED`` in
``capabilities.py``) and with that of other CUDA packages below. It follows ``import ... as``, ``from ... import``,
``cuda = torch.cuda`` and ``getattr(torch, "cuda")``; a name that is made while the program runs is not found. The code
does not say what is a tensor, so a property of tensors is found by its name alone. What is refused only for tensors on
a GPU, such as ``torch.quantize_per_tensor``, is not found.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import devshim as ds
from devshim.registry import discovery

__all__ = ["Found", "main", "read"]

OTHERS: Mapping[str, str] = {
    "cupy": "it computes with CUDA only: use ds.framework() with NumPy, which has simulated GPUs, or mark the test gpu",
    "numba.cuda": "it compiles for real GPUs only: set NUMBA_ENABLE_CUDASIM=1 for its own simulator",
    "pycuda": "it needs a driver: run this part on a real GPU",
    "cuda": "it needs a driver: run this part on a real GPU",
    "triton": "it compiles for real GPUs only: set TRITON_INTERPRET=1 for its own interpreter",
    "py3nvml": "it asks the driver: use ds.describe and ds.memory",
    "cudf": "it computes with CUDA only: run this part on a real GPU",
    "cuml": "it computes with CUDA only: run this part on a real GPU",
    "tensorrt": "it compiles for real GPUs only: run this part on a real GPU",
    "flash_attn": "its kernels are compiled for real GPUs: use the framework's own attention",
    "apex": "its kernels are compiled for real GPUs: use the framework's own layers and optimizers",
    "transformer_engine": "its kernels are compiled for real GPUs: use the framework's own layers",
    "mamba_ssm": "its kernels are compiled for real GPUs: run this part on a real GPU",
    "causal_conv1d": "its kernels are compiled for real GPUs: run this part on a real GPU",
    **{
        f"bitsandbytes.functional.{name}": "its kernel is compiled for real GPUs: use torch._int_mm"
        for name in ("igemm", "batched_igemm")
    },
}
"""A package, or a part of one, that only works on real GPUs -> what to do instead."""


_SOURCES = "it compiles for real GPUs only: give it sources for the CPU, *.cpp"


@dataclass(frozen=True)
class Found:
    """A call that will not be simulated.

    Attributes:
        path: The file.
        line: The line, from 1.
        name: The full name, such as ``torch.cuda.CUDAGraph``.
        reason: Why, and what to do instead.
    """

    path: str
    line: int
    name: str
    reason: str


def main(program: Sequence[str]) -> int:
    """Print what a program calls that will not be simulated; return 1 if it calls any, 0 otherwise."""
    found = list(check(program))
    for each in found:
        print(f"{each.path}:{each.line}: {each.name} is not simulated: {each.reason}")
    if not found:
        print("devshim: this program calls nothing that is known not to work on simulated GPUs", file=sys.stderr)
    return 1 if found else 0


def check(program: Sequence[str]) -> Iterator[Found]:
    """Yield the calls of a program that are not simulated.

    Args:
        program: ``SCRIPT``, ``-m MODULE`` or ``-c CODE``, each with the arguments that follow.
    """
    option, rest = program[0][:2], program[0][2:] or (program[1] if len(program) > 1 else "")
    root = Path() if option in ("-c", "-m") else Path(program[0]).resolve().parent
    seen: set[Path] = set()
    if option == "-c":
        found, todo = read(rest, "<string>", root)
    else:
        path = _file_of_module(rest) if option == "-m" else Path(program[0])
        if path is None or not path.is_file():
            what = f"there is no module {rest!r}" if option == "-m" else f"there is no file {program[0]!r}"
            raise ds.ArgumentError(what, "give a program: devshim run --check script.py")
        seen.add(path.resolve())
        found, todo = read(path.read_bytes(), str(path), root)
        if option == "-m":
            todo = [*_files_of_import(root, rest), *todo]
    yield from found
    while todo:
        path = todo.pop(0)
        if path not in seen:
            seen.add(path)
            found, imported = read(path.read_bytes(), str(path), root)
            yield from found
            todo += imported


def _file_of_module(name: str) -> Path | None:
    base = Path(*name.split(".")) if name else Path("?")
    candidates = (base.with_suffix(".py"), base / "__main__.py")
    return next((each for each in candidates if each.is_file()), None)


def _files_of_import(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files below a folder that run when a module is imported from it: those of its packages, and its own."""
    for part in filter(None, name.split(".")):
        yield from (each.resolve() for each in (folder / f"{part}.py", folder / part / "__init__.py") if each.is_file())
        folder = folder / part


def read(source: str | bytes, path: str, root: Path) -> tuple[list[Found], list[Path]]:
    """Return the calls in a source text that will not be simulated, and the files below ``root`` that it imports.

    Args:
        source: The text, or the content of its file, which may declare its encoding.
        path: The name of its file.
        root: The folder of the program, in which Python looks for modules first.

    Raises:
        ArgumentError: The text is not Python.
    """
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes, until Python 3.11
        line, reason = getattr(error, "lineno", None), getattr(error, "msg", str(error))
        msg = f"{path} is not valid Python{f' at line {line}' if line else ''}: {reason}"
        raise ds.ArgumentError(msg, "correct it, or check another file") from error
    table = _table()
    names = _Names(Path(path).resolve().parent, root, _properties(table), _compiling())
    names.visit(tree)
    found = [
        Found(path, line, name, table[known])
        for line, name in dict.fromkeys(names.used)
        if (known := _longest(name, table)) is not None
    ]
    return sorted(found, key=lambda each: each.line), names.imported


def _table() -> dict[str, str]:
    table = dict(OTHERS)
    for name in discovery.BUILTIN:
        table.update(discovery.unsimulated_calls(name))
    return table | dict.fromkeys(map(_with_cuda, _compiling()), _SOURCES)


def _compiling() -> dict[str, tuple[str, ...]]:
    """Return the functions that compile sources of a program, with their first parameters."""
    found: dict[str, tuple[str, ...]] = {}
    for name in discovery.BUILTIN:
        found.update(discovery.compiling_calls(name))
    return found


def _with_cuda(name: str) -> str:
    """Return the entry of the table for a function that compiles sources, some of which are for CUDA."""
    return f"{name} of CUDA sources"


def _properties(table: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of tensors in a table: ``__cuda_array_interface__`` -> the full name."""
    return {name.rpartition(".")[2]: name for name in table if name.split(".")[1:-1] == ["Tensor"]}


def _longest(name: str, table: Mapping[str, str]) -> str | None:
    """Return the entry that a dotted name is, or is below; the most specific one."""
    if "(" in name:  # a call that is refused with one argument only
        return name if name in table else None
    parts = name.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((each for each in prefixes if each in table), None)


class _Names(ast.NodeVisitor):
    """The dotted names that a module uses, resolved through its imports, and the files of the program that it imports.

    Args:
        folder: The folder of the module, for its relative imports.
        root: The folder of the program, for its absolute imports.
        properties: A property of tensors -> its full name.
        compiling: A function that compiles sources -> its first parameters.
    """

    def __init__(
        self, folder: Path, root: Path, properties: Mapping[str, str], compiling: Mapping[str, Sequence[str]]
    ) -> None:
        self.used: list[tuple[int, str]] = []
        self.imported: list[Path] = []
        self._meaning: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}
        self._folder, self._root, self._properties, self._compiling = folder, root, properties, compiling

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            package = alias.name.split(".")[0]
            self._meaning[alias.asname or package] = alias.name if alias.asname else package
            self._import(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            if node.level == 0:
                self._meaning[alias.asname or alias.name] = f"{module}.{alias.name}"
                self._import(node.lineno, f"{module}.{alias.name}")
            else:
                folder = self._folder
                for _ in range(node.level - 1):
                    folder = folder.parent
                self.imported += _files_of_import(folder, f"{module}.{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        """Follow ``cuda = torch.cuda``, also beyond other assignments: the check does not know which of them runs."""
        name = self._resolve(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                if name is not None:
                    self._meaning[target.id] = name
                self._texts[target.id] = self._texts_in(node.value)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._use(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._resolve(node.func)
        if name is not None and name in self._compiling and self._names_cuda_sources(node, self._compiling[name]):
            self.used.append((node.lineno, _with_cuda(name)))
        if name is not None:
            self.used += [(node.lineno, f"{name}({argument})") for argument in self._constants(node)]
        self._use(node)

    def _constants(self, node: ast.Call) -> Iterator[str]:
        """Yield the keywords of a call with their constants: ``interprocess=True``, ``backend="cudagraphs"``."""
        for each in node.keywords:
            if isinstance(each.value, ast.Constant) and not isinstance(each.value.value, str):
                yield f"{each.arg}={each.value.value!r}"
            for text in self._texts_in(each.value):
                yield f'{each.arg}="{text}"'

    def _names_cuda_sources(self, node: ast.Call, parameters: Sequence[str]) -> bool:
        """Return True if a call compiles for CUDA: it gets a file ``*.cu``, a text in CUDA, or the flag for it."""
        given = dict(zip(parameters, node.args, strict=False)) | {each.arg: each.value for each in node.keywords}
        empty = ("None", "False", "[]", "()", "''")
        if any(ast.unparse(given[name]) not in empty for name in ("cuda_sources", "with_cuda") if name in given):
            return True
        return any(text.endswith((".cu", ".cuh")) for each in given.values() for text in self._texts_in(each))

    def _texts_in(self, node: ast.expr) -> list[str]:
        """Return the texts in an expression, and those assigned to its names: ``[here / "x.cu"]``, ``sources``."""
        found = []
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                found.append(each.value)
            elif isinstance(each, ast.Name):
                found += self._texts.get(each.id, ())
        return list(dict.fromkeys(found))

    def _use(self, node: ast.expr) -> None:
        name = self._resolve(node)
        if name is None:
            self.generic_visit(node)
        else:
            self.used.append((node.lineno, name))

    def _resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name that an expression is, or None: ``t.cuda``, ``getattr(t, "cuda")``."""
        if isinstance(node, ast.Name):
            return self._meaning.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            return self._properties.get(node.attr) if owner is None else f"{owner}.{node.attr}"
        if not isinstance(node, ast.Call):
            return None
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1 and texts:
            owner = self._resolve(node.args[0])
            return self._properties.get(texts[0]) if owner is None else f"{owner}.{texts[0]}"
        is_import = ast.unparse(node.func) in ("__import__", "import_module", "importlib.import_module")
        return texts[0] if is_import and texts else None

    def _import(self, line: int, name: str) -> None:
        self.used.append((line, name))
        self.imported += _files_of_import(self._root, name)

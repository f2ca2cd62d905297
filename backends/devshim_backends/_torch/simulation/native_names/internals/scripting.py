"""``torch.jit``: the functions that native names replace, and the graphs of scripts, which use and compare cards.

TorchScript knows PyTorch's own functions by their addresses. The graph of a script that is made, traced or loaded while
native names are on is changed before its first call; see `script_graphs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.jit import _recursive
from torch.jit._builtins import _get_builtin_table
from torch.jit._state import _python_cu

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.internals.script_graphs import rewrite
from devshim_backends._torch.simulation.native_names.names import with_index

_Device = torch.device
_COMPILERS = (
    *("_jit_script_compile", "_jit_script_compile_overload"),
    *("_create_function_from_trace", "_create_function_from_trace_with_dict"),
)
_METHOD_TRACERS = ("_create_method_from_trace", "_create_method_from_trace_with_dict")
_LOADERS = ("import_ir_module", "import_ir_module_from_buffer", "_import_ir_module_from_package")


def prepare() -> None:
    """Build TorchScript's table, which stays for the life of the process, while PyTorch's functions are its own."""
    _get_builtin_table()


def _rewrite(function: Any) -> None:
    """Change the graph of a function or a method, which the executor has not copied yet."""
    if function is not None:
        rewrite(function.graph)


def _compile(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a function of C++ that compiles a function."""

    @functools.wraps(real)
    def compile_function(*args: Any, **kwargs: Any) -> Any:
        made = real(*args, **kwargs)
        _rewrite(made)
        return made

    return compile_function


def _trace_method(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a method of C++ that traces a function as a method of a module."""

    @functools.wraps(real)
    def trace_method(self: Any, name: str, *args: Any, **kwargs: Any) -> None:
        real(self, name, *args, **kwargs)
        _rewrite(_method(self._type(), name))

    return trace_method


def _compile_class(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the function of C++ that compiles a class."""

    @functools.wraps(real)
    def compile_class(*args: Any) -> Any:
        made = real(*args)
        for name in made.method_names():
            _rewrite(_method(made, name))
        return made

    return compile_class


def _compile_methods(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the function that compiles methods and properties of a module."""

    @functools.wraps(real)
    def create_methods_and_properties_from_stubs(concrete_type: Any, method_stubs: Any, property_stubs: Any) -> None:
        real(concrete_type, method_stubs, property_stubs)
        definitions = [each.def_.name() for each in method_stubs]
        definitions += [each.def_.getter_name() for each in property_stubs]
        for each in definitions:
            _rewrite(_method(concrete_type.jit_type, each.name))

    return create_methods_and_properties_from_stubs


def _compile_hooks(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the function that compiles the forward hooks of a module."""

    @functools.wraps(real)
    def create_hooks_from_stubs(concrete_type: Any, hook_stubs: Any, pre_hook_stubs: Any) -> None:
        real(concrete_type, hook_stubs, pre_hook_stubs)
        for name in {each.def_.name().name for each in (*hook_stubs, *pre_hook_stubs)}:
            _rewrite(_method(concrete_type.jit_type, name))

    return create_hooks_from_stubs


def _create_unit(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``CompilationUnit.__init__``, which compiles functions from a text."""

    @functools.wraps(real)
    def init(self: Any, lang: str = "", _frames_up: int = 0) -> None:
        real(self, lang, _frames_up + 1)  # C++ looks for names in the frames of Python
        for each in self.get_functions():
            _rewrite(each)

    return init


def _define(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``CompilationUnit.define``, which compiles more functions."""

    @functools.wraps(real)
    def define(self: Any, src: str, rcb: Any = None, _frames_up: int = 0) -> None:
        known = {each.qualified_name for each in self.get_functions()}
        real(self, src, rcb, _frames_up + 1)
        for each in self.get_functions():
            if each.qualified_name not in known:
                _rewrite(each)

    return define


def _define_methods(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the method of C++ that compiles more methods of a module."""

    @functools.wraps(real)
    def define(self: Any, *args: Any) -> None:
        known = set(self._method_names())
        real(self, *args)
        for name in self._method_names():
            if name not in known:
                _rewrite(_method(self._type(), name))

    return define


def _method(kind: Any, name: str) -> Any:
    return _python_cu.find_function(f"{kind.qualified_name()}.{name}")


def _load(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a function of C++ that loads a module; the first argument has its functions.

    C++ refuses the device ``cuda``, for which the argument ``map_location`` may ask: it is the current card.
    """

    @functools.wraps(real)
    def load(functions: Any, *args: Any) -> Any:
        module = real(functions, *(with_index(each) if isinstance(each, _Device) else each for each in args))
        for each in functions.get_functions():
            _rewrite(each)
        return module

    return load


def install(patches: Patches) -> None:
    """Let TorchScript compile calls of the functions that were replaced, and name the cards in scripts.

    Without the first, TorchScript looks for the Python code of a function in C++. Modules of PyTorch that are first
    imported while native names are on contain such calls.
    """
    operators = _get_builtin_table()
    for old, new in patches.replaced():
        name = operators.get(id(old))
        if name is not None and id(new) not in operators:
            patches.replace_item(operators, id(new), name)
    for name in _COMPILERS:
        patches.replace(torch._C, name, _compile(getattr(torch._C, name)))
    for name in _METHOD_TRACERS:
        patches.replace(torch._C.ScriptModule, name, _trace_method(getattr(torch._C.ScriptModule, name)))
    patches.replace(torch._C, "_jit_script_class_compile", _compile_class(torch._C._jit_script_class_compile))
    for name in _LOADERS:
        patches.replace(torch._C, name, _load(getattr(torch._C, name)))
    unit = torch._C.CompilationUnit
    patches.replace(unit, "__init__", _create_unit(unit.__init__))
    patches.replace(unit, "define", _define(unit.define))
    patches.replace(torch._C.ScriptModule, "_define", _define_methods(torch._C.ScriptModule._define))
    for name, wrap in (
        ("create_methods_and_properties_from_stubs", _compile_methods),
        ("create_hooks_from_stubs", _compile_hooks),
    ):
        patches.replace(_recursive, name, wrap(getattr(_recursive, name)))

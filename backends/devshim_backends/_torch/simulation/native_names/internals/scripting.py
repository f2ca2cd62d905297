"""``torch.jit.script``: the functions that native names replace, and the devices that a script compares and prints.

TorchScript knows PyTorch's own functions by their addresses. In a script, the device of a tensor is ``sim:1``, since
C++ asks the tensor. Therefore a script that is made, or loaded, while native names are on gets a few more operators:
those that compare, print or format a device get its text, with the card's name. They are TorchScript's own operators,
and change nothing on another machine, so a script can be saved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import _recursive
from torch.jit._builtins import _get_builtin_table
from torch.jit._state import _python_cu

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.native_names.names import with_index

_READERS = frozenset({"aten::eq", "aten::ne", "aten::format", "aten::percentFormat", "prim::Print"})
"""Operators that compare or print their arguments; a device among them becomes its text."""
_Device = torch.device
_LOADERS = ("import_ir_module", "import_ir_module_from_buffer", "_import_ir_module_from_package")


def prepare() -> None:
    """Build TorchScript's table, which stays for the life of the process, while PyTorch's functions are its own."""
    _get_builtin_table()


def _nodes(block: Any) -> Iterator[Any]:
    for node in list(block.nodes()):
        for inner in node.blocks():
            yield from _nodes(inner)
        yield node  # last, because it may be replaced


def _is_device(value: Any) -> bool:
    return str(value.type()) == "Device"


class _Rewriter:
    """The change of one graph."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def rewrite(self) -> None:
        """Let every reader of a device see the card's name."""
        for node in _nodes(self._graph):
            kind, inputs = node.kind(), list(node.inputs())
            if kind in _READERS:
                for position, value in enumerate(inputs):
                    if _is_device(value):
                        node.replaceInput(position, self._text_of(value, node))
            elif kind == "prim::PythonOp":  # a call of a function with @torch.jit.ignore
                for position, value in enumerate(inputs):
                    if _is_device(value):
                        node.replaceInput(position, self._card_of(value, node))
            elif kind == "prim::is_cuda":
                self._replace(node, self._insert_before(node, "prim::device", inputs, torch._C.DeviceObjType))
            elif kind in ("prim::type", "aten::str") and _is_device(inputs[0]):
                self._rename_output(node)

    def _insert_before(self, node: Any, kind: str, inputs: list[Any], kind_of_result: Any) -> Any:
        """Insert an operator before a node, and return its result."""
        made = self._graph.create(kind, inputs, 1)
        made.insertBefore(node)
        made.output().setType(kind_of_result.get())
        return made.output()

    def _constant(self, value: Any, node: Any) -> Any:
        """Insert a constant before a node, and return it.

        This does not call ``graph.insertConstant``, whose insert point would stay at a node that is destroyed later:
        the next pass of PyTorch's compiler would then end the process.
        """
        is_text = isinstance(value, str)
        made = self._insert_before(node, "prim::Constant", [], torch._C.StringType if is_text else torch._C.IntType)
        (made.node().s_ if is_text else made.node().i_)("value", value)
        return made

    def _renamed(self, text: Any, node: Any) -> Any:
        """Return a text with the card's name, before a node."""
        names = [self._constant(each, node) for each in (NAME, "cuda", -1)]
        return self._insert_before(node, "aten::replace", [text, *names], torch._C.StringType)

    def _text_of(self, device: Any, node: Any) -> Any:
        """Return the text of a device with the card's name, before a node."""
        return self._renamed(self._insert_before(node, "aten::str", [device], torch._C.StringType), node)

    def _card_of(self, device: Any, node: Any) -> Any:
        """Return a device with the card's name, before a node."""
        return self._insert_before(node, "aten::device", [self._text_of(device, node)], torch._C.DeviceObjType)

    def _replace(self, node: Any, device: Any) -> None:
        """Replace ``x.is_cuda`` by a test of the type of the device of ``x``."""
        kind = self._renamed(self._insert_before(node, "prim::type", [device], torch._C.StringType), node)
        is_cuda = self._insert_before(node, "aten::eq", [kind, self._constant("cuda", node)], torch._C.BoolType)
        node.output().replaceAllUsesWith(is_cuda)
        node.destroy()

    def _rename_output(self, node: Any) -> None:
        """Let the users of a node's text see the card's name."""
        again = self._insert_before(node, node.kind(), list(node.inputs()), torch._C.StringType)
        node.output().replaceAllUsesWith(self._renamed(again, node))
        node.destroy()


def _rewrite(function: Any) -> None:
    """Change the graph of a function or a method, which the executor has not copied yet."""
    if function is not None:
        _Rewriter(function.graph).rewrite()


def _compile(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a function of C++ that compiles a function."""

    @functools.wraps(real)
    def compile_function(*args: Any, **kwargs: Any) -> Any:
        made = real(*args, **kwargs)
        _rewrite(made)
        return made

    return compile_function


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
    for name in ("_jit_script_compile", "_jit_script_compile_overload"):
        patches.replace(torch._C, name, _compile(getattr(torch._C, name)))
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

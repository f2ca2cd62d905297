"""Templates of native code: find the one for a call, and fill it with the source text of the arguments.

The adapters provide them (``native_code.py``), and this module imports no framework. A template is Python code: an
expression, or statements that assign to ``{y}``. Its placeholders are:

* ``{x}``, ``{shape}``, ...: the source text of the argument of that name, or its default;
* ``{dtype|, dtype=$}``: nothing without the argument, and otherwise the text with the argument in place of ``$``;
* ``{device}``: the device in the framework's words; without the argument, the one that the recorded call chose;
* ``{fn}`` and ``{args}``: the function and the other arguments of ``ds.run``;
* ``{count}``: how many devices ``{devices}`` has;
* ``{y}``: the variable that gets the result.

Every other brace is part of the code. A name may end with ``_standard`` (a call that leaves out the first numbers, such
as ``low``), ``_gpu`` (``ds.devices("gpu")``), ``_model`` or ``_tree`` (what is placed), ``_nested`` (the call is a part
of a larger expression) or ``_compared`` (its value is compared, as in ``ds.place(x, d) is x``).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from devshim.registry import discovery

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NativeCode", "Unfilled", "fill", "native_code"]

_PLACEHOLDER = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}(\.?)")
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Dict)
"""Expressions that need no parentheses before a dot."""


class Unfilled(Exception):
    """A template cannot be filled; the text says why."""


@dataclass(frozen=True)
class NativeCode:
    """The templates of one framework.

    Attributes:
        framework: Its name, such as ``"torch"``.
        setup: The code of the first cell, such as ``"import torch"``.
        devices: The texts of ``cpu`` and ``gpu``, of a device that is a separate ``value``, and of a ``dtype``.
        helpers: Name -> the code that defines it: functions and imports that templates use.
        templates: Call -> template.
        targets: Call -> the variable that its template assigns to.
    """

    framework: str
    setup: str
    devices: Mapping[str, str]
    helpers: Mapping[str, str]
    templates: Mapping[str, str]
    targets: Mapping[str, str]

    def template(self, call: str, *suffixes: str) -> str | None:
        """Return the template of a call with the first of the suffixes that has its own template, or the plain one."""
        for suffix in suffixes:
            found = self.templates.get(f"{call}_{suffix}")
            if found is not None:
                return found
        return self.templates.get(call)

    def device(self, text: str) -> str | None:
        """Return how the framework names a device, given as ``"cpu"`` or ``"gpu:1"``; None if it has no name."""
        kind, _, index = text.partition(":")
        found = self.devices.get(kind)
        return None if found is None else found.replace("{index}", index or "0")

    def value(self, text: str) -> str | None:
        """Return an expression whose value is a device."""
        found = self.device(text)
        return None if found is None else self.devices["value"].replace("{device}", found)

    def dtype(self, text: str) -> str:
        """Return the source text of a dtype, given by its source text in the call."""
        name = re.fullmatch(r"""["'](\w+)["']""", text)
        return self.devices["dtype"].replace("{name}", name[1]) if name else text

    def needed(self, code: Iterable[str]) -> list[str]:
        """Return the names of the helpers that pieces of code use, those that helpers need first."""
        found: dict[str, None] = {}
        for piece in code:
            for name in self.helpers:
                if name not in found and uses(name, piece):
                    found.update(dict.fromkeys([*self._helpers_of(name), name]))
        return [name for name in self.helpers if name in found]

    def _helpers_of(self, name: str) -> list[str]:
        return [each for each in self.helpers if each != name and uses(each, self.helpers[name])]


def uses(name: str, code: str) -> bool:
    """Return True if code calls a function of that name, or reads an attribute of it."""
    return re.search(rf"(?<![\w.]){name}(?=[.(])", code) is not None


@cache
def native_code(framework: str) -> NativeCode | None:
    """Return the templates of a framework, or None if it has none; imports no framework."""
    module = discovery.BUILTIN.get(framework, "").replace(".backend:", ".native_code:").partition(":")[0]
    try:
        found: Any = import_module(module) if module else None
    except ModuleNotFoundError as error:
        if not str(error.name).endswith(".native_code"):
            raise
        found = None  # NumPy and CuPy
    if found is None:
        return None
    targets = getattr(found, "TARGETS", {})
    return NativeCode(framework, found.SETUP, found.DEVICES, found.HELPERS, found.TEMPLATES, targets)


def fill(template: str, given: Mapping[str, str], known: Mapping[str, str]) -> str:
    """Return a template with the source text of the arguments.

    Args:
        template: The template.
        given: The arguments that the call has, by name.
        known: What is known of the others: defaults, the recorded device, and ``y``.

    Raises:
        Unfilled: The template needs an argument that is not known.
    """

    def put(match: re.Match[str]) -> str:
        name, optional, dot = match.groups()
        if optional is not None:
            return optional.replace("$", given[name]) + dot if name in given else dot
        text = given.get(name, known.get(name))
        if text is None:
            msg = f"its {name} is not known here"
            raise Unfilled(msg)
        return (f"({text})" if dot and not _is_atom(text) else text) + dot

    return _PLACEHOLDER.sub(put, template)


def _is_atom(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, _ATOMS)
    except SyntaxError:
        return False

"""Translate one devshim call: choose its template by the call's effect, and bind its arguments by name."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass, field
from typing import Any

from devshim.devices import parsing
from devshim.errors import DevshimError
from devshim.tutorial.transpiler.calls import Ran
from devshim.tutorial.transpiler.templates import NativeCode, Unfilled, fill

__all__ = ["Argument", "Filled", "translate"]

_DEVICES = ("gpu", "cpu", "device")
"""The calls that only name a device."""
_KINDS = ("place", "copy", "place_model", "place_optimizer", "place_parameter", "copy_model", "copy_optimizer")
_PARAMETERS = {"low", "high", "loc", "scale"}
_SHAPES = ("shape", "size")
_DROPPED = {"portable", "non_blocking"}
"""Arguments without which the native code does the same, except for which random numbers are drawn."""


@dataclass(frozen=True)
class Argument:
    """An argument of a call.

    Attributes:
        text: Its source text, with the calls in it translated.
        keyword: Its name in the call, or None.
        device: The device that it names itself, such as ``"gpu:1"`` for ``ds.gpu(1)``; None for other expressions.
        devices: The same for each item of a list.
        is_text: True for a variable that holds text, which may name a device.
        star: ``"*"``, ``"**"`` or nothing.
    """

    text: str
    keyword: str | None = None
    device: str | None = None
    devices: tuple[str, ...] | None = None
    is_text: bool = False
    star: str = ""


@dataclass
class Filled:
    """A template with its arguments, which can still be filled in another way.

    Attributes:
        template: The template.
        given: The source text of the arguments of the call.
        known: The source text for other placeholders.
        in_place: True for a model, which ``ds.place`` moves in place.
    """

    template: str
    given: dict[str, str]
    known: dict[str, str] = field(default_factory=dict)
    in_place: bool = False

    @property
    def is_statement(self) -> bool:
        """True if the native code is made of statements."""
        return "{y}" in self.template

    def text(self, y: str = "") -> str:
        """Return the native code."""
        return fill(self.template, self.given, {**self.known, "y": y})


def translate(
    native: NativeCode,
    call: str,
    arguments: list[Argument],
    ran: list[Ran],
    nested: tuple[str, ...] = (),
    *,
    scope: bool,
) -> Filled:
    """Return the native code of a call.

    Args:
        native: The framework's templates.
        call: The public name, such as ``"place"`` or ``"random.uniform"``.
        arguments: The arguments.
        ran: What the call did, each time that it ran.
        nested: The suffixes of templates for a call that is a part of a larger expression, if it is one.
        scope: True if it is the context of a ``with``.

    Raises:
        Unfilled: There is no native code for this call; the text says why.
    """
    if call in _DEVICES:
        return _named_device(native, call, arguments, scope)
    bound = _bind(call, arguments)
    given = {name: _text(native, name, each, ran) for name, each in bound.items()}
    template = _template(native, call, bound, ran, nested)
    if template is None:
        msg = "has no single native line"
        raise Unfilled(msg)
    unused = [name for name in bound if name not in _DROPPED and f"{{{name}" not in template]
    if unused and call not in ("devices", "run"):
        msg = f"its argument {unused[0]} has no native counterpart"
        raise Unfilled(msg)
    known = _known_values(call, given, bound)
    devices = {each.device for each in ran if each.device is not None}
    if len(devices) == 1:
        known["device"] = native.device(*devices) or ""
    if call == "run" and not devices:  # it refused its arguments
        template = "{fn}({args})"
    in_place = call == "place" and any(each.call == "place_model" for each in ran)
    return Filled(template, given, known, in_place)


def _named_device(native: NativeCode, call: str, arguments: list[Argument], scope: bool) -> Filled:
    found = literal_device(call, arguments)
    text = None if found is None else native.device(found) if scope else native.value(found)
    template = native.template("on") if scope else text
    if text is None or template is None:
        msg = "names a device in a way that only devshim understands"
        raise Unfilled(msg)
    return Filled(template, {"device": text})


def literal_device(call: str, arguments: list[Argument]) -> str | None:
    """Return the device that ``ds.gpu(1)``, ``ds.cpu()`` or ``ds.device("cuda:1")`` names by literals."""
    texts = [each.text for each in arguments]
    try:
        if call == "cpu":
            return "cpu"
        if call == "gpu" and all(text.isdecimal() for text in texts):
            return f"gpu:{texts[0] if texts else 0}"
        if call == "device" and len(arguments) == 1:
            return arguments[0].device
    except IndexError:
        return None
    return None


def device_of_text(text: str) -> str | None:
    """Return the device that a string literal names, in devshim's notation; None if it names none."""
    try:
        return str(parsing.device_of_argument(text))
    except DevshimError:
        return None


def _bind(call: str, arguments: list[Argument]) -> dict[str, Argument]:
    """Return the arguments by the names of the parameters."""
    if call == "run":
        rest = ", ".join(
            each.star + (f"{each.keyword}={each.text}" if each.keyword else each.text) for each in arguments[1:]
        )
        fn = arguments[0]
        is_name = re.fullmatch(r"[\w.]+", fn.text)
        return {"fn": fn if is_name else Argument(f"({fn.text})"), "args": Argument(rest)}
    if any(each.star for each in arguments):
        msg = "its arguments are unpacked"
        raise Unfilled(msg)
    target: Any = sys.modules["devshim"]
    try:
        for part in call.split("."):
            target = getattr(target, part)
        bound = inspect.signature(target).bind(
            *[each for each in arguments if each.keyword is None],
            **{each.keyword: each for each in arguments if each.keyword is not None},
        )
    except (AttributeError, TypeError, ValueError) as error:
        msg = f"its arguments do not fit: {error}"
        raise Unfilled(msg) from error
    found = {name: each for name, each in bound.arguments.items() if isinstance(each, Argument)}
    found = {name: each for name, each in found.items() if each.text != "None"}
    if call == "random.randint" and "high" not in found:
        found = {"low": Argument("0"), "high": found.pop("low"), **found}
    return found


def _text(native: NativeCode, name: str, argument: Argument, ran: list[Ran]) -> str:
    if name == "dtype":
        return native.dtype(argument.text)
    if name == "devices" and argument.devices is not None:
        return f"[{', '.join(native.device(each) or each for each in argument.devices)}]"
    if name in _SHAPES and argument.text.isdecimal():
        return f"({argument.text},)"
    if name != "device":
        return argument.text
    if argument.device is not None:
        return native.device(argument.device) or argument.device
    if argument.is_text:
        devices = {each.device for each in ran}
        only = devices.pop() if len(devices) == 1 else None
        if only is None:
            msg = "its device is text, and not always the same"
            raise Unfilled(msg)
        return native.device(only) or only
    return argument.text


def _template(
    native: NativeCode, call: str, bound: dict[str, Argument], ran: list[Ran], nested: tuple[str, ...]
) -> str | None:
    if call in ("place", "copy"):
        return _placing(native, call, bound, ran, nested)
    if call == "devices" and "kind" in bound:
        return native.templates.get("devices_gpu") if bound["kind"].text.strip("'\"") == "gpu" else None
    standard = call.startswith("random.") and not _PARAMETERS & bound.keys()
    standard = standard or (call == "full" and "dtype" not in bound)
    return native.template(call, *["standard"] * standard, *nested)


def _placing(
    native: NativeCode, call: str, bound: dict[str, Argument], ran: list[Ran], nested: tuple[str, ...]
) -> str | None:
    kinds = {(each.call, each.is_tree) for each in ran if each.call in _KINDS}
    if len(kinds) != 1:
        msg = "places different things" if kinds else "did not run on this framework"
        raise Unfilled(msg)
    kind, is_tree = kinds.pop()
    if call == "place" and "copy" in bound and bound.pop("copy").text != "True":
        msg = "its argument copy has no native counterpart"
        raise Unfilled(msg)
    if is_tree:
        return native.templates.get(f"{kind}_tree")
    return native.template(kind, *nested)


def _known_values(call: str, given: dict[str, str], bound: dict[str, Argument]) -> dict[str, str]:
    known = {"low": "0", "high": "1", "loc": "0", "scale": "1", "size": "()", "axis": "0"}
    devices = bound.get("devices")
    if devices is not None:
        count = len(devices.devices) if devices.devices is not None else None
        known["count"] = str(count) if count is not None else f"len({given['devices']})"
    if call == "random.bernoulli":
        known["p"] = "0.5"
    return known

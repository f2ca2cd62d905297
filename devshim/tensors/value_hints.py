"""Error messages for invalid shapes, numbers, dtypes and options, with hints that give the correct code.

These functions do not decide what is refused: a call uses them after it has refused a value. The code in a hint can
be pasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, ConversionError
from devshim.errors.formatting import describe, show
from devshim.errors.messages import bad_argument
from devshim.registry.argument_hints import device_source, is_tensor, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence


def no_shape(value: object) -> ArgumentError:
    """Return the error for a shape that is not an int or a sequence of ints."""
    if is_tensor(value):
        hint = "ds.zeros_like(x) makes zeros in the shape of a tensor x; so do ones_like, full_like and empty_like"
    elif type(value) in (int, float, str, tuple, list):
        hint = "write the lengths: 3, or (2, 3) for two axes"
    else:
        hint = "write the lengths, such as (2, 3); if a compiler does not know x.shape, write ds.zeros_like(x)"
    return bad_argument("shape", value, "an int or a tuple of ints", hint)


def negative_length(value: object) -> ArgumentError:
    """Return the error for a shape with a negative length."""
    hint = "write each length as a number, such as (2, 3): only a reshape can infer one"
    return bad_argument("shape", value, "made of lengths of 0 or more", hint)


def is_shape(value: object) -> bool:
    """Return True if a value given for a number looks like a shape."""
    return type(value) in (tuple, list)


def too_many(call: str, takes: int, args: tuple[object, ...]) -> ArgumentError:
    """Return the error for too many positional arguments: a shape in pieces, a device, or a dtype.

    Args:
        call: The public call.
        takes: How many positional arguments it takes; the shape is the last of them, or for `full` the first.
        args: All positional arguments that it got.
    """
    kept, extra = ", ".join(map(show, args[:takes])), args[takes]
    if type(extra) is not int:
        device = device_source(extra)
        word, value = (
            ("dtype", repr(extra) if type(extra) is str else "dtype") if device is None else ("device", device)
        )
        problem = f"ds.{call} takes {word} by its name, and was given {describe(extra)} by position"
        return ArgumentError(problem, f"ds.{call}({kept}, {word}={value})")
    at = 0 if call == "full" else takes - 1
    last = len(args) - 1 if call == "full" else len(args)
    code = ", ".join([*map(show, args[:at]), f"({', '.join(map(show, args[at:last]))})", *map(show, args[last:])])
    problem = f"ds.{call} takes the shape as one argument, and was given {last - at}"
    return ArgumentError(problem, f"the shape is one tuple: ds.{call}({code})")


def hide_positional(fn: Any) -> None:
    """Hide the positional arguments in a function's signature that it accepts only to raise its own error."""
    from inspect import Parameter, signature

    found = signature(fn)
    wanted = [each for each in found.parameters.values() if each.kind is not Parameter.VAR_POSITIONAL]
    fn.__signature__ = found.replace(parameters=wanted)


def swapped_fill(shape: object, fill_value: object) -> ArgumentError:
    """Return the error for `full` with the shape as its second argument."""
    return ArgumentError(
        f"ds.full takes the shape first, and was given {describe(shape)} first and {describe(fill_value)} second",
        f"the arguments are swapped: ds.full({show(fill_value)}, {show(shape)})",
    )


def huge_fill(fill_value: object) -> ArgumentError:
    """Return the error for an integer in `full` that does not fit any dtype."""
    hint = "pass it as a float: float(fill_value)"
    return bad_argument("fill_value", fill_value, "in the range of 64-bit integers", hint)


def no_numbers(obj: object) -> str:
    """Return the text for an object that `asarray` got, which NumPy reads as an object or as text."""
    return f"{describe(obj)} is not made of numbers"


def endless_list() -> ConversionError:
    """Return the error for a list that cannot be read to its end."""
    msg = "these lists are nested too deeply, or one contains itself"
    return ConversionError(msg, "pass nested sequences of numbers")


def one_by_one(call: str, name: str, given: Any) -> ArgumentError:
    """Return the error for a tuple given to a call that takes separate numbers."""
    return bad_argument(
        name, given, "a number", f"its numbers are given one by one: ds.{call}({', '.join(map(show, given))})"
    )


def no_bound(call: str, name: str, given: object) -> ArgumentError:
    """Return the error for a shape given as the first parameter of a function of `ds.random`."""
    return bad_argument(name, given, "a number", f"the shape is given by name: ds.random.{call}(size={show(given)})")


def no_dtype(value: object, names: tuple[str, ...], title: str) -> ArgumentError:
    """Return the error for a value that does not name a dtype."""
    meant = {"int": "int64", "long": "int64", "float": "float32", "half": "float16", "double": "float64"}
    spelled = value.__name__ if value in (int, float) else value
    near = meant.get(spelled) or nearest(spelled, names) if isinstance(spelled, str) else None
    hint = "write dtype='float32', or another of these names" if near is None else f"did you mean dtype={near!r}?"
    return bad_argument("dtype", value, f"one of {', '.join(names)}, a NumPy dtype, or {title}'s own", hint)


def no_array(value: object) -> ArgumentError:
    """Return the error for `from_numpy` with something other than an array."""
    from devshim.registry import current

    other = f"ds.convert(a, {current.current().name!r}) converts another framework's tensor"
    return bad_argument(
        "a", value, "a NumPy array", other if is_tensor(value) else "ds.asarray(a) reads numbers and lists"
    )


def number_hint(name: str, value: object) -> str:
    """Return the hint for an argument that takes a number."""
    if is_tensor(value):
        return f"float({name}) is the number in a tensor of one element"
    if isinstance(value, str):
        return f"write {name}=1.0, without quotation marks"
    return f"write {name}=1.0"


def int_hint(name: str, value: object) -> str:
    """Return the hint for an argument that takes an int."""
    if type(value) is float and value.is_integer():
        return f"write {name}={int(value)}"
    if isinstance(value, str):
        return f"write {name}=1, without quotation marks"
    return f"int({name}) is the number in a tensor of one element" if is_tensor(value) else f"write {name}=1"


def unknown_choice(name: str, value: object, options: Sequence[str]) -> ArgumentError:
    """Return the error for an argument that is not one of the allowed words."""
    near = nearest(value, options)
    hint = f"did you mean {name}={near!r}?" if near is not None else f"write {name}={options[-1]!r}"
    return bad_argument(name, value, f"one of {', '.join(map(repr, options))}", hint)


def no_op(tensors: object, op: object, options: Sequence[str]) -> ArgumentError:
    """Return the error for an unknown operation of `all_reduce_`."""
    if isinstance(tensors, str) and tensors in options:
        return ArgumentError(
            f"ds.all_reduce_ takes the tensors first, and was given {tensors!r} first",
            f"the arguments are swapped: ds.all_reduce_(tensors, {tensors!r})",
        )
    meant = "mean" if op in ("avg", "average") else nearest(op, options) or "sum"
    return bad_argument("op", op, f"one of {', '.join(map(repr, options))}", f"ds.all_reduce_(tensors, {meant!r})")


def no_tensors(tensors: Any) -> ArgumentError:
    """Return the error for `all_reduce_` without a list, which it needs for storing new tensors."""
    if isinstance(tensors, list):
        return ArgumentError("ds.all_reduce_ was given an empty list", "pass one tensor for each device, in a list")
    hint = "ds.all_reduce_(list(tensors)) returns the list" if isinstance(tensors, tuple) else "ds.all_reduce_([x])"
    return ArgumentError(f"ds.all_reduce_ takes a list of tensors, and was given {describe(tensors)}", hint)

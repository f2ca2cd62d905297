"""Tests of the errors: one tree, one form of message, and both survive pickling."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import sys
from abc import ABC
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import devshim_backends
import numpy as np
import pytest

import devshim as ds
from devshim import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def drawn() -> dict[str, tuple[str, str | None]]:
    """Return the tree in the module's docstring: class -> (its parent, its builtin base)."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str, str | None]] = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"^    ([│├└─ ]*)(\w+Error)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            del above[depth:]
            found[match[2]] = (above[-1] if above else "Exception", match[3])
            above.append(match[2])
    return found


def actual() -> dict[str, tuple[str, str | None]]:
    """Return the tree that the classes make."""
    found = {}
    for cls in CLASSES:
        parent, *others = cls.__bases__
        found[cls.__name__] = (parent.__name__, others[0].__name__ if others else None)
    return found


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert drawn() == actual()


def test_all_are_public_under_the_root() -> None:
    for cls in CLASSES:
        assert issubclass(cls, ds.DevshimError)
        assert getattr(ds, cls.__name__) is cls
        assert f"{cls.__module__}.{cls.__qualname__}" == f"devshim.{cls.__name__}"
        assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("hint", ["type this", None])
def test_the_form_and_pickling(cls: type[ds.DevshimError], hint: str | None) -> None:
    error = cls("something is so", hint)
    assert str(error) == ("something is so" if hint is None else "something is so\n\nHint: type this")
    error.add_leaf("['a']")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is cls
        assert (other.problem, other.hint) == (error.problem, hint)
        assert str(other) == str(error)
    assert "at the leaf ['a'] of the tree" in str(error)
    assert str(error).endswith("unchanged)" if hint is None else "Hint: type this")


class Nasty:
    """An argument whose text cannot be obtained."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


REFUSED: dict[str, tuple[type[ds.DevshimError], Callable[[Any], Any]]] = {
    "a spec": (ds.DeviceSpecError, lambda x: ds.device("gup:1")),
    "a kind": (ds.DeviceSpecError, lambda x: ds.device_count("gup")),
    "a missing card": (ds.DeviceNotFoundError, lambda x: ds.place(x, "gpu:9")),
    "a missing kind": (ds.DeviceNotFoundError, lambda x: ds.place(x, "tpu")),
    "require": (ds.DeviceNotFoundError, lambda x: ds.require("gpu:9")),
    "not a tensor": (ds.NotATensorError, lambda x: ds.device_of({"a": x})),
    "nasty": (ds.NotATensorError, lambda x: ds.to_numpy(Nasty())),
    "a copy is needed": (ds.CopyNeededError, lambda x: ds.place(x, "gpu:0", copy=False)),
    "a strange copy": (ds.ArgumentError, lambda x: ds.place(x, "cpu", copy="no")),  # type: ignore[arg-type]
    "a nasty copy": (ds.ArgumentError, lambda x: ds.place(x, "cpu", copy=Nasty())),  # type: ignore[arg-type]
    "shape": (ds.ArgumentError, lambda x: ds.zeros(-1)),
    "dtype": (ds.ArgumentError, lambda x: ds.zeros(1, dtype="float31")),
    "values": (ds.ConversionError, lambda x: ds.asarray([[1], [2, 3]])),
    "mixed": (ds.DeviceMismatchError, lambda x: ds.run(len, x, y=ds.place(x, "gpu:1"))),
    "named": (ds.DeviceMismatchError, lambda x: ds.require_same_device(a=x, b=ds.place(x, "gpu:1"))),
    "no such policy": (ds.ArgumentError, lambda x: ds.memory_policy("shrink")),  # type: ignore[arg-type]
    "no policy": (ds.UnsupportedError, lambda x: ds.memory_policy("grow")),
    "simulate": (ds.ArgumentError, lambda x: ds.simulate(-1)),
    "backend": (ds.BackendNotFoundError, lambda x: ds.use("nope")),
    "cycle": (ds.ArgumentError, lambda x: ds.place(cycle(x), "cpu")),
}


def cycle(x: Any) -> list[Any]:
    found = [x]
    found.append(found)
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_one_sentence_then_a_hint(name: str, cards: object) -> None:
    cls, call = REFUSED[name]
    with pytest.raises(cls) as caught:
        call(np.zeros(2))
    error = caught.value
    assert type(error) is cls
    assert error.hint
    assert str(error) == f"{error.problem}\n\nHint: {error.hint}"
    assert "\n" not in error.problem
    assert "\n" not in error.hint
    assert not error.problem.endswith(".")
    assert len(error.problem) < 300


def test_a_missing_device_says_how_many_and_why(cards: object) -> None:
    with pytest.raises(ds.DeviceNotFoundError) as caught:
        ds.place(np.zeros(1), "gpu:2")
    assert caught.value.problem == ("gpu:2 was asked for, and NumPy has 2 gpu devices: devshim simulates 2")
    assert "gpu:0 to gpu:1" in str(caught.value.hint)
    assert isinstance(caught.value, LookupError)


def test_a_mismatch_names_each_argument_its_device_and_the_line_that_mends_it(cards: object) -> None:
    a, b, c = ds.zeros(1), ds.zeros(1, device="gpu:1"), ds.zeros(1, device="gpu:1")
    with pytest.raises(ds.DeviceMismatchError) as caught:
        ds.require_same_device(a=a, b=b, c={"deep": [c]})
    for reported in ("a is on cpu", "b is on gpu:1", "c['deep'][0] is on gpu:1"):
        assert reported in caught.value.problem
    assert caught.value.hint == "a = ds.place(a, 'gpu:1')"
    exec(caught.value.hint, {"ds": ds}, found := {"a": a})
    assert ds.require_same_device(a=found["a"], b=b) is ds.gpu(1)


def test_a_message_about_very_many_tensors_is_short(cards: object) -> None:
    x = np.ones(2)
    tensors = {f"x{i}": x if i % 2 else ds.place(x, "gpu:1") for i in range(1000)}
    with pytest.raises(ds.DeviceMismatchError) as caught:
        ds.require_same_device(**tensors, last=ds.place(x, "gpu:0"))
    assert caught.value.problem.endswith(
        "one device: x0 and 499 more are on gpu:1, x1 and 499 more are on cpu, last is on gpu:0"
    )
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("x1 = ds.place(x1, 'gpu:1'); x3 = ")
    assert caught.value.hint.endswith("; and so on")
    assert len(caught.value.hint) < 300


def test_an_import_errors_text_follows_the_leaf() -> None:
    """`ImportError` stores its message apart from its arguments."""
    error = ds.BackendBrokenError("broken", "mend it")
    error.add_leaf("[0]")
    assert "[0]" in str(error)


PLACES = [path for root in (ds, devshim_backends) for path in sorted(Path(root.__path__[0]).rglob("*.py"))]


@pytest.mark.parametrize("path", [path for path in PLACES if "testing" not in path.parts], ids=lambda path: path.stem)
def test_no_error_is_raised_without_a_hint(path: Path) -> None:
    """An error without a hint does not help its reader; `DevshimError` allows it for code that passes an error on."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in errors.__all__:
            assert len(node.args) + len(node.keywords) >= 2, f"{path}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", REFUSED)
def test_the_hint_does_not_repeat_the_message(name: str, cards: object) -> None:
    """Most words of a hint are not those of its message: it says what to type, and does not repeat what is true."""
    with pytest.raises(ds.DevshimError) as caught:
        REFUSED[name][1](np.zeros(2))
    output, hint = (
        set(re.findall(r"[a-z]{4,}", str(text).lower())) for text in (caught.value.problem, caught.value.hint)
    )
    assert len(output & hint) <= 0.7 * len(hint), (caught.value.problem, caught.value.hint)


# ---------------------------------------------------------------------- an adapter's errors
def of_an_adapter(module: str) -> type[ds.DevshimError]:
    """Return a class that is both devshim's error and a framework's own."""
    return type("FullDeviceError", (errors.JoinedError, ds.OutOfMemoryError, RuntimeError), {"__module__": module})


def test_an_adapters_error_has_devshims_name() -> None:
    cls = of_an_adapter("somewhere.errors")
    assert f"{cls.__module__}.{cls.__qualname__}" == "devshim.OutOfMemoryError"
    with pytest.raises(ds.OutOfMemoryError):
        raise cls("full")
    with pytest.raises(RuntimeError):
        raise cls("full")


def test_a_program_may_derive_its_own_errors() -> None:
    """From an error and an abstract class, which has a metaclass, and from an adapter's error."""

    class NotReadyError(ds.DevshimError, ABC):
        pass

    class MyFullError(of_an_adapter("somewhere.errors")):  # type: ignore[misc]
        pass

    assert issubclass(NotReadyError, ABC)
    assert (MyFullError.__module__, MyFullError.__name__) == (__name__, "MyFullError")
    assert MyFullError("full", "make room").__reduce__() == (MyFullError, ("full", "make room"))


@pytest.mark.parametrize(
    ("module", "framework"), [("fakeframe.errors", "fakeframe"), ("devshim_backends._fakeframe.full", "fakeframe")]
)
def test_an_adapters_error_survives_pickling(module: str, framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays the same class if the framework is loaded, and is devshim's class in a process without it."""
    cls = of_an_adapter(module)
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        if name != "devshim_backends":
            made = ModuleType(name)
            made.__path__ = []
            monkeypatch.setitem(sys.modules, name, made)
    sys.modules[module].FullDeviceError = cls  # type: ignore[attr-defined]
    monkeypatch.setitem(
        sys.modules, framework, ModuleType(framework) if framework not in parts else sys.modules[parts[0]]
    )
    assert pickle.loads(pickle.dumps(cls)) is cls, "a worker of a DataLoader sends the class"
    stored = pickle.dumps(cls("it is full", "make room"))
    back = pickle.loads(stored)
    assert type(back) is cls
    assert (back.problem, back.hint) == ("it is full", "make room")
    monkeypatch.delitem(sys.modules, framework)
    plain = pickle.loads(stored)
    assert type(plain) is ds.OutOfMemoryError
    assert (plain.problem, plain.hint) == ("it is full", "make room")


def test_an_error_made_again_from_a_longer_text_has_its_hint() -> None:
    """Keras adds the layer to an error's text, prints the error itself in bold, and makes one of the same class."""
    reported = str(errors.DeviceNotFoundError("gpu:7 is not there", "use gpu:0"))
    text = f"Exception encountered when calling Dense.call().\n\n\x1b[1m{reported}\x1b[0m\n\nArguments received:\n  x=1"
    again = errors.DeviceNotFoundError(text)
    assert str(again) == text
    assert again.hint == "use gpu:0"
    assert again.problem == "Exception encountered when calling Dense.call().\n\ngpu:7 is not there"
    assert pickle.loads(pickle.dumps(again)).hint == "use gpu:0"


class _Pair(NamedTuple):
    first: object
    second: object


@pytest.mark.parametrize(
    ("value", "named"), [(ds.Rows(np.ones(2)), "x.part"), (_Pair(1, 2), "x.first, x.second"), ({"a": 1}, "its leaves")]
)
def test_a_value_with_fields_in_place_of_a_tensor_is_told_their_names(value: object, named: str) -> None:
    with pytest.raises(ds.NotATensorError, match=named):
        ds.to_numpy(value)

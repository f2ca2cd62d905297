"""The parser of device names: text, an index, a framework's device object, or a DLPack pair becomes a `Device`.

Requirements of this module:

* It accepts every spelling that users meet, and nothing else. An error names the nearest valid spelling.
* Hostile input is safe. Nothing is evaluated, no long text is scanned (text of more than 80 characters is refused by
  its length), and the only exception raised is `DeviceSpecError`.
* A program may pass ``"gpu:1"`` a million times, so each text is parsed once and cached. The cache is bounded.
"""

from __future__ import annotations

from devshim.devices import device as device_module
from devshim.devices.device import ALIASES, CPU, MAX_INDEX, Device, as_int
from devshim.errors import DeviceSpecError
from devshim.errors.formatting import show

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

DeviceLike: TypeAlias = "Device | str | int | tuple[int, int] | object"
"""Anything `device` accepts."""

_LONGEST = 80
_REMEMBERED = 512
_TEXTS: dict[str, Device] = {}
_CHECKED: dict[str, Device] = {}
"""The texts that name a GPU of the right platform, or no platform (`device_of_argument`)."""
_CARDS = tuple(Device("gpu", i) for i in range(16))
"""The GPUs of small indices. torch.compile treats an ``int`` as one that may vary, until it indexes something."""
_LOCAL_JOB = "/job:localhost/replica:0/task:0"
_DLPACK_KINDS = {1: "cpu", 2: "cuda", 3: "cpu", 8: "metal", 10: "rocm", 11: "cpu", 13: "cuda", 14: "xpu"}
"""DLPack's DLDeviceType (dlpack.h): pinned host memory (3 and 11) is the host, managed memory (13) a GPU's."""

_ACCEPTED = "'cpu', 'gpu:1', 'cuda:1', '/GPU:1', an int (a GPU index), or a framework's own device object"


def device(spec: DeviceLike) -> Device:
    """Return the `Device` that a value names, in any spelling that users meet.

    Args:
        spec: A `Device`; text such as ``gpu``, ``GPU:1``, ``cuda:1``, ``/GPU:1``, ``/device:GPU:1``,
            ``/job:localhost/replica:0/task:0/device:GPU:1``, ``gpu(1)`` or ``Place(gpu:1)``; an
            ``int``, which is a GPU's index; a ``torch.device``, a TensorFlow logical or physical device, an
            ``mx.Context`` or ``mx.Device``, a Paddle place, a JAX or CuPy device; or a DLPack
            ``(device type, device id)`` pair.

    Returns:
        The device, which may or may not exist: see `require`.

    Raises:
        DeviceSpecError: The value is anything else; the hint gives the nearest valid spelling. Text is never evaluated.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.device("/device:GPU:1"), ds.device("cuda:1"), ds.device(1)
        (Device('gpu', 1), Device('gpu', 1), Device('gpu', 1))
        >>> ds.device("cpu:3")
        Device('cpu')
    """
    kind = type(spec)
    if kind is Device and spec.text:  # type: ignore[union-attr]  # see `devshim.devices.device`
        return spec  # type: ignore[return-value]
    if kind is str:
        # Even a dictionary lookup reads the whole text, so do not look up a long one.
        found = _TEXTS.get(spec) if len(spec) <= _LONGEST else None  # type: ignore[arg-type]
        return _remember(spec) if found is None else found  # type: ignore[arg-type]
    if kind is int and 0 <= spec < len(_CARDS):  # type: ignore[operator]
        return _CARDS[spec]  # type: ignore[index]
    return _from_object(spec)


def _remember(text: str) -> Device:
    found = _from_text(text)
    if len(_TEXTS) < _REMEMBERED:
        _TEXTS[text] = found
    return found


def _from_text(text: str) -> Device:
    if len(text) > _LONGEST:
        msg = f"{show(text)} is not a device: a name has at most {_LONGEST} characters, and this text has more"
        raise DeviceSpecError(msg, _hint(text))
    found = _read(text.lower()) if text.isascii() else None  # the lower case of some non-ASCII letters is ASCII
    if found is None:
        raise _refusal(text)
    return found


def _read(text: str) -> Device | None:
    """Parse lower-case text, or return None; every step removes one kind of wrapping."""
    if text.isdecimal() and text.isascii():
        return _parse_index("gpu", text)
    if text.startswith("place(") and text.endswith(")"):
        return _read_pair(text[6:-1], ":")
    if text.endswith(")"):
        return _read_pair(text[:-1], "(")
    if text.startswith(_LOCAL_JOB + "/"):
        text = text[len(_LOCAL_JOB) :]
        if not text.startswith("/device:"):
            return None
    if text.startswith("/device:"):
        return _read_pair(text[8:], ":")
    return _read_pair(text.removeprefix("/"), ":")


def _read_pair(text: str, separator: str) -> Device | None:
    name, found, number = text.partition(separator)
    if name == "gpu_pinned" and separator == ":" and not found:
        return CPU  # Paddle's name for pinned host memory
    kind = ALIASES.get(name)
    if kind is None:
        return None
    if not found:
        return Device(kind) if separator == ":" else None
    return _parse_index(kind, number)


def _parse_index(kind: str, digits: str) -> Device | None:
    plain = digits.isdecimal() and digits.isascii() and len(digits) <= 5 and (digits == "0" or digits[0] != "0")
    return Device(kind, int(digits)) if plain and int(digits) <= MAX_INDEX else None


def _from_object(spec: Any) -> Device:
    """Parse everything but exact text: subclasses of str, indices, pairs, and the frameworks' objects."""
    try:
        if issubclass(type(spec), str):
            # Call no method that a subclass may override, and do not copy long text completely.
            return _from_text(str.__getitem__(spec, slice(_LONGEST + 1)))
        found = _from_pair(spec) if type(spec) is tuple else _from_number(spec)
        if found is None:
            found = device_module.FRAMEWORKS.from_native(spec)
    except DeviceSpecError:
        raise
    except Exception as error:  # an object may raise anything from its own attributes
        raise _refusal(spec) from error
    if found is None:
        raise _refusal(spec)
    return found


def _from_number(spec: Any) -> Device | None:
    if type(spec) is bool or not hasattr(type(spec), "__index__") or getattr(spec, "shape", ()) != ():
        return None
    return Device("gpu", as_int(spec))


def _from_pair(spec: tuple[Any, ...]) -> Device | None:
    """Parse DLPack's ``(device type, device id)``; the type may be an enum that counts as an int."""
    if len(spec) != 2:
        return None
    name = _DLPACK_KINDS.get(as_int(spec[0]))
    index = None if spec[1] is None else as_int(spec[1])
    if name == "cpu":  # Paddle exports (kDLCPU, None), JAX and TensorFlow their own CPU numbers: all mean the host
        return CPU
    return None if name is None or index is None else Device(name, index)


def device_of_argument(spec: Any, x: object = None, framework: str | None = None) -> Device:
    """Return the device that an argument of a call names; refuse a platform that the framework's GPU is not of.

    Args:
        spec: As for `device`.
        x: The tensor that goes there, whose framework decides; without it, the current framework does.
        framework: The name of the framework that decides, if it is neither.

    Raises:
        DeviceSpecError: As for `device`.
        DeviceNotFoundError: ``spec`` names a platform, such as ``mps``, and the GPU is of another one.
    """
    kind = type(spec)
    if kind is Device and spec.text:
        return spec  # type: ignore[no-any-return]
    if kind is str:
        known = _CHECKED.get(spec) if len(spec) <= _LONGEST else None
        if known is not None:
            return known
    found = device(spec)
    name = None if kind is int or found.kind != "gpu" else _platform_name(spec)
    is_checked = name is None or device_module.FRAMEWORKS.check_platform(name, x, framework)
    if is_checked and kind is str and len(_CHECKED) < _REMEMBERED:
        _CHECKED[spec] = found
    return found


def _platform_name(spec: Any) -> str | None:
    """Return the platform that a name of a GPU contains: in text, in a DLPack pair, or in a device's ``type``."""
    if type(spec) is tuple:
        return _DLPACK_KINDS.get(as_int(spec[0]))
    name = spec if issubclass(type(spec), str) else getattr(spec, "type", None)  # for example from a `torch.device`
    if not issubclass(type(name), str):
        return None
    from devshim.devices import platforms

    return platforms.name_in(str(name))


def forget_platforms() -> None:
    """Check the names of platforms again: the GPUs of a framework became known, or have changed."""
    _CHECKED.clear()


def device_of_call(call: str, x: object, spec: Any) -> Device:
    """Return the device that an argument of a call names, such as ``ds.place(x, spec)``.

    Raises:
        DeviceSpecError: It names no device. If the two arguments are swapped, or ``spec`` is something that another
        call takes, the hint says what to type.
    """
    if type(spec) is str:  # as in `device_of_argument`, inlined to save a call
        found = _CHECKED.get(spec) if len(spec) <= _LONGEST else None
        if found is not None:
            return found
    try:
        return device_of_argument(spec, x)
    except DeviceSpecError as error:
        raise device_module.FRAMEWORKS.no_device(call, x, spec, error) from error.__cause__


def _refusal(spec: object) -> DeviceSpecError:
    problem = f"{show(spec)} is not a device"
    if not issubclass(type(spec), str):
        return DeviceSpecError(problem, f"{_start_hint(spec)}write {_ACCEPTED}")
    index = _bad_index(spec)  # type: ignore[arg-type]
    if index is None:
        return DeviceSpecError(problem, _hint(spec))
    kind, text = index
    return DeviceSpecError(
        f"{problem}: {text!r} is not an index",
        f"write the index as a number, such as '{kind}:0'; accepted are {_ACCEPTED}",
    )


def _hint(spec: object) -> str:
    near = _nearest(spec) if issubclass(type(spec), str) else None  # type: ignore[arg-type]
    return f"write {_ACCEPTED}" if near is None else f"did you mean {near!r}? Accepted are {_ACCEPTED}"


def _start_hint(spec: object) -> str:
    """Return the start of a hint for a value that is not text."""
    is_tensor = device_module.FRAMEWORKS.is_tensor(spec)
    return "ds.device_of(x) is the device of a tensor x; otherwise " if is_tensor else ""


def _bad_index(text: str) -> tuple[str, str] | None:
    """Return the kind, as written, and the index of short text such as ``cuda:a``, whose index has no digit."""
    start = str.__getitem__(text, slice(24))
    name, separator, index = start.partition(":")
    if not separator or not index or str.__len__(text) > 24 or any(c in "0123456789" for c in index):
        return None
    return (name, index) if name.lower() in ALIASES and index.isprintable() else None


def _nearest(text: str) -> str | None:
    """Return the valid spelling closest to at most 24 characters of refused text, or None."""
    start = str.__getitem__(text, slice(24)).lower()
    first = next((i for i, c in enumerate(start) if c in "0123456789"), len(start))
    name = "".join([c for c in start[:first] if c.isascii() and c.isalpha()])
    rest = start[first:]
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if not name and not digits:
        return None
    close = min(ALIASES, key=lambda alias: (_distance(name, alias), alias)) if name else "gpu"
    if name and _distance(name, close) > 1:
        return None
    kind = ALIASES[close]
    return kind if kind == "cpu" or not digits else f"{kind}:{min(int(digits), MAX_INDEX)}"


def _distance(a: str, b: str) -> int:
    """Return the edit distance; a swap of two neighbours is one edit: ``gup`` is as near to ``gpu`` as ``gpx``."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, before, row = before, row, [i + 1]
        for j, y in enumerate(b):
            row.append(min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y)))
            if i and j and x == b[j - 1] and a[i - 1] == y:
                row[-1] = min(row[-1], last[j - 1] + 1)
    return row[-1]

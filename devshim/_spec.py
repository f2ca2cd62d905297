"""Reading a device out of whatever a user holds: text, an index, a framework's object, a DLPack pair.

Requirements this module answers:

* Every spelling a user meets, and nothing else: what is refused is refused with the nearest valid one.
* Hostile input is only ever looked at.  Nothing is evaluated, nothing long is scanned (a text of more
  than 80 characters is refused by its length), and nothing but `DeviceSpecError` comes out.
* A placement may be given ``"gpu:1"`` a million times, so a text is read once and remembered; the memory
  is bounded.
"""

from __future__ import annotations

from devshim.device import ALIASES, CPU, MAX_INDEX, Device
from devshim.errors import DeviceSpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

DeviceLike: TypeAlias = "Device | str | int | tuple[int, int] | object"
"""Anything `device` accepts."""

_LONGEST = 80
_REMEMBERED = 512
_TEXTS: dict[str, Device] = {}
_LOCAL_JOB = "/job:localhost/replica:0/task:0"
_DLPACK_KINDS = {1: "cpu", 2: "gpu", 3: "cpu", 8: "mps", 10: "gpu", 11: "cpu", 13: "gpu", 14: "xpu"}
"""DLPack's DLDeviceType (dlpack.h): pinned host memory (3 and 11) is the host, managed memory (13) a GPU."""

_ACCEPTED = "'cpu', 'gpu:1', 'cuda:1', '/GPU:1', an int (a GPU index), or a framework's own device object"


def device(spec: DeviceLike) -> Device:
    """Read a `Device` out of any spelling a user meets.

    Args:
        spec: A `Device`; text such as ``gpu``, ``GPU:1``, ``cuda:1``, ``/GPU:1``, ``/device:GPU:1``,
            ``/job:localhost/replica:0/task:0/device:GPU:1``, ``gpu(1)`` or ``Place(gpu:1)``; an
            ``int``, which is a GPU's index; a ``torch.device``, a TensorFlow logical or physical device, an
            ``mx.Context`` or ``mx.Device``, a Paddle place, a JAX or CuPy device; or a DLPack
            ``(device type, device id)`` pair.

    Returns:
        The device named.  Whether it exists is not asked: see `require`.

    Raises:
        DeviceSpecError: Anything else, with the nearest valid spelling.  Text is never evaluated.
    """
    kind = type(spec)
    if kind is Device:
        return spec  # type: ignore[return-value]
    if kind is str:
        return _TEXTS.get(spec) or _remember(spec)  # type: ignore[arg-type]
    return _from_object(spec)


def _remember(text: str) -> Device:
    found = _from_text(text)
    if len(_TEXTS) < _REMEMBERED:
        _TEXTS[text] = found
    return found


def _from_text(text: str) -> Device:
    if len(text) > _LONGEST:
        raise DeviceSpecError(
            f"a device is named in at most {_LONGEST} characters, and this text has {len(text)}", f"write {_ACCEPTED}"
        )
    found = _read(text.lower())
    if found is None:
        raise _refusal(text)
    return found


def _read(text: str) -> Device | None:
    """Read lower-case text, or return None; every step removes one kind of wrapping."""
    if text.isdecimal() and text.isascii():
        return _numbered("gpu", text)
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
    return _numbered(kind, number)


def _numbered(kind: str, digits: str) -> Device | None:
    plain = digits.isdecimal() and digits.isascii() and len(digits) <= 5 and (digits == "0" or digits[0] != "0")
    return Device(kind, int(digits)) if plain and int(digits) <= MAX_INDEX else None


def _from_object(spec: object) -> Device:
    """Everything but exact text: subclasses of str, indices, pairs, and the frameworks' objects."""
    try:
        if isinstance(spec, str):
            return _from_text(str.__str__(spec))
        found = _from_pair(spec) if type(spec) is tuple else _from_number(spec)
        if found is None:
            found = _from_framework(spec)
    except DeviceSpecError:
        raise
    except Exception as error:  # an object may raise anything from its own attributes
        raise _refusal(spec) from error
    if found is None:
        raise _refusal(spec)
    return found


def _from_number(spec: object) -> Device | None:
    if isinstance(spec, bool) or not hasattr(type(spec), "__index__") or getattr(spec, "shape", ()) != ():
        return None
    index: int = spec.__index__()  # type: ignore[attr-defined]
    return Device("gpu", index)


def _from_pair(spec: Any) -> Device | None:
    """Read DLPack's ``(device type, device id)``; the type may be an enum that counts as an int."""
    if len(spec) != 2 or any(isinstance(part, bool) for part in spec):
        return None
    kind, index = spec
    name = _DLPACK_KINDS.get(kind.__index__()) if hasattr(type(kind), "__index__") else None
    if name == "cpu":
        # Paddle exports (kDLCPU, None), JAX and TensorFlow their own CPU numbers: all are the host.
        return CPU if index is None or hasattr(type(index), "__index__") else None
    return None if name is None or index is None else Device(name, index)


def _from_framework(spec: object) -> Device | None:
    """Ask the framework that made the object; it is imported already, or the object would not exist."""
    from devshim import _registry

    cls = type(spec)
    if cls.__module__.partition(".")[0] == "cupy":
        return Device("gpu", spec.id)  # type: ignore[attr-defined]
    backend = _registry.owner(cls)
    return None if backend is None else backend.from_native(spec)


def _refusal(spec: object) -> DeviceSpecError:
    shown = _shown(spec)
    near = _nearest(spec) if isinstance(spec, str) else None
    hint = f"write {_ACCEPTED}" if near is None else f"did you mean {near!r}? Accepted are {_ACCEPTED}"
    return DeviceSpecError(f"{shown} names no device", hint)


def _shown(spec: object) -> str:
    if isinstance(spec, str):
        text = str.__str__(spec)
        return repr(text if len(text) <= 40 else text[:37] + "...")
    if type(spec) in (int, float, bool, bytes, tuple, type(None)):
        try:
            text = repr(spec)
        except Exception:  # a tuple repr calls its items, and an int may be too long to print
            text = ""
        if 0 < len(text) <= 40:
            return text
    return f"an object of type {type(spec).__name__}"


def _nearest(text: str) -> str | None:
    """The valid spelling closest to at most 24 characters of refused text, or None."""
    squeezed = "".join(c for c in str.__str__(text)[:24].lower() if c.isascii() and c.isalnum())
    name = squeezed.rstrip("0123456789")
    digits = squeezed[len(name) :].lstrip("0")
    if not name:
        return None
    close = min(ALIASES, key=lambda alias: (_distance(name, alias), alias))
    if _distance(name, close) > 1 + len(close) // 4:
        return None
    kind = ALIASES[close]
    return kind if kind == "cpu" or not digits else f"{kind}:{min(int(digits), MAX_INDEX)}"


def _distance(a: str, b: str) -> int:
    """Levenshtein's edit distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


device.__module__ = "devshim"

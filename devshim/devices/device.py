"""`Device`: a value that says which processor, and nothing else.

Requirements of this module:

* One device has one spelling. ``cuda``, ``mps``, ``GPU:0`` and ``/device:GPU:0`` are all ``gpu:0``. Every ``cpu:N``
  is ``cpu``, because a CPU has no index that means anything to a user.
* Devices are compared on every placement, so equality must be identity: devices are interned.
* torch.compile guards the attributes that a function reads of an argument, not the argument's identity. So every
  function that takes a device reads its text first, if only to test that the text is not empty. Otherwise a function
  compiled for ``cpu`` would be reused for every other device.
* A device is a value, not a handle: it names a device without asking whether that device exists.

The parser for everything a user might write instead of a `Device` is in `devshim.devices.parsing`.
"""

from __future__ import annotations

import sys
from _operator import index as _exact

from devshim.errors import DeviceSpecError

__all__ = ["ALIASES", "KINDS", "Device", "cpu", "gpu"]

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

    from devshim.registry.discovery import BackendName

KINDS = ("cpu", "gpu", "tpu", "npu", "hpu", "mlu")
"""Every kind of device, host first; the order is also the sort order of devices."""

ALIASES = {
    **{kind: kind for kind in KINDS},
    **dict.fromkeys(("cuda", "rocm", "hip", "mps", "metal", "xpu", "oneapi"), "gpu"),
    "host": "cpu",
}
"""The names that users and frameworks have for the kinds, in lower case."""

MAX_INDEX = 65535
_INTERNED: dict[tuple[str, int], Device] = {}

FRAMEWORKS: Any = None
"""The module that knows the frameworks' own device objects (`devshim.registry.native_devices`); set by the package."""

SCOPES: Any = None
"""The module that opens and closes blocks with a default device (`devshim.runtime.scopes`); set by the package."""


class Device:
    """One processor that can hold tensors: a frozen, hashable, ordered value.

    Args:
        kind: ``"cpu"``, ``"gpu"``, or another accelerator a framework reports (``tpu``, ``npu``,
            ``hpu``, ``mlu``). A GPU of any platform is ``gpu``: CUDA, ROCm, Apple's (MPS), Intel's (XPU).
        index: The device's number among those of its kind, from 0. The index of a CPU is always 0.

    Raises:
        DeviceSpecError: The kind is unknown, or the index is not a small non-negative integer.

    Two devices that are equal are the same object, so ``is`` and ``==`` agree, even after pickling and copying.
    Creating a device makes no call to a framework.

    A device is also a context manager: ``with ds.gpu(1):`` is the same as ``with ds.on(ds.gpu(1)):``. The open blocks
    belong to their thread or task, not to the device, so any number of them can use one device at the same time.

    A device never equals text: ``ds.gpu(1) == "gpu:1"`` is False, as for a ``torch.device``, because equal keys of a
    dictionary must have equal hashes, and one device has many spellings. Compare devices with devices, or text with
    text. Format specifications apply to the device's text.

    >>> import devshim as ds
    >>> ds.Device("gpu", 1)
    Device('gpu', 1)
    >>> str(ds.Device("cpu", 3)), str(ds.Device("cuda"))
    ('cpu', 'gpu:0')
    >>> ds.gpu(1) == ds.device("cuda:1"), str(ds.gpu(1)) == "gpu:1", f"{ds.gpu(1):>8}"
    (True, True, '   gpu:1')
    """

    __slots__ = ("__weakref__", "index", "kind", "text")
    kind: str
    index: int
    text: str
    """The result of `str`: ``cpu``, ``gpu:1``."""

    def __new__(cls, kind: str, index: int = 0) -> Device:  # noqa: D102, the class docstring describes it
        found = _INTERNED.get((kind, index)) if type(kind) is str and type(index) is int else None
        return found if found is not None else _intern(kind, index)

    def native(self, backend: BackendName | None = None) -> Any:
        """Return the framework's own object for this device.

        Args:
            backend: A framework's name; the default is the current backend.

        Returns:
            A ``torch.device``, a TensorFlow device string, an ``mx.Context`` or ``mx.Device``, a Paddle place, a JAX
            device, or the text ``"cpu"`` for NumPy. Under simulation, the object that represents the simulated GPU.

        Raises:
            BackendNotFoundError: That framework is not installed, or none is chosen.
            DeviceNotFoundError: The framework can only name devices that exist, and this one does not.
        """
        return FRAMEWORKS.to_native(self, backend)

    def __enter__(self) -> Device:
        return SCOPES.enter(self)  # type: ignore[no-any-return]  # the module is set later

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        SCOPES.leave(kind, error, trace)

    def __init_subclass__(cls) -> NoReturn:
        msg = "Device cannot be subclassed: equal devices are the same object"
        raise TypeError(msg)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        msg = f"a Device is frozen: cannot set {name!r}; make another Device instead"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        msg = f"a Device is frozen: cannot delete {name!r}"
        raise AttributeError(msg)

    def __reduce__(self) -> tuple[type[Device], tuple[str, int]]:
        return (Device, (self.kind, self.index))

    def __copy__(self) -> Device:
        return self

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return "Device('cpu')" if self.kind == "cpu" else f"Device({self.kind!r}, {self.index})"

    def _repr_html_(self) -> str:
        from devshim import _html

        return _html.block(_html.join(repr(self), _html.badge("simulated") if FRAMEWORKS.is_simulated(self) else ""))

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def _key(self) -> tuple[int, int]:
        return (KINDS.index(self.kind), self.index)

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, Device) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._key() <= other._key() if isinstance(other, Device) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._key() > other._key() if isinstance(other, Device) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._key() >= other._key() if isinstance(other, Device) else NotImplemented


def kind_of(name: object) -> str | None:
    """Return the kind that a name of a user or framework means, in any case; None for any other object."""
    if not issubclass(type(name), str) or str.__len__(name) > 8:  # type: ignore[arg-type]
        return None
    return ALIASES.get(str.lower(name))  # type: ignore[arg-type]


def as_int(value: object) -> int:
    """Return an integer-like object as an exact `int`; raise `TypeError` for anything else, including a bool."""
    if type(value) is int:  # torch.compile does not support int.__index__
        return value
    cls, numpy = type(value), sys.modules.get("numpy")
    if cls is bool or (numpy is not None and cls is getattr(numpy, "bool_", None)):  # an index before NumPy 2.2
        raise TypeError("a bool is not an index")
    try:
        return int.__index__(_exact(value))  # type: ignore[arg-type]  # a subclass of int could override comparison
    except AssertionError as error:  # of a Paddle tensor with several elements (3.3)
        raise TypeError(str(error)) from error


def _intern(kind: object, index: object) -> Device:
    from devshim.errors.formatting import show, type_name

    canonical = kind_of(kind)
    if canonical is None:
        spelled = type(kind) is str and len(kind) <= 80 and ":" in kind
        hint = f"ds.device({kind!r}) reads text with an index; " if spelled else ""
        msg = f"no device kind is called {show(kind)}"
        raise DeviceSpecError(msg, f"{hint}the kinds are {', '.join(KINDS)}")
    try:
        number = as_int(index)
    except Exception as error:  # an object may raise anything from its own __index__
        problem = f"a device index is an integer, not {type_name(index)}"
        digits = index if type(index) is str and index.isascii() and index.isdecimal() and len(index) <= 5 else "0"
        raise DeviceSpecError(problem, f"ds.Device({canonical!r}, {int(digits)})") from error
    if not 0 <= number <= MAX_INDEX:
        nearest = 0 if number < 0 else MAX_INDEX
        msg = f"a device index is between 0 and {MAX_INDEX}, and {show(number)} is not"
        raise DeviceSpecError(msg, f"did you mean '{canonical}:{nearest}'?")
    if canonical == "cpu":
        number = 0
    made = _INTERNED.get((canonical, number))
    if made is None:
        made = object.__new__(Device)
        object.__setattr__(made, "kind", canonical)
        object.__setattr__(made, "index", number)
        object.__setattr__(made, "text", canonical if canonical == "cpu" else f"{canonical}:{number}")
        made = _INTERNED.setdefault((canonical, number), made)  # atomic: two threads get one object
    return made


def cpu() -> Device:
    """Return the host's `Device`, without calling any framework.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.cpu()
        Device('cpu')
    """
    return CPU


def gpu(i: int = 0) -> Device:
    """Return the `Device` of the i-th GPU, without checking that it exists.

    Args:
        i: The GPU's number, from 0.

    Raises:
        DeviceSpecError: ``i`` is not a small non-negative integer.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.gpu(1)
        Device('gpu', 1)
        >>> ds.gpu() == ds.device("cuda:0")
        True
    """
    return Device("gpu", i)


CPU = Device("cpu")

"""The classes of errors; `devshim.errors` shows the tree."""

from __future__ import annotations

from sys import modules

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from devshim.devices.device import Device

    Joined = TypeVar("Joined", bound="type[DevshimError]")

__all__ = [
    "AlreadyStartedError",
    "ArgumentError",
    "BackendBrokenError",
    "BackendConflictError",
    "BackendError",
    "BackendNotFoundError",
    "CheckpointError",
    "ConversionError",
    "CopyNeededError",
    "DeviceError",
    "DeviceFailedError",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "DeviceSpecError",
    "DevshimError",
    "NotATensorError",
    "OutOfMemoryError",
    "PlacementError",
    "SimulationError",
    "TracingError",
    "TransferError",
    "UnsupportedError",
]


class DevshimError(Exception):
    """The root of every error devshim raises.

    Attributes:
        problem: One sentence: what was asked, and what is true.
        hint: What to type next, or None where there is nothing to do.

    An error that is made again from its text, as Keras does to add the layer to it, has the hint that is in the text.
    """

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}\n\nHint: {hint}")
        if hint is None and "\n\nHint: " in str(problem):
            problem, _, rest = problem.partition("\n\nHint: ")
            hint = rest.partition("\n\n")[0].removesuffix("\x1b[0m")  # Keras prints the error itself in bold
            problem = problem.replace("\x1b[1m", "")
        self.problem: str = problem
        self.hint = hint

    def add_leaf(self, path: str) -> None:
        """Say once which leaf of a tree the error is about; the tree itself is unchanged. A lone tensor has no path."""
        if path and "(at the leaf " not in self.problem:
            self.add_place(f"at the leaf {path} of the tree, which is unchanged")

    def add_place(self, place: str) -> None:
        """Say where the error happened."""
        self.problem = f"{self.problem} ({place})"
        self.args: tuple[object, ...] = (self.problem if self.hint is None else f"{self.problem}\n\nHint: {self.hint}",)

    def __str__(self) -> str:
        return str(self.args[0])  # ImportError keeps a text of its own, which add_leaf would not reach

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception pickles its args, which here are the joined text: give back the two parts.
        home = vars(type(self)).get("_home")
        if home is None:
            return (type(self), (self.problem, self.hint))
        return (_restored, (*home, type(self).__name__, self.problem, self.hint))


class ArgumentError(DevshimError, ValueError):
    """An argument that makes no sense on any framework, such as a negative length."""


class NotATensorError(DevshimError, TypeError):
    """The object is no tensor of a framework devshim serves."""


class DeviceError(DevshimError):
    """Something about a device: its name, its existence, or its neighbours."""


class DeviceSpecError(DeviceError, ValueError):
    """The value given names no device in any spelling devshim knows."""


class DeviceNotFoundError(DeviceError, LookupError):
    """A well-named device that this machine, or this framework's build, does not have."""


class DeviceMismatchError(DeviceError, ValueError):
    """Arguments that must share a device live on different ones."""


class DeviceFailedError(DeviceError, RuntimeError):
    """A device that was there failed at its work, or does not answer any more."""


class BackendError(DevshimError):
    """Something about a framework as a whole."""


class BackendNotFoundError(BackendError, ImportError):
    """The framework asked for is not installed, or none was chosen among several."""


class BackendBrokenError(BackendError, ImportError):
    """The framework is installed and its import fails; its own traceback is in the message."""


class BackendConflictError(BackendError, ImportError):
    """Two distributions claim one backend name, or two frameworks cannot share this process."""


class PlacementError(DevshimError, RuntimeError):
    """A result was checked and is not on the device that was asked for."""


class CopyNeededError(PlacementError, ValueError):
    """``copy=False`` was given, and the request can only be met by a copy."""


class CheckpointError(DevshimError, ValueError):
    """A file is no checkpoint, is damaged, or does not fit what it shall be loaded into; nothing has changed."""


class ConversionError(DevshimError, TypeError):
    """No faithful conversion exists between two frameworks for this tensor."""


class TransferError(DevshimError, RuntimeError):
    """A transfer between devices happened where a guard forbids it."""


class TracingError(DevshimError, RuntimeError):
    """The call cannot do its work inside a compiled or traced function."""


class SimulationError(DevshimError, RuntimeError):
    """Simulated GPUs cannot be switched on, off or changed at this moment, or were taken away from a tensor.

    Attributes:
        device: The simulated GPU that was taken away, where that is what happened.
    """

    device: Device | None = None

    def where(self) -> Device:
        """Return the GPU that was taken away; where that is not what happened, raise the error."""
        if self.device is None:
            raise self
        return self.device


class AlreadyStartedError(DevshimError, RuntimeError):
    """A setting that must come before a framework starts its devices came after."""


class OutOfMemoryError(DevshimError, MemoryError):
    """A device has not enough free memory for the request."""


class UnsupportedError(DevshimError, NotImplementedError):
    """The backend declares that it cannot do this; the message carries its reason."""


def joined(cls: Joined) -> Joined:
    """Show an adapter's error, devshim's and its framework's in one class, under devshim's public name.

    A traceback and ``type(error).__name__`` then say ``devshim.OutOfMemoryError``, a name that a program can catch.
    """
    public = next(base.__name__ for base in cls.__mro__ if base.__name__ in __all__)
    cls._home = (cls.__module__, cls.__name__)  # type: ignore[attr-defined]  # for `DevshimError.__reduce__`
    cls.__module__, cls.__name__, cls.__qualname__ = "devshim", public, public
    return cls


def _restored(module: str, name: str, public: str, problem: str, hint: str | None) -> DevshimError:
    """Return a pickled error of a `joined` class: devshim's own alone where the framework is not loaded."""
    from importlib import import_module

    root, *inside = module.split(".")  # devshim_backends._torch.simulation.device_rules, or the module of a third party
    framework = inside[0].lstrip("_") if root == "devshim_backends" else root
    home = import_module(module) if framework in modules else None
    found: DevshimError = getattr(home, name, globals()[public])(problem, hint)
    return found


for _name in __all__:  # users meet these as devshim.DeviceSpecError, so that is what they should read
    globals()[_name].__module__ = "devshim"
del _name

"""The classes of the errors that devshim raises; `devshim.errors` shows their tree."""

from __future__ import annotations

import copyreg
from sys import modules

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from devshim.devices.device import Device

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
    "HostLostError",
    "NotATensorError",
    "OutOfMemoryError",
    "PlacementError",
    "RankFailedError",
    "RankLateError",
    "RanksDisagreeError",
    "SimulationError",
    "TracingError",
    "TransferError",
    "UnsupportedError",
    "WorldError",
]


class DevshimError(Exception):
    """The root of every error devshim raises.

    Attributes:
        problem: One sentence: what was asked, and what is true.
        hint: What to type next, or None if there is nothing to do.

    If an error is built from the full text of another one, as Keras does to add the layer's name, the hint is taken
    from that text.
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
        """Add the key path of the leaf that the error is about, once; a lone tensor has no path.

        The added text says that the tree is unchanged.
        """
        if path and "(at the leaf " not in self.problem:
            self.add_place(f"at the leaf {path} of the tree, which is unchanged")

    def add_place(self, place: str) -> None:
        """Add where the error happened."""
        self.problem = f"{self.problem} ({place})"
        self.args: tuple[object, ...] = (self.problem if self.hint is None else f"{self.problem}\n\nHint: {self.hint}",)

    def __str__(self) -> str:
        return str(self.args[0])  # ImportError stores its own text, which add_leaf does not change

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception pickles its args, which here are the joined text: pass the two parts instead.
        return (type(self), (self.problem, self.hint))


class ArgumentError(DevshimError, ValueError):
    """An argument that makes no sense on any framework, such as a negative length."""


class NotATensorError(DevshimError, TypeError):
    """An object that is not a tensor of any framework devshim supports."""


class DeviceError(DevshimError):
    """An error about a device: its name, its existence, or the devices of other arguments."""


class DeviceSpecError(DeviceError, ValueError):
    """A value that names no device in any spelling devshim knows."""


class DeviceNotFoundError(DeviceError, LookupError):
    """A valid device name for a device that this machine, or this framework's build, does not have."""


class DeviceMismatchError(DeviceError, ValueError):
    """Arguments that must share a device, but are on different ones."""


class DeviceFailedError(DeviceError, RuntimeError):
    """A device that existed and then failed, or no longer answers."""


class BackendError(DevshimError):
    """An error about a framework as a whole."""


class BackendNotFoundError(BackendError, ImportError):
    """A requested framework that is not installed, or no choice among several installed ones."""


class BackendBrokenError(BackendError, ImportError):
    """A framework that is installed but fails to import; its own traceback is in the message."""


class BackendConflictError(BackendError, ImportError):
    """Two distributions that claim one backend name, or two frameworks that cannot share this process."""


class PlacementError(DevshimError, RuntimeError):
    """A result that was checked and is not on the requested device."""


class CopyNeededError(PlacementError, ValueError):
    """A request with ``copy=False`` that can only be met by a copy."""


class CheckpointError(DevshimError, ValueError):
    """A file that is not a checkpoint, is damaged, or does not fit the target; nothing has changed."""


class ConversionError(DevshimError, TypeError):
    """A tensor that has no faithful conversion between two frameworks."""


class TransferError(DevshimError, RuntimeError):
    """A transfer between devices inside a guard that forbids it."""


class TracingError(DevshimError, RuntimeError):
    """A call that cannot do its work inside a compiled or traced function."""


class SimulationError(DevshimError, RuntimeError):
    """Simulated GPUs that cannot be enabled, disabled or changed now, or that were removed under a tensor.

    Attributes:
        device: The simulated GPU that was removed; None for the other reasons.
    """

    device: Device | None = None
    _real_text: ClassVar[str] = ""
    """The text of a real GPU's error for this tensor: adapters derive a class that is also the framework's error."""

    def where(self) -> Device:
        """Return the simulated GPU that was removed; raise the error itself if it has another reason."""
        if self.device is None:
            raise self
        return self.device


class AlreadyStartedError(DevshimError, RuntimeError):
    """A setting that must be made before a framework starts its devices, and was made after."""


class OutOfMemoryError(DevshimError, MemoryError):
    """A device that has too little free memory for the request."""

    _native_names: ClassVar[bool] = False
    """True for the class of an adapter while its framework's own names for GPUs mean the simulated GPUs."""

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        """Return the text of a real GPU's error for a program that uses native names: adapters override this."""
        return None


class UnsupportedError(DevshimError, NotImplementedError):
    """A feature that the backend declares it lacks; the message gives the reason."""


class WorldError(DevshimError, RuntimeError):
    """A job of several ranks that cannot start, or that failed."""


class RankFailedError(WorldError):
    """A rank whose process ended with an error.

    Attributes:
        rank: The rank, or -1 if it is unknown.
        host: The name of its host.
        status: Its exit status; negative for the number of the signal that killed it.
        tail: The end of its standard error output.
    """

    rank: int = -1
    host: str = ""
    status: int | None = None
    tail: str = ""


class RankLateError(WorldError, TimeoutError):
    """A rank that did not reach a collective in time.

    Attributes:
        waiting: The ranks that wait.
        late: The ranks for which they wait.
        where: The line at which the first of these is, or if they have ended, the first that waits; empty if unknown.
    """

    waiting: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    where: str = ""


class RanksDisagreeError(WorldError):
    """Ranks that call different collectives, or the same one with another operation, dtype or shape."""


class HostLostError(WorldError):
    """A host that is gone or unreachable, with its ranks.

    Attributes:
        host: Its name.
        ranks: Its ranks.
    """

    host: str = ""
    ranks: tuple[int, ...] = ()


class _JoinedClass(type):
    """The class of `JoinedError` classes: only a metaclass can change how a class is pickled, here by its home.

    PyTorch's `DataLoader` workers send the class of an error to the main process, which hangs if pickling it fails.
    """


class JoinedError(DevshimError, metaclass=_JoinedClass):
    """The first base of an adapter's class that joins devshim's error with the framework's.

    The class gets the public name of its next base. A traceback and ``type(error).__name__`` then say
    ``devshim.OutOfMemoryError``, a name that a program can catch.
    """

    _home: ClassVar[tuple[str, str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if JoinedError in cls.__bases__:  # not a user's subclass of such a class
            cls._home = (cls.__module__, cls.__name__)
            _publish(cls, next(base.__name__ for base in cls.__mro__ if base.__name__ in __all__))

    def __reduce__(self) -> tuple[Any, ...]:
        cls = type(self)
        home = vars(cls).get("_home")
        return super().__reduce__() if home is None else (_unpickle, (*home, cls.__name__, self.problem, self.hint))


def _publish(cls: type, name: str) -> None:
    """Give a class a public name."""
    cls.__module__, cls.__name__, cls.__qualname__ = "devshim", name, name


def _unpickle(module: str, name: str, public: str, problem: str, hint: str | None) -> DevshimError:
    """Return a pickled error of a `JoinedError` class, or devshim's own class if the framework is not loaded."""
    return _find_class(module, name, public)(problem, hint)


def _find_class(module: str, name: str, public: str) -> type[DevshimError]:
    """Return a `JoinedError` class of a module, or devshim's own class if the framework is not loaded."""
    from importlib import import_module

    root, *inside = module.split(".")  # devshim_backends._torch.simulation.device_rules, or a third party's module
    framework = inside[0].lstrip("_") if root == "devshim_backends" else root
    home = import_module(module) if framework in modules else None
    found: type[DevshimError] = getattr(home, name, globals()[public])
    return found


def _reduce_class(cls: type[JoinedError]) -> tuple[Any, ...] | str:
    return (_find_class, (*cls._home, cls.__name__)) if "_home" in vars(cls) else cls.__qualname__


copyreg.pickle(_JoinedClass, _reduce_class)  # type: ignore[arg-type]  # its stub expects an instance's parts


for _name in __all__:  # users know these as devshim.DeviceSpecError, so show that name
    globals()[_name].__module__ = "devshim"
del _name

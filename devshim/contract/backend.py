"""The contract an adapter fulfils: one abstract class, and gaps that are declared rather than hidden.

Requirements this module answers:

* One adapter per framework, and nothing about any framework here: this module knows nobody.
* An adapter does one small thing per method.  Validation, messages, the ledger, the check that a result is where it
  should be, trees and defaults exist once, in the neutral half; so an adapter may assume that devices are `Device`
  objects that exist, that shapes are tuples of ints, and that a dtype is the framework's own.
* What a framework cannot do is a value (`Gap`), from which both the error and the support table come.

Methods are in the same order, in files of the same names, in every adapter: two can be read side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from devshim.contract.capabilities import FEATURES, Gap
from devshim.contract.models import Wholes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.devices.device import Device
    from devshim.devices.info import DeviceInfo, MemoryInfo
    from devshim.errors import DevshimError, OutOfMemoryError
    from devshim.simulation.memory import Cards, Fault

__all__ = ["FEATURES", "Backend", "Gap", "Tensor"]

Tensor = Any
"""A framework's own tensor. There is no common type to name: that is what an adapter is for."""


class Backend(Wholes, ABC):
    """One framework, behind the few operations from which devshim builds everything else.

    An adapter never returns a wrapper: what goes in and comes out are the framework's own objects.
    It never changes state that outlives the call (a current device, a default dtype, a seed), except
    where the method says so.
    """

    name: ClassVar[str]
    """The framework's root import name, such as ``"torch"``."""
    title: ClassVar[str]
    """The framework's name as its makers write it, such as ``"PyTorch"``."""
    gaps: ClassVar[Mapping[str, Gap]]
    """What it cannot do: a key of `FEATURES` -> why."""
    limits: ClassVar[Mapping[str, str]] = {}
    """What it leaves out of something it can do: a key of `FEATURES` -> what."""
    lines: ClassVar[Mapping[str, str]]
    """The native line each devshim call stands for: call name -> template (see `devshim.transfers.explain`)."""
    hosted: str = ""
    """The attribute of a tensor that is the constant True where its data is in host memory, if there is a fast one."""
    copiers: ClassVar[Mapping[type, Callable[[Tensor], Tensor | None]]] = {}
    """By exact type, the shortest way to do what `copy_to` does towards the host, the result seen to be there.

    Used while no ledger, guard, fault or `explain` is open. None: this tensor takes the slow path."""
    viewers: ClassVar[Mapping[type, Callable[[Tensor], np.ndarray | None]]] = {}
    """By exact type, the shortest way to a NumPy array over a tensor's memory; taken, and left by None, as `copiers`.

    The array is read-only where the tensor must not be written, and was seen to have its dtype and shape."""
    lenders: ClassVar[Mapping[type, Callable[[Tensor, int], tuple[Any, str, tuple[int, ...]] | None]]] = {}
    """By exact type, the shortest way to a fresh unversioned DLPack capsule, the dtype's array-API name and the shape.

    Of a tensor on the host, in C order, aligned for the consumer (its `alignment`), and, unless all of the framework's
    tensors are `immutable`, writable.  Taken, and left by None, as `copiers`."""
    borrower: ClassVar[staticmethod[[Any, str, tuple[int, ...]], Tensor | None] | None] = None
    """The shortest way to a tensor of what `lenders` give, seen to be on the host in that dtype and shape, or None."""

    alignment: ClassVar[int] = 0
    """The alignment in bytes that every operator needs (see `transfers.alignment`); 0: of its elements' size."""

    immutable: ClassVar[bool] = False  # true if the framework's tensors cannot be written to (TensorFlow, JAX)
    freezes: ClassVar[bool] = False
    """Whether single tensors can be made read-only (NumPy), so that they may share memory that must not be written."""

    compiled_runs_whole: ClassVar[bool] = False
    """Whether a compiled function runs on one device as a whole, so that inside it tracers cannot disagree (JAX)."""

    reads_code: ClassVar[bool] = False
    """Whether the compiler reads code instead of running it, and meets what is no tensor's with a refusal (PyTorch)."""

    full_error: ClassVar[type[OutOfMemoryError] | None] = None  # also the framework's own error; None: devshim's alone
    never_late: ClassVar[tuple[str, ...]] = ()  # which of "grow" and "fraction" `memory_policy` takes after `started`
    has_containers: bool = False  # true if `flatten_once` is written; set when the backend is loaded
    host_tensors: ClassVar[str] = ""  # the backend whose host tensors are its own while it is current (CuPy: numpy)

    simulated: int = 0
    """How many simulated GPUs this backend shows; 0 where none are."""
    simulation_refused: str | None = None
    """Why it shows no simulated GPUs although they were asked for; None where it shows them, or none were."""
    labelled: int = 0
    """How many simulated GPUs tensors may be on: more than `simulated` while there are some on GPUs taken away."""
    cards: Cards | None = None  # the simulated GPUs' memory and faults; None where none have ever been simulated

    # ------------------------------------------------------------------ which objects are mine
    @abstractmethod
    def is_tensor(self, cls: type) -> bool:
        """True if instances of ``cls`` are this framework's tensors, tracers or variables; asked once per type."""

    @abstractmethod
    def is_model(self, cls: type) -> bool:
        """Whether instances of ``cls`` are models or optimizers: leaves that are moved whole."""

    @abstractmethod
    def is_tracer(self, x: Tensor) -> bool:
        """Whether ``x`` stands for a value that only exists while a function is being compiled."""

    # ------------------------------------------------------------------ devices
    @abstractmethod
    def kinds(self) -> Sequence[str]:
        """The kinds of accelerator this build could have, such as ``("gpu",)``; the host is not named."""

    @abstractmethod
    def count(self, kind: str) -> int:
        """How many devices of a kind there are, simulated ones included; 0 for none, never an error.

        ``count("cpu")`` is 1.  Allocates nothing on a device and makes no context.
        """

    @abstractmethod
    def absence(self, kind: str) -> str:
        """Why there are no (more) devices of this kind, as a fragment such as ``"no NVIDIA driver answers"``."""

    @abstractmethod
    def to_native(self, device: Device) -> Any:
        """The framework's own object for a device."""

    @abstractmethod
    def from_native(self, native: object) -> Device | None:
        """The `Device` that one of the framework's own device objects names, or None for any other object."""

    @abstractmethod
    def describe(self, device: Device) -> DeviceInfo:
        """What an existing device is; for the host, see `devshim.devices.host.describe`."""

    # ------------------------------------------------------------------ tensors
    @abstractmethod
    def device_of(self, x: Tensor) -> Device:
        """Where the data of ``x`` really is. Called on every placement: one or two dictionary lookups.

        Raises:
            TracingError: ``x`` is a tracer, and its device cannot be known (`devshim.errors.messages.tracing`).
            UnsupportedError: The data is on several devices, or on none.
        """

    @abstractmethod
    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        """A copy of ``x`` in new memory on an existing device, also when it is there already.

        Values, dtype and shape are equal to the bit, a view becomes an independent tensor, gradients
        flow from the copy to ``x``, and flags that govern gradients are kept.  A copy from a device to
        the host is complete on return whatever ``non_blocking`` says.
        """

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        """`copy_to` for many, in order; override where that is faster. An error names what was taken and not given."""
        return (self.copy_to(x, device, non_blocking) for x in xs)

    @abstractmethod
    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        """The values of ``x`` in host memory, detached from any gradient.

        Args:
            x: A tensor on any device.
            copy: True: new, writable memory. False: an array over the tensor's own memory.

        Raises:
            CopyNeededError: ``copy`` is False and the memory cannot be shared.
            ConversionError: NumPy has no such dtype (bfloat16 needs ``ml_dtypes``).
        """

    @abstractmethod
    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        """A tensor with an array's values, dtype (to the bit) and shape, on an existing device.

        Args:
            array: Any strides, byte order, zero size and 0-d included; may be read-only.
            device: Where to.
            copy: True: the tensor shares no memory with the array. False: it must share it.

        Raises:
            CopyNeededError: ``copy`` is False and the memory cannot be shared.
            ConversionError: The framework has no such dtype.
        """

    def detached(self, x: Tensor) -> Tensor:
        """A tensor over the same memory, free of any graph; ``x`` where it is."""
        return x

    @abstractmethod
    def dtype_name(self, x: Tensor) -> str:
        """The array-API name of a tensor's dtype, such as ``"float32"``, ``"bfloat16"`` or ``"bool"``."""

    @abstractmethod
    def shape(self, x: Tensor) -> tuple[int, ...]:
        """The tensor's shape as a tuple of ints."""

    @abstractmethod
    def is_writable(self, x: Tensor) -> bool:
        """Whether the tensor's values may be changed in place by those who hold it."""

    def freeze(self, x: Tensor) -> None:
        """Make a tensor read-only; asked for where `freezes` is True."""
        raise NotImplementedError(f"{self.title} has no read-only tensors")

    @abstractmethod
    def nbytes(self, x: Tensor) -> int:
        """How many bytes the tensor's values take: elements times element size."""

    def sources(self, x: Tensor) -> Sequence[tuple[Device, int]]:
        """From which devices a copy of ``x`` takes how many bytes; override where data can be on several.

        Raises:
            TracingError: As `device_of` does.
        """
        return ((self.device_of(x), self.nbytes(x)),)

    @abstractmethod
    def synchronize(self, device: Device) -> None:
        """Wait until an existing device has done all that was asked of it."""

    def await_values(self, x: Tensor, device: Device) -> None:
        """Wait until a tensor on an existing device has its values; an adapter that can waits for nothing else."""
        self.synchronize(device)

    # ------------------------------------------------------------------ creation
    @abstractmethod
    def dtype(self, name: str) -> Any:
        """The framework's own dtype for an array-API name.

        Raises:
            ConversionError: The framework has no such dtype (`devshim.errors.messages.no_dtype`).
        """

    @abstractmethod
    def is_dtype(self, value: object) -> bool:
        """Whether ``value`` is one of the framework's own dtypes."""

    @abstractmethod
    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        """A new tensor from a Python scalar or nested sequences of them; without ``dtype`` the framework's default."""

    @abstractmethod
    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        """``x`` in another dtype, on its own device; gradients flow where both are floating."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """A tensor whose values are not set."""

    @abstractmethod
    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        """A tensor of one value; without ``dtype`` the framework's default for that kind of Python number."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """A tensor of zeros; without ``dtype`` the framework's default float."""

    @abstractmethod
    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """A tensor of ones; without ``dtype`` the framework's default float."""

    @abstractmethod
    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        """Evenly spaced values in ``[start, stop)``; integers where all three are ints."""

    @abstractmethod
    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        """``num`` evenly spaced values from ``start`` to ``stop``."""

    @abstractmethod
    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        """Ones on the k-th diagonal, zeros elsewhere."""

    # ------------------------------------------------------------------ draws
    @abstractmethod
    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Values drawn from ``[low, high)``, on the device; without ``dtype`` the framework's default float."""

    @abstractmethod
    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Values drawn from a normal distribution, on the device."""

    @abstractmethod
    def seed(self, value: int) -> None:
        """Restart the framework's own generators on every device; the same seed gives the same draws."""

    # ------------------------------------------------------------------ scopes
    @abstractmethod
    def scope(self, device: Device) -> AbstractContextManager[object]:
        """A context in which the framework's own operators and creation default to an existing device.

        For this thread alone, and restored on exit whatever happens.  Where the framework has no such
        thing for a thread, a context that does nothing, and the gap ``op_scope``.
        """

    def compiling(self) -> bool:
        """Whether the calling code is being compiled or traced right now."""
        return False

    def tracing(self) -> bool:
        """Whether what the calling code does besides tensors is done once, now, and not each time the function runs."""
        return self.compiling()

    def untraceable(self, error: DevshimError) -> DevshimError:
        """The error in a form that the compiler passes on to those who called the compiled function."""
        return error

    # ------------------------------------------------------------------ runtime
    @abstractmethod
    def started(self) -> bool:
        """Whether the framework has started its devices, so that it is too late to choose or to simulate them."""

    @abstractmethod
    def set_visible(self, indices: Sequence[int] | None) -> None:
        """Show only these real GPUs (None: all), renumbered from 0, before `started`; the variables are set already."""

    @abstractmethod
    def memory(self, device: Device) -> MemoryInfo:
        """Bytes on an existing device, None where the framework cannot know."""

    @abstractmethod
    def empty_cache(self, device: Device) -> None:
        """Give memory that the framework keeps for reuse back to the device; nothing on the host."""

    @abstractmethod
    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        """Take memory as needed (``"grow"``), or at most a fraction of each card; before `started`."""

    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error of the framework's says that a device is full."""

    def why_unable_to_start(self, error: BaseException) -> str | None:
        """Return why counted devices cannot start, if an error says so: `count` is 0 then (`devices.startup`)."""
        return None

    # ------------------------------------------------------------------ simulation
    @abstractmethod
    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        """Show this many simulated GPUs of this many bytes each from now on (0: none), with these faults.

        Sets `simulated`, and begins `cards`, to which every allocation on a simulated card is told.

        Raises:
            SimulationError: It is too late, or real cards are visible (`devshim.errors.messages`).
        """

    def refuse_taken(self, check: Callable[[Device | None], None]) -> AbstractContextManager[object]:
        """A context in which operators and reads call ``check(device)``, which raises for GPUs that were taken away."""
        return nullcontext()

    # ------------------------------------------------------------------ guard
    def watch(self, report: Callable[[Device | None, Device, str], None]) -> AbstractContextManager[object]:
        """A context in which ``report(source, target, what)`` is called for copies the framework makes unasked.

        In every thread; it may raise, and then the copy is not made. Copies that devshim makes may be reported, too.
        The source is None where it is a GPU and the framework does not say which.
        """
        return nullcontext()

    # ------------------------------------------------------------------ interop
    @abstractmethod
    def to_dlpack(self, x: Tensor) -> Any:
        """An object with ``__dlpack__`` and ``__dlpack_device__`` over the tensor's own memory.

        Raises:
            ConversionError: This tensor cannot be shared, with the reason; never an abort.
        """

    @abstractmethod
    def from_dlpack(self, source: Any) -> Tensor:
        """A tensor over the memory of an object with ``__dlpack__``, values, dtype and shape equal to the bit.

        Raises:
            ConversionError: The memory cannot be shared, with the reason; never an abort.
        """

    def flatten_once(self, node: object) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
        """Return the keys and children of a container that the framework knows, and how to rebuild it around others.

        A container registered with the framework's pytree registry, or one of its own. Never asked for dicts, lists
        and their subclasses. None for anything else, named tuples and dataclasses that are not registered among it.
        """
        return None

    # ------------------------------------------------------------------ explaining
    @abstractmethod
    def native_text(self, device: Device) -> str:
        """How a user of the framework writes a device in source code, such as ``"cuda:1"`` in quotes."""

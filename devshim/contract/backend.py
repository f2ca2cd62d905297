"""The contract for adapters: `Backend`, an abstract class that each supported framework implements once.

Requirements of this module:

* There is one adapter per framework. This module contains nothing that is specific to any framework.
* Each method does one small thing. The neutral half validates arguments, writes messages, keeps the ledger, checks the
  device of each result, walks trees and fills in defaults. So an adapter may assume that devices are `Device` objects
  that exist, that shapes are tuples of ints, and that a dtype is the framework's own.
* A feature that a framework lacks is a value (`Gap`). Both the error and the support table are made from it.

Every adapter has the same files, with the methods in the same order, so two adapters can be read side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from devshim.contract.capabilities import FEATURES, Gap
from devshim.contract.defaults import Defaults
from devshim.contract.fast_paths import FastPaths

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.devices.device import Device
    from devshim.devices.info import DeviceInfo
    from devshim.errors import DevshimError, OutOfMemoryError

__all__ = ["FEATURES", "Backend", "FastPaths", "Gap", "Tensor"]

Tensor = Any
"""A framework's own tensor. The frameworks share no base class, so the type is `Any`."""


class Backend(Defaults, ABC):
    """One framework, behind the few operations from which devshim builds everything else.

    An adapter never returns a wrapper: arguments and results are the framework's own objects. A method does not change
    state that outlives the call (a current device, a default dtype, a seed), unless its docstring names it.
    """

    name: ClassVar[str]
    """The framework's root import name, such as ``"torch"``."""
    title: ClassVar[str]
    """The framework's name as its makers write it, such as ``"PyTorch"``."""
    gaps: ClassVar[Mapping[str, Gap]] = {}
    """The features that the framework lacks: a key of `FEATURES` -> the reason."""
    limits: ClassVar[Mapping[str, str]] = {}
    """The parts of a supported feature that are missing: a key of `FEATURES` -> a description of the missing part."""
    snippets: ClassVar[Mapping[str, str]] = {}
    """The native line for each call: call name -> template (see ``devshim.monitoring.native_lines``)."""
    fast_paths: FastPaths = FastPaths()
    """Shortcuts for plain tensors, all optional."""

    alignment: ClassVar[int] = 0
    """The alignment in bytes that every operator needs (``transfers.alignment``); 0 means the size of an element."""
    immutable: ClassVar[bool] = False  # True if the framework's tensors cannot be written to (TensorFlow, JAX)
    has_readonly_tensors: ClassVar[bool] = False
    """True if single tensors can be made read-only (NumPy), so that they may share memory that must not be written."""
    has_plain_arrays: ClassVar[bool] = False
    """True if other frameworks read the tensors on the host as plain values, and ``numpy_view`` makes them (NumPy)."""

    jit_is_single_device: ClassVar[bool] = False
    """True if a compiled function runs on one device as a whole, so that all its tracers share a device (JAX)."""
    tracers_have_no_device: ClassVar[bool] = False
    """True if tracers get their devices when the compiled function is called (TensorFlow): see ``scope_of_tracers``."""
    traces_bytecode: ClassVar[bool] = False
    """True if the compiler reads code instead of running it, and refuses code that is not about tensors (PyTorch).

    Only ``devshim.registry.tracing`` asks this.
    """
    narrows: ClassVar[bool] = False
    """True if operators may give 32-bit results for 64-bit tensors (JAX): see `at_full_width`."""
    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = None
    """The class of errors for a full device, which is also the framework's own; None: devshim's class."""
    policies_after_start: ClassVar[tuple[str, ...]] = ()
    """The policies, of "grow" and "fraction", that `memory_policy` still accepts after ``started``."""
    has_containers: bool = False  # True if `tree_flatten_one_level` is overridden; set when the backend is loaded
    host_tensors: ClassVar[str] = ""  # the backend whose host tensors this one serves while current (CuPy: numpy)

    # ------------------------------------------------------------------ recognizing objects
    @abstractmethod
    def is_tensor(self, cls: type) -> bool:
        """Return True for a type of tensors, tracers or variables of the framework; called once for each type."""

    # ------------------------------------------------------------------ devices
    @abstractmethod
    def kinds(self) -> Sequence[str]:
        """Return the kinds of accelerator that this build could have, such as ``("gpu",)``, without the host."""

    @abstractmethod
    def count(self, kind: str) -> int:
        """Return the number of devices of a kind, including simulated ones; 0 if it has none, never an error.

        ``count("cpu")`` is 1. The call allocates nothing on a device and creates no context.
        """

    def has_only_host(self) -> bool:
        """Return True if the host is the only device now; adapters may return False if the answer is slow to find.

        Each function of a namespace asks this at each call.
        """
        return not any(map(self.count, self.kinds()))

    @abstractmethod
    def why_unavailable(self, kind: str) -> str:
        """Return why there are no (more) devices of this kind, as a fragment such as ``"no NVIDIA driver answers"``."""

    @abstractmethod
    def to_native(self, device: Device) -> Any:
        """Return the framework's own object for a device."""

    @abstractmethod
    def from_native(self, native: object) -> Device | None:
        """Return the `Device` that one of the framework's own device objects names, or None for any other object."""

    @abstractmethod
    def describe(self, device: Device) -> DeviceInfo:
        """Return a description of an existing device. For the host, see ``devshim.adapters.host.describe``."""

    # ------------------------------------------------------------------ tensors
    @abstractmethod
    def device_of(self, x: Tensor) -> Device:
        """Return the device that really holds the data of ``x``. Called on every placement: one or two dict lookups.

        Raises:
            TracingError: ``x`` is a tracer, and its device cannot be known (``devshim.adapters.messages.tracing``).
            UnsupportedError: The data is on several devices, or on none.
        """

    @abstractmethod
    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        """Return a copy of ``x`` in new memory on an existing device, even if ``x`` is already there.

        Values, dtype and shape are equal to the bit. A view becomes an independent tensor. Gradients flow from the copy
        to ``x``, and flags that govern gradients are kept. A copy from a device to the host is complete on return,
        whatever ``non_blocking`` says.
        """

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        """Yield `copy_to` of each tensor, in order; override where one call for all of them is faster.

        If a copy fails, the error names the tensors that were taken from ``xs`` and whose copies were not yet yielded.
        """
        return (self.copy_to(x, device, non_blocking) for x in xs)

    @abstractmethod
    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        """Return the values of ``x`` in host memory, detached from any gradient.

        Args:
            x: A tensor on any device.
            copy: True: new, writable memory. False: an array over the tensor's own memory.

        Raises:
            CopyNeededError: ``copy`` is False and the memory cannot be shared.
            ConversionError: NumPy lacks the dtype (bfloat16 needs ``ml_dtypes``).
        """

    @abstractmethod
    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        """Return a tensor with an array's values, dtype (to the bit) and shape, on an existing device.

        Args:
            array: An array of any strides and byte order, including zero-size and 0-d arrays; may be read-only.
            device: The device of the result.
            copy: True: the tensor shares no memory with the array. False: it must share it.

        Raises:
            CopyNeededError: ``copy`` is False and the memory cannot be shared.
            ConversionError: The framework lacks the dtype.
        """

    def detach(self, x: Tensor) -> Tensor:
        """Return a tensor over the same memory, free of any graph; ``x`` itself if it already is."""
        return x

    @abstractmethod
    def dtype_name(self, x: Tensor) -> str:
        """Return the array-API name of a tensor's dtype, such as ``"float32"``, ``"bfloat16"`` or ``"bool"``."""

    @abstractmethod
    def shape(self, x: Tensor) -> tuple[int, ...]:
        """Return the tensor's shape as a tuple of ints."""

    def freeze(self, x: Tensor) -> None:
        """Make a tensor read-only; called only if `has_readonly_tensors` is True."""
        msg = f"{self.title} has no read-only tensors"
        raise NotImplementedError(msg)

    @abstractmethod
    def nbytes(self, x: Tensor) -> int:
        """Return the number of bytes of the tensor's values: elements times element size."""

    def sources(self, x: Tensor) -> Sequence[tuple[Device, int]]:
        """Return each device that a copy of ``x`` reads from, with the bytes; override if data can be on several.

        Raises:
            TracingError: As for `device_of`.
        """
        return ((self.device_of(x), self.nbytes(x)),)

    def shards(self, x: Tensor) -> Sequence[Tensor] | None:
        """Return the parts of a tensor whose data is on several devices, with replicas; None for any other tensor."""
        return None

    def wait_for_values(self, x: Tensor, device: Device) -> None:
        """Wait until a tensor on an existing device has its values; override to wait only for that tensor."""
        self.synchronize(device)

    # ------------------------------------------------------------------ creation
    @abstractmethod
    def dtype(self, name: str) -> Any:
        """Return the framework's own dtype for an array-API name.

        Raises:
            ConversionError: The framework lacks the dtype (``devshim.adapters.messages.no_dtype``).
        """

    @abstractmethod
    def is_dtype(self, value: object) -> bool:
        """Return True if ``value`` is one of the framework's own dtypes."""

    @abstractmethod
    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        """Return ``x`` in another dtype, on its own device; gradients flow if both dtypes are floating."""

    # ------------------------------------------------------------------ scopes
    def compiling(self) -> bool:
        """Return True if the calling code is being compiled or traced right now."""
        return False

    def tracing(self) -> bool:
        """Return True if side effects of the calling code happen once, now, and not each time the function runs."""
        return self.compiling()

    def data_scope(self, device: Device) -> AbstractContextManager[object]:
        """Return the scope in which `run` and `value_and_grad` compute on the device of their tensors.

        Operators on tensors that the function has placed on another device may run there. Default: as ``scope``.
        """
        return self.scope(device)

    def at_full_width(self, fn: Callable[..., Any], xs: Sequence[Tensor]) -> Callable[..., Any]:
        """Return a function that calls ``fn`` so that operators keep the 64 bits of tensors such as ``xs``.

        Called only if `narrows` is True; for a call of `devshim.run` with these tensors, tracers among them.
        """
        return fn

    def raise_error(
        self, make: Callable[..., DevshimError], args: tuple[Any, ...], cause: BaseException | None = None
    ) -> NoReturn:
        """Raise the error that a function makes; override if a compiler would lose it in a compiled function.

        Args:
            make: A function of a module.
            args: Its arguments: text, numbers, `Device` objects, this backend, or tuples of these.
            cause: The exception that led to the error, if there is one.
        """
        raise make(*args) from cause

    # ------------------------------------------------------------------ runtime
    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return True if one of the framework's errors says that a device is full."""

    def why_unable_to_start(self, error: BaseException) -> str | None:
        """Return why counted devices cannot start, if an error reports it; then `count` is 0 (``devices.startup``)."""
        return None

    # ------------------------------------------------------------------ interop
    def tree_flatten_one_level(self, node: object) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
        """Return the keys and children of one of the framework's containers, and a function that rebuilds it.

        The container is in the framework's pytree registry or is one of its classes. Never called for dicts, lists and
        their subclasses. Returns None for anything else, including unregistered named tuples and dataclasses.
        """
        return None

    def why_inseparable(self, node: object) -> tuple[str, str] | None:
        """Return why a container's tensors cannot be cut, joined or summed separately, and a hint; None if they can."""
        return None

    def static_data(self, node: object) -> object:
        """Return what one of the framework's containers stores besides its children, if it may describe their shapes.

        Only tuples and ints in it are used, also in lists and dicts. A tuple of ints is the shape of a tensor or a part
        of one; the values of fields are in a list.
        """
        return None

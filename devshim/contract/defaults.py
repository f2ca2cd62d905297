"""Defaults of the optional methods of a backend, built on the abstract methods of `Backend`.

They compute with NumPy on the host and copy the result, so they are correct and not fast. A method without a default
is a gap, which `devshim.contract.capabilities.undeclared_gaps` finds.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from devshim.contract import capabilities
from devshim.contract.collectives import CollectiveBackend
from devshim.contract.compilers import CompilerBackend
from devshim.contract.gradients import GradientBackend
from devshim.contract.models import ModelBackend
from devshim.contract.namespaces import NamespaceBackend
from devshim.contract.simulation import SimulationBackend
from devshim.contract.transfer_hooks import TransferHookBackend
from devshim.devices.info import MemoryInfo
from devshim.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.devices.device import Device

    Tensor = Any

__all__ = ["Defaults"]


class Defaults(
    ModelBackend,
    GradientBackend,
    CollectiveBackend,
    SimulationBackend,
    TransferHookBackend,
    NamespaceBackend,
    CompilerBackend,
):
    """The optional methods of a backend."""

    title: ClassVar[str]
    immutable: ClassVar[bool]
    snippets: ClassVar[Mapping[str, str]]
    from_numpy: Callable[[np.ndarray, Device, bool], Tensor]
    cast: Callable[[Tensor, Any], Tensor]
    dtype_name: Callable[[Tensor], str]
    _generator: Any = None

    # ------------------------------------------------------------------ devices
    def platform(self, kind: str) -> str:
        """Return the platform of the real devices of a kind: ``"cuda"``, ``"rocm"``, ``"mps"``, ``"xpu"``, ...

        The call starts nothing. Default: GPUs are CUDA's, and other kinds are separate platforms.
        """
        return "cuda" if kind == "gpu" else kind

    # ------------------------------------------------------------------ objects of the framework
    def is_model(self, cls: type) -> bool:
        """Return True if instances of a class are models or optimizers: leaves that are moved as a whole.

        Default: the framework has none.
        """
        return False

    def random_key(self, x: Tensor) -> tuple[str, Tensor] | None:
        """Return the generator and the data of a random key, which no dtype of NumPy stores; None for other tensors.

        Default: the framework has no random keys.
        """
        return None

    def from_random_key(self, data: Tensor, generator: str) -> Tensor:
        """Return the random key with this data, on the data's device.

        Default: the data, because the framework has no random keys.

        Raises:
            ConversionError: The framework does not know the generator, or its keys have another form.
        """
        return data

    def is_writable(self, x: Tensor) -> bool:
        """Return True if the tensor's values may be changed in place.

        Default: unless all of the framework's tensors are immutable.
        """
        return not self.immutable

    def synchronize(self, device: Device) -> None:
        """Wait until an existing device has done all that was asked of it.

        Default: each operator is done when it returns.
        """

    # ------------------------------------------------------------------ creation
    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        """Return a new tensor from a Python scalar or nested sequences of them.

        Without ``dtype`` it has the framework's default, or, by default, NumPy's. A number that the dtype cannot
        represent is refused by `devshim.adapters.require_all_fit`.
        """
        from devshim.devices.ranges import read_numbers, require_all_fit

        name = None if dtype is None else self.dtype_name(self._with_numpy("zeros", dtype, device, 0))
        array = read_numbers(values, name)
        if array.dtype.hasobject or array.dtype.kind in "SU":
            msg = f"they make an array of dtype {array.dtype}"
            raise ValueError(msg)
        if name is not None:
            require_all_fit(array, name)
        return self._with_numpy("asarray", dtype, device, array)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Return a tensor whose values are not set. Default: zeros."""
        return self.zeros(shape, dtype, device)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        """Return a tensor of one value; without ``dtype`` the framework's default for that kind of Python number."""
        return self._with_numpy("full", dtype, device, shape, value)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Return a tensor of zeros; without ``dtype`` the framework's default float."""
        return self.full(shape, 0.0, dtype, device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Return a tensor of ones; without ``dtype`` the framework's default float."""
        return self.full(shape, 1.0, dtype, device)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        """Return evenly spaced values in ``[start, stop)``; integers where all three are ints."""
        return self._with_numpy("arange", dtype, device, start, stop, step)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        """Return ``num`` evenly spaced values from ``start`` to ``stop``."""
        return self._with_numpy("linspace", dtype, device, start, stop, num, endpoint)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        """Return ones on the k-th diagonal, zeros elsewhere."""
        return self._with_numpy("eye", dtype, device, n_rows, n_cols, k)

    def _with_numpy(self, function: str, dtype: Any | None, device: Device, *args: Any) -> Tensor:
        """Return a new tensor on a device with the values of a function of NumPy, in a dtype of the framework."""
        import numpy as np

        made = self.from_numpy(getattr(np, function)(*args), device, True)
        return made if dtype is None else self.cast(made, dtype)

    # ------------------------------------------------------------------ random tensors
    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        """Return values drawn from ``[low, high)``; without ``dtype`` of the framework's default float.

        ``seed`` is the 64-bit seed of this draw only: equal seeds give equal values, and the framework's generators are
        not used or changed. None: draw from the framework's own generator. Default: NumPy draws on the host.
        """
        from devshim.devices.ranges import keep_below

        name = self.dtype_name(self._with_numpy("zeros", dtype, device, 0))
        values = keep_below(self._draw_generator(seed).uniform(low, high, shape), low, high, name)
        return self._with_numpy("asarray", dtype, device, values)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        """Return values drawn from a normal distribution; ``seed`` as for `uniform`. Default: as for `uniform`."""
        return self._with_numpy("asarray", dtype, device, self._draw_generator(seed).normal(loc, scale, shape))

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        """Return integers drawn from ``[low, high)``, which are at most 2**53 values; ``seed`` as for `uniform`.

        Without ``dtype``, of the framework's default integer. Default: NumPy draws them on the host.
        """
        return self._with_numpy("asarray", dtype, device, self._draw_generator(seed).integers(low, high, shape))

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        """Return the integers below ``n`` in random order; arguments and default as for `randint`."""
        return self._with_numpy("asarray", dtype, device, self._draw_generator(seed).permutation(n))

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        """Return True with probability ``p``, in bool without ``dtype``; ``seed`` as for `uniform`.

        Default: NumPy draws them on the host.
        """
        return self._with_numpy("asarray", dtype, device, self._draw_generator(seed).random(shape) < p)

    def seed(self, value: int) -> None:
        """Restart the framework's own generators on every device; the same seed gives the same draws.

        Default: restart the generator of this backend, which nothing else draws from.
        """
        import numpy as np

        self._generator = np.random.default_rng(value)

    def _draw_generator(self, seed: int | None = None) -> Any:
        import numpy as np

        if seed is not None:
            return np.random.default_rng(seed)
        if self._generator is None:
            self._generator = np.random.default_rng()
        return self._generator

    # ------------------------------------------------------------------ scopes, runtime
    def scope(self, device: Device) -> AbstractContextManager[object]:
        """Return a context in which the framework's own operators and creation default to an existing device.

        Only for this thread, and always restored on exit. Default: it does nothing (gap ``op_scope``).
        """
        return nullcontext()

    def started(self) -> bool:
        """Return True if the framework has started its devices: it is too late to choose or to simulate them.

        Default: nothing is started.
        """
        return False

    def set_visible(self, indices: Sequence[int] | None) -> None:
        """Show only these real GPUs (None: all), renumbered from 0, before ``started``.

        The environment variables are set already. Default: nothing more (gap ``visible_devices``).
        """

    def memory(self, device: Device) -> MemoryInfo:
        """Return the bytes on an existing device, None if the framework cannot know. Default: nothing is known."""
        return MemoryInfo()

    def empty_cache(self, device: Device) -> None:
        """Give memory that the framework keeps for reuse back to the device. Default: it keeps none."""

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        """Take memory as needed (``"grow"``), or at most a fraction of each GPU; before ``started``."""
        raise capabilities.unsupported_error(self, "memory_policy")  # type: ignore[arg-type]  # only Backend derives from this

    # ------------------------------------------------------------------ interop
    def to_dlpack(self, x: Tensor) -> Any:
        """Return an object with ``__dlpack__`` and ``__dlpack_device__`` over the tensor's own memory.

        Default: no memory is shared, and conversions copy by way of NumPy (gap ``zero_copy``).

        Raises:
            ConversionError: This tensor cannot be shared, with the reason; never an abort.
        """
        msg = f"the adapter of {self.title} shares no memory"
        raise ConversionError(msg, "leave copy out to copy")

    def from_dlpack(self, source: Any) -> Tensor:
        """Return a tensor over the memory of an object with ``__dlpack__``, equal to the bit.

        Raises:
            ConversionError: The memory cannot be shared, with the reason; never an abort.
        """
        msg = f"the adapter of {self.title} shares no memory"
        raise ConversionError(msg, "leave copy out to copy")

    # ------------------------------------------------------------------ explain
    def snippet(self, call: str) -> str | None:
        """Return the template of a call's native line, or None. Default: that of `snippets`, on every platform."""
        return self.snippets.get(call)

    def native_text(self, device: Device) -> str:
        """Return how a user of the framework writes a device in source code, such as ``"cuda:1"`` in quotes."""
        return f'"{device}"'

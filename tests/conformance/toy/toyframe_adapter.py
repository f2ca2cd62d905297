"""An adapter for toyframe that fulfils the contract: third parties may read it as an example."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import toyframe
from toyframe import HOST, Card, Tensor

from devshim import Device, Fault, cpu, errors
from devshim.contract import capabilities
from devshim.contract.backend import Backend, Gap
from devshim.devices import host
from devshim.devices.info import DeviceInfo, MemoryInfo
from devshim.devices.ranges import read_numbers, require_all_fit
from devshim.errors import messages

LINES = (
    "device_count device_of place copy to_numpy from_numpy asarray zeros ones full empty arange linspace eye uniform "
    "normal seed on set_device run synchronize memory empty_cache convert try_gpu devices describe memory_policy "
    "memory_fraction split gather all_reduce save load metric_append metric_flush stack dtype dtype_of "
    "randint permutation bernoulli"
)


class MixedCardsError(errors.JoinedError, errors.DeviceMismatchError, RuntimeError):
    """The error that toyframe raises on simulated GPUs: both devshim's type and toyframe's."""


def mixed(one: Card, other: Card) -> RuntimeError:
    """Return the error for two devices, with devshim's names."""
    names = " and ".join("cpu" if card == HOST else f"gpu:{card.number}" for card in (one, other))
    return MixedCardsError(f"the tensors are on {names}", "ds.place(x, ds.device_of(y))")


NEVER = Gap("never", "toyframe is a toy and has none")


def _generator(seed: int | None) -> np.random.Generator:
    """Return the framework's generator, or one for a single draw."""
    return toyframe.GENERATOR[0] if seed is None else np.random.default_rng(seed)


class ToyBackend(Backend):
    name = "toyframe"
    title = "Toyframe"
    gaps = {  # noqa: RUF012
        **dict.fromkeys(("op_scope", "memory_policy", "visible_devices", "models", "non_blocking"), NEVER),
        **dict.fromkeys(("several", "checkpoints", "guard"), NEVER),
        **dict.fromkeys(("simulate_memory", "simulate_limit"), Gap("planned", "toyframe does not count bytes")),
    }
    snippets = {  # noqa: RUF012
        **{call: f"toyframe.{call}({{x}}, [{{device}}], [{{args}}]{{dtype}})" for call in LINES.split()},
        "dtype": '"{name}"',
    }

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, Tensor)

    def is_model(self, cls: type) -> bool:
        return False

    def is_tracer(self, x: Tensor) -> bool:
        return False

    # ------------------------------------------------------------------ devices
    def kinds(self) -> tuple[str, ...]:
        return ("gpu",)

    def count(self, kind: str) -> int:
        return {"cpu": 1, "gpu": self.simulated or toyframe.CARDS}.get(kind, 0)

    def why_unavailable(self, kind: str) -> str:
        return "toyframe has no GPUs of its own"

    def to_native(self, device: Device) -> Card:
        return HOST if device is cpu() else Card(device.index)

    def from_native(self, native: object) -> Device | None:
        if not isinstance(native, Card):
            return None
        return cpu() if native == HOST else Device("gpu", native.number)

    def describe(self, device: Device) -> DeviceInfo:
        if device is cpu():
            return host.describe(self.name)
        if not self.simulated:
            return DeviceInfo(device, "a toy card", self.name)
        return host.describe_simulated(self.name, device, None)

    # ------------------------------------------------------------------ tensors
    def device_of(self, x: Tensor) -> Device:
        return cpu() if x.card.number < 0 else Device("gpu", x.card.number)

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        return Tensor(x.data.copy(), self.to_native(device), [(x, lambda g: g)])

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        return x.data.copy() if copy else x.data

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        return self._new(np.array(array, copy=True) if copy else array, device)

    def dtype_name(self, x: Tensor) -> str:
        return str(x.data.dtype.name)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return x.data.shape

    def is_writable(self, x: Tensor) -> bool:
        return bool(x.data.flags.writeable)

    def nbytes(self, x: Tensor) -> int:
        return int(x.data.nbytes)

    def synchronize(self, device: Device) -> None:
        return None

    # ------------------------------------------------------------------ creation
    def dtype(self, name: str) -> Any:
        if name != "bfloat16":
            return np.dtype(name)
        try:
            from ml_dtypes import bfloat16
        except ImportError as error:
            raise messages.no_numpy_dtype(name) from error
        return np.dtype(bfloat16)

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, np.dtype)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        array = read_numbers(values, None if dtype is None else np.dtype(dtype).name)
        if array.dtype.kind in "OSU":
            raise ValueError("no numbers")
        narrow = dtype is None and array.dtype == np.float64
        if dtype is not None:
            require_all_fit(array, np.dtype(dtype).name)
            array = array.astype(dtype)
        return self._new(array.astype(toyframe.SETTINGS["default_dtype"]) if narrow else array, device)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        return Tensor(x.data.astype(dtype), x.card, [(x, lambda g: g)])

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.empty(shape, self._float(dtype)), device)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.full(shape, value, self._float(dtype) if isinstance(value, float) else dtype), device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.zeros(shape, self._float(dtype)), device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.ones(shape, self._float(dtype)), device)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.arange(start, stop, step, dtype), device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        return self._new(np.linspace(start, stop, num, endpoint=endpoint, dtype=self._float(dtype)), device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        return self._new(np.eye(n_rows, n_cols, k, self._float(dtype)), device)

    # ------------------------------------------------------------------ random numbers
    def uniform(
        self, low: float, high: float, shape: Any, dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        values = np.asarray(_generator(seed).uniform(low, high, shape), self._float(dtype))
        is_below = values.astype("float64") < high  # not if the rounding to the dtype reached the bound
        return self._new(np.where(is_below, values, values.dtype.type(low)), device)

    def normal(
        self, loc: float, scale: float, shape: Any, dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        return self._new(np.asarray(_generator(seed).normal(loc, scale, shape), self._float(dtype)), device)

    def seed(self, value: int) -> None:
        super().seed(value)
        toyframe.GENERATOR[0] = np.random.default_rng(value)

    # ------------------------------------------------------------------ scopes, runtime
    def scope(self, device: Device) -> AbstractContextManager[object]:
        return toyframe.on(self.to_native(device))

    def started(self) -> bool:
        return False

    def set_visible(self, indices: Any) -> None:
        return None

    def memory(self, device: Device) -> MemoryInfo:
        return MemoryInfo()

    def empty_cache(self, device: Device) -> None:
        return None

    def memory_policy(self, policy: Any) -> None:
        raise capabilities.unsupported_error(self, "memory_policy")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if memory is not None:
            raise capabilities.unsupported_error(self, "simulate_memory")
        toyframe.MIXED[0] = mixed if gpus else toyframe.mixed
        self.simulated = gpus

    # ------------------------------------------------------------------ interop
    def to_dlpack(self, x: Tensor) -> Any:
        if (
            not x.data.flags.writeable
            or any(stride < 0 for stride in x.data.strides)
            or x.data.dtype.kind not in "biufc"
        ):
            raise errors.ConversionError("DLPack cannot carry this array", "copy it first")
        return x.data

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return Tensor(np.from_dlpack(source))
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise errors.ConversionError(f"NumPy cannot share this memory: {error}", "copy it") from error

    def native_text(self, device: Device) -> str:
        return f"toyframe.Card({-1 if device is cpu() else device.index})"

    def _new(self, array: np.ndarray, device: Device) -> Tensor:
        return Tensor(array, self.to_native(device))

    def _float(self, dtype: Any | None) -> Any:
        return toyframe.SETTINGS["default_dtype"] if dtype is None else dtype

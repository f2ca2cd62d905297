"""The names of places: ``paddle.CUDAPlace(1)``, ``"gpu:1"`` and ``Place(gpu:1)``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import paddle

from devshim.devices.device import Device
from devshim.errors import DeviceNotFoundError, JoinedError, UnsupportedError
from devshim.registry import missing_devices
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.internals import error_texts
from devshim_backends._paddle.simulation.internals.visibility import NAME
from devshim_backends._paddle.simulation.native_names import libraries
from devshim_backends._paddle.simulation.native_names.internals.callers import for_programs, is_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Backend

framework = paddle.base.framework
_Place, _CustomPlace, _CUDAPlace, _PinnedPlace = core.Place, core.CustomPlace, core.CUDAPlace, core.CUDAPinnedPlace
_NAMES = re.compile(r"(?:gpu|cuda|dcu)(?::(\d+))?")
_NO_GPU = "Cannot use GPU because there is no GPU detected on your machine."
"""The text with which Paddle's build for CUDA ends the process on a machine without visible GPUs."""
_backend: Backend | None = None


class MissingGpuError(JoinedError, DeviceNotFoundError, ValueError):
    """The error for a GPU that is not there; a real ``CUDAPlace`` crashes there."""


def set_backend(backend: Backend | None) -> None:
    """Set the backend whose simulated GPUs the names mean."""
    global _backend
    _backend = backend


def backend() -> Backend:
    """Return the backend whose simulated GPUs the names mean."""
    found = _backend
    assert found is not None
    return found


def gpu_place(index: int) -> Any:
    """Return the place of a simulated GPU, which is its native place.

    Raises:
        MissingGpuError: The GPU does not exist.
    """
    own = backend()
    if not isinstance(index, int) or not 0 <= index < own.simulated:
        raise _missing(own, index)
    return _CustomPlace(NAME, index)


def _missing(own: Backend, index: object) -> MissingGpuError:
    last = f"paddle.CUDAPlace({own.simulated - 1})"
    if not isinstance(index, int) or index < 0:
        return MissingGpuError(f"the index of a GPU is {index!r}, and it must be 0 or more", "use paddle.CUDAPlace(0)")
    if not own.simulated:
        return missing_devices.all_hidden_error(MissingGpuError, _NO_GPU)
    error = missing_devices.not_found_error(own, Device("gpu", index))
    return MissingGpuError(error.problem, f"use {last}, or simulate more GPUs")


def is_simulated(place: Any) -> bool:
    """Return True if a place is that of a simulated GPU."""
    if isinstance(place, _CustomPlace):  # which is not a `core.Place` in Paddle 3.0
        return bool(place.get_device_type() == NAME)
    return isinstance(place, _Place) and place.is_custom_place() and place.custom_device_type() == NAME


def _index(place: Any) -> int:
    return int(place.get_device_id() if isinstance(place, _CustomPlace) else place.custom_device_id())


def named_place(text: Any) -> Any:
    """Return the place that a CUDA name such as ``"gpu:1"`` means, or None for other names and objects."""
    if not isinstance(text, str):
        return None
    if text == "gpu_pinned":
        raise pinned()
    found = _NAMES.fullmatch(text.strip().lower())
    return None if found is None else gpu_place(default_index() if found[1] is None else int(found[1]))


def current_index() -> int:
    """Return the index of the current GPU: 0 if the CPU is the default device."""
    place = framework._current_expected_place_()
    return _index(place) if is_simulated(place) else 0


def index_of(device: Any) -> int:
    """Return the index of a GPU given as Paddle's functions for CUDA take it: None, a number, a name or a place."""
    if device is None:
        device = current_index()
    if isinstance(device, int):
        return int(gpu_place(device).get_device_id())
    place = named_place(device) if isinstance(device, str) else device
    if not is_simulated(place):
        msg = f"{device!r} is not a GPU"
        raise ValueError(msg)
    return int(gpu_place(_index(place)).get_device_id())


_SELECTED = "FLAGS_selected_gpus"
"""The variable with the index of this process's GPU, which Paddle's launcher sets."""


def default_index() -> int:
    """Return the index of the GPU that is the default device: the launcher chooses another than the first."""
    return int((os.environ.get(_SELECTED) or "0").split(",")[0])


def pinned() -> UnsupportedError:
    """Return the error for pinned host memory."""
    msg = "memory that is pinned for CUDA is not simulated"
    return UnsupportedError(msg, "leave it in ordinary host memory: paddle.CPUPlace()")


# ---------------------------------------------------------------------- classes
class _Meta(type):
    """The class of the stand-ins for Paddle's classes of places."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._make(*args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, place: object) -> bool:
        return bool(cls._has(place, is_program()))  # type: ignore[attr-defined]

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls._own)  # type: ignore[attr-defined]


class CUDAPlace(metaclass=_Meta):
    """Paddle's ``CUDAPlace``: it makes the places of simulated GPUs, and programs see these as its instances."""

    _own = _CUDAPlace

    @staticmethod
    def _make(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 1 or isinstance(args[0], float) or not hasattr(args[0], "__int__"):
            return _CUDAPlace(*args, **kwargs)  # raises Paddle's TypeError: it takes one whole number
        return gpu_place(int(args[0]))

    @staticmethod
    def _has(place: object, by_program: bool) -> bool:
        return isinstance(place, _CUDAPlace) or (by_program and isinstance(place, _CustomPlace) and is_simulated(place))


class CUDAPinnedPlace(metaclass=_Meta):
    """Paddle's ``CUDAPinnedPlace``, which is refused."""

    _own = _PinnedPlace

    @staticmethod
    def _make(*args: Any, **kwargs: Any) -> Any:
        raise pinned()

    @staticmethod
    def _has(place: object, by_program: bool) -> bool:
        return isinstance(place, _PinnedPlace)


for _class in (CUDAPlace, CUDAPinnedPlace):
    _class.__module__ = "paddle"


# ---------------------------------------------------------------------- what is replaced
_KNOW_NO_PLUG_IN = ("paddle.device", "paddle.tensor.linalg")
"""Paddle's modules that fail if the current device is that of a plug-in: ``get_default_device`` and ``lstsq``."""


def _accept_names(original: Any) -> Any:
    """Return a function that makes a place from a name, and knows those of CUDA."""

    def convert(device: Any) -> Any:
        place = named_place(device)
        try:
            return original(device) if place is None else place
        except ValueError as error:
            error_texts.rename(error)
            raise

    convert.__name__, convert.__doc__ = original.__name__, original.__doc__
    return convert


def functions() -> dict[Any, Any]:
    """Return Paddle's functions and classes that name places -> their replacements."""
    device = paddle.device
    return {
        _CUDAPlace: CUDAPlace,
        _PinnedPlace: CUDAPinnedPlace,
        device._convert_to_place: _accept_names(device._convert_to_place),
        framework._get_paddle_place: _accept_names(framework._get_paddle_place),
        framework.is_compiled_with_cuda: for_programs(framework.is_compiled_with_cuda, lambda: True),
        framework.cuda_places: _cuda_places,
        device.get_cudnn_version: for_programs(device.get_cudnn_version, lambda: libraries.CUDNN_VERSION),
        device.get_device: for_programs(
            device.get_device, _get_device_for_programs(device.get_device), _KNOW_NO_PLUG_IN
        ),
        device.get_all_device_type: for_programs(device.get_all_device_type, lambda: ["cpu", "gpu"]),
        paddle.base.libpaddle.get_all_custom_device_type: for_programs(core.get_all_custom_device_type, list),
        device.get_all_custom_device_type: for_programs(device.get_all_custom_device_type, list),
        device.get_available_custom_device: for_programs(device.get_available_custom_device, list),
        device.get_available_device: for_programs(
            device.get_available_device, lambda: ["cpu", *(f"gpu:{i}" for i in range(backend().simulated))]
        ),
    }


def _cuda_places(device_ids: Any = None) -> list[Any]:
    if device_ids is None:
        device_ids = range(backend().simulated)
    return [gpu_place(i) for i in (device_ids if isinstance(device_ids, (list, tuple, range)) else [device_ids])]


def _get_device_for_programs(original: Any) -> Any:
    def get_device(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return found.replace(f"{NAME}:", "gpu:") if isinstance(found, str) else found

    return get_device


def _show_gpu_name(original: Any) -> Any:
    def text(place: Any) -> str:
        return str(original(place)).replace(f"{NAME}:", "gpu:")

    return text


def _is_gpu_place(original: Any) -> Any:
    def is_gpu_place(place: Any) -> bool:
        return bool(original(place)) or (is_program() and is_simulated(place))

    return is_gpu_place


def _make_device(original: Any) -> Any:
    """Return a ``Device.__new__`` that knows the places of simulated GPUs; Paddle 3.3 fails for those of plug-ins."""

    def new(cls: Any, type: Any = None, index: Any = None) -> Any:
        return original(cls, f"cuda:{_index(type)}" if is_simulated(type) else type, index)

    return staticmethod(new)


def _device_place(original: Any) -> Any:
    def to_place(device: Any) -> Any:
        return gpu_place(device.index) if device.type in ("gpu", "cuda") else original(device)

    return to_place


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace in the classes of places and in the C++ module: the owner, the attribute, the new value."""
    for cls in (_Place, _CustomPlace, core.LoDTensor):
        for name in ("__repr__", "__str__"):
            yield cls, name, _show_gpu_name(getattr(cls, name))
    yield _Place, "is_gpu_place", _is_gpu_place(_Place.is_gpu_place)
    device = getattr(paddle.device, "Device", None)
    if device is not None:
        yield device, "__new__", _make_device(device.__new__)
        yield device, "_to_place", _device_place(device._to_place)
    yield from libraries.versions()
    yield core, "is_compiled_with_cuda", for_programs(core.is_compiled_with_cuda, lambda: True)
    yield core, "get_all_custom_device_type", for_programs(core.get_all_custom_device_type, list)

"""``paddle.inference`` on simulated GPUs: the configuration shows a GPU, and the predictor computes on the host.

A build for CPUs ignores ``Config.enable_use_gpu``, so the settings for GPUs are kept here. A predictor's parameters
count on its GPU as the bytes of the file or buffer that has them; what it allocates while it runs does not count.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import paddle.inference  # adds methods to the classes in C++

from devshim.errors import UnsupportedError
from devshim.transfers.observers import site
from devshim_backends._paddle.capabilities import NOT_SIMULATED
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.memory import take_failure
from devshim_backends._paddle.simulation.native_names import names, runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

__all__ = ["attributes", "functions"]

_ENGINE = "paddle.inference.Config.enable_tensorrt_engine"
_CONVERT = "paddle.inference.convert_to_mixed_precision"
_SHARE = "paddle.inference.Tensor.share_external_data"
_MOST_OF_MEMORY = 0.95
"""The largest part of a GPU's memory that Paddle reports for its pool."""


@dataclass(frozen=True)
class _Gpu:
    """The settings for GPUs of a configuration."""

    pool: int
    index: int


@dataclass(frozen=True)
class _Loaded:
    """The GPU of a predictor, and the tensor that counts its parameters there; clones share it."""

    place: Any
    parameters: Any


_gpus: MutableMapping[Any, _Gpu] = WeakKeyDictionary()
_buffers: MutableMapping[Any, int] = WeakKeyDictionary()
"""Configuration -> the bytes of the buffer with its parameters."""
_loaded: MutableMapping[Any, _Loaded] = WeakKeyDictionary()


def _refuse(name: str) -> UnsupportedError:
    """Return the error for a call that simulated GPUs cannot run."""
    why, _, instead = NOT_SIMULATED[name].partition(": ")
    return UnsupportedError(f"simulated GPUs do not support {name}, which {site()} calls: {why}", instead)


# ---------------------------------------------------------------------- configurations
def _init(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if args and isinstance(args[0], core.AnalysisConfig):
            settings: tuple[MutableMapping[Any, Any], ...] = _gpus, _buffers
            for each in settings:
                if args[0] in each:
                    each[self] = each[args[0]]

    return init


def _enable_use_gpu(self: Any, memory_pool_init_size_mb: int, device_id: int = 0, precision_mode: Any = None) -> None:
    if precision_mode not in (None, core.AnalysisConfig.Precision.Float32):
        why, _, instead = NOT_SIMULATED[_CONVERT].partition(": ")
        msg = f"simulated GPUs run predictors in float32, and {site()} asks for {precision_mode}: {why}"
        raise UnsupportedError(msg, instead)
    _gpus[self] = _Gpu(int(memory_pool_init_size_mb), int(device_id))


def _disable_gpu(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def disable_gpu(self: Any) -> None:
        _gpus.pop(self, None)
        original(self)

    return disable_gpu


def _ask(original: Callable[[Any], Any], answer: Callable[[_Gpu], Any]) -> Callable[[Any], Any]:
    def ask(self: Any) -> Any:
        gpu = _gpus.get(self)
        return original(self) if gpu is None else answer(gpu)

    return ask


def _fraction(gpu: _Gpu) -> float:
    total = runtime.get_device_properties(gpu.index).total_memory
    return min(gpu.pool * 2**20 / total, _MOST_OF_MEMORY)


def _refuse_engine(original: Callable[..., None]) -> Callable[..., None]:
    def enable(self: Any, *args: Any, **kwargs: Any) -> None:
        if self in _gpus:
            raise _refuse(_ENGINE)
        original(self, *args, **kwargs)  # without a GPU, Paddle logs that it ignores the call

    return enable


def _refuse_conversion(original: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the function that writes a model in float16: for GPUs, it would convert nothing."""

    @wraps(original)
    def convert(*args: Any, **kwargs: Any) -> None:
        if inspect.signature(original).bind(*args, **kwargs).arguments["backend"] == paddle.inference.PlaceType.GPU:
            raise _refuse(_CONVERT)
        original(*args, **kwargs)

    return convert


def _set_model_buffer(original: Callable[..., None]) -> Callable[..., None]:
    def set_model_buffer(self: Any, prog: Any, prog_size: int, params: Any, params_size: int) -> None:
        original(self, prog, prog_size, params, params_size)
        _buffers[self] = int(params_size)

    return set_model_buffer


def _summary(original: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a replacement for the table of settings, with those for GPUs."""

    def summary(self: Any) -> str:
        lines, gpu = original(self).splitlines(keepends=True), _gpus.get(self)
        position = next((i for i, line in enumerate(lines) if line.startswith("| use_gpu ")), None)
        if gpu is None or position is None:
            return "".join(lines)
        widths = [len(cell) - 2 for cell in lines[position].rstrip("\n").strip("|").split("|")]
        rows = {
            "use_gpu": "true",
            "gpu_device_id": str(gpu.index),
            "memory_pool_init_size": f"{gpu.pool}MB",
            "use_tensorrt": "false",
        }
        lines[position : position + 1] = [
            f"| {name:<{widths[0]}} | {value:<{widths[1]}} |\n" for name, value in rows.items()
        ]
        return "".join(lines)

    return summary


# ---------------------------------------------------------------------- predictors
def _create(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def create_predictor(config: Any) -> Any:
        loaded = _load(config)
        predictor = original(config)
        if loaded is not None:
            _loaded[predictor] = loaded
        return predictor

    return create_predictor


def _load(config: Any) -> _Loaded | None:
    """Return the GPU of a configuration, with memory for the parameters; None without a GPU.

    Raises:
        MissingGpuError: The GPU does not exist.
        MemoryError: The parameters do not fit.
    """
    gpu = _gpus.get(config)
    if gpu is None:
        return None
    place, nbytes = names.gpu_place(gpu.index), _count_bytes(config)
    return _Loaded(place, _allocate(nbytes, place) if nbytes else None)


def _allocate(nbytes: int, place: Any) -> Any:
    """Return a tensor with this many bytes on a GPU, also while a program is in static mode."""
    result = core.LoDTensor()
    try:
        result.set(np.zeros(nbytes, np.uint8), place)
    except Exception as error:  # Paddle has no single class for this error
        failure = take_failure()
        if failure is None:
            raise
        raise failure from error
    return result


def _count_bytes(config: Any) -> int:
    """Return the bytes of the file, files or buffer with the parameters of a configuration."""
    if config.model_from_memory():
        return _buffers.get(config, 0)
    if config.params_file():
        files = [Path(config.params_file())]
    else:  # a file for each parameter, beside the program
        files = [each for each in Path(config.model_dir()).glob("*") if config.model_dir() and each.is_file()]
    return sum(each.stat().st_size for each in files if each.exists() and each.name != "__model__")


def _clone(original: Callable[..., Any]) -> Callable[..., Any]:
    def clone(self: Any, *args: Any) -> Any:
        return _share(original(self, *args), _loaded.get(self))

    return clone


def _share(predictor: Any, loaded: _Loaded | None) -> Any:
    if loaded is not None:
        _loaded[predictor] = loaded
    return predictor


def _init_pool(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, config: Any, size: int) -> None:
        loaded = _load(config)
        original(self, config, size)
        if loaded is not None:
            _loaded[self] = loaded

    return init


def _retrieve(original: Callable[..., Any]) -> Callable[..., Any]:
    def retrieve(self: Any, index: int) -> Any:
        return _share(original(self, index), _loaded.get(self))

    return retrieve


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        loaded = _loaded.get(self)
        if loaded is None or not args:
            return original(self, *args)
        inputs = [x.cpu() if names.is_simulated(x.place) else x for x in args[0]]
        return [x._copy_to(loaded.place, True) for x in original(self, inputs)]

    return run


def _refuse_memory(original: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for a method of a predictor's tensor that uses a tensor's memory, on GPUs too."""

    def share(self: Any, data: Any, *args: Any) -> None:
        if isinstance(data, core.eager.Tensor) and names.is_simulated(data.place):
            raise _refuse(_SHARE)
        original(self, data, *args)

    return share


# ---------------------------------------------------------------------- what is replaced
def functions() -> dict[Any, Any]:
    """Return Paddle's functions -> their replacements."""
    if not hasattr(core, "create_predictor"):
        return {}
    convert = paddle.inference.convert_to_mixed_precision
    return {core.create_predictor: _create(core.create_predictor), convert: _refuse_conversion(convert)}


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace in Paddle's classes: the owner, the attribute, the new value."""
    if not hasattr(core, "AnalysisConfig"):
        return
    config, predictor, pool = core.AnalysisConfig, core.PaddleInferPredictor, core.PredictorPool
    yield config, "enable_use_gpu", _enable_use_gpu
    for owner, name, wrap in (
        (config, "__init__", _init),
        (config, "disable_gpu", _disable_gpu),
        (config, "use_gpu", lambda original: _ask(original, lambda gpu: True)),
        (config, "gpu_device_id", lambda original: _ask(original, lambda gpu: gpu.index)),
        (config, "memory_pool_init_size_mb", lambda original: _ask(original, lambda gpu: gpu.pool)),
        (config, "fraction_of_gpu_memory_for_pool", lambda original: _ask(original, _fraction)),
        (config, "enable_tensorrt_engine", _refuse_engine),
        (config, "set_model_buffer", _set_model_buffer),
        (config, "summary", _summary),
        (predictor, "clone", _clone),
        (predictor, "run", _run),
        (pool, "__init__", _init_pool),
        (pool, "retrieve", _retrieve),
        (core.PaddleInferTensor, "share_external_data", _refuse_memory),
    ):
        if hasattr(owner, name):
            yield owner, name, wrap(getattr(owner, name))

"""Patches that make Keras compute where its data is, when PyTorch is the backend of Keras.

Keras chooses a device in each operator (`devshim_backends._torch.models.keras.internals.scopes`). This module wraps its
operators, layers, losses, metrics, optimizers and training steps in a scope of the device of their arguments, once, as
soon as both Keras and this adapter are loaded. The outermost call chooses the device; inside ``keras.device`` nothing
is changed.

* An operator follows its arguments: the first tensor on a GPU, otherwise the host. An argument without a device, such
  as a NumPy array, is copied there. Tensors on several devices stay where they are, and PyTorch refuses them.
* A layer follows its inputs, or its weights if the inputs have no device.
* A metric, an optimizer and a training step copy their arguments to the device of their own variables, as Keras does.

Measured with Keras 3.15.1, whose names are used here; a name that another version lacks is skipped.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

from devshim_backends._keras.patching import ORIGINAL, wrap_method
from devshim_backends._torch.models.keras import calls, split_forward
from devshim_backends._torch.models.keras.internals import scopes
from devshim_backends._torch.models.keras.internals.scopes import (
    CURRENT,
    ComputeOn,
    explicit_device,
    find_device,
    tensor_of,
)
from devshim_backends._torch.tracing import compiles_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[..., Any]

__all__ = ["patch_keras"]

_OPERATORS = ("core", "numpy", "nn", "math", "image", "linalg", "random", "rnn")
"""Modules of ``keras.src.backend.torch``."""


def patch_keras() -> None:
    """Make Keras compute where its data is from now on; do nothing if it does already, or has another backend."""
    config: Any = sys.modules.get("keras.src.backend.config")
    core: Any = sys.modules.get("keras.src.backend.torch.core")
    if config is None or core is None or config.backend() != "torch" or hasattr(core.get_device, ORIGINAL):
        return
    scopes.set_keras_state(core.global_state.GLOBAL_STATE_TRACKER)
    replacements = {
        core.get_device: _wrap_get_device(core),
        core.convert_to_tensor: _wrap_convert_to_tensor(core.convert_to_tensor),
    }
    for name in (*(f"keras.src.backend.torch.{each}" for each in _OPERATORS), *_operator_modules()):
        for function in _public_functions(sys.modules.get(name)):
            replacements.setdefault(function, _wrap_operator(function))
    _replace_functions(replacements)
    _patch_classes()


def _operator_modules() -> list[str]:
    """Return the names of the loaded modules with Keras's operators and losses."""
    return [name for name in sys.modules if name.startswith(("keras.src.ops.", "keras.src.losses.losses"))]


def _public_functions(module: Any) -> Iterator[Call]:
    """Yield the public functions that a module defines, except those about devices and scopes."""
    for name, each in list(vars(module).items()) if module is not None else ():
        if name.startswith("_") or name in _NOT_WRAPPED or not inspect.isfunction(each):
            continue
        if each.__module__ == module.__name__ and not hasattr(each, "__wrapped__"):
            yield each


_NOT_WRAPPED = {
    *("device_scope", "get_device", "to_torch_dtype", "is_tensor", "shape", "compute_output_spec", "convert_to_numpy"),
    *("name_scope", "device", "any_symbolic_tensors", "torch_seed_generator", "custom_gradient", "remat", "dtype"),
}


def _replace_functions(replacements: dict[Any, Any]) -> None:
    """Replace functions in all modules of Keras, under every name."""
    by_id = {id(original): replacement for original, replacement in replacements.items()}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "keras" and module is not None:
            for name, each in list(vars(module).items()):
                if id(each) in by_id:
                    setattr(module, name, by_id[id(each)])


# ---------------------------------------------------------------------- operators
def _wrap_get_device(core: Any) -> Call:
    original = core.get_device

    def get_device() -> str:
        return scopes.current_device(original)

    setattr(get_device, ORIGINAL, original)
    return get_device


def _wrap_operator(original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if CURRENT.device is None and not compiles_here() and explicit_device() is None:
            device = find_device((*args, *kwargs.values()) if kwargs else args)
            if device is not None:
                with ComputeOn(device, copies=False):
                    return original(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def _wrap_convert_to_tensor(original: Call) -> Call:
    """Return a ``convert_to_tensor`` that leaves tensors on their device, unless the current call copies all."""

    @functools.wraps(original)
    def convert_to_tensor(x: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = tensor_of(x)
        copies = CURRENT.copies and not compiles_here()
        if tensor is None or tensor.is_meta or copies or explicit_device() is not None:
            return original(x, *args, **kwargs)
        with ComputeOn(tensor.device, copies=False):
            return original(x, *args, **kwargs)

    return convert_to_tensor


# ---------------------------------------------------------------------- classes
def _patch_classes() -> None:
    """Install the functions of `calls` around the methods of Keras classes."""
    import keras
    import keras.src.backend.torch.optimizers as optimizers
    from keras.src.backend.torch import trainer

    for each in pkgutil.iter_modules(optimizers.__path__):  # Keras loads each when an optimizer of its class is made
        importlib.import_module(f"{optimizers.__name__}.{each.name}")
    optimizer = keras.optimizers.Optimizer
    patches: list[tuple[type, str, Call]] = [
        (keras.Layer, "__call__", calls.call_layer),
        (keras.Layer, "_lock_state", calls.build_layer),
        (keras.Layer, "add_weight", calls.add_item),
        (keras.Sequential, "add", calls.add_item),
        (keras.Loss, "__call__", calls.call_loss),
        *((keras.Metric, name, calls.call_metric) for name in ("__call__", "update_state", "result")),
        (keras.random.SeedGenerator, "next", calls.next_seed),
        (keras.Model, "compile", calls.compile_model),
        *((keras.Model, f"make_{name}_function", _step_wrapper(name)) for name in ("train", "test", "predict")),
        (trainer.TorchEpochIterator, "_get_iterator", calls.get_batches),
        (optimizer, "build", calls.build_optimizer),
        (optimizer, "apply", calls.apply_gradients),
        (optimizer, "_parallel_update_step", split_forward.update_variables),
        (optimizer, "update_step", split_forward.update_variables),
        (optimizer, "_apply_weight_decay", split_forward.apply_weight_decay),
        (optimizer, "_clip_gradients", split_forward.clip_gradients),
    ]
    for cls, name, wrapper in patches:
        wrap_method(cls, name, wrapper, _is_left_to_keras)


def _step_wrapper(name: str) -> Call:
    return functools.partial(calls.make_step, f"{name}_function")


def _is_left_to_keras() -> bool:
    """Return True if a call is left to Keras: in compiled code, or if ``keras.device`` or Keras chose the device."""
    return compiles_here() or explicit_device() is not None

"""Patches that make Keras compute where its data is, when PyTorch is the backend of Keras.

Keras chooses a device in each operator (`devshim_backends._torch.models.keras_scopes`). This module wraps its
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

from torch.compiler import is_compiling

from devshim_backends._keras.patching import ORIGINAL, wrap_method
from devshim_backends._torch.models import keras_calls, keras_scopes, keras_split_forward
from devshim_backends._torch.models.keras_scopes import FOLLOWING, Within, explicit, found_in, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[..., Any]

__all__ = ["follow_data"]

_OPERATORS = ("core", "numpy", "nn", "math", "image", "linalg", "random", "rnn")
"""Modules of ``keras.src.backend.torch``."""


def follow_data() -> None:
    """Make Keras compute where its data is from now on; do nothing if it does already, or has another backend."""
    config: Any = sys.modules.get("keras.src.backend.config")
    core: Any = sys.modules.get("keras.src.backend.torch.core")
    if config is None or core is None or config.backend() != "torch" or hasattr(core.get_device, ORIGINAL):
        return
    keras_scopes.attach(core.global_state.GLOBAL_STATE_TRACKER)
    ours = {core.get_device: _asked(core), core.convert_to_tensor: _converted(core.convert_to_tensor)}
    for name in (*(f"keras.src.backend.torch.{each}" for each in _OPERATORS), *_namespaces()):
        for function in _functions(sys.modules.get(name)):
            ours.setdefault(function, _following(function))
    _exchange(ours)
    _put_on_classes()


def _namespaces() -> list[str]:
    """Return the names of the loaded modules with Keras's operators and losses."""
    return [name for name in sys.modules if name.startswith(("keras.src.ops.", "keras.src.losses.losses"))]


def _functions(module: Any) -> Iterator[Call]:
    """Yield the public functions that a module defines, except those about devices and scopes."""
    for name, each in list(vars(module).items()) if module is not None else ():
        if name.startswith("_") or name in _NOT_FOLLOWING or not inspect.isfunction(each):
            continue
        if each.__module__ == module.__name__ and not hasattr(each, "__wrapped__"):
            yield each


_NOT_FOLLOWING = {
    *("device_scope", "get_device", "to_torch_dtype", "is_tensor", "shape", "compute_output_spec", "convert_to_numpy"),
    *("name_scope", "device", "any_symbolic_tensors", "torch_seed_generator", "custom_gradient", "remat", "dtype"),
}


def _exchange(ours: dict[Any, Any]) -> None:
    """Replace functions in all modules of Keras, under every name."""
    by_id = {id(theirs): mine for theirs, mine in ours.items()}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "keras" and module is not None:
            for name, each in list(vars(module).items()):
                if id(each) in by_id:
                    setattr(module, name, by_id[id(each)])


# ---------------------------------------------------------------------- operators
def _asked(core: Any) -> Call:
    theirs = core.get_device

    def get_device() -> str:
        return keras_scopes.device_asked(theirs)

    setattr(get_device, ORIGINAL, theirs)
    return get_device


def _following(theirs: Call) -> Call:
    @functools.wraps(theirs)
    def call(*args: Any, **kwargs: Any) -> Any:
        if FOLLOWING.device is None and not is_compiling() and explicit() is None:
            device = found_in((*args, *kwargs.values()) if kwargs else args)
            if device is not None:
                with Within(device, carries=False):
                    return theirs(*args, **kwargs)
        return theirs(*args, **kwargs)

    return call


def _converted(theirs: Call) -> Call:
    """Return a ``convert_to_tensor`` that leaves tensors on their device, unless a scope carries."""

    @functools.wraps(theirs)
    def convert_to_tensor(x: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = value_of(x)
        if tensor is None or tensor.is_meta or explicit() is not None or (FOLLOWING.carries and not is_compiling()):
            return theirs(x, *args, **kwargs)
        with Within(tensor.device, carries=False):
            return theirs(x, *args, **kwargs)

    return convert_to_tensor


# ---------------------------------------------------------------------- classes
def _put_on_classes() -> None:
    """Install the functions of `keras_calls` around the methods of Keras classes."""
    import keras
    import keras.src.backend.torch.optimizers as of_pytorch
    from keras.src.backend.torch import trainer

    for each in pkgutil.iter_modules(of_pytorch.__path__):  # Keras loads each when an optimizer of its class is made
        importlib.import_module(f"{of_pytorch.__name__}.{each.name}")
    optimizer = keras.optimizers.Optimizer
    wrap_method(keras.Layer, "__call__", keras_calls.layer_called, _passes)
    wrap_method(keras.Layer, "_lock_state", keras_calls.layer_built, _passes)
    wrap_method(keras.Layer, "add_weight", keras_calls.added, _passes)
    wrap_method(keras.Sequential, "add", keras_calls.added, _passes)
    wrap_method(keras.Loss, "__call__", keras_calls.loss_called, _passes)
    for name in ("__call__", "update_state", "result"):
        wrap_method(keras.Metric, name, keras_calls.metric_called, _passes)
    wrap_method(keras.random.SeedGenerator, "next", keras_calls.drawn, _passes)
    wrap_method(keras.Model, "compile", keras_calls.compiled, _passes)
    for name in ("train", "test", "predict"):
        wrap_method(
            keras.Model, f"make_{name}_function", functools.partial(keras_calls.step_made, f"{name}_function"), _passes
        )
    wrap_method(trainer.TorchEpochIterator, "_get_iterator", keras_calls.batches_found, _passes)
    wrap_method(optimizer, "build", keras_calls.optimizer_built, _passes)
    wrap_method(optimizer, "apply", keras_calls.applied, _passes)
    for name in ("_parallel_update_step", "update_step"):
        wrap_method(optimizer, name, keras_split_forward.updated, _passes)
    wrap_method(optimizer, "_apply_weight_decay", keras_split_forward.decayed, _passes)
    wrap_method(optimizer, "_clip_gradients", keras_split_forward.clipped, _passes)


def _passes() -> bool:
    """Return True if a call is left to Keras: in compiled code, or if ``keras.device`` or Keras chose the device."""
    return is_compiling() or explicit() is not None

"""`save` and `load`: tensors, trees of them, models and optimizers as one safetensors file, on any framework.

Requirements of this module:

* No pickle, and nothing else that runs code from a file (`devshim.checkpoints.structure`).
* All or nothing, on both sides: a file is replaced completely or stays as it was (`devshim.checkpoints.file`); a
  target of loading changes only after everything has arrived (`devshim.models.moving`).
* Data goes straight to its device, small leaves together; and from any framework to any other, if the models' layers
  match (`devshim.checkpoints.matching`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar, overload

from devshim.checkpoints import file as file_module
from devshim.checkpoints import paths
from devshim.checkpoints.arrivals import Arriving
from devshim.checkpoints.reader import Contents
from devshim.checkpoints.restore import Restore
from devshim.checkpoints.stored import Source, StoredTensor
from devshim.checkpoints.writer import Writer
from devshim.devices import parsing
from devshim.models import moving
from devshim.placement.placement import Placement
from devshim.registry import current, tracing
from devshim.tensors import arguments
from devshim.transfers import engine, observing, progress
from devshim.trees import key_paths
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.checkpoints.arrivals import Later
    from devshim.checkpoints.file import Opened
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

T = TypeVar("T")

__all__ = ["load", "save"]


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a tensor, a model, an optimizer, or a tree of them to a safetensors file.

    Args:
        obj: Tensors of any framework on any device; models (parameters and buffers) and optimizers (state); dicts,
            lists, tuples, named tuples, dataclasses and registered pytrees of them. Numbers, text, bytes, None and
            devices among them are saved, too. Gradients are not, and neither are functions in the fields of classes.
        path: The file to write. An existing file is replaced when the new one is complete and on the disk, and keeps
            its permissions; a link stays a link, and its target is replaced.

    Raises:
        ArgumentError: Something in it cannot be written, or ``path`` is not the path of a file.
        CheckpointError: The folder does not exist, the disk is full, or the system refuses; for an error of the system,
            it is an `OSError`, too.
        ConversionError: NumPy has no dtype for a tensor (bfloat16 needs ``ml_dtypes``).

    After any error, and if the process is killed, the old file is still intact. A killed process may leave a folder
    ``.devshim-*.tmp`` beside it, which the next `save` to the same path removes. The host needs memory for a copy of
    everything that is saved. The saved objects must not change during the call.
    """
    tracing.refuse("save", "return the values from the compiled function, and save them outside")
    where = paths.saved_path(obj, path)
    shown = observing.explainer()
    if shown is not None:
        shown.file("save", obj, where)
    writer = Writer()
    metadata = writer.metadata_of(obj)
    file_module.write(where, writer.arrays, metadata)


@overload
def load(
    path: str | os.PathLike[str], device_or_placement: DeviceLike | Placement | None = None, into: None = None
) -> Any: ...


@overload
def load(path: str | os.PathLike[str], device_or_placement: DeviceLike | Placement | None = None, *, into: T) -> T: ...


@overload
def load(path: str | os.PathLike[str], device_or_placement: DeviceLike | Placement | None, into: T) -> T: ...


def load(
    path: str | os.PathLike[str], device_or_placement: DeviceLike | Placement | None = None, into: Any = None
) -> Any:
    """Return what `save` wrote, on any framework and straight on its device; or load it into existing objects.

    Args:
        path: The file. A file that another program wrote is loaded as a dict of its tensors.
        device_or_placement: The device, or a `Placement` that names the device of each leaf. Without it: the devices
            of the tensors and models of ``into``, or the device of the innermost `on`, or the CPU.
        into: The saved object, or one with the same structure, such as a model, or ``[model, optimizer]``. Models and
            optimizers are filled in place: they and their parameters stay the same objects. If another framework stores
            a layer's weight in another layout, it is transposed. A None skips what the file has at that position. A
            tree of another structure is filled if it has the same key paths (as in `leaves`).

    Returns:
        Without ``into``: a tree in the structure that was saved, of tensors of the current framework, without
        gradients; a model or optimizer is a dict of its tensors by their names. A named tuple or dataclass has
        the same name and fields, a subclass of dict, list or tuple becomes its base class, and a registered pytree
        becomes a dict of its children: only ``into`` gives the classes themselves.
        With ``into``: that object, if only models and optimizers were loaded; otherwise a tree like it, with the
        tensors and values of the file.

    Raises:
        ArgumentError: ``path`` is not the path of a file.
        CheckpointError: The file is not a checkpoint, is cut off, damaged or malicious, or does not fit ``into``; the
            message says how. If it does not exist, or cannot be read, the error is an `OSError`, too.
        ConversionError: The framework has no dtype for a tensor.
        OutOfMemoryError: The device is full. It needs memory for the loaded data beside what it already has.

    After any error, nothing has changed; Ctrl-C during the final exchange waits until the exchange is complete.
    The host needs twice the memory of the largest tensor, and 16 MiB for small ones, which are copied together.
    """
    tracing.refuse("load", "load before the compiled function is called, and pass the values to it")
    where = device_or_placement
    name = paths.loaded_path(path, where)
    target = where if where is None or isinstance(where, Placement) else parsing.of_call("load", path, where)
    with file_module.opened(name) as file, progress.bar("load", os.stat(name).st_size):
        contents = Contents(file)
        if into is None:
            return _new(file, contents, target)
        shown = observing.explainer()
        if shown is not None:
            shown.file("load", into, name, None if isinstance(target, Placement) else target)
        return Restore(file, target).fill(into, contents.tree)


def _new(file: Opened, contents: Contents, device: DeviceLike | Placement | None) -> Any:
    """Return the tree of a file, made of tensors of the current framework."""
    backend = current.current()
    where = _where(backend, device)
    if observing.explainer() is not None:
        first = min(device.devices) if isinstance(device, Placement) else where("", "")
        observing.show_call(backend, "load", first, path=repr(str(file.path)))
    made: dict[int, Any] = {}
    arriving = Arriving(file)
    try:
        for thing, cell in contents.found:
            prefix = key_paths.path_text(cell)
            if isinstance(thing, StoredTensor):
                there = where(prefix, "", thing.is_scalar)
                made[id(thing)] = arriving.read(backend, Source(thing, key=thing.key), there, brackets(cell))
                continue
            found: dict[StoredTensor, Later] = {}  # by tensor: tied parameters share one
            for path, (_, tensor) in thing.leaves.items():
                if tensor not in found:
                    there = where(prefix, path)
                    source = Source(tensor, key=tensor.key)
                    found[tensor] = arriving.read(backend, source, there, moving.joined(prefix, path))
            made[id(thing)] = {path: found[tensor] for path, (_, tensor) in thing.leaves.items()}
        made = arriving.arrived(made)
        return contents.built(
            {key: arriving.arrived(each) if isinstance(each, dict) else each for key, each in made.items()}
        )
    except BaseException:
        made.clear()  # the traceback would keep the tensors, and their memory
        arriving.forget()
        raise


def _where(backend: Backend, device: DeviceLike | Placement | None) -> Callable[..., Device]:
    """Return a function from a model's path in the tree and a leaf's path to the leaf's device; all devices exist."""
    if isinstance(device, Placement):
        for each in device.devices:
            engine.require(backend, each)
        return device.of_leaf
    target = arguments.target(backend, device)
    return lambda *_: target

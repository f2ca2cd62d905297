"""`save` and `load`: tensors, trees of them, models and optimizers as one safetensors file, on any framework.

Requirements this module answers:

* No pickle, and nothing else that runs what a file says (`devshim.checkpoints.structure`).
* All or nothing, on both sides: a file is replaced whole or not at all (`devshim.checkpoints.file`), and what is loaded
  into is exchanged when everything has arrived (`devshim.models.moving`), or is as it was.
* Straight to its device, small leaves together; from any framework to any other, where an equal model can be told
  (`devshim.checkpoints.matching`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from devshim.checkpoints import file as file_module
from devshim.checkpoints import paths
from devshim.checkpoints.arrivals import Arriving
from devshim.checkpoints.reader import Contents
from devshim.checkpoints.restore import Filling
from devshim.checkpoints.stored import Source, StoredTensor
from devshim.checkpoints.writer import Writer
from devshim.devices import parsing
from devshim.models import moving
from devshim.placement.placement import Placement
from devshim.registry import current, tracing
from devshim.tensors import arguments
from devshim.transfers import engine, explain
from devshim.trees import key_paths
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from devshim.checkpoints.arrivals import Later
    from devshim.checkpoints.file import Opened
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

T = TypeVar("T")

__all__ = ["load", "save"]


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a tensor, a tree of tensors, models and optimizers, or any of these alone to a safetensors file.

    Args:
        obj: Tensors of any framework on any device; models (parameters and buffers) and optimizers (state); dicts,
            lists, tuples, named tuples, dataclasses and registered pytrees of them. Numbers, text, bytes, None and
            devices among them are kept, too. Gradients are not.
        path: Where to. A file there is replaced when the new one is complete and on the disk, and its permissions are
            kept; a link stays one, and what it leads to is replaced.

    Raises:
        ArgumentError: Something in it cannot be written, or ``path`` is not the path of a file.
        CheckpointError: The folder is not there, the disk is full, or the system refuses; then it is an `OSError`, too.
        ConversionError: NumPy has no dtype for a tensor (bfloat16 needs ``ml_dtypes``).

    Whatever is raised, and if the process is killed, the file that was there is still whole; when it is killed, a
    folder ``.devshim-*.tmp`` may be left beside it, which the next `save` to the same path removes. The host needs
    memory for a copy of all that is saved. Nothing that is saved may change meanwhile.
    """
    tracing.refuse("save", "save what the compiled function returns, outside")
    where = paths.saved_path(obj, path)
    hook = explain.HOOK
    if hook is not None:
        from devshim.trees import explain as explain_module

        explain_module.filing(hook, "save", obj, where)
    writer = Writer()
    told = writer.tell(obj)
    file_module.write(where, writer.arrays, told)


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
    """Return what `save` wrote, from whichever framework, straight on its device; or put it into what is there.

    Args:
        path: The file. One that another program wrote comes back as a dict of its tensors.
        device_or_placement: Where to, or a `Placement` that says it for each leaf. Without it: where the tensors and
            models of ``into`` are, else the device of the innermost `on`, else the CPU.
        into: What was saved, or its equal, such as a model, or ``[model, optimizer]``. Models and optimizers are filled
            in place: they and their parameters stay the objects they are. A weight whose layer is laid out in another
            way on another framework is transposed. None in a place of it leaves out what the file has there.

    Returns:
        Without ``into``: a tree in the structure that was saved, of tensors of the current framework, without
        gradients; a model or optimizer is a dict of its tensors by their names. A named tuple or dataclass is one of
        the same name and fields, a subclass of dict, list or tuple is its base, a registered pytree is a dict of its
        children: only ``into`` has the classes themselves.
        With ``into``: that, where all that was loaded are models and optimizers; else a tree like it, in which tensors
        and values are the file's.

    Raises:
        ArgumentError: ``path`` is not the path of a file.
        CheckpointError: The file is not a checkpoint, is cut off, damaged or made to harm, or does not fit ``into``;
            the message names what. Where it is not there, or cannot be read, the error is an `OSError`, too.
        ConversionError: The framework has no dtype for a tensor.
        OutOfMemoryError: The device is full. A device needs room for what is loaded beside what it has.

    Whatever is raised, nothing has changed; Ctrl-C that comes while what has arrived is exchanged waits until it is.
    The host needs memory for the largest tensor, twice, and for 16 MiB of small ones, which travel together.
    """
    tracing.refuse("load", "load outside, and pass what was loaded in")
    where = device_or_placement
    name = paths.loaded_path(path, where)
    target = where if where is None or isinstance(where, Placement) else parsing.of_call("load", path, where)
    with file_module.opened(name) as file:
        contents = Contents(file)
        if into is None:
            return _new(file, contents, target)
        hook = explain.HOOK
        if hook is not None:
            from devshim.trees import explain as explain_module

            explain_module.filing(hook, "load", into, name, None if isinstance(target, Placement) else target)
        return Filling(file, target).fill(into, contents.tree)


def _new(file: Opened, contents: Contents, device: DeviceLike | Placement | None) -> Any:
    """The tree of a file, made of tensors of the current framework."""
    backend = current.current()
    where = _where(backend, device)
    hook = explain.HOOK
    if hook is not None:
        first = min(device.devices) if isinstance(device, Placement) else where("", "")
        hook(backend, "load", first, path=repr(str(file.path)))
    made: dict[int, Any] = {}
    arriving = Arriving(file)
    try:
        for thing, cell in contents.found:
            prefix = key_paths.path_text(cell)
            if isinstance(thing, StoredTensor):
                there = where(prefix, "", not thing.shape)
                made[id(thing)] = arriving.read(backend, Source(thing), there, brackets(cell))
                continue
            found: dict[StoredTensor, Later] = {}  # ties
            for path, (_, tensor) in thing.leaves.items():
                if tensor not in found:
                    there = where(prefix, path)
                    found[tensor] = arriving.read(backend, Source(tensor), there, moving.joined(prefix, path))
            made[id(thing)] = {path: found[tensor] for path, (_, tensor) in thing.leaves.items()}
        made = arriving.arrived(made)
        return contents.built(
            {key: arriving.arrived(each) if isinstance(each, dict) else each for key, each in made.items()}
        )
    except BaseException:
        made.clear()  # the traceback would keep them, and their memory
        arriving.forget()
        raise


def _where(backend: Backend, device: DeviceLike | Placement | None) -> Callable[..., Device]:
    """The device of a leaf, by the place of its model and its path; all are there."""
    if isinstance(device, Placement):
        for each in device.devices:
            engine.require(backend, each)
        return device.of_leaf
    target = arguments.target(backend, device)
    return lambda *_: target


for _public in (load, save):
    _public.__module__ = "devshim"

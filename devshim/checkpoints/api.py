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

from devshim.checkpoints import paths, ranks_load, ranks_save, write
from devshim.checkpoints.arrivals import Arrivals
from devshim.checkpoints.ranks_load import open_checkpoint
from devshim.checkpoints.reader import Contents
from devshim.checkpoints.restore import Restore
from devshim.checkpoints.rows import Rows, require_ranks, rows_in
from devshim.checkpoints.stored import Source, StoredTensor
from devshim.checkpoints.writer import Writer
from devshim.contract.blocks import join_path
from devshim.devices import parsing
from devshim.placement.placement import Placement
from devshim.registry import current, tracing
from devshim.tensors import arguments
from devshim.transfers import engine, observing, progress
from devshim.trees import key_paths
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.checkpoints.arrivals import PendingTensor
    from devshim.checkpoints.file import OpenFile
    from devshim.checkpoints.ranks_read import Folder
    from devshim.checkpoints.rows import Ranks
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

T = TypeVar("T")

__all__ = ["load", "save"]


def save(obj: Any, path: str | os.PathLike[str], *, world: Ranks | None = None) -> None:
    """Write a tensor, a model, an optimizer, or a tree of them to a safetensors file, or with all ranks to a folder.

    Args:
        obj: Tensors of any framework on any device; models (parameters and buffers) and optimizers (state); dicts,
            lists, tuples, named tuples, dataclasses and registered pytrees of them. Numbers, text, bytes, None and
            devices among them are saved, too. Gradients are not, and neither are functions in the fields of classes.
        path: The file to write. An existing file is replaced when the new one is complete and on the disk, and keeps
            its permissions; a link stays a link, and its target is replaced. With ``world``: the folder to write, on a
            file system that all hosts share.
        world: The ranks of the job. All of them call `save` with the same tree. Each writes its own file: its part of
            each `Rows`, and some of the other tensors, which are equal on all ranks. Numbers and text are those of
            rank 0.

    Raises:
        ArgumentError: Something in it cannot be written, or ``path`` is not the path of a file.
        CheckpointError: The folder does not exist, the disk is full, or the system refuses; for an error of the system,
            it is an `OSError`, too. With ``world``: the ranks differ, or another rank failed, which is named.
        ConversionError: NumPy has no dtype for a tensor (bfloat16 needs ``ml_dtypes``).

    After any error, and if the process is killed, the old file is still intact. A killed process may leave a folder
    ``.devshim-*.tmp`` beside it, which the next `save` to the same path removes. The host needs memory for a copy of
    what is saved from GPUs (with ``world``, of everything). The saved objects must not change during the call.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "params.safetensors")
        ...     ds.save({"w": ds.ones(2), "step": ds.asarray(3)}, path)
        ...     print(ds.load(path))
        {'w': array([1., 1.]), 'step': array(3)}
    """
    tracing.refuse("save", "return the values from the compiled function, and save them outside")
    where = paths.read_save_path(obj, path)
    shown = observing.explainer()
    if shown is not None:
        shown.file("save", obj, where)
    if world is not None:
        require_ranks("ds.save", world)
        ranks_save.save(obj, where, world)
        return
    writer = Writer()
    metadata = writer.metadata_of(obj)
    write.write(where, writer.arrays, metadata)


@overload
def load(
    path: str | os.PathLike[str],
    device_or_placement: DeviceLike | Placement | None = None,
    into: None = None,
    *,
    world: Ranks | None = None,
) -> Any: ...


@overload
def load(
    path: str | os.PathLike[str],
    device_or_placement: DeviceLike | Placement | None = None,
    *,
    into: T,
    world: Ranks | None = None,
) -> T: ...


@overload
def load(
    path: str | os.PathLike[str],
    device_or_placement: DeviceLike | Placement | None,
    into: T,
    *,
    world: Ranks | None = None,
) -> T: ...


def load(
    path: str | os.PathLike[str],
    device_or_placement: DeviceLike | Placement | None = None,
    into: Any = None,
    *,
    world: Ranks | None = None,
) -> Any:
    """Return what `save` wrote, on any framework and straight on its device; or load it into existing objects.

    Args:
        path: The file, or the folder that all ranks wrote. A file that another program wrote is loaded as a dict of its
            tensors.
        device_or_placement: The device, or a `Placement` that names the device of each leaf. Without it: the devices
            of the tensors and models of ``into``, or the device of the innermost `on`, or the CPU.
        into: The saved object, or one with the same structure, such as a model, or ``[model, optimizer]``. Models and
            optimizers are filled in place: they and their parameters stay the same objects. If another framework stores
            a layer's weight in another layout, it is transposed. A None skips what the file has at that position. A
            tree of another structure is filled if it has the same key paths (as in `leaves`). A `Rows` is filled with
            this rank's rows, in the order of the ranks, from rows or from a whole tensor.
        world: The ranks of the job, as many as there are now. All of them call `load`; each reads only its rows, and
            everything else. Without ``into``, each rank gets ``world.part(length)`` of the rows, as a `Rows`. Without
            ``world``, rows are whole tensors.

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
            message says how. If it does not exist, or cannot be read, the error is also an `OSError`. With ``world``,
            this is also the error if another rank failed, and it names that rank.
        ConversionError: The framework has no dtype for a tensor.
        OutOfMemoryError: The device is full. It needs memory for the loaded data in addition to its present data.

    After any error, nothing has changed; Ctrl-C during the final exchange waits until the exchange is complete.
    The host needs twice the memory of the largest tensor, and 16 MiB for small ones, which are copied together.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "params.safetensors")
        ...     ds.save({"w": ds.ones(2)}, path)
        ...     print(ds.load(path, "cpu"))
        {'w': array([1., 1.])}
    """
    tracing.refuse("load", "load before the compiled function is called, and pass the values to it")
    where = device_or_placement
    name = paths.read_load_path(path, where)
    target = where if where is None or isinstance(where, Placement) else parsing.device_of_call("load", path, where)
    if world is not None:
        return _load_on_ranks(name, into, world, target)
    with open_checkpoint(name) as file:
        return _load(file, _uncut(into), None, lambda: None, into, target)


def _uncut(into: Any) -> dict[int, tuple[int, int, int]]:
    """Return all rows of each `Rows`, by its id."""
    return {id(each): (0, count := ranks_load.row_count(each), count) for each in rows_in(into)}


def _load_on_ranks(name: Any, into: Any, world: Ranks, target: Any) -> Any:
    """Load on every rank, each its own rows."""
    require_ranks("ds.load", world)
    return ranks_load.load(name, into, world, lambda file, cuts, ready: _load(file, cuts, world, ready, into, target))


def _load(
    file: OpenFile | Folder,
    cuts: Mapping[int, tuple[int, int, int]],
    world: Ranks | None,
    ready: Callable[[], None],
    into: Any,
    target: Device | Placement | None,
) -> Any:
    """Return the tree of an open file, or fill ``into`` from it."""
    with progress.bar("load", file.size):
        contents = Contents(file)
        if into is None:
            made = _new(file, contents, target, world)
            ready()
            return made
        shown = observing.explainer()
        if shown is not None:
            shown.file("load", into, file.path, None if isinstance(target, Placement) else target)
        return Restore(file, target, cuts, ready).fill(into, contents.tree)


def _new(
    file: OpenFile | Folder, contents: Contents, device: DeviceLike | Placement | None, world: Ranks | None
) -> Any:
    """Return the tree of a file, made of tensors of the current framework."""
    backend = current.current()
    where = _where(backend, device)
    if observing.explainer() is not None:
        first = min(device.devices) if isinstance(device, Placement) else where("", "")
        observing.show_call(backend, "load", first, path=repr(str(file.path)))
    made: dict[int, Any] = {}
    cut: set[int] = set()
    arriving = Arrivals(file)
    try:
        for thing, cell in contents.found:
            prefix = key_paths.path_text(cell)
            if isinstance(thing, StoredTensor):
                there = where(prefix, "", thing.is_scalar)
                rows = None if world is None or not thing.is_cut else ranks_load.row_range(world, thing.shape[0])
                source = Source(thing, key=thing.key, rows=rows)
                made[id(thing)] = arriving.read(backend, source, there, brackets(cell))
                if rows is not None:
                    cut.add(id(thing))
                continue
            found: dict[StoredTensor, PendingTensor] = {}  # by tensor: tied parameters share one
            for path, (_, tensor) in thing.leaves.items():
                if tensor not in found:
                    there = where(prefix, path)
                    source = Source(tensor, key=tensor.key)
                    found[tensor] = arriving.read(backend, source, there, join_path(prefix, path))
            made[id(thing)] = {path: found[tensor] for path, (_, tensor) in thing.leaves.items()}
        made = {key: Rows(each) if key in cut else each for key, each in arriving.resolve(made).items()}
        return contents.build(
            {key: arriving.resolve(each) if isinstance(each, dict) else each for key, each in made.items()}
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

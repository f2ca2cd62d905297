"""Plan a placement: decide which device gets which part of a model, by the bytes of its parts.

Requirements of this module:

* The parts keep the order in which they run, and each device gets a run of consecutive parts, so that activations
  cross from one device to the next only once.
* No device gets more than its budget. Within that, the fullest device is as empty as possible, relative to its budget.
* A block of layers stays whole unless it has clearly more than its share of the bytes. Then it is split into the blocks
  inside it if this makes the fullest device emptier: the body of a model may be one block beside its head.
* Tensors of one layer, and a block that its model keeps whole, are split only if they fit on no device.
* Tied parameters stay together, at the position of the first of them, and are counted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.blocks import join_path
from devshim.devices import amounts
from devshim.devices.device import CPU
from devshim.devices.parsing import device as as_device
from devshim.errors import ArgumentError, OutOfMemoryError
from devshim.placement import runs
from devshim.placement.parts import Part, as_part, sizes_of
from devshim.registry import start_failures
from devshim.transfers import device_lists, engine
from devshim.trees import key_paths
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.contract.backend import Backend
    from devshim.contract.models import Block
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.placement.parts import Single
    from devshim.placement.runs import Runs
    from devshim.trees.flatten import Flattened


def plan(
    obj: object, devices: Sequence[DeviceLike], budgets: Mapping[Any, Any] | Sequence[Any] | None
) -> tuple[dict[str, Device], dict[str, int]]:
    """Return the device of every leaf of an object, and its bytes; see `Placement.balanced`."""
    chosen = device_lists.parse_devices(devices, "Placement.balanced", "obj", obj)
    if len(set(chosen)) < len(chosen):
        once = [str(device) for device in dict.fromkeys(chosen)]
        msg = f"ds.Placement.balanced takes each device once, and was given {len(chosen) - len(once)} of them again"
        raise ArgumentError(msg, f"name each device once: ds.Placement.balanced(obj, {once})")
    parts, backends = parts_of(obj)
    caps = _read_budgets(chosen, budgets, backends)
    sizes, owners, count = sizes_of(parts)
    total, tied = sum(owners.values()), len(owners) < count
    if not _fits_together(total, caps):
        raise _too_large(parts, chosen, caps, total)
    whole = parts
    limited = budgets is not None and min(caps) < runs.UNLIMITED
    parts, divided = _choose(parts, chosen, caps, total, tied, limited)
    places: dict[str, Device] = {}
    for device, run in zip(chosen, divided, strict=True):
        for part in run:
            if type(part) is tuple:
                places[part[0]] = device
            else:
                places.update(dict.fromkeys(as_part(part).leaves, device))
    if tied or parts is not whole:  # in the order of the parts, as they are otherwise
        sizes = {path: sizes[path] for part in parts for path in as_part(part).leaves}
        places = {path: places[path] for path in sizes}
    return places, sizes


def _choose(
    parts: list[Part | Single], devices: list[Device], caps: list[int], total: int, tied: bool, limited: bool
) -> tuple[list[Part | Single], Runs]:
    """Return the parts of the best plan found, and their runs; of equally good plans, the one with the fewest cuts."""
    share = runs.largest_share(caps, total, limited)
    plans: list[tuple[list[Part | Single], Runs]] = []
    while True:
        merged = _merge_ties(parts) if tied else parts
        divided = runs.divide(merged, caps, limited)
        if divided is not None:
            plans.append((parts, divided))
        opened = _open_crowded(parts, merged, share)
        if opened is None and plans:
            return plans[0] if len(plans) == 1 else min(plans, key=lambda plan: runs.load(plan[1], caps, limited))
        parts = _split_largest(parts, devices, caps, total) if opened is None else opened


# ---------------------------------------------------------------------- parts
def parts_of(obj: object) -> tuple[list[Part | Single], list[Backend]]:
    """Return the parts of a tree, in order, and the backends of its tensors and models."""
    flat = flatten(obj)
    parts, backends = _of_tensors(flat), list(flat.backends)
    for _, cell, model, backend in flat.models:
        parts += _of_object(key_paths.path_text(cell), model, backend)
        backends.append(backend)
    if not parts:
        msg = "ds.Placement.balanced found no tensor to place"
        raise ArgumentError(msg, "pass a model, or a tree of tensors; build it first")
    return parts, backends


def _of_tensors(flat: Flattened) -> list[Part | Single]:
    """Return the tensors of a tree as parts; those of one container below the top are a block.

    A computation that uses a weight also uses the bias next to it. A tree may have a million tensors, so each costs a
    few steps: the path of a container is written once, and a block's tensors become parts only when it is split.
    """
    parts: list[Part | Single] = []
    blocks: dict[int, Part] = {}
    for container, key, x, backend in zip(flat.parents, flat.keys, flat.tensors, flat.backends, strict=True):
        if container is None or container[0] is None:  # the tensor is the tree, or directly in it
            parts.append(("" if container is None else str(key), id(x), backend.nbytes(x)))
            continue
        block = blocks.get(id(container))
        if block is None:
            block = blocks[id(container)] = Part(key_paths.path_text(container), {}, None)
            parts.append(block)
        block.leaves[f"{block.path}.{key!s}"] = (id(x), backend.nbytes(x))
    return parts


def _of_object(prefix: str, model: object, backend: Backend) -> list[Part]:
    found = {
        leaf.path: (id(leaf.owner), backend.nbytes(leaf.read()))
        for leaf in backend.leaves(model)
        if leaf.kind in ("parameter", "buffer")
    }
    if not found:
        return []  # an optimizer, which follows its model

    def made(block: Block) -> Part:
        leaves = {join_path(prefix, path): found[path] for path in block.leaves if path in found}
        return Part(join_path(prefix, block.path), leaves, [made(each) for each in block.children], block.whole)

    parts = [made(block) for block in backend.blocks(model)]
    named = {path for part in parts for path in part.leaves}
    missing = {join_path(prefix, path): size for path, size in found.items() if join_path(prefix, path) not in named}
    return [*parts, *([Part(prefix, missing, [])] if missing else [])]


def _merge_ties(parts: list[Part | Single]) -> list[Part | Single]:
    """Merge parts that share a leaf's data, at the position of the first."""
    merged: dict[int, Part] = {}  # by position
    of_owner: dict[int, int] = {}
    for at, part in enumerate(map(as_part, parts)):
        owners = {owner for owner, _ in part.leaves.values()}
        shared = sorted({of_owner[owner] for owner in owners if owner in of_owner})
        home = shared[0] if shared else at
        if not shared:
            merged[at] = Part(part.path, dict(part.leaves), part.children)
        else:
            for other in (*(merged.pop(position) for position in shared[1:]), part):
                merged[home].leaves.update(other.leaves)
                owners |= {owner for owner, _ in other.leaves.values()}
        of_owner.update(dict.fromkeys(owners, home))
    return list(merged.values())


def _open_crowded(parts: list[Part | Single], merged: list[Part | Single], share: float) -> list[Part | Single] | None:
    """Return the parts with each block that has more than a device's share opened; None if there is none.

    Blocks that share a tied tensor are on one device: if they have more than the share together, each is opened.
    """
    if Part not in set(map(type, parts)):  # a million tensors, say
        return None
    crowded = {path for part in merged if isinstance(part, Part) and part.nbytes > share for path in part.leaves}
    opened: list[Part | Single] = []
    for part in parts:
        if isinstance(part, Part) and part.opens and not crowded.isdisjoint(part.leaves):
            opened += part.split()
        else:
            opened.append(part)
    return None if opened == parts else opened


def _split_largest(
    parts: list[Part | Single], devices: list[Device], caps: list[int], total: int
) -> list[Part | Single]:
    """Return the parts with the largest splittable one replaced by the parts inside it."""
    divisible = (part for part in parts if isinstance(part, Part) and part.divisible)
    opened = max(divisible, key=lambda part: part.nbytes, default=None)
    if opened is None:
        raise _too_large(parts, devices, caps, total)
    at = parts.index(opened)
    return [*parts[:at], *opened.split(), *parts[at + 1 :]]


def _fits_together(total: int, caps: list[int]) -> bool:
    """Return False if no split can help, so that a large tree is not split block by block to find that out."""
    return total <= sum(caps)


def _too_large(parts: list[Part | Single], devices: list[Device], caps: list[int], total: int) -> OutOfMemoryError:
    """Return the error for parts that do not fit; it names the largest part that cannot be split."""
    indivisible: list[Part] = []
    stack = parts[::-1]
    while stack:
        part = as_part(stack.pop())
        if part.divisible:
            stack.extend(reversed(part.split()))
        else:
            indivisible.append(part)
    largest = max(indivisible, key=lambda part: part.nbytes)
    free = ", ".join(f"{device}: {cap:,}" for device, cap in zip(devices, caps, strict=True))
    msg = (
        f"the object does not fit on these devices ({free} bytes): it has {total:,} bytes, and its largest indivisible "
        f"part ({largest.path or 'the tensor itself'}) has {largest.nbytes:,}"
    )
    return OutOfMemoryError(msg, "add a device, such as 'cpu', or raise the budgets")


# ---------------------------------------------------------------------- budgets
def _read_budgets(devices: list[Device], budgets: Any, backends: list[Backend]) -> list[int]:
    """Return the most bytes that each device may get; without a budget, its free memory if that is known."""
    if budgets is None:
        return [_free(device, backends) for device in devices]
    if hasattr(budgets, "items"):
        given = {as_device(key): value for key, value in budgets.items()}
        unknown = [str(key) for key in given if key not in devices]
        if unknown:
            msg = f"budgets names {', '.join(unknown)}, which is not in devices"
            raise ArgumentError(msg, "add every device that has a budget to devices")
        return [amounts.read_memory(given[d], f"the budget of {d}") if d in given else runs.UNLIMITED for d in devices]
    listed = list(budgets)
    if len(listed) != len(devices):
        msg = f"ds.Placement.balanced was given {len(listed)} budgets for {len(devices)} devices"
        raise ArgumentError(msg, f"budgets={dict.fromkeys(map(str, devices), '4GiB')} names them")
    return [amounts.read_memory(each, f"the budget of {d}") for d, each in zip(devices, listed, strict=True)]


def _free(device: Device, backends: list[Backend]) -> int:
    if device is CPU or not backends:
        return runs.UNLIMITED
    engine.require(backends[0], device)
    if "memory" in backends[0].gaps:
        return runs.UNLIMITED
    free = start_failures.ask_device(backends[0], device, backends[0].memory).free
    return runs.UNLIMITED if free is None else free

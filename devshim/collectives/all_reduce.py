"""`all_reduce_`: give every device the sum (mean, maximum, minimum) of the tensors on all devices.

The framework's own engine is asked first, if each tensor is on its own accelerator. If the framework has none,
or for any other devices, the portable way is used: all tensors are copied to the device of the first, combined
there in the given order, and the result is copied to the others, so that all have the same bits.

All results exist before any is written; then all are written, and Ctrl-C waits until that is complete.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from devshim.collectives.separable import require_separable
from devshim.contract.collectives import CollectiveBackend
from devshim.devices.device import CPU
from devshim.devices.dtypes import is_number
from devshim.errors import ArgumentError, DevshimError, NotATensorError, messages
from devshim.errors.formatting import show
from devshim.models import moving
from devshim.registry import registry, tracing
from devshim.registry.registry import model_backend
from devshim.tensors import value_hints
from devshim.transfers import engine, observing
from devshim.trees import multi_map
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.trees.key_paths import Cell

    Op = Literal["sum", "mean", "max", "min"]
    Across = Callable[[list["Group"]], None]

T = TypeVar("T")

__all__ = ["Group", "all_reduce_", "reduce_in_place"]

_OPS = ("sum", "mean", "max", "min")


def all_reduce_(tensors: list[T], op: Op = "sum") -> list[T]:
    """Replace every tensor by the sum, mean, maximum or minimum of all, in place, on any devices.

    Args:
        tensors: A list of tensors of one framework, shape and dtype, or of trees of such tensors with one structure
            (gradients by their names). Leaves that are not tensors stay unchanged.
        op: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.

    Returns:
        The list given, whose tensors contain the result. If the framework's tensors cannot be written (TensorFlow,
        JAX), its entries are replaced by new ones, and the tensors that were in it have not changed. No gradients flow.

    The result is computed in the tensors' own dtype. The portable way (for CPUs, simulated GPUs, and a device that
    occurs twice) combines them in the given order, and divides last; the framework's engine uses its own order. The
    device of the first tensor needs memory for all tensors of one leaf, each other device for one more result.

    Raises:
        ArgumentError: It is not a list, is empty, ``op`` is unknown, shapes, dtypes or structures differ (each is
            named), a tensor is read-only, elements of a tensor share memory (an expanded one), or the operation makes
            no sense in that dtype: the mean of integers, any operation on bools, the largest complex number.
        NotATensorError: It contains no tensor.
        UnsupportedError: A tree contains a sparse array, a graph, or another object in which some tensors are indices.
        OutOfMemoryError: A device is full. After this and any other error, nothing has changed.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.all_reduce_([ds.ones(2), ds.full(2, 3.0)], "mean")
        [array([2., 2.]), array([2., 2.])]
    """
    return reduce_in_place(tensors, op)


def reduce_in_place(tensors: list[T], op: Op, across: Across | None = None) -> list[T]:
    """Do what `all_reduce_` does; with several processes, ``across`` then combines their results.

    Args:
        tensors: As for `all_reduce_`.
        op: As for `all_reduce_`.
        across: Takes the groups, whose results are those of this process (for ``"mean"``, the sums), and replaces
            them by those of all processes.
    """
    tracing.refuse_where_read("all_reduce_", "sum with the framework's own operators here, or the results outside")
    if op not in _OPS:
        raise value_hints.no_op(tensors, op, _OPS)
    if not isinstance(tensors, list) or not tensors:
        raise value_hints.no_tensors(tensors)
    groups = _groups(tensors)
    for group in groups:
        group.check(op)
    if len(tensors) == 1 and across is None:
        return tensors
    here = "sum" if op == "mean" and across is not None else op
    try:
        if len(tensors) == 1:
            for group in groups:
                group.results.append(group.xs[0])
        else:
            _by_engines(groups, here)
            for group in groups:
                group.reduce(here)
        if across is not None:
            across(groups)
        _commit(tensors, groups)
    finally:
        for group in groups:
            group.results.clear()  # a traceback would keep them, and their memory
    return tensors


class Group:
    """The tensors at one position of all trees, and their results."""

    def __init__(self, cell: Cell, xs: list[Tensor], backend: Backend) -> None:
        self.cell: Cell = cell
        self.xs: list[Tensor] = xs
        self.backend: Backend = backend
        self.results: list[Tensor] = []

    def check(self, op: Op) -> None:
        """Raise for tensors or dtypes for which the operation has no result; all have one shape and dtype."""
        name = self.backend.dtype_name(self.xs[0])
        if not is_number(name):
            msg = f"ds.all_reduce_ computes with numbers, and found tensors of {name}{self._where()}"
            raise ArgumentError(msg, "leave them out of the trees")
        instead = {"bool": "cast to 'int32' first", "complex": "take their absolute values, or the sum"}
        kind = "bool" if name == "bool" else "complex" if name.startswith("complex") and op in ("max", "min") else None
        if op == "mean" and "int" in name:
            kind, instead["int"] = "int", "cast to 'float32' first, or take the sum"
        if kind is not None:
            msg = f"ds.all_reduce_ cannot give the {op} of {name} tensors in {name}{self._where()}"
            raise ArgumentError(msg, instead[kind])
        for i, x in enumerate(self.xs):
            if self.backend.is_tracer(x) and self.backend.supports_inplace(x):
                raise messages.tracing(self.backend, "all_reduce_", "let it reduce the function's results, outside")
            if self.backend.supports_inplace(x) and not self.backend.is_writable(x):
                msg = f"ds.all_reduce_ writes in place, and tensor {i}{self._where()} is read-only"
                raise ArgumentError(msg, "pass a copy of it")
            if self.backend.supports_inplace(x) and self.backend.has_overlap(x):
                msg = f"ds.all_reduce_ writes in place, and elements of tensor {i}{self._where()} share memory"
                raise ArgumentError(msg, "pass a copy of it: it is expanded, or a view with overlapping windows")

    def _where(self) -> str:
        where = brackets(self.cell)
        return f" at {where}" if where else ""

    def reduce(self, op: Op) -> None:
        """Compute the result on every tensor's device, if the framework's engine has not."""
        devices = [self.backend.device_of(x) for x in self.xs]
        if observing.ACTIVE is not None:
            reduced = {"max": "amax", "min": "amin"}.get(op, op)
            observing.show_call(self.backend, "all_reduce", devices[0], op=op, reduced=reduced)
        if self.results:
            return
        try:
            self.results.extend(self._portable(devices, op))
        except DevshimError as error:
            if brackets(self.cell):
                error.add_leaf(brackets(self.cell))
            raise

    def may_have_engine(self) -> bool:
        """Return True if the framework's engine may be asked, if each tensor is on its own accelerator."""
        return type(self.backend).all_reduce is not CollectiveBackend.all_reduce and not self.backend.simulated

    def _portable(self, devices: Sequence[Device], op: Op) -> list[Tensor]:
        backend, root = self.backend, devices[0]
        there = [x if at is root else self._move(x, root) for x, at in zip(self.xs, devices, strict=True)]
        made = engine.make(backend, root, backend.nbytes(self.xs[0]), backend.combine, there, op)
        there.clear()
        copies = {root: made}
        for device in devices:
            if device not in copies:
                copies[device] = self._move(made, device)
        return [copies[device] for device in devices]

    def _move(self, x: Tensor, device: Device) -> Tensor:
        return engine.move(self.backend, x, device)


def _by_engines(groups: list[Group], op: Op) -> None:
    """Reduce with the frameworks' own engines where possible, leaves on the same devices in one call."""
    together: dict[tuple[int, tuple[Device, ...]], list[Group]] = {}
    for group in groups:
        if not group.may_have_engine():
            continue
        devices = tuple(group.backend.device_of(x) for x in group.xs)
        if CPU not in devices and len(set(devices)) == len(devices):
            together.setdefault((id(group.backend), devices), []).append(group)
    for (_, devices), members in together.items():
        try:
            made = _by_engine(members[0].backend, [group.xs for group in members], devices, op)
        except DevshimError as error:
            error.add_leaf(" or ".join(filter(None, [brackets(group.cell) for group in members[:4]])))
            raise
        for group, results in zip(members, made, strict=True):
            group.results.extend(results or ())


def _by_engine(
    backend: Backend, groups: Sequence[Sequence[Tensor]], devices: Sequence[Device], op: Op
) -> Sequence[Sequence[Tensor] | None]:
    """Reduce tensors of distinct devices with the framework's engine, and check the results; None without an engine.

    A ledger records one copy from each device to the next: the least that a ring of them has to send.
    """
    nbytes = sum(backend.nbytes(xs[0]) for xs in groups)
    following = [*devices[1:], devices[0]]
    for device in devices:
        engine.require(backend, device)
    active = observing.ACTIVE
    record = None if active is None else active.record
    links = zip(devices, following, strict=True)
    begun = [] if record is None else [record(backend, *link, nbytes, len(groups)) for link in links]
    recordings = [each for each in begun if each is not None]  # get all first: nothing is recorded inside a recording
    with ExitStack() as entered:
        for recording in recordings:
            entered.enter_context(recording)
        try:
            made = backend.all_reduce_many(groups, op)
        except Exception as error:
            engine.raise_full(backend, error, devices[0], nbytes)
            raise
        for recording in recordings if not any(made) else ():
            recording.forget()
    for results in filter(None, made):
        for result, device in zip(results, devices, strict=True):
            if backend.device_of(result) is not device:
                engine.raise_misplaced(backend, device, result)
    return made


def _groups(tensors: list[Any]) -> list[Group]:
    """Return the groups of tensors that belong together, each once, even if it occurs several times in its tree."""
    groups: dict[tuple[int, ...], Group] = {}
    owner: dict[int, tuple[int, ...]] = {}

    def visit(cell: Cell, nodes: list[Any]) -> Any:
        backend = registry.backend_for(nodes[0])
        if backend is not None:
            multi_map.require_same_form("all_reduce_", "tensor", cell, nodes, backend)
            key = tuple(map(id, nodes))
            groups.setdefault(key, Group(cell, nodes, backend))
            if any(owner.setdefault(each, key) != key for each in key):
                msg = f"ds.all_reduce_ found a tensor at {brackets(cell)} that is summed with other tensors elsewhere"
                raise ArgumentError(
                    msg, "a tensor that occurs twice in one tree must occur in the same two places of every tree"
                )
        elif model_backend(nodes[0]) is not None:
            msg = "ds.all_reduce_ takes tensors, and found a model"
            raise NotATensorError(msg, "pass its gradients or weights, in a list or dict")
        return nodes[0]

    multi_map.map_leaves(
        tensors,
        visit,
        multi_map.structure_error("all_reduce_", "tensor"),
        enter=lambda node: require_separable("all_reduce_", node),
    )
    if not groups:
        msg = f"ds.all_reduce_ found no tensor in {show(tensors[0])}"
        raise NotATensorError(msg, "ds.all_reduce_([x, y]) sums two tensors")
    return list(groups.values())


def _commit(tensors: list[Any], groups: list[Group]) -> None:
    """Write every result to its tensor or entry; everything that could fail has been done before."""
    new: list[dict[int, Any]] = [{} for _ in tensors]
    written: list[tuple[Backend, Tensor, Tensor]] = []
    for group in groups:
        for i, (x, result) in enumerate(zip(group.xs, group.results, strict=True)):
            if group.backend.supports_inplace(x):
                written.append((group.backend, x, result))
            else:
                new[i][id(x)] = result
    entries = [
        each[id(tree)] if id(tree) in each else _replace_leaves(tree, each) if each else tree
        for tree, each in zip(tensors, new, strict=True)
    ]
    with moving.defer_sigint():
        for backend, x, result in written:
            backend.assign(x, result)
        tensors[:] = entries


def _replace_leaves(tree: Any, new: dict[int, Any]) -> Any:
    flat = flatten(tree)
    return flat.rebuild(
        {number: new[id(x)] for number, x in zip(flat.numbers, flat.tensors, strict=True) if id(x) in new}
    )

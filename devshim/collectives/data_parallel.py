"""`data_parallel`: run one function, or one model, on parts of a batch on several devices at the same time.

Requirements of this module:

* It is made of devshim's own calls: `split`, `place`, `parallel` and `gather`. Gradients flow through it.
* A mean over parts of different lengths is weighted by their rows, so it is the mean over the batch.
* No device gets an empty part: with fewer rows than devices, the last devices have nothing to do.
"""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from devshim.collectives import arguments, parallel, split
from devshim.contract import capabilities
from devshim.devices.device import CPU
from devshim.devices.dtypes import is_number
from devshim.errors import ArgumentError, NotATensorError
from devshim.errors.formatting import type_name
from devshim.registry import argument_hints, missing_devices, numpy_scalars, registry, tracing
from devshim.registry.registry import model_backend
from devshim.runtime import running, scopes
from devshim.tensors import placing, value_hints
from devshim.tensors.lengths import known_length
from devshim.transfers import device_lists, engine
from devshim.trees import multi_map, trees
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Literal

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.trees.key_paths import Cell

T = TypeVar("T")

__all__ = ["data_parallel"]

_OPS = ("mean", "sum")
_OUTSIDE = "compile the function that it calls, and call ds.data_parallel outside"


def data_parallel(
    fn: Callable[..., Any], devices: Iterable[DeviceLike], *, axis: int = 0, op: Literal["mean", "sum"] = "mean"
) -> Callable[..., Any]:
    """Return a function that calls another one with parts of a batch on several devices, and reduces the results.

    Args:
        fn: A function of ``(params, batch)``, such as `value_and_grad` returns; or a model; or a tree of tensors that
            can be called (an Equinox module, a dataclass with ``__call__``), which counts as a model.
        devices: The devices; the same one may occur several times.
        axis: The axis of the batch to split; negative ones count from the end of each tensor's shape.
        op: ``"mean"`` weights each part's results by its rows: for means over rows, this is the mean over the batch.
            ``"sum"`` adds the results.

    Returns:
        For a function, a function of ``(params, batch)``. Each device gets the params (copies, where they are not there
        already, and independent replicas of models) and its part of the batch; all compute at the same time. The
        tensors and floats in the results (a tensor, a tuple or any tree of them) are reduced on the device of the
        params, NumPy arrays beside tensors of another framework in host memory; other leaves must be equal in all
        parts. Gradients flow to tensors in the params; for models in the params, let ``fn`` compute them:
        ``ds.data_parallel(ds.value_and_grad(loss), devices)``.

        For a model, a function of the model's tensors, which all have the batch's axis. Replicas compute the parts,
        and the results are joined along the axis on the model's device. Gradients flow to the model's parameters. The
        model itself computes the first part on its own device, if that is among the devices; statistics that the
        replicas collect are dropped.

    Raises:
        ArgumentError: ``op`` is unknown, the batch has no rows, or results differ or cannot be averaged (integers).
        NotATensorError: The batch contains no tensor.
        DeviceMismatchError: The params are on several devices.
        DeviceNotFoundError: The framework does not have one of the devices.
        UnsupportedError: ``fn`` is a model, and the framework cannot link its replicas to it.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> mean = ds.data_parallel(lambda params, batch: (params * batch).mean(), ["cpu", "cpu"])
        >>> float(mean(ds.asarray(2.0), ds.asarray([1.0, 2.0, 6.0])))
        6.0
    """
    if not callable(fn):
        raise argument_hints.no_callable("data_parallel", fn, (devices,))
    if op not in _OPS:
        raise value_hints.unknown_choice("op", op, _OPS)
    targets = device_lists.parse_devices(devices, "data_parallel", "fn", fn)
    owner = model_backend(fn)
    if owner is not None or (not isinstance(fn, FunctionType) and flatten(fn).tensors):
        return _of_model(owner, fn, targets, axis)
    return _of_function(fn, targets, axis, op)


def _of_function(fn: Callable[..., Any], targets: list[Device], axis: int, op: str) -> Callable[..., Any]:
    """Return the function that computes the parts of a batch by ``fn``, and reduces the results."""

    @wraps(fn, updated=())
    def run_parts(params: Any, batch: Any) -> Any:
        tracing.refuse("data_parallel", _OUTSIDE)
        where = scopes.locate_arguments("data_parallel", (), {"params": params})
        home = targets[0] if where is None else where[1]
        rows = _count_rows(batch, axis)
        if not rows:
            msg = "ds.data_parallel was given a batch of 0 rows, which has no result"
            raise ArgumentError(msg, "leave out empty batches")
        active = targets[:rows]
        parts = split.split(batch, active, axis=axis)
        copies = _copy_params(params, active)
        results = parallel.parallel([_bind_params(fn, each) for each in copies], parts)
        sizes = [_count_rows(part, axis) for part in parts]
        weights = [size / rows for size in sizes] if op == "mean" and len(parts) > 1 else [1.0] * len(parts)
        return _reduce_results(results, weights, home, op)

    return run_parts


def _bind_params(fn: Callable[..., T], params: Any) -> Callable[[Any], T]:
    return lambda part: fn(params, part)


def _count_rows(batch: Any, axis: int) -> int:
    """Return the length of the first tensor of a batch along the axis."""
    flat = flatten(batch)
    if flat.tensors:
        backend, x = flat.backends[0], flat.tensors[0]
        shape = backend.shape(x)
        along = arguments.axis_of(axis, shape, flat.cell(0), "data_parallel")
        return known_length(backend, x, shape, along, "data_parallel")
    msg = f"ds.data_parallel found no tensor in the batch, a {type_name(batch)}"
    raise NotATensorError(msg, "pass a tensor, or a dict or list of them, as the second argument")


def _copy_params(params: Any, devices: Sequence[Device]) -> list[Any]:
    """Return the params on each device: replicas of models, and tensors through which gradients flow."""
    flat = flatten(params)
    if flat.models:
        return split.broadcast(params, devices)
    if not flat.tensors:
        return [params for _ in devices]
    arguments.check_devices(flat.backends, devices)
    return [trees.place(params, device, None, False, "data_parallel") for device in devices]


# ---------------------------------------------------------------------- reducing
def _reduce_results(results: list[Any], weights: list[float], home: Device, op: str) -> Any:
    """Return the results of all parts as one, on a device."""

    def visit(cell: Cell, nodes: list[Any]) -> Any:
        nodes = [numpy_scalars.as_array(node) for node in nodes]
        backend = registry.backend_for(nodes[0])
        if backend is not None:
            multi_map.require_same_form("data_parallel", "part", cell, nodes, backend)
            return multi_map.locate_errors(cell, _sum_results, backend, cell, nodes, weights, home, op)
        if type(nodes[0]) is float and all(type(node) is float for node in nodes):
            return sum(node * weight for node, weight in zip(nodes, weights, strict=True))
        multi_map.require_equal("data_parallel", "part", cell, nodes)
        return nodes[0]

    return multi_map.map_leaves(results, visit, multi_map.structure_error("data_parallel", "part"))


def _sum_results(backend: Backend, cell: Cell, xs: list[Tensor], weights: list[float], home: Device, op: str) -> Tensor:
    name = backend.dtype_name(xs[0])
    if len(xs) > 1 and not is_number(name):
        msg = (
            f"ds.data_parallel computes the {op} of numbers, and found {name} results at {brackets(cell) or 'the top'}"
        )
        raise ArgumentError(msg, "return numbers only")
    if len(xs) > 1 and (name == "bool" or (op == "mean" and "int" in name)):
        where = brackets(cell)
        msg = f"ds.data_parallel cannot give the {op} of {name} results{f' at {where}' if where else ''}"
        raise ArgumentError(msg, "return it as 'float32', or use op='sum' for counts")
    if missing_devices.stays_on_host(backend) and all(backend.device_of(x) is CPU for x in xs):
        home = CPU  # numbers that the function computed in host memory, such as a metric
    there = [x if backend.device_of(x) is home else engine.move(backend, x, home) for x in xs]
    return there[0] if len(there) == 1 else numpy_scalars.as_array(running.run(backend.weighted_sum, there, weights))


# ---------------------------------------------------------------------- models
def _of_model(owner: Backend | None, model: Any, targets: list[Device], axis: int) -> Callable[..., Any]:
    if owner is not None and "data_parallel_models" in owner.gaps:
        raise capabilities.unsupported_error(owner, "data_parallel_models")

    def call(*args: Any, **kwargs: Any) -> Any:
        tracing.refuse("data_parallel", _OUTSIDE)
        where = scopes.locate_arguments("data_parallel", (), {"model": model})
        home = targets[0] if where is None else where[1]
        given = (args, kwargs)
        active = targets[: max(1, _count_rows(given, axis))]
        arguments.check_devices(flatten(model).backends if owner is None else [owner], active)
        parts = split.split(given, active, axis=axis)
        used = active.index(home) if home in active else None
        replicas = [model if i == used else _linked_replica(owner, model, device) for i, device in enumerate(active)]
        outputs = parallel.parallel([_unpack_arguments(replica) for replica in replicas], parts)
        return split.gather(outputs, home, axis) if len(outputs) > 1 else placing.place(outputs[0], home)

    return call


def _unpack_arguments(model: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda given: model(*given[0], **given[1])


def _linked_replica(owner: Backend | None, model: Any, device: Device) -> Any:
    """Return a replica of a model on a device, through whose parameters gradients flow to the model's."""
    if owner is None:
        return trees.place(model, device, None, False, "data_parallel")
    replica = trees.place(model, device, True, False, "data_parallel")
    owner.link_parameters(model, replica, lambda x: engine.move(owner, x, device))
    return replica

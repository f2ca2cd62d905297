"""``torch.distributed`` with ``backend="nccl"``: gloo runs it, between processes on simulated GPUs.

Gloo computes on the host. Therefore the kernels of a collective call get the memory of simulated GPUs as host tensors,
without a copy, and write the results there.

In this group, gloo serves only the device type ``cuda``. PyTorch itself therefore refuses tensors on the host, as it
does if NCCL serves the group.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.relabel import to_host
from devshim_backends._torch.simulation.internals.state import require_simulated, shown_count
from devshim_backends._torch.simulation.native_names.internals import (
    backends,
    coalescing,
    destroyed_groups,
    nccl_calls,
    nccl_checks,
    nccl_options,
    unused_parameters,
)
from devshim_backends._torch.simulation.native_names.internals.replaced_operators import ReplacedOperators
from devshim_backends._torch.simulation.native_names.internals.step_times import log_times, without_timer

_TEXT = "simulated GPUs: gloo runs the collectives of the backend nccl"
_get_device = torch._C.TensorBase.get_device
_CUDA = torch._C.DispatchKey.CUDA
_OPERATORS = (
    *("allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "gather_", "scatter_", "send", "recv_"),
    *("recv_any_source_", "allgather_", "_allgather_base_", "allgather_coalesced_", "alltoall_", "alltoall_base_"),
    *("reduce_scatter_", "_reduce_scatter_base_", "allgather_into_tensor_coalesced_"),
    *("reduce_scatter_tensor_coalesced_", "barrier"),
)
_FLATTENED = (
    *("_allgather_base_", "_reduce_scatter_base_", "allgather_into_tensor_coalesced_"),
    "reduce_scatter_tensor_coalesced_",
)
"""Operators on whole buffers: NCCL compares the number of elements, gloo the shapes."""
_ORIGINAL = "_devshim_original"
"""The attribute of a view on the host that has the GPU's tensor."""
_COLLECTIVES = ReplacedOperators("c10d", "PrivateUse1")
"""They are replaced when the first group is created."""
_NCCL_GROUPS: dict[str | None, str] = {}
"""Name of a group that NCCL would serve -> the backend that the program requested."""
_DEVICES: list[Any] = []
"""The device that the program gave to `init_process_group`."""


def _kernel(name: str, op: Any) -> Callable[..., Any]:
    """Return a kernel that runs a collective call on the host's view of the tensors, which may be a flat one."""
    flatten = name in _FLATTENED
    position = next(n for n, each in enumerate(op._schema.arguments) if each.name == "process_group")
    call_as_nccl = nccl_calls.make_caller(op)

    def run(*args: Any) -> Any:
        group = distributed.ProcessGroup.unbox(args[position])
        is_nccl = name != "barrier" and _uses_nccl(group)
        if is_nccl:
            nccl_checks.check(name, args, group)
        originals: dict[int, Any] = {}
        kept: list[Any] = []  # so that no id is used twice
        converted = [_map(each, lambda x: _as_host(x, originals, kept, flatten)) for each in args]
        result = call_as_nccl(tuple(converted)) if is_nccl else op._op_dk(_CUDA, *converted)
        coalescing.record(result)
        return _map(result, lambda x: originals.get(id(x), x))

    return run


def _as_host(tensor: Any, originals: dict[int, Any], kept: list[Any], flatten: bool) -> Any:
    if _get_device(tensor) < 0:
        return tensor
    require_simulated(_get_device(tensor))
    host = to_host(tensor.detach())
    if host.dtype in nccl_checks.FLOAT8:
        host = host.view(torch.uint8)  # NCCL copies them; gloo does not know them
    if flatten and host.is_contiguous():
        host = host.view(-1)
    originals[id(host)] = tensor
    kept.append(host)
    setattr(host, _ORIGINAL, tensor)  # PyTorch keeps the attributes of a tensor that C++ still uses
    return host


def _with_originals(value: Any) -> Any:
    """Return a result of gloo with the GPU's tensors, where it has their views on the host."""
    return _map(value, lambda x: getattr(x, _ORIGINAL, x))


def _result_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `Work.result`, whose tensors are on the GPU."""
    return lambda self: _with_originals(real(self))


def _future_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `Work.get_future`, whose tensors are on the GPU."""
    return lambda self: real(self).then(lambda done: _with_originals(done.value()))


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a value with a function applied to each tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_map(each, function) for each in value])
    return value


def _gloo_for_nccl(real: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Return a wrapper that replaces nccl with gloo in the argument ``backend``, which may be positional."""

    @functools.wraps(real)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        requested = args[position] if len(args) > position else kwargs.get("backend")
        _COLLECTIVES.install(_kernels)
        destroyed_groups.free_old()
        if requested is not None and "nccl" in str(requested).lower():
            if not shown_count():
                msg = "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"
                raise ValueError(msg)
            warnings.warn(_TEXT, UserWarning, stacklevel=2)
        device = None if position else backends.require_device(kwargs.get("device_id"))
        is_chosen = requested is None and position == 0
        if requested is None:  # a new group takes over the backend of all ranks
            requested = _NCCL_GROUPS.get(_name(None)) if position else backends.default_backend(device)
        named = None if requested is None else str(requested).lower()
        is_nccl = backends.is_nccl(named)
        if named is not None and (is_nccl or is_chosen):
            served = backends.served_by_gloo(named)
            args = (*args[:position], served, *args[position + 1 :]) if len(args) > position else args
            if len(args) <= position:
                kwargs["backend"] = served
            if position == 0:
                _DEVICES[:] = [device]
            kwargs = {name: value for name, value in kwargs.items() if name not in ("device_id", "pg_options")}
        group = real(*args, **kwargs)
        _NCCL_GROUPS.pop(_name(group), None)
        if named is not None and is_nccl:
            _NCCL_GROUPS[_name(group)] = named
        if is_nccl and device is not None and device.type == "cuda":
            distributed.group.WORLD.bound_device_id = device
        return group

    return wrapper


def _name(group: Any) -> str | None:
    """Return the name of a group, by default that of all ranks; None: this rank is not in the group."""
    return getattr(group or distributed.group.WORLD, "group_name", None)


def _uses_nccl(group: Any) -> bool:
    """Return True if NCCL would serve a group; None is the group of all ranks."""
    return _name(group) in _NCCL_GROUPS


def _backend_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `get_backend`, which returns what the program requested."""

    def get_backend(group: Any = None) -> Any:
        found = real(group)
        return _NCCL_GROUPS.get(_name(group), found)

    return get_backend


def _config_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `get_backend_config`, which returns what the program requested."""

    def get_backend_config(group: Any = None) -> str:
        found = str(real(group))
        return found.replace("cuda:gloo", "cuda:nccl") if _uses_nccl(group) else found

    return get_backend_config


def _name_of(real: Callable[..., str]) -> Callable[..., str]:
    """Return a replacement for `ProcessGroup.name`, which returns the backend that the program requested."""

    def name(self: Any) -> str:
        return "nccl" if _uses_nccl(self) else real(self)

    return name


def _has_hooks(real: Callable[..., bool]) -> Callable[..., bool]:
    """Return a replacement for `ProcessGroup._has_hooks`, about a hook that only NCCL has; gloo's warns."""
    return lambda self: not _uses_nccl(self) and real(self)


def _barrier(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `barrier`, which uses the device of `init_process_group`, as it does with NCCL."""

    @functools.wraps(real)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **kwargs: Any) -> Any:
        device = next(iter(_DEVICES), None) if _uses_nccl(group) else None
        if device_ids is None and device is not None:
            device_ids = [device if isinstance(device, int) else device.index]
        return real(group, async_op, device_ids, **kwargs)

    return barrier


def _split_group(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `split_group`: NCCL splits its communicator, and gloo makes a new group."""

    @functools.wraps(real)
    def split_group(
        parent_pg: Any = None,
        split_ranks: Any = None,
        timeout: Any = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        **kwargs: Any,
    ) -> Any:
        parent = parent_pg or distributed.group.WORLD
        if not split_ranks or not _uses_nccl(parent) or parent.bound_device_id is None:
            return real(parent_pg, split_ranks, timeout, pg_options, group_desc, **kwargs)
        ranks = next((each for each in split_ranks if parent.rank() in each), None)
        if ranks is None:
            return None
        members = [distributed.get_global_rank(parent, each) for each in ranks]
        group = distributed.new_group(members, timeout, use_local_synchronization=True, group_desc=group_desc)
        group.bound_device_id = parent.bound_device_id
        return group

    return split_group


def _split_source(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `_get_split_source`: a new group is not split from one of gloo."""
    return lambda group: None if _uses_nccl(group) else real(group)


def _kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernels of the collective calls; PyTorch's kernels there do not support simulated GPUs."""
    packets = {name: getattr(torch.ops.c10d, name, None) for name in _OPERATORS}
    return {name: _kernel(name, packet.default) for name, packet in packets.items() if packet is not None}


def _replace_in_all_modules(patches: Patches, name: str, new: Any) -> None:
    """Replace a function in each module of `torch.distributed` that has imported it."""
    real = getattr(distributed.distributed_c10d, name)
    for module in [each for key, each in sys.modules.items() if key.startswith("torch.distributed")]:
        if vars(module).get(name) is real:
            patches.replace(module, name, new)


def install(patches: Patches) -> None:
    """Install the replacements."""
    if not distributed.is_available():
        return
    c10d = distributed.distributed_c10d
    for name, new in (
        ("init_process_group", _gloo_for_nccl(c10d.init_process_group, 0)),
        ("new_group", _gloo_for_nccl(c10d.new_group, 2)),
        ("get_backend", _backend_of(c10d.get_backend)),
        ("get_backend_config", _config_of(c10d.get_backend_config)),
        ("barrier", _barrier(c10d.barrier)),
        ("split_group", _split_group(c10d.split_group)),
        ("_get_split_source", _split_source(c10d._get_split_source)),
        ("is_nccl_available", lambda: True),
        ("destroy_process_group", destroyed_groups.keeping(c10d.destroy_process_group, _uses_nccl)),
        ("_abort_process_group", destroyed_groups.keeping(c10d._abort_process_group, _uses_nccl)),
    ):
        _replace_in_all_modules(patches, name, new)
    patches.replace(c10d.ProcessGroup, "name", _name_of(c10d.ProcessGroup.name))
    patches.replace(c10d.ProcessGroup, "_has_hooks", _has_hooks(c10d.ProcessGroup._has_hooks))
    coalescing.install(patches, c10d.ProcessGroup, _uses_nccl)
    nccl_calls.install(patches, c10d.ProcessGroup, _uses_nccl)
    nccl_options.install(patches)
    patches.replace(c10d.Work, "get_future", _future_of(c10d.Work.get_future))
    patches.replace(c10d.Work, "result", _result_of(c10d.Work.result))
    model = torch.nn.parallel.DistributedDataParallel
    patches.replace(model, "_ddp_init_helper", without_timer(model._ddp_init_helper))
    unused_parameters.install(patches)
    logger = distributed.Logger
    patches.replace(logger, "set_runtime_stats_and_log", log_times(logger.set_runtime_stats_and_log))


def uninstall() -> None:
    """Remove the kernels."""
    _NCCL_GROUPS.clear()
    _DEVICES.clear()
    unused_parameters.PINNED_MEMORY.uninstall()
    _COLLECTIVES.uninstall()

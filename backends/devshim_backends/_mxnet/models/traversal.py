"""Iteration over the parameters and blocks in a block, and over the devices that Gluon records for them.

The names are those of ``save_parameters``, which follow the structure and not the numbers that 1.9 gives to layers.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.errors import UnsupportedError
from devshim_backends._mxnet.internals.native import IS_2

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS: tuple[type, ...] = (mx.gluon.Block, mx.gluon.Parameter)
if not IS_2:
    MODELS += (mx.gluon.ParameterDict,)  # in 2.0 it is a plain dict
"""The types that contain parameters: 1.9 has a class for the result of `collect_params`."""
DEVICES_ATTRIBUTE, DEVICE_MAP_ATTRIBUTE = ("_device_list", "_device_map") if IS_2 else ("_ctx_list", "_ctx_map")
"""The attributes in which a parameter stores its devices, and the number of its array on each."""


def parameters_of(block: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a block and of all blocks in it by structural names; a tied one under each of its names.

    A single parameter has no name; a parameter in a `ParameterDict` has its name there.
    """
    if not isinstance(block, mx.gluon.Block):
        yield from [("", block)] if isinstance(block, mx.gluon.Parameter) else block.items()
        return
    for name, parameter in own_parameters(block):
        yield f"{prefix}{name}", parameter
    for name, child in children_of(block):
        yield from parameters_of(child, f"{prefix}{name}.")


def own_parameters(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that a block itself computes with; those that ``save_parameters`` knows come first."""
    yield from block._reg_params.items()
    more: Any = getattr(block, "_params", None)  # 1.9: also parameters made by `params.get` that are not attributes
    known = {id(each) for each in block._reg_params.values()}
    for name, parameter in () if more is None else more.items():
        if id(parameter) not in known:
            yield name.removeprefix(more.prefix), parameter


def children_of(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the blocks in a block; 2.0 has weak references to them."""
    for name, child in block._children.items():
        yield name, child() if isinstance(child, weakref.ref) else child


def parameter_devices(parameter: Any) -> list[Any]:
    """Return the devices of a parameter, or its future devices if its shape is unknown; otherwise an empty list."""
    if parameter._data is None:
        return list(parameter._deferred_init[1]) if parameter._deferred_init else []
    natives: list[Any] = getattr(parameter, DEVICES_ATTRIBUTE)
    return natives


def refuse_replicas(path: str, parameter: Any) -> None:
    """Refuse a parameter that Gluon replicates on several devices.

    Raises:
        UnsupportedError: The parameter has replicas.
    """
    natives = parameter_devices(parameter)
    if len(natives) > 1:
        msg = (
            f"{path} was initialized on several devices at once ({', '.join(map(str, natives))}), and has a replica "
            "on each of them"
        )
        raise UnsupportedError(msg, "initialize it on one device, and use ds.replicate for a model on each device")


def block_devices(block: Any) -> dict[Any, None]:
    """Return MXNet's devices of the parameters in a block and in all blocks below it, in their order."""
    return {native: None for _, parameter in parameters_of(block) for native in parameter_devices(parameter)}


def own_devices(block: Any) -> dict[Any, None]:
    """Return MXNet's devices of the parameters that a block itself computes with."""
    return {native: None for _, parameter in own_parameters(block) for native in parameter_devices(parameter)}


def blocks_in(block: Any) -> list[Any]:
    """Return a block and all blocks below it, each once; an empty list for parameters."""
    if not isinstance(block, mx.gluon.Block):
        return []
    blocks = {id(block): block}
    for _, child in children_of(block):
        blocks.update((id(each), each) for each in blocks_in(child))
    return list(blocks.values())


def wait_for_compiled(block: Any) -> None:
    """Wait until running statistics have their final values.

    A block that is hybridized with ``static_shape=True`` writes them without notifying MXNet's engine (1.9.1, 2.0.0b1):
    code that reads them immediately, as Gluon's own ``reset_ctx`` does, can get the values of the previous step.
    """
    for each in blocks_in(block):
        if getattr(each, "_cached_op", None) is not None and ("static_shape", True) in each._flags:
            mx.nd.waitall()
            return

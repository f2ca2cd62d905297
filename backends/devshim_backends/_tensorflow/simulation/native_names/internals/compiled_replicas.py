"""Functions with ``jit_compile=True`` that reduce over replicas, which XLA cannot compile for the CPU.

`tf.distribute.MirroredStrategy` leaves the reduction to XLA if all devices are GPUs. Such a function is traced as on
GPUs, and TensorFlow's own collectives compute it. Functions without a reduction are compiled.

In eager code, a strategy runs one replica after another. The function of the first replica waits for the others, so on
real GPUs the call never returns. It is refused.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils, distribute_lib
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function, attributes

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_LIBRARIES = (
    "<",
    str(Path(__file__).parents[4]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""The beginnings of the paths of files that are not the program's."""

_places: dict[str, None] = {}
"""The program's lines that reduce in a function with ``jit_compile=True``."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Compile no function that reduces over replicas."""
    _places.clear()
    create = atomic_function.from_func_graph
    patches.replace(atomic_function, "from_func_graph", _wrap_create(create, backend))
    launcher = cross_device_utils.CollectiveReplicaLauncher
    patches.replace(launcher, "_next_instance_key", _wrap_key(launcher._next_instance_key))


def _wrap_create(original: Callable[..., Any], backend: TensorflowSimulation) -> Callable[..., Any]:
    def create(name: str, graph: Any, attrs: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = (attrs or {}).get(attributes.XLA_COMPILE)
        compiles = getattr(compiled, "b", compiled) and backend.count("gpu")
        if compiles and _reduces(graph) and len(_devices_of_variables(graph)) < 2:  # XLA refuses two, as on GPUs
            place, places = _place(graph), _places
            if place not in places:
                text = "reduces over replicas in a function with jit_compile=True, which simulated GPUs do not compile"
                print(f"devshim: {place} {text}", file=sys.stderr)
            places[place] = None
            kind: Any = type(compiled)
            attrs = {**attrs, attributes.XLA_COMPILE: False if kind is bool else kind(b=False)}
        return original(name, graph, attrs, *args, **kwargs)

    return create


def _reduces(graph: Any) -> bool:
    """Return True if a function, or one that it calls, has a collective operator."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    return any(node.op.startswith("Collective") for node in nodes)


def _devices_of_variables(graph: Any) -> set[str]:
    """Return the devices of the variables that a function uses."""
    captured = (x for x in graph.external_captures if x.dtype == tf.resource)
    return {_outermost(x).device for x in captured}


def _outermost(x: Any) -> Any:
    """Return the tensor of eager code that the functions around a function have captured."""
    while hasattr(x, "graph"):
        outer = next((outer for outer, inner in getattr(x.graph, "captures", ()) if inner is x), None)
        if outer is None:
            break
        x = outer
    return x


def _wrap_key(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the method that numbers the reductions: a call in eager code numbers its own."""

    def next_key(self: Any) -> Any:
        if context.executing_eagerly():
            _refuse_eager_replicas()
        return original(self)

    return next_key


def _refuse_eager_replicas() -> None:
    """Refuse a reduction by a strategy that runs its replicas in eager code.

    Raises:
        UnsupportedError: The first replica would wait for the others forever.
    """
    places = list(_places)
    if not places or not distribute_lib.has_strategy() or distribute_lib.in_cross_replica_context():
        return
    if len(distribute_lib.get_strategy().extended.worker_devices) < 2:
        return
    msg = (
        f"{' or '.join(places)} reduces over replicas in a function with jit_compile=True, and strategy.run is called "
        "outside a tf.function: it runs one replica after another, so on GPUs the call never returns"
    )
    raise UnsupportedError(msg, "write jit_compile=False, or call strategy.run in a tf.function")


def _place(graph: Any) -> str:
    """Return the program's line that reduces, or the name of the function."""
    found = [frame for op in _collectives(graph) for frame in op.traceback if not frame.filename.startswith(_LIBRARIES)]
    return f"{found[-1].filename}:{found[-1].lineno}" if found else f"the function {graph.name!r}"


def _collectives(graph: Any) -> Iterator[tf.Operation]:
    return (op for op in graph.get_operations() if op.type.startswith("Collective"))

"""float16 in whole graphs on simulated GPUs: hybridized blocks, and the executors that symbols are bound to.

MXNet infers the dtypes of a graph without running it. `widen` writes the graph as JSON, adds casts around each operator
of ``half_operators.py`` that gets float16, and reads it again. Its variables, and the names of its results, stay.

* A `GraphOp` is a ``CachedOp`` that keeps its graph, and one more ``CachedOp`` for each combination of dtypes that
  needs casts. It replaces MXNet's class where Gluon looks it up.
* ``Symbol.bind`` and ``simple_bind`` of 1.9 bind the graph with the casts. Those of 2.0 make a ``CachedOp``.
* The body of a loop or branch is a graph of its own. 2.0 makes one for each call, and `widen_loop` adds the casts. In
  a graph, such as that of a hybridized block, the dtypes of a body cannot be inferred from outside: float16 there is
  refused. 2.0 cannot read such a graph, after it has written it.
"""

from __future__ import annotations

import json
import re
import sys
from ctypes import byref, c_char_p, c_void_p
from functools import wraps
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from devshim.devices.device import CPU
from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches
from devshim.transfers.observers import site
from devshim_backends._mxnet.internals.native import IS_2, NAMES, dtype_code
from devshim_backends._mxnet.simulation.internals import half_operators

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devshim_backends._mxnet.tensors import MxnetTensors

__all__ = ["LOOPS", "install", "uninstall", "widen_loop", "with_casts"]

_FLOAT16 = 2
"""MXNet's number for the dtype, as an attribute of a variable."""
_NODE = re.compile(r"node(\d+)(?:_|$)")
_load = mx.sym.fromjson if IS_2 else mx.sym.load_json
_patches = Patches()
_backend: MxnetTensors | None = None
"""The backend that has simulated GPUs, while the replacements are installed."""


_CachedOp: Any = mx.nd._internal.CachedOp


class GraphOp(_CachedOp):  # type: ignore[misc]  # MXNet is Any to the type checker
    """A ``CachedOp`` that keeps its graph."""

    __slots__ = ("by_dtypes", "options", "symbol")

    def __init__(self, sym: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sym, *args, **kwargs)
        self.symbol, self.options = sym, (args, kwargs)
        self.by_dtypes: dict[tuple[int, ...], Any] = {}
        """The numbers of the arguments' dtypes -> the operator for them: itself if it needs no casts."""


def with_casts(backend: MxnetTensors, op: Any, args: tuple[Any, ...]) -> Any:
    """Return the ``CachedOp`` that computes with these arguments; on a simulated GPU it may be one with casts."""
    if type(op) is not GraphOp or type(backend).device_of(backend, args[0]) is CPU:
        return op
    codes = tuple([dtype_code(x) for x in args])
    found = op.by_dtypes.get(codes)
    if found is None:
        names = dict(zip(op.symbol.list_inputs(), [NAMES[code] for code in codes], strict=True))
        widened = widen(op.symbol, names)
        arguments, options = op.options
        found = op.by_dtypes[codes] = op if widened is None else _CachedOp(widened, *arguments, **options)
    return found


# ---------------------------------------------------------------------- the graph
def widen(symbol: Any, dtypes: Mapping[str, Any]) -> Any:
    """Return a symbol with casts around the operators that get float16; None if none does.

    Args:
        symbol: The symbol.
        dtypes: The dtypes of its variables, by name; those left out are inferred.
    """
    graph = json.loads(symbol.tojson(remove_amp_cast=False))
    nodes = graph["nodes"]
    if not any(node["op"] in half_operators.NAMES or "subgraphs" in node for node in nodes):
        return None
    if IS_2 and any("subgraphs" in node for node in nodes):
        if "float16" in [str(dtype) for dtype in dtypes.values()] and (found := _find_in_bodies(nodes)):
            _refuse(*found)
        return None
    types = _infer(symbol, graph, dtypes)
    writer = _Writer(types)
    for index, node in enumerate(nodes):
        writer.add(index, node)
    if not writer.has_casts:
        return None
    graph["nodes"] = writer.nodes
    graph["heads"] = [writer.entry(head) for head in graph["heads"]]
    graph["arg_nodes"] = [i for i, node in enumerate(writer.nodes) if node["op"] == "null"]
    graph.pop("node_row_ptr", None)
    widened = _load(json.dumps(graph))
    return widened.as_np_ndarray() if isinstance(symbol, mx.sym.np._Symbol) else widened


def _infer(symbol: Any, graph: Any, dtypes: Mapping[str, Any]) -> dict[int, list[Any]]:
    """Return the dtypes of the results of each node; the nodes get names from which their number can be read."""
    renamed, known = [], {}
    for index, node in enumerate(graph["nodes"]):
        renamed.append({**node, "name": f"node{index}"})
        if node["op"] == "null" and node["name"] in dtypes:
            known[f"node{index}"] = np.dtype(dtypes[node["name"]]).type
    outputs = _load(json.dumps({**graph, "nodes": renamed})).get_internals()
    found: dict[int, list[Any]] = {}
    for name, dtype in zip(outputs.list_outputs(), outputs.infer_type_partial(**known)[1] or (), strict=False):
        number = _NODE.match(name)
        assert number is not None, name
        found.setdefault(int(number[1]), []).append(dtype)
    return found


class _Writer:
    """The nodes of a new graph, in the order of the old one."""

    def __init__(self, types: dict[int, list[Any]]) -> None:
        self._types = types
        self.nodes: list[Any] = []
        self.has_casts = False
        self._places: dict[tuple[int, int], int] = {}
        """Node of the old graph, and number of its result -> node of the new one whose only result it is."""
        self._numbers: dict[int, int] = {}
        """Node of the old graph -> node of the new one."""

    def entry(self, old: Any) -> list[int]:
        """Return a result of the old graph in the new one."""
        node, result, *version = old
        place = self._places.get((node, result))
        return [self._numbers[node], result, *version] if place is None else [place, 0, *version]

    def add(self, index: int, node: Any) -> None:
        """Add a node of the old graph, and its casts."""
        new = {**node, "inputs": [self.entry(each) for each in node["inputs"]]}
        is_half = [self._is_half(each) for each in node["inputs"]]
        if node["op"] == "null" and self._types.get(index, [None])[0] is np.float16:
            new["attrs"] = {**node.get("attrs", {}), "__dtype__": str(_FLOAT16)}  # a cast hides it from the inference
        if any(is_half) and (found := _find_in_bodies([node])):
            _refuse(*found)
        if node["op"] not in half_operators.NAMES or not is_half or not is_half[0]:
            self._numbers[index] = self._append(new)
            return
        self.has_casts, name, wide = True, node["name"], half_operators.NAMES[node["op"]]
        new["inputs"] = [
            [self._cast(f"{name}_input{i}", each, wide), 0, 0] if half else each
            for i, (each, half) in enumerate(zip(new["inputs"], is_half, strict=True))
        ]
        new["name"] = f"{name}_wide"
        self._numbers[index] = number = self._append(new)
        count = len(self._types[index])
        for result in range(count):
            cast = self._cast(name if count == 1 else f"{name}_{result}", [number, result, 0], "float16")
            self._places[index, result] = cast

    def _is_half(self, entry: Any) -> bool:
        return self._types.get(entry[0], [None])[entry[1]] is np.float16

    def _cast(self, name: str, entry: list[int], dtype: str) -> int:
        return self._append({"op": "Cast", "name": name, "attrs": {"dtype": dtype}, "inputs": [entry]})

    def _append(self, node: Any) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


# ---------------------------------------------------------------------- loops and branches
def _loops() -> dict[Any, str]:
    module = getattr(mx.nd.numpy_extension, "_api_internal", None)
    return {getattr(module, name): name for name in ("foreach", "while_loop", "cond") if hasattr(module, name)}


LOOPS = _loops()
"""The functions of 2.0 that run a loop or a branch -> their names."""


def widen_loop(function: Any, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the arguments of a loop or branch of 2.0 with casts in its graphs, and the new graphs, to keep alive.

    The arguments are the graphs, the arrays, and numbers and lists. MXNet makes new graphs for each call.
    """
    graphs = [each for each in args if isinstance(each, c_void_p)]
    arrays = [each for each in args if isinstance(each, mx.nd.NDArray)]
    rest = args[len(graphs) + len(arrays) :]
    if LOOPS[function] == "foreach":
        states, data, parameters = rest[2:5]
        order = [*data, *states, *parameters]
        inputs = [[arrays[order.index(position)] for position in range(len(order))]]
    else:
        first = 1 if LOOPS[function] == "while_loop" else 0
        inputs = [[arrays[place] for place in places] for places in rest[first : first + len(graphs)]]
    kept = [_widen_body(LOOPS[function], handle, given) for handle, given in zip(graphs, inputs, strict=True)]
    handles = [old if new is None else new.handle for old, new in zip(graphs, kept, strict=True)]
    return (*handles, *args[len(graphs) :]), kept


def _widen_body(loop: str, handle: Any, arrays: Sequence[Any]) -> Any:
    text = c_char_p()
    check_call(_LIB.MXSymbolSaveToJSON(handle, byref(text)))
    written = (text.value or b"{}").decode()
    nodes = json.loads(written)["nodes"]
    if any("subgraphs" in node for node in nodes):  # which MXNet cannot read again
        if found := _find_in_bodies([{"op": loop, "subgraphs": [{"nodes": nodes}]}, *nodes]):
            _refuse(*found)
        return None
    symbol = _load(written)
    return widen(symbol, {name: NAMES[dtype_code(x)] for name, x in zip(symbol.list_inputs(), arrays, strict=True)})


def _find_in_bodies(nodes: Iterable[Any]) -> tuple[str, str] | None:
    """Return an operator that would need casts in the body of a loop or branch, and the name of that; or None."""
    for node in nodes:
        for graph in node.get("subgraphs", ()):
            for inner in graph["nodes"]:
                if inner["op"] in half_operators.NAMES:
                    return inner["op"], node["op"].removeprefix("_npx_").lstrip("_")
    return None


def _refuse(operator: str, loop: str) -> None:
    msg = (
        f"simulated GPUs do not compute {operator} in float16 inside {loop}, which {site()} runs: MXNet's kernel for "
        "the CPU does not know float16"
    )
    instead = "use a Python loop or if" if IS_2 else "do not hybridize the block"
    raise UnsupportedError(msg, f"{instead}, or compute this part in float32: x.astype('float32')")


# ---------------------------------------------------------------------- installing
def install(backend: MxnetTensors) -> None:
    """Replace the class of compiled graphs, and the methods that bind symbols, unless they are replaced already."""
    global _backend
    if _backend is not None:
        return
    _backend = backend
    for name, module in list(sys.modules.items()):
        if name.startswith("mxnet.") and vars(module).get("CachedOp") is _CachedOp and "._ctypes" not in name:
            _patches.replace(module, "CachedOp", GraphOp)
    if not IS_2:
        symbol = mx.sym.Symbol
        _patches.replace(symbol, "simple_bind", _bind_with_casts(symbol.simple_bind, _dtypes_to_allocate))
        _patches.replace(symbol, "bind", _bind_with_casts(symbol.bind, _dtypes_of_arrays))


def uninstall() -> None:
    """Restore them."""
    global _backend
    _backend = None
    _patches.undo()


def _bind_with_casts(bind: Any, find_dtypes: Any) -> Any:
    @wraps(bind)
    def bind_widened(symbol: Any, ctx: Any, *args: Any, **kwargs: Any) -> Any:
        backend = _backend
        is_gpu = backend is not None and isinstance(ctx, mx.Context) and backend.from_native(ctx) not in (CPU, None)
        widened = widen(symbol, find_dtypes(symbol, *args, **kwargs)) if is_gpu else None
        if widened is None:
            return bind(symbol, ctx, *args, **kwargs)
        executor = bind(widened, ctx, *args, **kwargs)
        executor._symbol = symbol  # names the results
        return executor

    return bind_widened


def _dtypes_to_allocate(symbol: Any, grad_req: Any = "write", type_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
    return dict(type_dict) if type_dict else dict.fromkeys(symbol.list_arguments(), "float32")  # as MXNet does


def _dtypes_of_arrays(symbol: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
    arrays = args if isinstance(args, dict) else dict(zip(symbol.list_arguments(), args, strict=False))
    return {name: x.dtype for name, x in arrays.items()}

"""Nodes in the graphs of TorchScript: find them, and insert new ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["Graph", "all_nodes", "is_constant"]

_TYPES = {str: (torch._C.StringType, "s_"), int: (torch._C.IntType, "i_"), bool: (torch._C.BoolType, "i_")}


def all_nodes(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a block, also those in the blocks of others."""
    for node in list(block.nodes()):
        for inner in node.blocks():
            yield from all_nodes(inner)
        yield node  # last, because it may be replaced


def is_constant(value: Any, constant: Any) -> bool:
    """Return True if a value of a graph is a constant, and is this one."""
    return bool(value.node().kind() == "prim::Constant" and value.toIValue() == constant)


class Graph:
    """A graph, and new operators in it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def insert_before(self, node: Any, kind: str, inputs: list[Any], kind_of_result: Any) -> Any:
        """Insert an operator before a node, and return its result."""
        made = self._graph.create(kind, inputs, 1)
        made.insertBefore(node)
        made.copyMetadata(node)  # errors name the line
        made.output().setType(kind_of_result)
        return made.output()

    def constant(self, value: Any, node: Any) -> Any:
        """Insert a constant before a node, and return it.

        This does not call ``graph.insertConstant``: its insert point stays at a node that is destroyed later, and then
        the next pass of PyTorch's compiler ends the process.
        """
        if value is None:
            return self.insert_before(node, "prim::Constant", [], torch._C.NoneType.get())
        kind, setter = _TYPES[type(value)]
        made = self.insert_before(node, "prim::Constant", [], kind.get())
        getattr(made.node(), setter)("value", value)
        return made

    def device(self, text: str, node: Any) -> Any:
        """Insert a constant device before a node, and return it."""
        made = self.insert_before(node, "prim::Constant", [], torch._C.DeviceObjType.get())
        made.node().s_("value", text)
        return made

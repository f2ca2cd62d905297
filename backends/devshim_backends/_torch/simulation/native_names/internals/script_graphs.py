"""Graphs of TorchScript: the operators that let a script name, compare and use cards, and their removal.

In a script, the device of a tensor is ``sim:1``, since C++ asks the tensor, and ``cuda:1`` is a device that C++ lacks.
`rewrite` adds operators to a graph:

* What compares, prints or formats a device gets its text, with the card's name.
* What moves a tensor to ``cuda:1``, or makes one there, gets the device of an empty tensor on ``cuda:1``.
* What makes a pinned tensor makes one that is not pinned, and another operator pins it.

They are TorchScript's own operators, and change nothing on another machine, so a script can be saved. `restore` removes
them for an exporter that does not know them: each text is made in its own way, so that it can be found again.
"""

from __future__ import annotations

from typing import Any

import torch

from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.native_names.internals.script_nodes import Graph, all_nodes, is_constant
from devshim_backends._torch.simulation.native_names.names import SHOWN

__all__ = ["restore", "rewrite"]

_READERS = frozenset({"aten::eq", "aten::ne", "aten::format", "aten::percentFormat", "prim::Print"})
"""Operators that compare or print their arguments; a device among them becomes its text."""
_MOVERS = frozenset({"aten::to", "aten::_to_copy", "aten::tensor", "aten::as_tensor"})
"""Operators in C++ that ask for a driver before they call an operator that creates a tensor."""
_PINS = "aten::pin_memory"
_FOR_READER, _FOR_PROGRAM, _FOR_TEST = -1, 1, -2
"""The largest number of replacements in a text of a reader, of the program, and of a test that replaces ``is_cuda``.

A text has one device, so that each of them replaces its name.
"""
_SHOWN = {str(simulated): str(card) for simulated, card in SHOWN.items()}


def rewrite(graph: Any) -> None:
    """Let the operators of a graph, which the executor has not copied yet, name and use cards."""
    rewriter = _Rewriter(graph)
    for node in all_nodes(graph):
        rewriter.rewrite(node)


def restore(graph: Any) -> None:
    """Remove from a graph what `rewrite` has added."""
    restorer = _Restorer(graph)
    for node in all_nodes(graph):
        restorer.restore(node)
    torch._C._jit_pass_dce(graph)


def _is_device(value: Any) -> bool:
    return str(value.type()) == "Device"


def _is_named(node: Any) -> bool:
    """Return True for a text that an operator of an earlier `rewrite` names, as in a script from a file."""
    users = [use.user for use in node.output().uses()]
    return bool(users) and all(
        user.kind() == "aten::replace" and is_constant(list(user.inputs())[1], NAME) for user in users
    )


class _Rewriter(Graph):
    """The change of one graph."""

    def rewrite(self, node: Any) -> None:
        """Let a node that uses a device see a card."""
        kind, inputs = node.kind(), list(node.inputs())
        if kind in _READERS:
            for position, value in enumerate(inputs):
                if _is_device(value):
                    node.replaceInput(position, self._text_of(value, node))
        elif kind in _MOVERS:
            self._move(node)
        elif kind == "aten::cuda":
            self._replace_cuda(node)
        elif kind == "prim::Constant":
            self._name_card(node)
        elif kind == "prim::PythonOp":  # a call of a function with @torch.jit.ignore
            for position, value in enumerate(inputs):
                if _is_device(value):
                    node.replaceInput(position, self._card_of(value, node))
        elif kind == "prim::is_cuda":
            self._replace_test(node)
        elif kind in ("prim::type", "aten::str") and _is_device(inputs[0]) and not _is_named(node):
            self._rename_output(node)
        elif pinning := _position_of_pinning(node):
            self._pin(node, pinning)

    def _pin(self, node: Any, position: int) -> None:
        """Let an operator make a tensor that is not pinned, and pin it: C++ has no pinned memory for this device."""
        inputs = list(node.inputs())
        inputs[position] = self.constant(False, node)
        made = self.insert_before(node, node.kind(), inputs, node.output().type())
        pinned = self.insert_before(node, _PINS, [made, self.constant(None, node)], node.output().type())
        node.output().replaceAllUsesWith(pinned)
        node.destroy()

    def _renamed(self, text: Any, node: Any, reason: int) -> Any:
        """Return a text with the card's name, before a node."""
        names = [self.constant(each, node) for each in (NAME, "cuda", reason)]
        return self.insert_before(node, "aten::replace", [text, *names], torch._C.StringType.get())

    def _text_of(self, device: Any, node: Any) -> Any:
        """Return the text of a device with the card's name, before a node."""
        text = self.insert_before(node, "aten::str", [device], torch._C.StringType.get())
        return self._renamed(text, node, _FOR_READER)

    def _card_of(self, device: Any, node: Any) -> Any:
        """Return a device with the card's name, before a node."""
        return self.insert_before(node, "aten::device", [self._text_of(device, node)], torch._C.DeviceObjType.get())

    def _replace_test(self, node: Any) -> None:
        """Replace ``x.is_cuda`` by a test of the type of the device of ``x``."""
        device = self.insert_before(node, "prim::device", list(node.inputs()), torch._C.DeviceObjType.get())
        kind = self.insert_before(node, "prim::type", [device], torch._C.StringType.get())
        operands = [self._renamed(kind, node, _FOR_TEST), self.constant("cuda", node)]
        node.output().replaceAllUsesWith(self.insert_before(node, "aten::eq", operands, torch._C.BoolType.get()))
        node.destroy()

    def _rename_output(self, node: Any) -> None:
        """Let the users of a node's text see the card's name."""
        again = self.insert_before(node, node.kind(), list(node.inputs()), torch._C.StringType.get())
        node.output().replaceAllUsesWith(self._renamed(again, node, _FOR_PROGRAM))
        node.destroy()

    def _name_card(self, node: Any) -> None:
        """Name the card in a constant of a traced function, which has the device of a tensor in its place."""
        if _is_device(node.output()) and node.s("value") in _SHOWN:
            node.s_("value", _SHOWN[node.s("value")])

    def _move(self, node: Any) -> None:
        """Let an operator use the device of a tensor instead of a card's name."""
        for position, value in enumerate(list(node.inputs())):
            kind = str(value.type())
            if kind in ("Device", "Optional[Device]", "Device?") and not _names_no_card(value):
                node.replaceInput(position, self._found(value, node))

    def _found(self, device: Any, node: Any) -> Any:
        """Return the device of an empty tensor on a device, before a node.

        A device of None is that of the node's tensor; this also keeps the compiler from making it a constant, because
        ``cuda`` is the current card of each call.
        """
        tensor, zero = next(iter(node.inputs())), self.constant(0, node)
        size = self.insert_before(node, "prim::ListConstruct", [zero], torch._C.ListType.ofInts())
        options = [self.constant(None, node), self.constant(0, node), device, self.constant(None, node)]
        if tensor.type().isSubtypeOf(torch._C.TensorType.get()):
            name, inputs = "aten::new_empty", [tensor, size, *options]
        else:
            name, inputs = "aten::empty", [size, *options, self.constant(None, node)]
        made = self.insert_before(node, name, inputs, torch._C.TensorType.get())
        return self.insert_before(node, "prim::device", [made], torch._C.DeviceObjType.get())

    def _replace_cuda(self, node: Any) -> None:
        """Replace ``x.cuda()`` by ``x.to`` with all arguments."""
        (tensor,) = node.inputs()
        none, no = self.constant(None, node), self.constant(False, node)
        inputs = [tensor, none, none, self.device("cuda", node), none, no, no, none]
        moved = self.insert_before(node, "aten::to", inputs, torch._C.TensorType.get())
        node.output().replaceAllUsesWith(moved)
        node.destroy()
        self._move(moved.node())


def _position_of_pinning(node: Any, pins: bool = True) -> int | None:
    """Return the position of the argument ``pin_memory`` of an operator, if it is this constant; it is never 0."""
    flags = [position for position, value in enumerate(node.inputs()) if _is_flag(value, pins)]
    if not flags or not node.kind().startswith("aten::"):
        return None
    arguments = torch._C.parse_schema(node.schema()).arguments
    return next((position for position in flags if arguments[position].name == "pin_memory"), None)


def _is_flag(value: Any, constant: bool) -> bool:
    return str(value.type()) == "bool" and is_constant(value, constant)


def _names_no_card(value: Any) -> bool:
    """Return True for the device of a tensor, and for a constant that is not a card."""
    node = value.node()
    if node.kind() == "prim::device":
        return True
    return node.kind() == "prim::Constant" and not str(value.toIValue()).startswith("cuda")


class _Restorer(Graph):
    """The removal of the operators that `_Rewriter` has added to one graph."""

    def restore(self, node: Any) -> None:
        """Remove what was added before a node."""
        kind = node.kind()
        if kind in _READERS:
            self._restore_reader(node)
        elif kind in _MOVERS:
            self._restore_mover(node)
        elif kind == "aten::replace" and _is_renamed(node.output(), _FOR_PROGRAM):
            node.output().replaceAllUsesWith(next(iter(node.inputs())))
        elif kind == _PINS and (position := _position_of_pinning(made := _first_input(node.output()).node(), False)):
            made.replaceInput(position, self.constant(True, made))
            node.output().replaceAllUsesWith(made.output())

    def _restore_reader(self, node: Any) -> None:
        inputs = list(node.inputs())
        if node.kind() == "aten::eq" and _is_renamed(inputs[0], _FOR_TEST):
            device = _first_input(_first_input(inputs[0]))
            test = self.insert_before(node, "prim::is_cuda", [_first_input(device)], torch._C.BoolType.get())
            node.output().replaceAllUsesWith(test)
            return
        were = [_is_renamed(value, _FOR_READER) for value in inputs]
        for position, value in enumerate(inputs):
            if were[position]:
                node.replaceInput(position, _first_input(_first_input(value)))
            elif any(were) and node.kind() in ("aten::eq", "aten::ne"):  # the compiler has computed the other text
                node.replaceInput(position, self.device(value.toIValue(), node))

    def _restore_mover(self, node: Any) -> None:
        inputs = list(node.inputs())
        for position, value in enumerate(inputs):
            if value.node().kind() == "prim::device" and _makes_nothing(_first_input(value).node()):
                made = _first_input(value).node()
                (device,) = [each for each in made.inputs() if str(each.type()) in ("Device", "Optional[Device]")]
                node.replaceInput(position, device)
                if len(inputs) == _ALL_ARGUMENTS and is_constant(inputs[1], None):
                    call = self.insert_before(node, "aten::cuda", inputs[:1], node.output().type())
                    node.output().replaceAllUsesWith(call)


_ALL_ARGUMENTS = 8
"""The number of arguments of ``x.to`` in the form that replaces ``x.cuda()``; a program gives it a type."""


def _first_input(value: Any) -> Any:
    return next(iter(value.node().inputs()))


def _is_renamed(value: Any, reason: int) -> bool:
    node = value.node()
    if node.kind() != "aten::replace":
        return False
    return all(map(is_constant, list(node.inputs())[1:], (NAME, "cuda", reason)))


def _makes_nothing(node: Any) -> bool:
    """Return True for a node that makes an empty tensor to find its device."""
    if node.kind() not in ("aten::empty", "aten::new_empty"):
        return False
    return any(each.toIValue() == [0] or _is_list_of_zero(each) for each in list(node.inputs())[:2])


def _is_list_of_zero(value: Any) -> bool:
    inputs = list(value.node().inputs())
    return value.node().kind() == "prim::ListConstruct" and len(inputs) == 1 and is_constant(inputs[0], 0)

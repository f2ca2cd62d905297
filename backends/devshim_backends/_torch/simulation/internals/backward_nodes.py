"""The current GPU and streams of a backward pass: those of the node that runs.

PyTorch's engine has a thread for each GPU, in which that GPU is current, and runs each node in the stream that was
current when the node was made. Here all nodes run on one thread (`engine`), and only Python sees what is current: code
in a hook or in a `torch.autograd.Function`, and the kernels that it calls. Therefore the question for the current GPU
or stream first finds the node that runs (`follow`). Nodes whose code does not ask cost no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from devshim_backends._torch.simulation.internals import late_copies, stream_order
from devshim_backends._torch.simulation.internals.state import CURRENT, SIMULATION, TYPES, leave_first_gpu
from devshim_backends._torch.simulation.internals.stream_order import StreamKey, clock_of
from devshim_backends._torch.simulation.memory import SIMULATED

__all__ = ["follow"]

_current_node = torch._C._current_autograd_node
_WITHOUT_NUMBER = (1 << 64) - 1
"""The sequence number of nodes that collect the gradients of leaves."""


class _BackwardPass:
    """One backward pass, which may be inside a node of another one.

    Attributes:
        roots: The tensors or the edges of the graph from which it starts.
    """

    def __init__(self, roots: Any) -> None:
        self.roots = roots
        self._node: Any = None
        self._gpu, self._streams = CURRENT.index, stream_order.current_streams()
        self._used: list[StreamKey] = []
        self._first_uses: dict[Any, int] | None = None

    def follow(self) -> None:
        """Make the GPU and the stream of the node that runs current, unless that has happened."""
        node = _current_node()
        if node is self._node:
            return
        self._node = node
        gpu = -1 if node is None else _gpu_of(node)
        if gpu < 0:  # a node on the host runs as the caller does, and so does what is called after the last node
            self._make_callers_current()
            return
        stream = gpu, self._stream_of(node, gpu)
        CURRENT.index = gpu
        stream_order.replace_streams({gpu: stream[1]})
        self._wait_for_others(stream)

    def leave_nodes(self) -> None:
        """Make the caller's GPU and streams current, which wait for those of the nodes."""
        if self._node is None:
            return  # no code has asked
        self._make_callers_current()

    def _make_callers_current(self) -> None:
        CURRENT.index = self._gpu
        stream_order.replace_streams(self._streams)
        for gpu in {gpu for gpu, _ in self._used}:
            self._wait_for_others((gpu, self._streams.get(gpu, 0)))

    def _wait_for_others(self, stream: StreamKey) -> None:
        """Let a stream wait for all that the pass has used on that GPU, as the engine lets it at each edge."""
        if not late_copies.are_late():
            return
        callers = stream[0], self._streams.get(stream[0], 0)
        for other in {callers, *self._used}:
            if other[0] == stream[0] and other != stream:
                stream_order.wait(stream, clock_of(other, late_copies.number()))
        if stream not in self._used:
            self._used.append(stream)

    def _stream_of(self, node: Any, gpu: int) -> int:
        """Return the number of the stream that was current when a node was made."""
        if not stream_order.has_changed(gpu):
            return 0
        number = node._sequence_nr()
        if number == _WITHOUT_NUMBER:  # it was made for the first node that uses the leaf
            if self._first_uses is None:
                self._first_uses = _find_first_uses(self.roots)
            number = self._first_uses.get(node, 0)
        return stream_order.stream_at(gpu, number)


def _gpu_of(node: Any) -> int:
    """Return the index of the GPU that a node's gradients are on, or -1."""
    devices = (each.device for each in node._input_metadata)
    return next((int(device.index) for device in devices if device.type in TYPES), -1)


def _find_first_uses(roots: Iterable[Any]) -> dict[Any, int]:
    """Return, for each node without a number, the lowest number of the nodes that pass a gradient to it."""
    found: dict[Any, int] = {}
    seen = {root.grad_fn if isinstance(root, torch.Tensor) else root.node for root in roots}
    pending = [node for node in seen if node is not None]
    while pending:
        node = pending.pop()
        number = node._sequence_nr()
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following._sequence_nr() == _WITHOUT_NUMBER:
                found[following] = min(number, found.get(following, number))
            elif following not in seen:
                seen.add(following)
                pending.append(following)
    return found


def follow(roots: Any) -> Callable[[], None]:
    """Let this thread's GPU and streams follow the nodes of a backward pass, until the returned function is called."""
    if SIMULATION.on_leaving_first_gpu is not None and any(each.was_used() for each in list(SIMULATED)[1:]):
        leave_first_gpu()
    outer = CURRENT.follow
    if outer is not None:
        outer()
    backward_pass = _BackwardPass(roots)
    CURRENT.follow = backward_pass.follow

    def end() -> None:
        CURRENT.follow = outer
        backward_pass.leave_nodes()

    return end

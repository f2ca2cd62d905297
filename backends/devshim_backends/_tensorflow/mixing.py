"""Operators on simulated cards: what may stand beside what, and where it is computed.

TensorFlow's own device policy "explicit" refuses an input that is not where the operator wants it.  It cannot know that
logical CPUs stand for cards, so what a real card allows under that policy is then put right, input by input:

* Numbers, shapes, axes and indices may be on the host beside tensors on a card, and where an operator wants them in
  host memory they may be on the card: there TensorFlow keeps int32 on the host by itself.
* So may the zeros that a tape fills in, which TensorFlow makes where it happens to be.
* In a card's scope an operator computes there on tensors that are all on the host, as `ds.on` says it does.
* Outside of any scope an operator computes where its tensors are, if they are on one device.  A real TensorFlow
  computes on gpu:0 then, which is the same for tensors that are there, and moves others without a word.

Everything else is refused, by an error that is TensorFlow's and devshim's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context, core
from tensorflow.python.framework import op_def_registry

from devshim.device import CPU
from devshim.errors import DeviceMismatchError
from devshim_backends._tensorflow.counting import During
from devshim_backends._tensorflow.places import EAGER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.device import Device
    from devshim_backends._tensorflow.places import TensorflowPlaces

__all__ = ["FAILURES", "MixedDevicesError", "mended"]

FAILURES: tuple[type[Exception], ...] = (core._NotOkStatusException, tf.errors.InvalidArgumentError)
"""What a refusal of TensorFlow's comes as: the fast path's status, and the slow path's error."""

_REFUSAL = re.compile(r"Tensors on conflicting devices: cannot compute \S+ as input #(\d+) was expected to be on (\S+)")
_INDICES = frozenset({tf.int32, tf.int64})
_HANDLES = frozenset({tf.resource, tf.variant})


class MixedDevicesError(DeviceMismatchError, tf.errors.InvalidArgumentError):  # type: ignore[misc]  # TensorFlow is Any
    """Tensors on different simulated cards met: caught as devshim's error, and as TensorFlow's."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, problem)
        DeviceMismatchError.__init__(self, problem, hint)


def mended(
    backend: TensorflowPlaces, op: str, inputs: Sequence[Any], run: Callable[[Device, list[Any]], Any], error: Any
) -> Any:
    """Run an operator that TensorFlow's device policy may have refused, if a real card would.

    Args:
        backend: The adapter.
        op: The operator's name.
        inputs: What it was called with; attributes behind them do no harm.
        run: Runs it on a device, with such inputs.
        error: How it failed.

    Raises:
        MixedDevicesError: Its tensors are on different devices, or not where the scope says.
        Exception: ``error`` itself, where it is no refusal.
    """
    if _REFUSAL.search(error.message) is None:
        raise error
    flat, slots = _flattened(op, inputs)
    device, from_host = _common(backend, op, flat)
    for _ in range(len(flat) + 1):
        try:
            return run(device, _rebuilt(inputs, flat, slots))
        except FAILURES as again:
            refusal = _REFUSAL.search(again.message)  # type: ignore[attr-defined]  # either has a message
            if refusal is None:
                raise
            number, wanted = int(refusal[1]), backend.named(refusal[2])
            x, here = flat[number], _device_of(backend, flat[number])
            small = wanted is CPU if here is not CPU else _mixes(x)
            if wanted is None or here is wanted or x.dtype in _HANDLES or not (small or (from_host and here is CPU)):
                raise _refused(op, {number: here}, device) from again
            with During("aside", small), tf.device(backend.to_native(wanted)):
                flat[number] = tf.convert_to_tensor(x)._copy()
    raise error


def _flattened(op: str, inputs: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """An operator's inputs one by one, as TensorFlow numbers them, and of which argument each is a part."""
    definition = op_def_registry.get(op)
    lists = [bool(each.number_attr or each.type_list_attr) for each in definition.input_arg] if definition else []
    if sum(lists) == 0 or len(inputs) < len(lists):
        return list(inputs), list(range(len(inputs)))
    pairs = [
        (x, place)
        for place, (each, whole) in enumerate(zip(inputs, lists, strict=False))
        for x in (each if whole else (each,))
    ]
    return [x for x, _ in pairs], [place for _, place in pairs]


def _rebuilt(inputs: Sequence[Any], flat: list[Any], slots: list[int]) -> list[Any]:
    """The arguments again, from their parts."""
    if slots == list(range(len(inputs))):
        return list(flat)
    parts: dict[int, list[Any]] = {}
    for x, place in zip(flat, slots, strict=True):
        parts.setdefault(place, []).append(x)
    return [
        each if place not in parts else parts[place] if isinstance(each, (list, tuple)) else parts[place][0]
        for place, each in enumerate(inputs)
    ]


def _common(backend: TensorflowPlaces, op: str, flat: Sequence[Any]) -> tuple[Device, bool]:
    """The one device on which an operator may run, and whether its tensors are to be brought there from the host."""
    scope = backend.named(context.context().device_name or "")
    placed = {
        number: (x, _device_of(backend, x)) for number, x in enumerate(flat) if isinstance(x, (EAGER, tf.Variable))
    }
    located = {number: device for number, (x, device) in placed.items() if device is not CPU or not _mixes(x)}
    found = set(located.values())
    if scope is not None and found <= {CPU}:
        return scope, True
    if len(found | ({scope} if scope is not None else set())) != 1:
        raise _refused(op, located, scope)
    return found.pop(), False


def _device_of(backend: TensorflowPlaces, x: Any) -> Device:
    """Where a tensor is, or what a handle stands for, whose own memory is always the host's."""
    found = backend.named(x.device) if x.dtype in _HANDLES else None
    return found or backend.device_of(x)


def _mixes(x: Any) -> bool:
    """Whether a tensor on the host may be beside a card's."""
    if x.dtype in _HANDLES:
        return False
    rank = len(x.shape)
    small = rank == 0 or x.dtype == tf.string or (rank == 1 and x.dtype in _INDICES)
    return small or hasattr(x, "_devshim_anywhere")


def _refused(op: str, located: dict[int, Device], scope: Device | None) -> MixedDevicesError:
    told = [f"input {number} is on {device}" for number, device in located.items()]
    if scope is not None:
        told.append(f"the scope is {scope}")
    best = max(located.values(), default=scope)
    return MixedDevicesError(
        f"TensorFlow's {op} needs its tensors on one device: {', '.join(told)}",
        f"bring them together with ds.place(x, '{best}'), or compute where they are with ds.run(f, ...)",
    )

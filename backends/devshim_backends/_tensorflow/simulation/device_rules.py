"""Operators on simulated cards: what may stand beside what, and where it is computed.

TensorFlow's own device policy "explicit" refuses an input that is not where the operator wants it.  It cannot know that
logical CPUs stand for cards, and refuses ``tf.reduce_sum(x)`` for its axis; so what it refuses is looked at again, and
done where TensorFlow's tensors agree:

* 0-d tensors, and int32, which TensorFlow keeps on the host natively, may be there beside tensors on a card; int32
  that devshim did not place may also be on another card.
* So may the zeros that a tape fills in, and the array in ``x + array``, which TensorFlow makes where it happens to be.
* In a card's scope an operator computes there on tensors that are all on the host, as `ds.on` says it does.
* While something over several devices runs, a mix is brought together (`.meeting`).
* Outside of any scope an operator computes where its tensors are, if they are on one device.  A real TensorFlow
  computes on gpu:0 then, which is the same for tensors that are there, and moves others without a word.

Everything else is refused, by an error that is TensorFlow's and devshim's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim.registry import mismatches
from devshim_backends._tensorflow.failures import MixedDevicesError
from devshim_backends._tensorflow.locations import EAGER, PLACED
from devshim_backends._tensorflow.models.align_devices import RUN, carried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.locations import TensorflowPlaces

    Run = Callable[[Device, Sequence[Any]], Any]

__all__ = ["mended", "set_policy"]

_HOSTED = frozenset({tf.int32, tf.string})
"""Dtypes that TensorFlow keeps on the host by itself, in a card's scope, too."""
_HANDLES = frozenset({tf.resource, tf.variant})


def mended(backend: TensorflowPlaces, op: str, inputs: Sequence[Any], run: Run, error: Any) -> Any:
    """Run an operator that TensorFlow's device policy has refused, if a real card would.

    Args:
        backend: The adapter.
        op: The operator's name.
        inputs: What it was called with; attributes behind them do no harm.
        run: Runs it on a device, with these inputs or with others in their place.
        error: How it failed.

    Raises:
        MixedDevicesError: Its tensors are on different devices, or not where the scope says.
        Exception: ``error`` itself, where it is no refusal.
    """
    if "Tensors on conflicting devices" not in error.message:
        raise error
    try:
        device = _common(backend, op, inputs)
    except MixedDevicesError as refused:
        device = _meeting_place(backend, inputs, refused)
        inputs = [carried(x, device) if _meets(x) else x for x in inputs]
    native, policy = context.context()._handle, context.context().device_policy
    try:  # this thread's policy, for this operator; set by calls in C, so that Ctrl-C cannot come before the second
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, context.DEVICE_PLACEMENT_SILENT)
        return run(device, inputs)
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, policy)


def set_policy(policy: int) -> None:
    """Set this thread's device policy."""
    pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(context.context()._handle, policy)


def _meeting_place(backend: TensorflowPlaces, inputs: Sequence[Any], refused: MixedDevicesError) -> Device:
    """Where tensors of several devices meet: at the variable read or written, in the scope, or at the last part.

    Where there is none of these, numbers come to the first that is none.

    Raises:
        MixedDevicesError: Nothing over several devices is running: ``refused`` itself.
    """
    if not RUN.active:
        raise refused
    found = list(_tensors(inputs))
    at_handle = next((backend.named(x.device) for x in found if x.dtype == tf.resource), None)
    scope = backend.named(context.context().device_name or "")
    return at_handle or scope or RUN.last or backend.device_of(max(found, key=lambda x: len(x.shape)))


def _meets(x: Any) -> bool:
    """Whether an operator's input is brought to where the others are: tensors, and lists of them."""
    return next((True for each in _tensors([x]) if each.dtype not in _HOSTED), False)


def _common(backend: TensorflowPlaces, op: str, inputs: Sequence[Any]) -> Device:
    """The one device on which an operator may run."""
    scope = backend.named(context.context().device_name or "")
    placed = [(x, _device_of(backend, x)) for x in _tensors(inputs)]
    located = {number: device for number, (x, device) in enumerate(placed) if device is not CPU or not _mixes(x)}
    firm = {number: device for number, device in located.items() if not _is_hosted(placed[number][0])}
    if firm or scope is not None:
        located = firm
    elif not all(_is_hosted(x) for x, _ in placed):
        return CPU  # 0-d tensors of the host, and a shape that was made in a card's scope
    found = set(located.values())
    if scope is not None and found <= {CPU}:
        return scope
    if len(found | ({scope} if scope is not None else set())) != 1:
        raise _refused(op, located, scope)
    return found.pop()


def _tensors(inputs: Sequence[Any]) -> Iterator[Any]:
    for x in inputs:
        if isinstance(x, (EAGER, tf.Variable)):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)


def _device_of(backend: TensorflowPlaces, x: Any) -> Device:
    """Where a tensor is, or what a handle stands for, whose own memory is always the host's."""
    found = backend.named(x.device) if x.dtype in _HANDLES else None
    return found or backend.device_of(x)


def _mixes(x: Any) -> bool:
    """Whether a tensor on the host may be beside a card's."""
    if x.dtype in _HANDLES:
        return False
    return len(x.shape) == 0 or x.dtype in _HOSTED or hasattr(x, "_devshim_anywhere")


def _is_hosted(x: Any) -> bool:
    """True if TensorFlow would have a tensor in host memory, were the card real: int32 that devshim did not place.

    TensorFlow keeps such tensors and uses them on every device: the shape of ones in the gradient of a sum.
    """
    return x.dtype in _HOSTED and not hasattr(x, PLACED)


def _refused(op: str, located: dict[int, Device], scope: Device | None) -> MixedDevicesError:
    told = [mismatches.listed({f"input {number}": device for number, device in located.items()})]
    if scope is not None:
        told.append(f"the scope is {scope}")
    best = max(located.values(), default=scope)
    return MixedDevicesError(
        f"TensorFlow's {op} needs its tensors on one device: {', '.join(told)}",
        f"bring them together with ds.place(x, '{best}'), and compute inside `with ds.on('{best}'):`, which also holds "
        "for what is made on the way",
    )

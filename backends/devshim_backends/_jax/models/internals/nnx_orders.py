"""Find the order of the features that reach each layer of a flax NNX module: that of a flattened map, or a plain one.

The module is called with one image, on a clone whose layers get subclasses of their classes that do not compute
(`_probe_class`): a convolution returns a map of known numbers, and a dense layer records what reaches it. What the
module does between them (activations, pooling, reshaping) is its own code, so a transposition there is seen, too.

Requirements of this module:

* The module itself does not change: a clone is called, and no weight of it is read.
* The size of the image is not known. Square ones are tried until one fits all dense layers.
* If no size fits, or the recorded numbers are in neither order, the order is not known; no order is guessed. That is
  also so for a map of which only some axes are flattened, the channels among them.
* A call of the clone reports no transfers, and a guard does not make it fail: its transfers are not the user's.
* Flax and JAX never free a module's class, so each class of layers has one probe class.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from devshim.monitoring.instrumentation import suppressed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PLAIN", "flattened_orders"]

PLAIN = (0, 0)
"""The order of features that are the same on every framework."""
_SIZES = (*(28, 32, 224, 64, 96, 128, 227, 299), *range(1, 65))
"""Heights and widths of images: the usual ones first."""
_PROBED = (
    "Conv",
    "ConvTranspose",
    "Linear",
    "BatchNorm",
    "LayerNorm",
    "GroupNorm",
    "InstanceNorm",
    "RMSNorm",
    "Dropout",
)


def flattened_orders(model: Any) -> dict[int, tuple[int, int] | None]:
    """Return the order of the features before each layer, by its id.

    Returns:
        Id of a layer -> `PLAIN`, or the channels and positions of the flattened map, or None if it is not known. A
        layer that the module does not call is missing.
    """
    nnx: Any = sys.modules["flax.nnx"]
    modules = list(_objects(nnx, model))
    structure = nnx.graphdef(model)
    try:
        found = _KNOWN.get(structure)
    except TypeError:  # an attribute of the module has no hash, such as a list
        structure = found = None
    if found is None:
        try:
            with jax.transfer_guard("allow"), suppressed():  # only numbers of the probes are copied
                found = _orders_by_number(nnx, model)
        except Exception:  # what the module's own code raises, or memory is full: another call may succeed
            return {}
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        if structure is not None:
            _KNOWN[structure] = found
    return {id(modules[number]): order for number, order in found.items()}


_KNOWN: dict[Any, dict[int, tuple[int, int] | None]] = {}
"""The structure of a module -> the number of each layer, and its order: a program saves its module many times."""
_MOST_KNOWN = 16


def _orders_by_number(nnx: Any, model: Any) -> dict[int, tuple[int, int] | None]:
    """Return the orders by the number of each layer among the module's objects; without an image there are none."""
    clone = nnx.clone(model)
    calls = _Calls()
    numbers: dict[int, int] = {}
    for number, copy in enumerate(_objects(nnx, clone)):
        cls = next((each for each in map(nnx.__dict__.get, _PROBED) if each and isinstance(copy, each)), None)
        if cls is not None:
            numbers[id(copy)] = number
            own: Any = type(copy)
            object.__setattr__(copy, "__class__", _probe_class(own, cls))
    seen: list[list[tuple[int, Any]]] = []
    with _record_calls(calls):
        image = _fitting_image(clone, calls)
        if image is None:
            return {}
        for pattern in ("channels", "positions"):
            calls.start(pattern)
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                clone(jnp.zeros(image))  # fails if a layer of another class computes with weights on a GPU
            seen.append(calls.seen)
    found: dict[int, tuple[int, int] | None] = {}
    for (copy, first), (_, second) in zip(*seen, strict=True):
        order = None if copy in calls.unclear else _order(first, second)
        number = numbers[copy]
        found[number] = order if found.get(number, order) == order else None
    return found


def _objects(nnx: Any, model: Any) -> Iterator[Any]:
    return (node for _, node in nnx.iter_graph(model) if isinstance(node, nnx.Module))


@dataclass
class _Features:
    """The input of a layer: the numbers of one row, and the channels of the convolution before it.

    If only some axes of a map are flattened, the numbers have more than one axis, or none if they are not known.
    """

    values: np.ndarray
    channels: int


@dataclass
class _Calls:
    """The calls of the probes in one call of the module."""

    pattern: str = ""
    channels: int = 0
    axes: int = 0
    maps: int = 0
    widths: set[int] = field(default_factory=set)
    seen: list[tuple[int, Any]] = field(default_factory=list)
    vectors: list[int] = field(default_factory=list)
    unclear: set[int] = field(default_factory=set)

    def start(self, pattern: str) -> None:
        """Forget earlier calls; ``pattern`` says which numbers the maps have; if it is empty, there are only shapes."""
        self.pattern, self.channels, self.axes, self.maps = pattern, 0, 0, 0
        self.widths, self.seen, self.vectors, self.unclear = set(), [], [], set()

    def of_map(self, shape: tuple[int, ...]) -> Any:
        """Return the map that a convolution makes."""
        _require(0 not in shape)
        self.channels, self.axes = shape[-1], len(shape)
        self.maps += 1
        self.unclear.update(self.vectors)  # the output of these dense layers was reshaped into a map
        if self.pattern == "channels":
            return jnp.broadcast_to(jnp.arange(1, shape[-1] + 1) / shape[-1], shape)
        positions = int(np.prod(shape[1:-1]))
        numbers = jnp.arange(1, positions + 1).reshape((1, *shape[1:-1], 1)) / positions
        return jnp.broadcast_to(numbers, shape)

    def of_dense(self, module: Any, x: Any) -> Any:
        """Return the outputs of a dense layer."""
        _require(bool(self.maps) and x.shape[-1] == module.in_features)
        self.of_features(module, x)
        if x.ndim == 2:
            self.channels = 0
            self.vectors.append(id(module))
        self.widths.add(module.out_features)
        return jnp.zeros((*x.shape[:-1], module.out_features))

    def of_features(self, module: Any, x: Any) -> None:
        """Record what reaches a layer; of a map, every layer takes the features from the last axis."""
        features = None
        if self.pattern and x.ndim == 2:
            features = _Features(np.asarray(x[0]), self.channels)
        elif self.pattern and 2 < x.ndim < self.axes and x.shape[-1] != self.channels:
            if not isinstance(x, jax.core.Tracer):
                features = _Features(np.asarray(x[0]), self.channels)
            elif x.shape[-1] not in self.widths:  # in `jax.checkpoint`; not the outputs of a dense layer
                features = _Features(np.empty(()), self.channels)
        self.seen.append((id(module), features))


def _require(fits: bool) -> None:
    """Refuse an image that does not fit a layer; a module that does not begin with a convolution takes no image."""
    if not fits:
        msg = "the module takes another image, or none"
        raise ValueError(msg)


class _Recording(threading.local):
    """The calls that this thread records."""

    calls: Any = None


_RECORDING = _Recording()


@contextmanager
def _record_calls(calls: _Calls) -> Iterator[None]:
    """Record the calls of probes in this thread while the block is open."""
    before, _RECORDING.calls = _RECORDING.calls, calls
    try:
        yield
    finally:
        _RECORDING.calls = before


@cache
def _probe_class(own: Any, cls: Any) -> type:
    """Return a subclass of a layer's class that computes nothing, but records its calls."""
    name = cls.__name__

    def call(self: Any, x: Any, *_: Any, **__: Any) -> Any:
        calls = _RECORDING.calls
        if name.startswith("Conv"):
            return calls.of_map(jax.eval_shape(lambda given: cls.__call__(self, given), x).shape)
        if name == "Linear":
            return calls.of_dense(self, x)
        if name != "Dropout":
            _require(getattr(self, "num_features", x.shape[-1]) == x.shape[-1])
            calls.of_features(self, x)
        return x

    return type(own.__name__, (own,), {"__call__": call})


def _fitting_image(clone: Any, calls: _Calls) -> tuple[int, ...] | None:
    """Return the shape of one image that the module accepts."""
    nnx: Any = sys.modules["flax.nnx"]
    first = next((each for each in _objects(nnx, clone) if isinstance(each, nnx.Conv)), None)
    widths = {each.in_features for each in _objects(nnx, clone) if isinstance(each, (nnx.Conv, nnx.ConvTranspose))}
    if first is None:
        return None
    for size in _SIZES:
        for channels in sorted(widths):
            shape = (1, *(size,) * len(first.kernel_size), channels)
            calls.start("")
            try:
                jax.eval_shape(clone, jax.ShapeDtypeStruct(shape, "float32"))
            except (MemoryError, jax.errors.JaxRuntimeError):
                raise
            except Exception:  # whatever the module's own code raises for an image of another size
                continue
            return shape
    return None


def _order(first: _Features | None, second: _Features | None) -> tuple[int, int] | None:
    """Return the order of the features, from the numbers of channels and of positions."""
    if first is None or second is None:
        return PLAIN  # they are on the last axis of a map
    of_channels, of_positions, channels = first.values, second.values, first.channels
    if of_channels.ndim != 1:
        is_mixed = all(not x.ndim or np.ptp(x, axis=-1).max() > 1e-6 for x in (of_channels, of_positions))
        return None if is_mixed else PLAIN  # the last axis has channels and positions, or only one of them
    if not channels:
        return PLAIN if np.ptp(of_channels) == 0 else None  # after another dense layer
    positions, rest = divmod(len(of_channels), channels)
    if rest:
        return None
    if _is_sorted(of_channels.reshape(positions, channels).T, of_positions.reshape(positions, channels).T):
        return PLAIN if positions == 1 or channels == 1 else (channels, positions)
    if _is_sorted(of_channels.reshape(channels, positions), of_positions.reshape(channels, positions)):
        return PLAIN
    return None


def _is_sorted(of_channels: np.ndarray, of_positions: np.ndarray) -> bool:
    """Return True if rows are channels, and columns are positions, both in order."""
    if np.ptp(of_channels, axis=1).max() > 1e-6 or np.ptp(of_positions, axis=0).max() > 1e-6:
        return False
    return bool((np.diff(of_channels[:, 0]) > 0).all() and (np.diff(of_positions[0]) > 0).all())

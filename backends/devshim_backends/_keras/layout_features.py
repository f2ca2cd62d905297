"""The order of features in a Keras model: the kinds of order, and a record of those that each layer receives and makes.

A Keras model stores an image-like tensor (here called a map) with its channels last, and other frameworks store the
channels first. So, to convert a weight, devshim must know for each layer whether its features are a map, a flattened
map, or neither. `Features.kind` is one of

* ``plain``: the features have the same order on every framework;
* ``map``: (..., height, width, channels), where other frameworks have (channels, height, width);
* ``flattened``: a map of (channels, height, width), flattened in Keras's order;
* ``candidate``: a model's input, or the result of a reshape: it is a map if a convolution takes it;
* ``mixed``: the last axis is plain, and nothing is known of the others;
* ``unclear``: the order cannot be determined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ALIGNED", "PLAIN", "UNCLEAR", "FeatureOrders", "Features", "all_layers", "is_spatial", "sublayers"]


@dataclass(frozen=True, eq=False)
class Features:
    """The order of a tensor's features.

    Attributes:
        kind: See the module's docstring.
        sizes: For a flattened map, the channels, height and width of the map.
        makers: The layers whose weights produce the last axis, if it may still become a map.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    makers: tuple[Any, ...] = ()


PLAIN, UNCLEAR = Features("plain"), Features("unclear")
ALIGNED = frozenset({"plain", "map", "candidate", "mixed"})
"""The kinds whose last axis has the same order in other frameworks."""
_SPATIAL = ("convolutional", "pooling", "up_sampling", "zero_padding", "cropping")


class FeatureOrders:
    """The features of every layer of a model.

    A reshaped vector is a candidate for a map until a later layer decides what it is: `confirm_map` or `reject_map`.

    Attributes:
        inputs: Layer's id -> its input features, which describe only the last axis.
        outputs: Layer's id -> what its output becomes, if that is a map or is unclear.
    """

    def __init__(self) -> None:
        self.inputs: dict[int, Features] = {}
        self.outputs: dict[int, Features] = {}
        self._candidates: list[Features] = []
        self._consumers: dict[int, int] = {}

    def is_unclear(self) -> bool:
        """Return True if any layer's features are unclear."""
        return any(each.kind == "unclear" for found in (self.inputs, self.outputs) for each in found.values())

    def add_consumer(self, layer: Any) -> None:
        """Record that another layer takes a layer's output."""
        self._consumers[id(layer)] = self._consumers.get(id(layer), 0) + 1

    def add_input(self, layer: Any, features: Features) -> None:
        """Record that a layer is called with features."""
        known = self.inputs.setdefault(id(layer), features)
        if (known.kind, known.sizes) != (features.kind, features.sizes):  # called twice
            self.inputs[id(layer)] = PLAIN if {known.kind, features.kind} <= ALIGNED else UNCLEAR

    def propose_map(self, sizes: tuple[int, ...], makers: tuple[Any, ...]) -> Features:
        """Return the features of a reshaped vector that may be a map, with the map's ``sizes`` if they are known."""
        features = Features("candidate", sizes, makers)
        if any(self._consumers.get(id(layer), 0) > 1 for layer in makers):  # another layer takes the output too
            self._set_output(features, UNCLEAR)
        else:
            self._candidates.append(features)
        return features

    def reject_map(self, features: Features) -> None:
        """Record that a reshaped tensor is not used as a map."""
        if features in self._candidates:
            self._candidates.remove(features)

    def confirm_map(self, features: Features, layer: Any) -> None:
        """Record that a convolution takes a tensor, which is therefore a map."""
        if features.sizes and not features.makers:  # no layer before it has weights that could be reordered
            self.inputs[id(layer)] = UNCLEAR
        if features in self._candidates:
            self._candidates.remove(features)
            self._set_output(features, Features("flattened", features.sizes) if features.sizes else UNCLEAR)

    def close(self, *, has_convolutions: bool) -> None:
        """Mark the remaining candidates, which no later layer has decided, as unclear if they could be maps."""
        for each in self._candidates:
            if each.sizes or has_convolutions:
                self._set_output(each, UNCLEAR)

    def _set_output(self, features: Features, output: Features) -> None:
        for layer in features.makers:
            self.outputs[id(layer)] = output if id(layer) not in self.outputs else UNCLEAR


# ---------------------------------------------------------------------- layers
def sublayers(layer: Any) -> Iterator[Any]:
    """Return the direct sublayers of a layer, in their order."""
    found = layer.layers if isinstance(layer, keras.Model) else getattr(layer, "_layers", ())
    return (each for each in found if not isinstance(each, keras.layers.InputLayer))


def all_layers(layer: Any) -> Iterator[Any]:
    """Yield a layer and all its sublayers."""
    yield layer
    for each in sublayers(layer):
        yield from all_layers(each)


def is_spatial(layer: Any) -> bool:
    """Return True for a layer that takes a map."""
    return is_from(layer, _SPATIAL)


def is_from(layer: Any, modules: Sequence[str]) -> bool:
    """Return True for a layer of these modules of ``keras.src.layers``, or one derived from them."""
    names = [cls.__module__.partition("keras.src.layers.")[2] for cls in type(layer).__mro__]
    return any(name and any(module in name for module in modules) for name in names)

"""The contract for models and optimizers: the part that an adapter adds to plain tensors.

Requirements of this module:

* An adapter does not move anything. It lists the tensors of a model or optimizer (`Leaf`: how to read and replace
  each). The neutral half copies and checks them, replaces all or none, and restores everything if something fails.
* Only the framework knows which parts should stay together (`Block`) and which layer a weight belongs to (`Layer`). An
  adapter describes both in terms that are the same for every framework, so that weights can cross frameworks.
* A backend without models inherits everything here: each method raises `UnsupportedError` with the gap it declared.

`contract.backend.Backend` derives from `ModelBackend`. Adapters implement its methods in ``models/``
(`ModelBackend.layers` and `ModelBackend.blocks` in ``models/blocks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from devshim.contract import capabilities

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = ["Block", "Layer", "Leaf", "ModelBackend", "Weight"]

Kind = Literal["parameter", "buffer", "gradient", "state", "random", "stream", "unsaved"]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One tensor of a model or optimizer, and how to replace it with another of the same dtype and shape.

    Attributes:
        path: Its name as the framework spells it, parts joined by dots: ``"0.weight"``, ``"state.0.exp_avg"``.
        kind: Its role. ``"gradient"`` follows its parameter, ``"state"`` belongs to an optimizer, ``"random"`` to a
            generator, ``"stream"`` to one whose next numbers a checkpoint restores. ``"unsaved"`` moves with its model,
            and a checkpoint does not contain it.
        read: Returns the current tensor, free of any graph.
        write: Replaces the data: the parameter or variable object stays the same, every reference to it sees the new
            data, and nothing else changes. Allocates nothing on a device, and does not fail.
        owner: The object that owns the data, usually the parameter. Leaves with the same owner are ties, moved once.
        beside: For state and gradients, the owner of the parameter whose device they follow.
    """

    path: str
    kind: Kind
    read: Callable[[], Any]
    write: Callable[[Any], None]
    owner: Any
    follows: Any = None


@dataclass(frozen=True)
class Block:
    """A part of a model that should stay on one device: a cut inside it would copy activations back and forth.

    Attributes:
        path: Its name, such as ``"layers.3"``; empty for the whole model.
        leaves: The paths of its parameters and buffers.
        children: The blocks it consists of, in the order they run, for when it has more bytes than a device's share.
        whole: True if it is cut only if it fits on no single device.
    """

    path: str
    leaves: tuple[str, ...]
    children: tuple[Block, ...] = ()
    whole: bool = False

    @classmethod
    def of(cls, path: str, leaves: tuple[str, ...], children: tuple[Block, ...], whole: bool = False) -> Block:
        """Make a block from other blocks; ``children`` stays empty for a block that cannot be cut any further."""
        return cls(path, leaves, children if len(children) > 1 or (children and children[0].children) else (), whole)


@dataclass(frozen=True)
class Weight:
    """One tensor of a layer, and how the framework lays it out.

    To get the framework's values from the canonical ones: unfold each axis, reorder the entries of the first axis, and
    transpose the axes. The values then fill the leaf, or a contiguous part of it.

    Attributes:
        path: The leaf's path.
        axes: The axes of the canonical layout in the framework's order, so that ``numpy.transpose(canonical, axes)`` is
            the framework's layout; None if the order is the same.
        folded: The canonical shape, each axis as the sizes that are folded into it: ``((10,), (16, 4, 4))`` is a weight
            (10, 256) whose inputs are channels, height and width. Then ``axes`` are the unfolded ones. None: the leaf's
            shape.
        order: The canonical entry of each of the framework's entries along the first unfolded axis, such as gates.
        part: The start and end of the values in the leaf, in its own order; None if they fill the leaf.
        unclear: The reason if the framework's layout cannot be determined. This weight cannot be loaded by another
            framework.
    """

    path: str
    axes: tuple[int, ...] | None = None
    folded: tuple[tuple[int, ...], ...] | None = None
    order: tuple[int, ...] | None = None
    part: tuple[int, int] | None = None
    unclear: str = ""


@dataclass(frozen=True)
class Layer:
    """A layer whose weights mean the same on every framework.

    Attributes:
        kind: ``"linear"``, ``"conv"``, ``"conv_transpose"``, ``"batch_norm"``, ``"layer_norm"``, ``"group_norm"``,
            ``"embedding"``, ``"rnn"``, ``"lstm"``, ``"gru"``; or ``"other"`` for weights of an unknown kind.
        path: Its name in the model.
        weights: Role -> `Weight`. Canonical layouts are those of PyTorch: linear ``weight`` (out, in); conv ``weight``
            (out, in / groups, spatial ...); embedding ``weight`` (rows, columns); norms ``weight``, ``bias``, ``mean``,
            ``variance``; one layer and direction of rnn, lstm (gates i, f, g, o) and gru (r, z, n) ``weight_ih``
            (gates * hidden, in), ``weight_hh``, ``bias_ih``, ``bias_hh``, ``weight_hr`` (projection). A role may be a
            sum of others: ``"bias_ih+bias_hh"``.
        facts: Settings that must agree besides the shapes, such as ``{"epsilon": 1e-5}`` or ``{"groups": 2}``.
        unused: Paths of leaves that the layer has but does not compute with.
    """

    kind: str
    path: str
    weights: Mapping[str, Weight]
    settings: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


class ModelBackend:
    """The mixin of `Backend` for models and optimizers."""

    # ------------------------------------------------------------------ models (models/models.py)
    def leaves(self, obj: Any) -> list[Leaf]:
        """Return every tensor of a model or optimizer, in the framework's own order; ties share one owner.

        A tied tensor appears once per name. A model has parameters and buffers, each parameter followed by its
        gradient, if any. An optimizer has its state, and not the parameters. What is not built yet has no
        leaves.
        """
        raise self._no_models()

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        """Install hooks so that a model computes where its parts are now; build the rest on its target device.

        Called when all leaves have been replaced; ``where`` returns the device of a path. From then on ``model(x)``
        gives its result on the device of its last part, wherever its parts are: the hooks copy inputs to the parts, and
        gradients back. Parts that are not built yet will be built on their device.

        Returns:
            A function that undoes this.
        """
        return _nothing

    def clone(self, obj: Any) -> Any:
        """Return an independent model with equal weights on the same devices; ties inside it are kept."""
        raise self._no_models()

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        """Clone several models and optimizers; where possible, an optimizer's clone belongs to the model's clone."""
        return [self.clone(each) for each in objects]

    # ------------------------------------------------------------------ layers (models/blocks.py)
    def blocks(self, model: Any) -> list[Block]:
        """Return the parts of a model, in the order they run, that should each stay on one device."""
        raise self._no_models()

    def layers(self, model: Any) -> list[Layer]:
        """Return the layers that hold weights, in the order they run or were made, in canonical terms."""
        raise self._no_models()

    # ------------------------------------------------------------------ checkpoints (models/extra_state.py)
    def library(self, obj: Any) -> str:
        """Return the name of the library that defines the paths and shapes of a model's or optimizer's leaves.

        This is the framework, or a library that computes with several frameworks, such as Keras. Models and optimizers
        of this library go from one framework to another leaf by leaf.
        """
        return self.name  # type: ignore[attr-defined, no-any-return]  # the backend's own

    def get_extra_state(self, obj: Any) -> Any:
        """Return the extra state that a checkpoint stores besides the leaves, as a tree of plain values and tensors.

        Examples are an optimizer's settings, and counters that it has on the host. None if the leaves are everything.
        """
        return None

    def create_optimizer_state(
        self, optimizer: Any, models: Sequence[Any], forms: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Callable[[], None]:
        """Create the state of an optimizer that does not know its parameters yet, for those of the given models.

        Called before `set_extra_state`, for each model or optimizer that is loaded into.

        Args:
            optimizer: The optimizer; any other object is left alone.
            models: The other models and optimizers of this backend in the tree.
            forms: As for `set_extra_state`.

        Returns:
            A function that undoes this.
        """
        return _nothing

    def set_extra_state(
        self, obj: Any, state: Any, forms: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Callable[[], None]:
        """Set a result of `get_extra_state`, and create the optimizer state that does not exist yet.

        Args:
            obj: The model or optimizer.
            state: A result of `get_extra_state`; its tensors are on the host.
            forms: Shape and dtype of every leaf that was saved, by path. Afterwards each of them exists as a leaf on
                the device where it belongs; its values are overwritten next.

        Returns:
            A function that undoes this.
        """
        return _nothing

    def _no_models(self) -> Exception:
        return capabilities.unsupported_error(self, "models")  # type: ignore[arg-type]  # only Backend derives from this


def _nothing() -> None:
    """Undo nothing."""

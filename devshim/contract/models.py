"""What an adapter says of things that move as a whole: models, optimizers, and tensors cut up and put together.

Requirements this module answers:

* An adapter moves nothing.  It lists what a model or optimizer holds (`Leaf`: read it, exchange it), and the neutral
  half copies, checks, exchanges all or nothing, and puts everything back where something fails.
* What only the framework can know is asked in its words and told in ours: which parts should not be split (`Block`),
  which layer a weight belongs to (`Layer`), so that weights can cross frameworks.
* A backend without models inherits everything here: each method raises `UnsupportedError` with the gap it declared.

`contract.backend.Backend` derives from `Wholes`; adapters write these methods in ``models.py`` (`Wholes.leaves` to
`Wholes.clone`), ``layers.py`` (`Wholes.layers`, `Wholes.blocks`) and ``several.py`` (the rest).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from devshim.contract import capabilities

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.devices.device import Device

__all__ = ["Block", "Layer", "Leaf", "Weight", "Wholes"]

Kind = Literal["parameter", "buffer", "gradient", "state", "random"]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One tensor that a model or optimizer holds, and how to exchange it for another of its dtype and shape.

    Attributes:
        path: Its name as the framework spells it, parts joined by dots: ``"0.weight"``, ``"state.0.exp_avg"``.
        kind: What it is. ``"gradient"`` follows its parameter, ``"state"`` is an optimizer's, ``"random"`` a
            generator's.
        read: Returns the tensor that is there now, free of any graph.
        write: Puts another one in its place: the same parameter or variable object stays, everybody who holds it sees
            the new data, nothing else changes. Allocates nothing on a device, and does not fail.
        owner: Whose data it is: leaves with the same owner are ties, moved once. The parameter object, as a rule.
        beside: For state and gradients, the owner of the parameter they belong to: they go where it goes.
    """

    path: str
    kind: Kind
    read: Callable[[], Any]
    write: Callable[[Any], None]
    owner: Any
    beside: Any = None


@dataclass(frozen=True)
class Block:
    """A part of a model that runs in one go: cutting inside it would carry activations back and forth.

    Attributes:
        path: Its name, such as ``"layers.3"``; empty for the model as a whole.
        leaves: The paths of the parameters and buffers in it.
        inside: The blocks it is made of, in the order they run, for when it fits nowhere as a whole.
    """

    path: str
    leaves: tuple[str, ...]
    inside: tuple[Block, ...] = ()

    @classmethod
    def of(cls, path: str, leaves: tuple[str, ...], inside: tuple[Block, ...]) -> Block:
        """A block made of others; one that cannot be cut any further is the block itself, and not inside it."""
        return cls(path, leaves, inside if len(inside) > 1 or (inside and inside[0].inside) else ())


@dataclass(frozen=True)
class Weight:
    """One tensor of a layer, and how the framework lays it out.

    The framework's values are the canonical ones with each axis unfolded, the entries of the first put in another
    order, and the axes transposed, one after the other in memory as a part of the leaf, or all of it.

    Attributes:
        path: The leaf's path.
        axes: The axes of the canonical layout in the order in which the framework has them, so that
            ``numpy.transpose(canonical, axes)`` is the framework's; None where they are the same.
        folded: The canonical shape, each axis as the sizes of those folded in it: ``((10,), (16, 4, 4))`` is a weight
            (10, 256) whose inputs are channels, height and width. Then ``axes`` are those unfolded. None: the shape is
            the leaf's.
        order: Which canonical entry of the first unfolded axis each of the framework's is, such as gates.
        part: Where in the leaf, in its own order, the values begin and end; None where they are all of it.
        unclear: Why it cannot be told how the framework lays it out here. It crosses to no other framework then.
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
            ``"embedding"``, ``"rnn"``, ``"lstm"``, ``"gru"``; or ``"other"`` for weights of no kind known here.
        path: Its name in the model.
        weights: Role -> where it is.  Canonical layouts are PyTorch's: linear ``weight`` (out, in); conv ``weight``
            (out, in / groups, spatial ...); embedding ``weight`` (rows, columns); norms ``weight``, ``bias``,
            ``mean``, ``variance``; one layer and direction of rnn, lstm (gates i, f, g, o) and gru (r, z, n)
            ``weight_ih`` (gates * hidden, in), ``weight_hh``, ``bias_ih``, ``bias_hh``, ``weight_hr`` (projection).
            A role may be a sum of others: ``"bias_ih+bias_hh"``.
        facts: What must agree besides the shapes, such as ``{"epsilon": 1e-5}`` or ``{"groups": 2}``.
        unused: Paths of leaves that the layer has and does not compute with.
    """

    kind: str
    path: str
    weights: Mapping[str, Weight]
    facts: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


class Wholes:
    """Models, optimizers, and tensors on several devices: the part of the contract that `Backend` inherits."""

    # ------------------------------------------------------------------ models (models.py)
    def leaves(self, whole: Any) -> list[Leaf]:
        """Every tensor a model or optimizer holds, in the framework's own order; ties once per name, with one owner.

        Parameters and buffers, each parameter's gradient after it where there is one; of an optimizer its state that
        lives beside parameters, not the parameters themselves. What is not built yet has no leaves.
        """
        raise self._no_models()

    def rewire(self, whole: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        """Have a model compute where its parts are now, and build the rest where it shall be.

        Called when all leaves have been exchanged; ``where`` says where a leaf of a path belongs. From then on
        ``model(x)`` gives its result on the device its last part is on, wherever its parts are: inputs are carried
        to them, and gradients back. Sets what is not built yet to be built there.

        Returns:
            What takes it back.
        """
        return _nothing

    def clone(self, whole: Any) -> Any:
        """An independent model with equal weights on the same devices; ties within it are kept."""
        raise self._no_models()

    def clones(self, wholes: Sequence[Any]) -> list[Any]:
        """Clones of several whole things; an optimizer's is that of the model's clone, where the framework can."""
        return [self.clone(each) for each in wholes]

    # ------------------------------------------------------------------ layers (layers.py)
    def blocks(self, model: Any) -> list[Block]:
        """The parts of a model in the order they run, each of which had better stay on one device."""
        raise self._no_models()

    def layers(self, model: Any) -> list[Layer]:
        """The layers that hold weights, in the order they run or were made, in canonical terms."""
        raise self._no_models()

    # ------------------------------------------------------------------ checkpoints (models.py, optimizers.py)
    def library(self, whole: Any) -> str:
        """Return the name of the library that names the leaves of a model or optimizer, and gives them their shapes.

        It is the framework, or a library that computes with several, such as Keras: its models and optimizers go from
        one framework to another leaf by leaf.
        """
        return self.name  # type: ignore[attr-defined, no-any-return]  # the backend's own

    def facts(self, whole: Any) -> Any:
        """What a checkpoint keeps of a model or optimizer besides its leaves, as a tree of plain values and tensors.

        Such as an optimizer's settings, and the counts it has on the host. None where the leaves are all there is.
        """
        return None

    def begin_state(
        self, optimizer: Any, models: Sequence[Any], forms: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Callable[[], None]:
        """Make the state of an optimizer that does not know its parameters yet, for those of models beside it.

        Called before `restore`, for each model or optimizer that is loaded into.

        Args:
            optimizer: Which; anything else is left alone.
            models: The other models and optimizers of this backend in the tree.
            forms: As for `restore`.

        Returns:
            What takes it back.
        """
        return _nothing

    def restore(self, whole: Any, facts: Any, forms: Mapping[str, tuple[tuple[int, ...], str]]) -> Callable[[], None]:
        """Give a model or optimizer the `facts` of another, and make the state that it has not begun yet.

        Args:
            whole: Which.
            facts: As `facts` returned them; tensors are on the host.
            forms: Shape and dtype of every leaf that was saved, by its path: afterwards there is a leaf of each, on the
                device it belongs to, whose values are overwritten next.

        Returns:
            What takes it back.
        """
        return _nothing

    # ------------------------------------------------------------------ several devices (several.py)
    def narrow(self, x: Any, axis: int, start: int, stop: int) -> Any:
        """The part of a tensor from ``start`` to ``stop`` along an axis, as a view or not; gradients flow."""
        raise self._unsupported("several")

    def concatenate(self, xs: Sequence[Any], axis: int) -> Any:
        """Tensors of one device joined along an axis, in new memory; gradients flow."""
        raise self._unsupported("several")

    def stack_tensors(self, xs: Sequence[Any]) -> Any:
        """Tensors of one device and shape joined along a new first axis, in new memory; gradients flow.

        dtypes are promoted as the framework's own ``stack`` does it, or refused with the framework's error.
        """
        raise self._unsupported("several")

    def combine(self, xs: Sequence[Any], op: Literal["sum", "mean", "max", "min"]) -> Any:
        """The elementwise sum, mean, maximum or minimum of tensors of one device, shape and dtype, in new memory.

        In the order given, in the tensors' own dtype; not a number where any of them is; no gradients.
        """
        raise self._unsupported("several")

    def snapshot(self, x: Any) -> Any:
        """A copy of a tensor on its device, free of any graph, also of one that needs gradients.

        The tensor itself where nothing can change it or take its memory.
        """
        raise self._unsupported("several")

    def ran_on(self, x: Any) -> Device | None:
        """The device that computed a tensor, where its result stays in host memory; None: ask `device_of`."""
        return None

    def scalar_reader(self, x: Any) -> tuple[Callable[[Any], Any], np.dtype] | None:
        """Return a function that reads tensors like ``x``, a plain one of one element, and the dtype of what it reads.

        The function returns the element's bytes or the Python number, or None for a tensor of another type, dtype or
        device, or of more elements; it may raise of such a tensor.  Asked of tensors on the host and on simulated GPUs
        alone: their memory is the host's, and to read a number there costs less than an operator that copies it.  None
        where it does not, and for dtypes that NumPy has not.
        """
        return None

    def stack(self, xs: Sequence[Any]) -> Any:
        """The numbers of one-element tensors of one device as a tensor of shape (n,) there; the widest dtype holds all.

        bfloat16, which NumPy lacks, becomes float32. No gradients.
        """
        raise self._unsupported("several")

    def assign(self, x: Any, value: Any) -> None:
        """Overwrite the values of ``x`` in place with those of a tensor on its device. Not for immutable tensors."""
        raise self._unsupported("several")

    def all_reduce(self, xs: Sequence[Any], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Any] | None:
        """Reduce tensors of several devices by the framework's own engine, into a new one on each; None without one."""
        return None

    def all_reduce_many(
        self, groups: Sequence[Sequence[Any]], op: Literal["sum", "mean", "max", "min"]
    ) -> Sequence[Sequence[Any] | None]:
        """Do so for each leaf of a tree, all on the same devices in the same order; override where that is faster."""
        return [self.all_reduce(xs, op) for xs in groups]

    def assignable(self, x: Any) -> bool:
        """Whether `assign` can overwrite ``x``; what it cannot is replaced in the list `all_reduce_` was given."""
        return not self.immutable  # type: ignore[attr-defined]  # the backend's own

    def modes(self) -> Callable[[], AbstractContextManager[object]]:
        """Return what makes a context in which this thread's modes, such as recording gradients, hold in another."""
        return nullcontext

    def _no_models(self) -> Exception:
        return self._unsupported("models")

    def _unsupported(self, feature: str) -> Exception:

        return capabilities.unsupported(self, feature)  # type: ignore[arg-type]  # only Backend derives from this


def _nothing() -> None:
    """Take back nothing."""

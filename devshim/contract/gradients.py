"""The contract for gradients: what `value_and_grad`, `stop_gradient` and `data_parallel` need of an adapter.

An adapter implements these methods in ``gradients.py``. A backend without automatic differentiation inherits everything
here: `differentiate` raises `UnsupportedError` with the gap that the backend declared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from devshim.contract import capabilities

if TYPE_CHECKING:
    from devshim.contract.models import Leaf

    Call = Callable[[list[Any], list[Any]], tuple[Any, list[Any]]]
    """Takes variables and models; returns the scalar to differentiate, and other tensors that `fn` returned."""

__all__ = ["FLOATING", "GradientBackend"]

FLOATING = ("float", "bfloat")
"""The prefixes of the names of floating dtypes."""


class GradientBackend:
    """The mixin of `Backend` for gradients."""

    def are_floating(self, xs: Sequence[Any]) -> bool:
        """Return True if the dtypes of all tensors are real floating ones; override if the framework says it faster."""
        return all(self.dtype_name(x).startswith(FLOATING) for x in xs)  # type: ignore[attr-defined]  # the backend's

    def differentiate(
        self, call: Call, xs: Sequence[Any], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Call a function with differentiable stand-ins for tensors, and compute the gradients of its scalar.

        Args:
            call: Called once, with one variable for each of ``xs`` (over the same memory where possible, and a new
                object for each, even if a tensor occurs twice) and one model for each of ``models``. It raises every
                error of the user's function, which must pass through.
            xs: Tensors of floating dtypes, on any devices.
            parameters: The trainable leaves of ``models``, each once.
            models: The models to which ``parameters`` belong.

        Returns:
            The scalar, the other tensors, and the gradients of ``xs`` and then of ``parameters``; zeros where the
            scalar does not depend on one. They are free of any graph, unless an enclosing `differentiate` records.
            The ``xs``, the gradients that tensors store, and the thread's autograd modes are as before.
        """
        raise self._no_gradients()

    def differentiate_in_trace(
        self, call: Callable[[list[Any]], tuple[Any, list[Any]]], xs: Sequence[Any]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Do the same as `differentiate`, without models, in a function that the framework's compiler reads.

        Used if `Backend.traces_bytecode`. ``call`` takes variables, and returns the scalar and other tensors.
        """
        raise self._no_gradients()

    def stop_gradient(self, x: Any) -> Any:
        """Return a tensor with the same values, on its device, through which no gradient flows.

        Default: `Backend.detach`, which shares the memory.
        """
        return self.detach(x)  # type: ignore[attr-defined]  # the backend's own

    def wants_gradient(self, x: Any) -> bool:
        """Return True if a tensor asks for a gradient. Default: the framework's tensors have no such flag."""
        return False

    def request_gradient(self, x: Any) -> None:
        """Let a new tensor ask for a gradient. Default: the framework's tensors have no such flag."""

    def trainable(self, model: Any) -> list[Leaf]:
        """Return the trainable leaves of a model. Default: every parameter."""
        return [leaf for leaf in self.leaves(model) if leaf.kind == "parameter"]  # type: ignore[attr-defined]  # same

    def is_scalar(self, x: Any) -> bool:
        """Return True if a tensor is a scalar. Default: if it has no axes."""
        return self.shape(x) == ()  # type: ignore[attr-defined, no-any-return]  # the backend's own

    # ------------------------------------------------------------------ several devices
    def autograd_crosses_threads(self) -> bool:
        """Return False if this thread records gradients, and autograd would not see what other threads compute."""
        return True

    def weighted_sum(self, xs: Sequence[Any], weights: Sequence[float]) -> Any:
        """Return the sum of tensors of one device, times their weights, in their own dtype; gradients flow.

        Default: the operators of Python. Called in the scope of the device.
        """
        terms = [x if weight == 1 else x * weight for x, weight in zip(xs, weights, strict=True)]
        return reduce(operator.add, terms)

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Any], Any]) -> None:
        """Make a replica compute with ``move(parameter)`` of each parameter of the model, so that gradients flow.

        Args:
            model: A model.
            replica: A clone of it on another device, used for one call only.
            move: Copies a tensor to that device; gradients flow.
        """
        raise capabilities.unsupported_error(self, "data_parallel_models")  # type: ignore[arg-type]  # as below

    def _no_gradients(self) -> Exception:
        return capabilities.unsupported_error(self, "value_and_grad")  # type: ignore[arg-type]  # only Backend derives from this

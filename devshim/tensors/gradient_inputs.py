"""The differentiated arguments of one call of `devshim.value_and_grad`: collect, replace and rebuild their leaves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from devshim.contract import capabilities
from devshim.contract.gradients import FLOATING
from devshim.errors import messages
from devshim.errors.formatting import describe, type_name, with_article
from devshim.registry import numpy_scalars, registry
from devshim.registry.registry import model_backend
from devshim.tensors import gradient_errors, plain_gradients
from devshim.transfers import engine
from devshim.trees import multi_map, plain
from devshim.trees.flatten import flatten
from devshim.trees.not_moved import is_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device
    from devshim.trees.key_paths import Cell

__all__ = ["OUTSIDE", "Inputs", "find_positions"]

OUTSIDE = "compile the function, and differentiate it outside: ds.value_and_grad(compiled_fn)"


class Inputs:
    """The differentiated arguments of one call: their tensors, and the trainable parameters of their models.

    Args:
        args: All arguments of the function.
        positions: The result of `find_positions`.
        found: The result of `devshim.tensors.plain_gradients.collect`.
    """

    def __init__(self, args: tuple[Any, ...], positions: list[int], found: tuple[Backend, list[Tensor]] | None) -> None:
        self.positions: list[int] = positions
        self.xs: list[Tensor] = []
        self.models: list[Any] = []
        self.parameters: list[Leaf] = []
        self._paths: list[list[str]] = []
        self._backend: Backend | None = None
        self._unable: tuple[Backend, int, Cell] | None = None
        self._is_plain = found is not None
        if found is not None:
            self._backend, self.xs = found
        for position in () if self._is_plain else self.positions:
            before = len(self.xs), len(self.parameters)
            self._walk(args[position], partial(self._add, position))
            if self._unable is not None and self._backend is None:
                continue  # the next argument may be of a framework that differentiates
            if before == (len(self.xs), len(self.parameters)):
                raise gradient_errors.no_tensor_error(position, with_article(type_name(args[position])))
        if self._unable is not None:
            raise capabilities.unsupported_error(self._unable[0], "value_and_grad")

    @property
    def backend(self) -> Backend:
        """The one backend of all leaves."""
        assert self._backend is not None
        return self._backend

    def _walk(self, tree: Any, visit: Callable[[Cell, Any], Any]) -> Any:
        return multi_map.map_leaves(
            [tree], lambda cell, nodes: visit(cell, nodes[0]), multi_map.structure_error("value_and_grad", "argument")
        )

    # ------------------------------------------------------------------ collecting
    def _add(self, position: int, cell: Cell, node: Any) -> None:
        owner = registry.backend_for(node)
        if owner is not None:
            if not self._serve(owner, position, cell):
                return
            name = owner.dtype_name(node)
            if not name.startswith(FLOATING):
                raise gradient_errors.dtype_error(name, position, cell)
            self.xs.append(node)
        elif type(node) in gradient_errors.NUMBERS or numpy_scalars.is_scalar(node):
            raise gradient_errors.number_error(node, position, cell)
        else:
            model_owner = model_backend(node)
            if model_owner is not None and self._serve(model_owner, position, cell):
                self._add_model(model_owner, node)

    def _serve(self, owner: Backend, position: int, cell: Cell) -> bool:
        """Use the backend of the first leaf that can differentiate for all, and refuse others by their paths.

        Returns:
            False if the backend cannot differentiate, and no leaf of one that can has been found yet.
        """
        if self._backend is not None and self._backend is not owner:
            raise gradient_errors.framework_error(self._backend, owner, position, cell)
        if "value_and_grad" in owner.gaps:
            self._unable = self._unable or (owner, position, cell)
            return False
        if self._unable is not None:
            raise gradient_errors.framework_error(owner, *self._unable)
        self._backend = owner
        return True

    def _add_model(self, owner: Backend, model: Any) -> None:
        known = {id(each.owner) for each in self.parameters}
        paths: list[str] = []
        for leaf in owner.trainable(model):
            if id(leaf.owner) not in known:
                known.add(id(leaf.owner))
                paths.append(leaf.path)
                self.parameters.append(leaf)
        self.models.append(model)
        self._paths.append(paths)

    # ------------------------------------------------------------------ computing
    def differentiate(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: Callable[[Any], tuple[Any, Any]] | None,
    ) -> tuple[Any, Any, list[Any]]:
        """Return the value, the other results, and the gradients of each argument.

        Args:
            fn: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.
            results: Returns the value and the other results; None if the function returns only the value.
        """
        backend = self.backend
        traced = backend.tracing()
        devices = engine.devices_of(backend, self.xs)
        if self.parameters:
            planned = traced and backend.tracers_have_no_device  # `differentiate` puts each gradient in place
            devices += [None if planned else backend.device_of(leaf.read()) for leaf in self.parameters]
        if (traced or None in devices) and "trace_gradient" in backend.gaps:
            raise messages.tracing(backend, "value_and_grad", OUTSIDE)
        kept: list[Any] = []

        def call(variables: list[Tensor], models: list[Any]) -> tuple[Tensor, list[Tensor]]:
            value, aux = fn(*self._replace_tensors(args, iter(variables), iter(models)), **kwargs), None
            if results is not None:
                value, aux = results(value)
            gradient_errors.require_scalar(backend, value, describe)
            if aux is None:
                return value, []
            flat = flatten(aux)
            found = [leaf for leaf in flat.leaves if leaf[-1] is backend]
            kept.extend((flat, found))
            return value, [x for _, _, x, _ in found]

        shared = devices[0] if not traced and len(set(devices)) == 1 else None
        leaves = call, self.xs, self.parameters, self.models
        if shared is None:
            value, tensors, grads = backend.differentiate(*leaves)
        else:
            value, tensors, grads = plain_gradients.differentiate_on(shared, backend, *leaves)
        aux = None
        if kept:
            flat, old = kept
            aux = flat.rebuild({number: y for (number, _, x, _), y in zip(old, tensors, strict=True) if x is not y})
        if engine.devices_of(backend, grads) != devices:
            grads = [_at_home(backend, grad, device) for grad, device in zip(grads, devices, strict=True)]
        return value, aux, self._gradients(args, grads)

    def _replace_tensors(self, args: tuple[Any, ...], variables: Iterator[Any], models: Iterator[Any]) -> list[Any]:
        """Return the arguments with variables for the tensors, and the models to call."""

        def visit(_: Cell, node: Any) -> Any:
            if registry.backend_for(node) is not None:
                return next(variables)
            return node if model_backend(node) is None else next(models)

        given = list(args)
        for position in self.positions:
            tree = args[position]
            given[position] = plain.rebuild(tree, variables) if self._is_plain else self._walk(tree, visit)
        return given

    def _gradients(self, args: tuple[Any, ...], grads: list[Any]) -> list[Any]:
        """Return the trees of gradients."""
        if self._is_plain:
            of_all = iter(grads)
            return [plain.rebuild(args[position], of_all) for position in self.positions]
        of_tensors, of_parameters, paths = iter(grads[: len(self.xs)]), iter(grads[len(self.xs) :]), iter(self._paths)

        def visit(_: Cell, node: Any) -> Any:
            if registry.backend_for(node) is not None:
                return next(of_tensors)
            if model_backend(node) is None:
                return None if is_code(node) else node
            found = {path: next(of_parameters) for path in next(paths)}
            return found[""] if list(found) == [""] else found  # a single variable

        return [self._walk(args[position], visit) for position in self.positions]


def find_positions(given: list[int], count: int) -> list[int]:
    """Return positions, which may count from the end, among so many arguments; refuse others."""
    return [each if 0 <= each < count else _position(each, count) for each in given]


def _position(given: int, count: int) -> int:
    if not -count <= given < count:
        raise gradient_errors.position_error(given, count)
    return given % count


def _at_home(backend: Backend, grad: Tensor, device: Device | None) -> Tensor:
    """Return a gradient on the device of its tensor."""
    if device is None or backend.is_tracer(grad) or backend.device_of(grad) is device:
        return grad
    return engine.move(backend, grad, device)

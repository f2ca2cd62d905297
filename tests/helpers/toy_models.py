"""Models and optimizers of a fictitious framework, and the methods of its adapter about them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from devshim.contract.models import Layer, Leaf, Weight
from devshim.errors import CheckpointError


class Parameter:
    """An object that stays the same while its data is swapped."""

    def __init__(self, data: Any, kind: str = "parameter") -> None:
        self.data, self.kind = data, kind
        self.gradient: Any = None


class Model:
    """Named parameters, and the layers they belong to: kind, path, {role: (name, axes)}, facts."""

    def __init__(self, layers: list[tuple[str, str, dict[str, Any], dict[str, Any]]], **more: Parameter) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.layers = layers
        self.parameters.update(more)
        self.rewired = 0


class Optimizer:
    """Momentum of each parameter, created in the first step, and a learning rate."""

    def __init__(self, model: Model, rate: float) -> None:
        self.model, self.rate = model, rate
        self.momentum: dict[str, Parameter] = {}

    def step(self) -> None:
        for name, parameter in self.model.parameters.items():
            kept = self.momentum.setdefault(name, Parameter(parameter.data * 0, "state"))
            kept.data = kept.data + 1
            parameter.data = parameter.data - self.rate * kept.data


class Toys:
    """The model methods of an adapter; mixed into the fictitious framework's adapter."""

    refuses: str | None = None

    def is_model(self, cls: type) -> bool:
        return issubclass(cls, (Model, Optimizer)) and cls.__module__ == self.name  # type: ignore[attr-defined]

    def leaves(self, obj: Any) -> list[Leaf]:
        held = obj.parameters if isinstance(obj, Model) else obj.momentum
        found = []
        for path, parameter in held.items():
            beside = None if isinstance(obj, Model) else obj.model.parameters[path]
            read, write = self.access(parameter, "data", path)
            found.append(Leaf(path, parameter.kind, read, write, parameter, beside))  # type: ignore[arg-type]
            if parameter.gradient is not None:
                read, write = self.access(parameter, "gradient", path)
                found.append(Leaf(f"{path}.grad", "gradient", read, write, (parameter,), parameter))
        return found

    def access(self, parameter: Parameter, name: str, path: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        def write(new: Any) -> None:
            if self.refuses == path:
                self.refuses = None
                raise RuntimeError("asked to")
            setattr(parameter, name, new)

        return lambda: getattr(parameter, name), write

    def install_hooks(self, obj: Any, where: Any) -> Callable[[], None]:
        if isinstance(obj, Model):
            obj.rewired += 1
        return lambda: None

    def layers(self, model: Model) -> list[Layer]:
        return [
            Layer(kind, path, {role: Weight(name, axes) for role, (name, axes) in weights.items()}, settings)
            for kind, path, weights, settings in model.layers
        ]

    def get_extra_state(self, obj: Any) -> Any:
        return None if isinstance(obj, Model) else {"rate": obj.rate, "names": list(obj.momentum)}

    def set_extra_state(self, obj: Any, state: Any, forms: Any) -> Callable[[], None]:
        rate, momentum = obj.rate, dict(obj.momentum)
        if state["names"] and set(state["names"]) != set(obj.model.parameters):
            raise CheckpointError("another optimizer", "load its own")
        obj.rate = state["rate"]
        for name in state["names"]:
            obj.momentum.setdefault(name, Parameter(obj.model.parameters[name].data * 0, "state"))

        def undo() -> None:
            obj.rate, obj.momentum = rate, momentum

        return undo


def classes_of(name: str) -> Any:
    """Return the fictitious framework's own classes."""
    found = {cls.__name__: type(cls.__name__, (cls,), {"__module__": name}) for cls in (Model, Optimizer)}
    return SimpleNamespace(**found)

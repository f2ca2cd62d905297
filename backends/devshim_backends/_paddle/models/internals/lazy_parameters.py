"""Parameters without memory, made under ``LazyGuard``: their memory is later allocated where they were placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim_backends._paddle.scopes import open_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

    Undo = Callable[[], None]

__all__ = ["place_lazy", "planned_device"]


class PlannedInitializer:
    """An initializer that allocates a parameter's memory on a given device."""

    def __init__(self, initializer: Any, device: Device) -> None:
        self._initializer: Any = (
            initializer._initializer if isinstance(initializer, PlannedInitializer) else initializer
        )
        self.device = device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with open_scope(self.device):
            return self._initializer(*args, **kwargs)


def planned_device(tensor: Tensor) -> Device | None:
    """Return the device on which a tensor without memory will get it, or None if no device was chosen."""
    initializer = getattr(tensor, "_init_func", None)
    return initializer.device if isinstance(initializer, PlannedInitializer) else None


def place_lazy(prefix: str, layer: Any, where: Callable[[str], Device], undo: list[Undo]) -> None:
    """Make a layer's parameters get their memory on their devices later, and append functions that undo this."""
    for name, tensor in layer._parameters.items():
        initializer = getattr(tensor, "_init_func", None)
        if initializer is not None and not tensor._is_initialized():
            undo.append(_set_initializer(tensor, PlannedInitializer(initializer, where(prefix + name))))
    for name, child in layer._sub_layers.items():
        if child is not None:
            place_lazy(f"{prefix}{name}.", child, where, undo)


def _set_initializer(tensor: Tensor, initializer: PlannedInitializer) -> Undo:
    before = tensor._init_func

    def undo() -> None:
        tensor._init_func = before

    tensor._init_func = initializer
    return undo

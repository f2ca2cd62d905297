"""Making Keras models compute where they were placed, when PyTorch is the backend of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim_backends._keras.building import store_planned_devices
from devshim_backends._keras.traversal import is_layer
from devshim_backends._torch.models.keras.calls import set_backend
from devshim_backends._torch.models.keras.patching import patch_keras
from devshim_backends._torch.models.keras.split_forward import mark_split_layers
from devshim_backends._torch.models.keras.traversal import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Undo = Callable[[], None]

__all__ = ["install", "install_hooks"]


def install(backend: Backend) -> None:
    """Patch Keras, which has been imported, to compute where its data is."""
    set_backend(backend)
    patch_keras()


def install_hooks(backend: Backend, obj: Any, where: Callable[[str], Device]) -> Undo:
    """Make a layer or model compute where its variables are; see `ModelBackend.install_hooks`."""
    install(backend)
    if not is_layer(obj):
        return lambda: None
    undo_plan = store_planned_devices(CONTENTS, obj, where)
    try:
        unmark = mark_split_layers(backend, obj)
    except BaseException:
        undo_plan()
        raise
    for _, model in CONTENTS.compiled_parts(obj):
        for name in ("train", "test", "predict") if model.jit_compile else ():
            if getattr(model, f"{name}_function") is not None:
                getattr(model, f"make_{name}_function")(force=True)

    def undo() -> None:
        unmark()
        undo_plan()

    return undo

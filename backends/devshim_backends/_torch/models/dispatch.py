"""Making a model compute where its tensors are: lazy parameters, recurrent weights, and hooks that move activations.

Requirements of this module:

* A model on one device is as PyTorch made it: all hooks that devshim installed are removed.
* On a split model, each part on one device copies its inputs there (`split_forward.copy_inputs`), and each module with
  parts on several devices aligns the devices of their results (`split_forward.SplitForward`).
* A model that cannot compute over several devices is refused, before it is moved.
* Modules whose parameters have no shape yet create them on the device that they were placed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import _forward_unimplemented
from torch.nn.parameter import is_lazy

from devshim.contract.blocks import join_path
from devshim.errors import ArgumentError, UnsupportedError
from devshim_backends._torch.devices import native
from devshim_backends._torch.models.internals.own_apply import all_devices_of, note_device, notes_of
from devshim_backends._torch.models.internals.tensordict_devices import note_devices
from devshim_backends._torch.models.split_forward import SplitForward, copy_inputs
from devshim_backends._torch.models.storage_swap import data_setter
from devshim_backends._torch.models.traversal import devices_of, own_devices_of, own_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

    Undo = Callable[[], None]


def install_hooks(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Install the hooks that a model needs on its devices; see `devshim.contract.models.ModelBackend.install_hooks`."""
    undo: list[Undo] = [_hook_restorer(module) for module in model.modules()]

    def undo_all() -> None:
        for each in reversed(undo):
            each()

    try:
        for path, tensor in _lazy_tensors(model):
            undo.append(_place_lazy(tensor, native(where(path))))
        _refuse_fixed_devices(backend, model)
        for path, module in model.named_modules():
            _remove_hooks(module)
            if isinstance(module, torch.nn.RNNBase):
                _flatten_weights(backend, module)
            device = _device_to_note(path, module, where) if notes_of(module) else None
            if device is not None:
                undo.append(note_device(module, device))
            forget = note_devices(module)
            if forget is not None:
                undo.append(forget)
        if len(devices_of(model)) > 1:
            _install_on_parts(backend, "", model, set())
    except BaseException:
        undo_all()
        raise
    return undo_all


# ---------------------------------------------------------------------- lazy parameters and recurrent weights
def _lazy_tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the path and the tensor of each parameter and buffer without a shape."""
    for prefix, module in model.named_modules():
        yield from ((join_path(prefix, name), tensor) for name, tensor in own_tensors(module) if is_lazy(tensor))


def _place_lazy(tensor: Tensor, device: Any) -> Undo:
    """Make a tensor without a shape create its data on a device later, by moving its empty data there."""
    before, write = tensor.data, data_setter(tensor)
    write(torch.empty(0, dtype=before.dtype, device=device))
    return lambda: write(before)


def _flatten_weights(backend: Backend, module: Any) -> None:
    """Join recurrent weights in one block of memory, as cuDNN expects and `Module.to` does.

    This temporarily needs memory for a second copy. If the card does not have it, that is not an error: cuDNN then
    makes the block at each call, and PyTorch warns about it.
    """
    weights = [each for each in module._flat_weights if isinstance(each, torch.Tensor) and not is_lazy(each)]
    if any(each.is_cuda for each in weights) and len({each.untyped_storage().data_ptr() for each in weights}) > 1:
        try:
            module.flatten_parameters()
        except RuntimeError as error:
            if not backend.is_out_of_memory(error):
                raise


def _device_to_note(path: str, module: Any, where: Callable[[str], Device]) -> Any:
    """Return the native device of a module's tensors, or on which one without tensors was placed; None for several."""
    devices = all_devices_of(module)
    if devices:
        return devices[0] if len(devices) == 1 else None
    try:
        return native(where(path))
    except ArgumentError:  # a placement that names other leaves only
        return None


# ---------------------------------------------------------------------- hooks
def _install_on_parts(backend: Backend, path: str, module: Any, seen: set[int]) -> None:
    """Install hooks on the parts of a split model, and wrap the ``forward`` of modules whose parts are apart."""
    if id(module) in seen:
        return
    seen.add(id(module))
    found = devices_of(module)
    called = _is_called(module)
    if len(found) < 2 and called:
        if found:
            _add_hook(module)
        return
    if len(found) > 1:
        _refuse_to_split(backend, path, module)
        if called:
            module.forward = SplitForward(module, vars(module).get("forward"))
    for name, child in module.named_children():
        _install_on_parts(backend, join_path(path, name), child, seen)


def _is_called(module: Any) -> bool:
    """Return True if a module computes something; torch.compile's wrapper leaves it to the module that it wraps."""
    if isinstance(module, torch.jit.ScriptModule):
        return True
    return type(module).forward is not _forward_unimplemented and "_orig_mod" not in module._modules


def _add_hook(module: Any) -> None:
    """Do the same as ``register_forward_pre_hook(copy_inputs, prepend=True, with_kwargs=True)``.

    TorchScript modules refuse that call, because their own code would not run the hook; calls from Python do.
    """
    handle = torch.utils.hooks.RemovableHandle(
        module._forward_pre_hooks, extra_dict=module._forward_pre_hooks_with_kwargs
    )
    module._forward_pre_hooks[handle.id] = copy_inputs
    module._forward_pre_hooks_with_kwargs[handle.id] = True
    module._forward_pre_hooks.move_to_end(handle.id, last=False)


def _remove_hooks(module: Any) -> None:
    """Remove the hook and the ``forward`` that devshim installed on a module."""
    forward = vars(module).get("forward")
    if isinstance(forward, SplitForward):
        forward.uninstall()
    for key in [key for key, hook in module._forward_pre_hooks.items() if hook is copy_inputs]:
        del module._forward_pre_hooks[key]
        module._forward_pre_hooks_with_kwargs.pop(key, None)


def _hook_restorer(module: Any) -> Undo:
    """Return a function that restores a module's hooks, in the same dictionaries: handles of hooks refer to them."""
    own = vars(module)
    forward = own.get("forward")
    registries = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
    before = [(hooks, list(hooks.items())) for hooks in registries]

    def restore() -> None:
        for hooks, items in before:
            hooks.clear()
            hooks.update(items)
        if own.get("forward") is not forward:
            own.pop("forward", None) if forward is None else own.update(forward=forward)

    return restore


# ---------------------------------------------------------------------- checks
def _refuse_to_split(backend: Backend, path: str, module: Any) -> None:
    """Refuse to split a module that computes with several of its own tensors in one operator."""
    what = f"{path or 'the model'} ({type(module).__name__})"
    if isinstance(module, torch.jit.ScriptModule):
        msg = f"{what} is compiled to TorchScript, which cannot copy tensors between devices"
        raise UnsupportedError(msg, "place it on one device, or split the model before torch.jit.script")
    found = own_devices_of(module)
    if len(found) > 1:
        devices = " and ".join(str(backend.from_native(device)) for device in found)
        msg = f"the tensors of {what} would be on {devices}, but it uses them in the same operator"
        raise UnsupportedError(msg, f"place all of {path or 'it'} on one device")


def _refuse_fixed_devices(backend: Backend, model: Any) -> None:
    """Refuse to move a module that chose its devices when it was made, unless it is on them."""
    for path, module in model.named_modules():
        what = f"{path or 'the model'} ({type(module).__name__})"
        fixed = _fixed_device(module)
        if fixed is not None and set(devices_of(module)) != {fixed}:
            msg = f"{what} chose its devices when it was created, and works only from {backend.from_native(fixed)}"
            raise UnsupportedError(msg, "place the module that it wraps (its attribute module), and wrap that again")
        if hasattr(module, "_hf_hook"):
            msg = f"{what} has hooks of accelerate, which copy its inputs to its previous device"
            raise UnsupportedError(msg, "call accelerate.hooks.remove_hook_from_submodules(model) first")


def _fixed_device(module: Any) -> Any:
    """Return the device from which a wrapper for several devices works; None for any other module."""
    if isinstance(module, torch.nn.DataParallel):
        return module.src_device_obj if module.device_ids else None
    return module.device if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None

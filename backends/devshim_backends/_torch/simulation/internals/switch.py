"""Switching simulation on and off, and the steps that PyTorch allows a process to take only once."""

from __future__ import annotations

from typing import Any

import torch

from devshim.errors import SimulationError
from devshim_backends._torch.simulation import dtypes, tensors
from devshim_backends._torch.simulation.hooks import (
    fallback,
    fallback_sparse,
    refuse_nested,
    refuse_quantized,
    without_modes,
)
from devshim_backends._torch.simulation.internals import (
    accelerator,
    attention,
    autocast,
    comm,
    composites,
    defaults,
    device_names,
    engine,
    generators,
    indices,
    messages,
    module,
    patches,
    sent_tensors,
    streams,
)
from devshim_backends._torch.simulation.internals.engine import NOTHING, PENDING
from devshim_backends._torch.simulation.internals.kernels import KERNELS
from devshim_backends._torch.simulation.internals.state import CURRENT, NAME, SIMULATION, return_gpus
from devshim_backends._torch.simulation.internals.untraced import keep_compiler_out

_PRIVATE_USE = torch._C._autograd.DeviceType.PrivateUse1
_LIBRARIES: list[Any] = []
"""Libraries that must live as long as the process: PyTorch removes kernels when their library is deleted."""


def set_gpus(count: int, limit: int | None, *, named: bool = False) -> None:
    """Simulate this many GPUs from now on; 0 for none.

    With ``named``, PyTorch is patched for native names even if there are none, because all are hidden.

    Raises:
        SimulationError: This PyTorch is too old, or another package uses the device key.
    """
    is_on = bool(count or named)
    if is_on:
        _register()
    return_gpus()
    if is_on and SIMULATION.is_on:  # PyTorch is patched already, and other threads may be running patched functions
        SIMULATION.count, SIMULATION.limit = count, limit
        generators.create_all(count)
        return
    patches.uninstall_all()
    CURRENT.index = 0  # the next simulation begins with the first GPU, as a program does
    SIMULATION.count, SIMULATION.limit, SIMULATION.on_leaving_first_gpu = count, limit, indices.patch
    generators.create_all(count)
    capability = getattr(torch.accelerator, "get_device_capability", None)  # exists from 2.11 on
    if capability is not None:
        capability.cache_clear()
    SIMULATION.is_on = is_on
    if is_on:
        try:
            _patch()
        except BaseException:
            patches.uninstall_all()
            SIMULATION.count, SIMULATION.is_on = 0, False
            raise


def _patch() -> None:
    device_names.patch()
    engine.patch()
    messages.patch()
    tensors.patch()
    attention.patch()
    comm.patch()
    defaults.patch()
    sent_tensors.patch()
    streams.patch()
    for name, hook in accelerator.HOOKS.items():
        if hasattr(torch._C, name):
            patches.install(torch._C, name, hook)


def _register() -> None:
    """Name the device and register its kernels: once, for the life of the process."""
    if _LIBRARIES:
        return
    setup = getattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        msg = f"PyTorch {torch.__version__} cannot simulate GPUs: that takes PyTorch 2.10 or newer"
        raise SimulationError(msg, "pip install 'torch>=2.10'")
    registered = torch._C._get_privateuse1_backend_name()
    if registered != "privateuseone":
        msg = f"PyTorch cannot simulate GPUs now: it allows one custom device, and a package registered {registered!r}"
        raise SimulationError(msg, f"simulate GPUs in a process that does not import the package for {registered!r}")
    engine.start_without_threads()
    real_accelerator = torch._C._accelerator_getAccelerator()

    def register() -> None:
        setup(NAME, backend_module=module, hook=_Hook(), device_guard=_Guard())
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True
        )

    device_names.record(register)
    tensors.patch_permanently()
    accelerator.patch_permanently(real_accelerator)
    _LIBRARIES.extend(_kernels())
    keep_compiler_out(__package__.rpartition(".")[0])


class _Hook(torch._C._acc.PrivateUse1Hooks):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """The device's answers to questions from C++."""

    def is_available(self) -> bool:
        return SIMULATION.count > 0

    def has_primary_context(self, index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


class _Guard(torch._C._acc.DeviceGuard):  # type: ignore[misc]
    """The device guard: PyTorch's C++ uses it to identify the device."""

    def type_(self) -> Any:
        try:
            for _ in NOTHING:  # raises a pending error: no call of this method may end with one pending
                pass
        except BaseException as error:
            PENDING.error = error
        return _PRIVATE_USE


def _kernels() -> list[Any]:
    """Register every kernel, and return the libraries that keep them registered."""
    all_operators = torch.library.Library("_", "IMPL")
    all_operators.fallback(fallback, "PrivateUse1")
    all_operators.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    all_operators.fallback(refuse_quantized, "QuantizedPrivateUse1")
    all_operators.fallback(refuse_nested, "NestedTensorPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for form in ("Sparse", "SparseCsr"):
        all_operators.fallback(fallback_sparse, f"{form}PrivateUse1")
        for name, kernel in composites.sparse_kernels(form):
            aten.impl(name, kernel, f"{form}PrivateUse1")
    for name, kernel in composites.nested_kernels():
        aten.impl(name, kernel, "NestedTensorPrivateUse1")
    for name, kernel in composites.quantized_kernels():
        aten.impl(name, kernel, "QuantizedPrivateUse1")
    for name, kernel in KERNELS.items():
        aten.impl(name, without_modes(kernel), "PrivateUse1")
    for name, kernel in composites.kernels():
        aten.impl(name, kernel, "PrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):  # the second replaces the decomposition that the CPU uses
        aten.impl("scaled_dot_product_attention", attention.attention, key)
        for name, kernel in dtypes.make_transform_kernels().items():
            aten.impl(name, kernel, key)
    for key in ("NestedTensorPrivateUse1", "AutogradNestedTensor"):
        aten.impl("scaled_dot_product_attention", attention.nested_attention, key)
    for key in ("Conjugate", "Negative"):  # otherwise C++ resolves these bits by a copy, which resolves by a copy, ...
        aten.impl("_copy_from", torch.library.fallthrough_kernel, key)
    for name, kernel in autocast.kernels().items():
        aten.impl(name, kernel, "AutocastPrivateUse1")
    return [all_operators, aten]

"""TensorFlow's device policy with native names: who may copy tensors between devices silently.

Without native names, devshim sets the policy ``explicit`` in each thread, and checks what it refuses (`device_rules`).
With them, a program has the policy that it chose, as on a real machine: by default, TensorFlow copies the inputs of an
operator to its device. The strict policy applies in the scopes of devshim (`ds.on`); `scopes` sets it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim_backends._tensorflow.failures import MixedDevicesError
from devshim_backends._tensorflow.internals.locations import keep_alive
from devshim_backends._tensorflow.simulation import device_rules, hooks
from devshim_backends._tensorflow.simulation.device_rules import set_policy
from devshim_backends._tensorflow.simulation.memory import LOCAL
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.internals.scopes import SCOPE
from devshim_backends._tensorflow.simulation.native_names.names import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.devices.device import Device
    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.internals.locations import TensorflowLocations
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install", "uninstall"]

_backend: TensorflowSimulation


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Give each thread the program's policy, outside the scopes of devshim."""
    global _backend
    _backend = backend
    patches.replace(hooks, "_enter_simulation", _enter_simulation)
    patches.replace(hooks, "_run_fast_on", _run_fast_on)
    patches.replace(hooks, "run_refused_operator", _wrap_refused(device_rules.run_refused_operator))
    patches.replace_item(hooks._SPECIAL, "Identity", _wrap_identity(hooks._SPECIAL["Identity"]))
    patches.replace(device_rules, "_common_device", _wrap_common_device(device_rules._common_device))
    patches.replace(device_rules, "_is_hosted", _wrap_is_hosted(device_rules._is_hosted))
    _set(backend.program_policy)


def uninstall() -> None:
    """Give each thread the strict policy again, while GPUs are simulated."""
    if _backend.is_simulating:
        _set(context.DEVICE_PLACEMENT_EXPLICIT)


def _set(policy: Any) -> None:
    """Set the policy of this thread, and of others at their next operator."""
    context.context()._device_policy = policy
    hooks.begin_epoch()
    if _backend.started():
        set_policy(policy)


def _enter_simulation() -> None:
    """Set the policy of a thread at its first operator; replaces the function of `hooks`, which sets the strict one."""
    LOCAL.epoch = hooks._epoch
    if _backend.simulated:
        context.context().ensure_initialized()
        set_policy(context.DEVICE_PLACEMENT_EXPLICIT if SCOPE.strict else context.context()._device_policy)


def _run_fast_on(device: Device, args: tuple[Any, ...]) -> Any:
    """Run an operator on a device, without a scope, which would set the policy."""
    local = args[0]._thread_local_data
    before = local.device_name
    try:
        name = CLUSTER.here + hooks._logical_name(device).replace("/", "/device:")
        local.device_name = keep_alive(name)
        return hooks._FAST(*args)
    finally:
        local.device_name = before


def _wrap_identity(original: Callable[..., Any]) -> Callable[..., Any]:
    """In the scopes of devshim, ``tf.identity`` runs where its tensor is; a program's runs as every operator."""

    def run(args: tuple[Any, ...]) -> Any:
        return original(args) if SCOPE.strict else hooks._FAST(*args)

    return run


# ---------------------------------------------------------------------------------------------------- refused operators
def _wrap_refused(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operator that a program's own policy refuses fail with TensorFlow's text."""

    def run(backend: TensorflowLocations, op: str, inputs: Sequence[Any], run_on: Any, error: Any) -> Any:
        try:
            return original(backend, op, inputs, run_on, error)
        except MixedDevicesError as refused:
            if SCOPE.strict:
                raise
            text = shown_text(error.message).replace("_Mkl", "")  # oneDNN's
            raise MixedDevicesError(text, refused.hint) from None

    return run


def _wrap_common_device(original: Callable[..., Device]) -> Callable[..., Device]:
    def common_device(backend: TensorflowLocations, op: str, inputs: Sequence[Any]) -> Device:
        if not SCOPE.strict:
            return _device_of_program(original, backend, op, inputs)
        try:
            return original(backend, op, inputs)
        except MixedDevicesError:
            pass
        try:
            SCOPE.constants_move = True
            return original(backend, op, inputs)
        finally:
            SCOPE.constants_move = False

    return common_device


def _device_of_program(
    original: Callable[..., Device], backend: TensorflowLocations, op: str, inputs: Sequence[Any]
) -> Device:
    """Return the device of an operator that a policy of the program, or of a guard, has refused."""
    local = context.context()._thread_local_data
    before = local.device_name
    try:
        local.device_name = before or CLUSTER.first
        found = original(backend, op, inputs)
        on_host = device_rules._HOST_INPUTS.get(op, ())
        located = {
            number: CPU
            for number, x in enumerate(device_rules._tensors(inputs))
            if number not in on_host and backend.device_of(x) is CPU and not device_rules._may_stay_on_host(x)
            if x.dtype not in device_rules._HANDLES
        }
        if found is not CPU and located:
            raise device_rules._mixed_devices_error(op, dict(located), found)
    finally:
        local.device_name = before
    return found


def _wrap_is_hosted(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_hosted(x: Any) -> bool:
        return original(x) or (SCOPE.constants_move and hasattr(x, "_devshim_anywhere"))

    return is_hosted

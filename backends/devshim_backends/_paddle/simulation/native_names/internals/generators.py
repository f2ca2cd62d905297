"""The states of random generators: simulated GPUs draw from the generator of the CPU, which computes for them.

Paddle also has a generator for each device of a plug-in, but operators on the CPU do not use it: a program that
restored its state would draw other numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.native_names import names

if TYPE_CHECKING:
    from collections.abc import Iterator

_random = paddle.framework.random


def get_rng_state(device: Any = None) -> Any:
    """Return the state of the generator of a simulated GPU, or of the CPU."""
    _require(device)
    return core.default_cpu_generator().get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Set the state of the generator of a simulated GPU, or of the CPU."""
    _require(device)
    core.default_cpu_generator().set_state(new_state)


def manual_seed(seed: int) -> None:
    """Seed the generator of the default device."""
    core.default_cpu_generator().manual_seed(int(seed))


def _require(device: Any) -> None:
    """Raise an error unless a device is the CPU or an existing GPU."""
    place = paddle.device.device_to_place(device)
    if not isinstance(place, paddle.CPUPlace):
        names.index_of(place)


# ---------------------------------------------------------------------- one state for each GPU
def _get_states() -> list[Any]:
    return [core.default_cpu_generator().get_state() for _ in range(names.backend().simulated)]


def _set_states(state_list: Any) -> None:
    if len(state_list) != names.backend().simulated:
        msg = "Length of gpu state list should be equal to the gpu device count"  # the words of Paddle
        raise ValueError(msg)
    for state in state_list[:1]:  # none if all GPUs are hidden
        core.default_cpu_generator().set_state(state)


def _is_on_gpu(device: Any) -> bool:
    return names.is_simulated(paddle.device.device_to_place(device))


def functions() -> dict[Any, Any]:
    """Return Paddle's functions for the generators of all GPUs -> their replacements."""
    get_all, set_all = _random.get_rng_state, _random.set_rng_state

    def get_rng_state(device: Any = None) -> list[Any]:
        return _get_states() if _is_on_gpu(device) else get_all(device)

    def set_rng_state(state_list: Any, device: Any = None) -> None:
        if _is_on_gpu(device):
            _set_states(state_list)
        else:
            set_all(state_list, device)

    return {
        get_all: get_rng_state,
        set_all: set_rng_state,
        _random.get_cuda_rng_state: _get_states,
        _random.set_cuda_rng_state: _set_states,
    }


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield the functions for the generator of one device to replace: module, name and new function."""
    for module in (paddle.device, paddle.device.cuda, getattr(paddle, "cuda", None)):
        for function in (get_rng_state, set_rng_state, manual_seed):
            if hasattr(module, function.__name__):
                yield module, function.__name__, function

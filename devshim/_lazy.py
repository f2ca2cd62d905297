"""The lazy loader of the public names (PEP 562): the module of each name is imported when the name is first used.

`HOMES` and the imports of ``devshim/__init__.py`` are also the source from which the stub ``devshim/__init__.pyi`` for
type checkers and editors is generated. `publish` prepares each loaded name.
"""

from __future__ import annotations

import sys

from devshim._compiler_marks import keep_source

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    F = TypeVar("F")

__all__ = ["HOMES", "LAZY", "Later", "hide_packages", "load", "load_listeners", "publish"]

HOMES = {
    "devshim.simulation.memory": "Fault",
    "devshim.registry.current": "backends framework use using",
    "devshim.monitoring.explain": "explain",
    "devshim.trees.not_moved": "NotMovedWarning",
    "devshim.collectives.parallel": "parallel",
    "devshim.collectives.data_parallel": "data_parallel",
    "devshim.runtime.queries": "describe device_count devices require try_all_gpus try_gpu",
    "devshim.collectives.all_reduce": "all_reduce_",
    "devshim.world.launcher": "launch",
    "devshim.world.current": "world",
    "devshim.world.world": "World",
    "devshim.checkpoints.api": "load save",
    "devshim.checkpoints.rows": "Rows",
    "devshim.interop.convert": "convert",
    "devshim.interop.leaf_values": "assign leaves",
    "devshim.tensors.creation": ("arange empty empty_like eye full full_like linspace ones ones_like zeros zeros_like"),
    "devshim.monitoring.guard": "TransferWarning guard",
    "devshim.devices.info": "BackendInfo DeviceInfo MemoryInfo",
    "devshim.monitoring.ledger": "Transfer TransferLog transfers",
    "devshim.monitoring.metric_log": "MetricLog",
    "devshim.placement.placement": "Placement placement_of",
    "devshim.runtime.batch_size": "is_out_of_memory shrink_batch",
    "devshim.runtime.local_gpu": "local_gpu",
    "devshim.runtime.memory": "empty_cache memory memory_policy set_visible_devices synchronize",
    "devshim.runtime.prefetching": "prefetch",
    "devshim.runtime.timing": "timer",
    "devshim.runtime.scopes": "on require_same_device same_device set_device",
    "devshim.runtime.running": "run",
    "devshim.collectives.split": "broadcast gather replicate split",
    "devshim.simulation.simulate": "simulate",
    "devshim.tensors.from_values": "asarray from_numpy",
    "devshim.tensors.default_dtypes": "set_default_dtype",
    "devshim.tensors.placing": "copy device_of dtype_of place to_numpy",
    "devshim.tensors.namespaces": "namespace",
    "devshim.tensors.gradients": "stop_gradient value_and_grad",
}
"""Module -> the public names that are loaded from it."""

LAZY = {name: module for module, names in HOMES.items() for name in names.split()}


def publish(found: F, module: str = "devshim") -> F:
    """Give a function or class the name of its public module, and keep its functions as they are written."""
    for member in (found, *vars(found).values()):
        each = getattr(member, "__func__", member)  # the function of a class method
        if type(each) is type(publish) and each.__module__.startswith("devshim"):
            keep_source(each)
    found.__module__ = module
    return found


def hide_packages() -> None:
    """Make ``ds.devices``, ``ds.transfers`` and ``ds.world`` the public functions, not the packages of these names.

    Python binds a package's name in its parent once, when the package is first imported. So import them here.
    """
    from importlib import import_module

    for name in ("devices", "transfers", "world"):
        import_module(f"devshim.{name}")
        vars(sys.modules["devshim"]).pop(name, None)


def load(name: str) -> object:
    """Load and return a public name of devshim, and store it in the package for later lookups."""
    from importlib import import_module

    if name in LAZY or name == "random":
        import_module("devshim.registry.tracing")  # first: inside a compiled function it loads the framework's adapter
    if name == "random":
        return import_module("devshim.random")
    module = LAZY.get(name)
    if module is None:
        msg = f"module 'devshim' has no attribute {name!r}"
        raise AttributeError(msg)
    found = publish(getattr(import_module(module), name))
    vars(sys.modules["devshim"])[name] = found
    return found


_LISTENERS = ("devshim.registry.current", "devshim.registry.native_devices", "devshim.simulation.simulate")
"""The modules that are notified of each backend that is loaded (`devshim.registry.registry.on_load`)."""


class Later:
    """A stand-in for a module, which is imported when one of its attributes is first read."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        return getattr(import_module(self._module), name)


def load_listeners() -> None:
    """Import the modules that must be notified of every backend, including the first one."""
    from importlib import import_module

    for module in _LISTENERS:
        import_module(module)

"""The processes of a cluster, each with simulated GPUs, and their names for devices.

A process that joins a cluster changes the names of its own devices, from ``/job:localhost/replica:0/task:0`` to those
of its task, and TensorFlow lists the devices of other processes, too (`tf.config.experimental_connect_to_cluster`,
`tf.distribute.ParameterServerStrategy`). In those, ``CPU:1`` is ``GPU:0`` as well: they run under ``devshim run``, or
are a `tf.distribute.Server` of this process, which gets a logical CPU for each simulated GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.training import server_lib

from devshim_backends._tensorflow.internals.locations import keep_alive, this_process
from devshim_backends._tensorflow.simulation.native_names.internals.session_devices import read_visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["CLUSTER", "install"]


class _Cluster:
    """The processes that TensorFlow knows.

    Attributes:
        here: The name of this process, with which the names of its devices begin.
        first: TensorFlow's name of the logical CPU that is ``GPU:0`` of this process.
        others: The name of each other process, and the number of its GPUs.
    """

    here: str
    first: str
    others: Mapping[str, int]

    def update(self, devices: Sequence[Any]) -> None:
        """Read the names of the devices that TensorFlow lists."""
        self.here = this_process()
        self.first = keep_alive(f"{self.here}/device:CPU:1")
        others: dict[str, int] = {}
        for each in devices:
            given = tf.DeviceSpec.from_string(each.name)
            name = self.process_of(given)
            if name != self.here and given.device_type == "CPU":
                others[name] = max(others.get(name, 0), given.device_index)
        self.others = others

    def process_of(self, given: Any) -> str:
        """Return the name of the process to which a device belongs; a name without a job is of this process."""
        if given.job is None:
            return self.here
        return f"/job:{given.job}/replica:{given.replica or 0}/task:{given.task or 0}"


CLUSTER = _Cluster()


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Follow what TensorFlow lists, and give the servers of this process simulated GPUs."""
    owner = context.Context
    patches.replace(owner, "_initialize_logical_devices", _wrap_list(owner._initialize_logical_devices))
    for name in ("set_server_def", "enable_collective_ops"):
        patches.replace(owner, name, _wrap_join(getattr(owner, name), backend))
    patches.replace(server_lib, "_make_server_def", _wrap_server(server_lib._make_server_def, backend))
    CLUSTER.update(getattr(context.context(), "_logical_devices", None) or ())


def _wrap_list(original: Callable[..., None]) -> Callable[..., None]:
    def read(self: Any) -> None:
        original(self)
        CLUSTER.update(self._logical_devices)

    return read


def _wrap_join(original: Callable[..., None], backend: TensorflowSimulation) -> Callable[..., None]:
    def join(self: Any, server_def: Any, *args: Any, **kwargs: Any) -> None:
        if server_def and backend.reserve_exactly():
            server_def.default_session_config.device_count["CPU"] = 1 + backend.count("gpu")
        original(self, server_def, *args, **kwargs)

    return join


def _wrap_server(original: Callable[..., Any], backend: TensorflowSimulation) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        server = original(*args, **kwargs)
        given = server.default_session_config
        gpus = backend.physical_gpus  # hidden ones too: `tf.config` changes the context of the process alone
        visible = read_visible(given.gpu_options.visible_device_list, gpus)
        given.device_count["CPU"] = 1 + len(visible[: given.device_count.get("GPU", gpus)])
        return server

    return make

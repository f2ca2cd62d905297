"""Ray clusters: one for a job on this machine, simulated hosts for tests, and access to them.

Each has a token, a file with mode 0600. Ray reads the variables below when it is imported, so they are set in
processes that devshim starts for it: the process of the program never becomes part of a cluster.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devshim.errors import ArgumentError, UnsupportedError, WorldError
from devshim.registry.private_paths import is_private
from devshim.world import ray_start
from devshim.world.reaching import require_cluster

__all__ = [
    "Host",
    "control_address",
    "disable_extra_processes",
    "find_token",
    "hosts_of",
    "make_token",
    "require_private",
    "require_ray",
    "restore_sigterm",
    "settings",
    "start_own",
    "tied",
]

LOOPBACK = "127.0.0.1"
STORE = 512 * 2**20
_EXTRA = ("start_api_server", "start_monitor", "start_log_monitor")
"""The methods of Ray's node that start processes which a job does not need."""
_IDLE = {
    "--dashboard_agent_command=": ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"),
    "--runtime_env_agent_command=": ("runtime_env_agent_port",),
}
"""The options of Ray's node for two more such processes, for whose ports it waits."""
_STARTING = Path(__file__).with_name("starting.py")
_HELPER = Path(__file__).with_name("idle_helper.py")


@dataclass(frozen=True)
class Host:
    """A host of a cluster: its name, Ray's name for it, its address, its number of GPUs, and if they are simulated."""

    name: str
    node: str
    address: str
    cards: int
    simulated: bool


def tied(command: list[str], number: int) -> list[str]:
    """Return a command whose process gets this signal when the thread that starts it ends, even by SIGKILL."""
    return [sys.executable, "-I", "-S", str(_STARTING), str(os.getpid()), str(int(number)), *command]


def require_ray() -> None:
    """Raise `UnsupportedError` if Ray is not installed."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        msg = "devshim starts several ranks with Ray, which is not installed"
        raise UnsupportedError(msg, 'pip install "devshim[ray]"')


def require_private(folder: Path, hint: str) -> Path:
    """Return a folder that only this user can read.

    Raises:
        WorldError: It belongs to another user, or others may read it.
    """
    if not is_private(folder):
        msg = f"the folder {folder} is not private: others may own or read it"
        raise WorldError(msg, hint)
    return folder


def make_token(folder: Path) -> Path:
    """Write a new token to a file in a folder that only this user can read, and return its path."""
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def find_token(address: str) -> Path:
    """Return the token file of a cluster; the environment names it.

    Raises:
        ArgumentError: There is none, or others may read it.
    """
    name = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not name or not os.path.isfile(name):
        msg = f"there is no token for the cluster at {address}, and without a token anybody could run code on it"
        raise ArgumentError(
            msg, "set RAY_AUTH_TOKEN_PATH to the file with the token with which the cluster was started"
        )
    if not is_private(os.path.realpath(name)):
        msg = f"others may read the token {name}"
        raise ArgumentError(msg, f"chmod 600 {name}")
    return Path(name)


def settings(token: Path, folder: Path, local: bool) -> dict[str, str]:
    """Return Ray's environment variables for a process of a cluster.

    Args:
        token: The file with the cluster's token.
        folder: Where Ray keeps its files and sockets.
        local: True to listen only on the loopback address.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_TMPDIR": str(folder),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0" if local else "1",  # of macOS and Windows; works on Linux as well
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # Ray would kill the agent, which is small, and with it all its ranks
        "RAY_worker_niceness": "0",  # Ray's own is 15, and the ranks would inherit it
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run`, Ray would copy the working directory to each agent
    }


def start_own(folder: Path) -> None:
    """Start a Ray cluster on this machine, in this process, and connect to it."""
    with disable_extra_processes():
        ray_start.init(
            num_cpus=1,  # Ray starts a process for each CPU, and the agent needs none of these processes
            include_dashboard=False,
            log_to_driver=False,
            logging_level="CRITICAL",
            object_store_memory=STORE,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder / "ray"),  # Ray lets every user write to it
        )


def connect(address: str, seconds: float) -> None:
    """Connect this process to a cluster.

    Args:
        address: Its host and port.
        seconds: How long that may take.

    Raises:
        ArgumentError: The address is not of the form ``host:port``.
        WorldError: No cluster answers there in time, or it does not accept this process.
    """
    until = time.monotonic() + seconds
    require_cluster(address, seconds, Path(os.environ["RAY_AUTH_TOKEN_PATH"]))
    errors: list[Exception] = []

    def begin() -> None:
        try:
            ray_start.init(address=address, log_to_driver=False, logging_level="CRITICAL")
        except Exception as error:
            errors.append(error)

    connecting = threading.Thread(target=begin, daemon=True)  # Ray waits for a cluster without a limit
    connecting.start()
    connecting.join(max(until - time.monotonic(), 0))
    if connecting.is_alive() or errors:
        msg = f"a server answers at {address}, but it has not accepted this process"
        hint = "see whether it is a Ray cluster, and whether RAY_AUTH_TOKEN_PATH names its token"
        raise WorldError(msg, hint) from next(iter(errors), None)


@contextmanager
def disable_extra_processes() -> Iterator[None]:
    """Let Ray start nodes without the processes that no job needs, for which `ray.init` has no option.

    These are the dashboard, the autoscaler, the reader of logs, and in each node one for metrics and one for
    environments. Each is a Python process that imports Ray, and the start waits for three of them. This replaces
    functions of Ray 2.60; another version that has others starts what it always starts.
    """
    from ray._private import node, services

    start = getattr(services, "start_ray_process", None)

    def nothing(self: Any, *_: Any, **__: Any) -> None:
        self._webui_url = ""

    def start_lighter(command: list[str], *args: Any, **options: Any) -> Any:
        assert start is not None
        return start([_with_idle_helper(each) for each in command], *args, **options)

    replaced = {name: getattr(node.Node, name) for name in _EXTRA if hasattr(node.Node, name)}
    for name in replaced:
        setattr(node.Node, name, nothing)
    if start is not None:
        services.start_ray_process = start_lighter
    try:
        yield
    finally:
        if start is not None:
            services.start_ray_process = start
        for name, method in replaced.items():
            setattr(node.Node, name, method)


def _with_idle_helper(option: str) -> str:
    """Return an option of Ray's node, with `idle_helper` in place of the command of a process that no job needs."""
    name = next((each for each in _IDLE if option.startswith(each)), None)
    words = shlex.split(option) if name else []
    known = [word for word in words if word.startswith(("--session-dir=", "--node-id="))]
    if name is None or len(known) != len(("session-dir", "node-id")):  # a Ray that does not wait for a file
        return option
    return name + shlex.join([sys.executable, "-I", "-S", str(_HELPER), *known, *_IDLE[name]])


@contextmanager
def restore_sigterm(also_default: bool = True) -> Iterator[None]:
    """Restore the handler of SIGTERM after a block: Ray replaces it, and a program may save its state in it.

    Args:
        also_default: False to leave Ray's handler if the program has none: that handler ends the processes that Ray has
            started here.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_own = before is not None and (also_default or before != signal.SIG_DFL)
        if is_own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def control_address() -> str:
    """Return the address of the control process of the cluster to which this process is connected."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def hosts_of() -> dict[str, Host]:
    """Return the hosts of the cluster to which this process is connected: name -> host, in the order of names."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    names = [node["Labels"].get("devshim.host") or node["NodeManagerHostname"] for node in nodes]
    found = {}
    for node, name in zip(nodes, names, strict=True):
        known = name if names.count(name) == 1 else node["NodeManagerAddress"]
        known = known if known not in found else f"{known}-{node['NodeID'][:6]}"  # two nodes of one machine
        resources = node["Resources"]
        cards, simulated = int(resources.get("GPU", 0)), int(resources.get("sim_gpu", 0))
        found[known] = Host(known, node["NodeID"], node["NodeManagerAddress"], cards or simulated, bool(simulated))
    return dict(sorted(found.items()))

"""The processes of kernels: how one starts in a framework's environment, and how it ends.

`devshim.tutorial.running` runs a page in them; `devshim.jupyter.kernels` keeps them between the cells of a notebook.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from devshim.tutorial.front_matter import library
from devshim.tutorial.support import kernel_command, support_folder

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.tutorial.environments import Environment

__all__ = ["group_of", "kill_group", "last_lines", "manager_of", "setup_code", "short_folder"]


def short_folder() -> str | None:
    """Return a folder with a short name: the path of a socket has at most 107 characters, on a Mac 103."""
    return "/tmp" if len(tempfile.gettempdir()) > 50 else None


def manager_of(environment: Environment, folder: Path, name: str = "KernelManager") -> Any:
    """Return Jupyter's manager of a kernel that will run in an environment, with its sockets in a folder.

    Raises:
        DevshimError: The packages of a kernel cannot be installed.
    """
    kernelspec, manager = library("jupyter_client.kernelspec"), library("jupyter_client.manager")
    tag, version = environment.tag, environment.python_version.rpartition(".")[0]
    command = kernel_command(environment.python, support_folder(tag, version))
    sockets = {"transport": "ipc", "ip": str(folder / "s"), "connection_file": str(folder / "kernel.json")}
    found = getattr(manager, name)(**sockets)
    found._kernel_spec = kernelspec.KernelSpec(argv=command, display_name=environment.framework)
    return found


def setup_code(framework: str, gpus: int, real: bool, native_names: bool = False) -> str:
    """Return the first code of a kernel, which starts the framework."""
    options = f"real={real}, native_names={native_names}"
    start = f"_kernel.start({framework!r}, {gpus}, {options})"
    return f"from devshim.tutorial import kernel as _kernel\n{start}\ndel _kernel"


def last_lines(log: Path) -> list[str]:
    """Return the last lines that a process wrote to its log."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    return [line for line in text.splitlines() if line.strip()][-3:]


def group_of(manager: Any) -> int | None:
    """Return the process group of a kernel: its process, and those that it starts; None before it starts."""
    group: int | None = getattr(getattr(manager, "provisioner", None), "pgid", None)
    return group


def kill_group(group: int | None) -> None:
    """Kill the processes of a group."""
    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

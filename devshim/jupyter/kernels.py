"""The kernels that ``%%frameworks`` keeps between cells: one for each framework, in the framework's environment.

Requirements of this module:

* Each kernel has one thread, the only one that uses its sockets. Cells run on several kernels at the same time, a
  second ``%%frameworks`` from another thread waits for its turn, and an event loop of the notebook is not disturbed.
* A kernel that dies, or does not stop when it is interrupted, concerns no other kernel; the next cell starts a new one.
* Kernels end with the notebook: when its process exits, and if it is killed.
"""

from __future__ import annotations

import contextlib
import queue
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError
from devshim.registry.processes import describe_exit
from devshim.tutorial import kernel_environment, launching
from devshim.tutorial.front_matter import library

if TYPE_CHECKING:
    from devshim.tutorial.environments import Environment

__all__ = ["Kernel", "Settings", "Shown", "run_all"]

STARTING = 180.0
"""The seconds after which a kernel that does not answer has failed to start."""
PATIENCE = 10.0
"""The seconds that a cell has to end after it was interrupted, before its kernel is killed."""
_LOOK = 0.2
"""The seconds between two checks if a kernel is alive or must be interrupted."""


@dataclass(frozen=True)
class Settings:
    """The settings with which a kernel starts; other settings need another kernel."""

    environment: Environment
    gpus: int
    real: bool


@dataclass
class Shown:
    """The outputs of a cell on one kernel, and the reason if the kernel ended."""

    outputs: list[Any] = field(default_factory=list)
    problem: str | None = None


class Kernel:
    """One framework's kernel, which starts with its first cell.

    Args:
        settings: How to start it.
        folder: The working folder of its code.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.interrupted: threading.Event = threading.Event()
        self._folder = folder
        self._stopped = False
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._manager: Any = None
        self._client: Any = None
        self._thread = ThreadPoolExecutor(1, f"devshim-{settings.environment.framework}")

    @property
    def stopped(self) -> bool:
        """True after `stop`: it no longer runs cells."""
        return self._stopped

    @property
    def runs(self) -> bool:
        """True if its process is alive."""
        return self._manager is not None

    def submit(self, source: str) -> Future[Shown]:
        """Run a cell, after those that were submitted before."""
        return self._thread.submit(self._run, source)

    def stop(self) -> None:
        """End the kernel and its thread; a cell that runs is cut off."""
        self._stopped = True
        launching.kill_group(launching.group_of(self._manager))  # immediately: its thread may be waiting for it
        try:
            self._thread.submit(self._kill)
        except RuntimeError:  # the interpreter is exiting, and has ended the thread
            self._kill()
        self._thread.shutdown()

    # ------------------------------------------------------------------ in the kernel's thread
    def _run(self, source: str) -> Shown:
        try:
            if self._manager is None:
                self._start()
            return Shown(self._execute(source))
        except _EndedError as ended:
            problem = f"{ended}\nThe next cell starts a new one, without the variables."
        except Exception as error:
            problem = str(error) if isinstance(error, DevshimError) else f"{type(error).__name__}: {error}"
        self._kill()
        return Shown(problem=problem)

    def _start(self) -> None:
        settings = self.settings
        self._files = tempfile.TemporaryDirectory(prefix="devshim-", dir=launching.short_folder())
        files = Path(self._files.name)
        self._manager = launching.manager_of(settings.environment, files)
        with (files / "log").open("wb") as log:
            variables = kernel_environment.variables(files, settings.real, settings.environment.python)
            self._manager.start_kernel(env=variables, cwd=str(self._folder), stdout=log, stderr=log)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        try:
            self._client.wait_for_ready(timeout=STARTING)
        except RuntimeError as error:
            raise _EndedError(self._describe_end() or str(error)) from error
        setup = launching.setup_code(settings.environment.framework, settings.gpus, settings.real)
        failed = [each for each in self._execute(setup) if each.output_type == "error"]
        if failed:
            msg = f"it does not start: {failed[-1].ename}: {failed[-1].evalue}"
            raise _EndedError(msg)

    def _execute(self, source: str) -> list[Any]:
        """Run a cell, and return its outputs in the format of nbformat 4."""
        nbformat = library("nbformat")
        asked = self._client.execute(source, allow_stdin=False)
        outputs: list[Any] = []
        shown_by: dict[str, list[int]] = {}
        deadline = None
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=_LOOK)
            except queue.Empty:
                deadline = self._look(deadline)
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return _join_streams(outputs)
            if kind == "clear_output":
                outputs.clear()
                shown_by.clear()
            elif kind in ("stream", "error", "execute_result", "display_data"):
                shown_by.setdefault(content.get("transient", {}).get("display_id", ""), []).append(len(outputs))
                outputs.append(nbformat.v4.output_from_msg(message))
            elif kind == "update_display_data":
                for i in shown_by.get(content["transient"]["display_id"], ()):
                    outputs[i].data = content["data"]
            if self.interrupted.is_set() or self._stopped:
                deadline = self._look(deadline)

    def _look(self, deadline: float | None) -> float | None:
        """Raise an error if the process has ended; interrupt it if that was requested, and return its time limit."""
        if self._stopped:
            raise _EndedError("its kernel was ended")
        if self.interrupted.is_set():
            self.interrupted.clear()
            self._manager.interrupt_kernel()
            return time.monotonic() + PATIENCE
        if deadline is not None and time.monotonic() > deadline:
            msg = f"it did not stop within {PATIENCE:g} s of the interrupt, and was ended"
            raise _EndedError(msg)
        if not self._manager.is_alive():
            raise _EndedError(self._describe_end() or "its kernel ended")
        return deadline

    def _describe_end(self) -> str | None:
        """Return how the process ended, with the last lines that it wrote; None if it runs."""
        provisioner = self._manager.provisioner
        code = provisioner.process.poll() if provisioner is not None and provisioner.process is not None else None
        if code is None:
            return None
        last = launching.last_lines(Path(self._files.name, "log")) if self._files is not None else []
        return "\n".join([f"its kernel {describe_exit(code)}", *last])

    def _kill(self) -> None:
        """End the process with those of its group, and remove its files."""
        manager, client, files = self._manager, self._client, self._files
        self._manager = self._client = self._files = None
        if client is not None:
            with contextlib.suppress(Exception):
                client.stop_channels()
        if manager is not None:
            launching.kill_group(launching.group_of(manager))
            with contextlib.suppress(Exception):
                manager.shutdown_kernel(now=True)
        if files is not None:
            with contextlib.suppress(OSError):
                files.cleanup()


class _EndedError(Exception):
    """The end of a kernel."""


def _join_streams(outputs: list[Any]) -> list[Any]:
    """Return outputs with neighbouring texts of one stream as one."""
    found: list[Any] = []
    for each in outputs:
        last = found[-1] if found else None
        if last is not None and each.output_type == last.output_type == "stream" and each.name == last.name:
            last.text += each.text
        else:
            found.append(each)
    return found


def run_all(kernels: dict[str, Kernel], source: str) -> tuple[dict[str, Shown], bool]:
    """Run a cell on several kernels at the same time.

    Args:
        kernels: The kernels by framework.
        source: The cell.

    Returns:
        What each shows, and True if Ctrl-C has interrupted them. A second Ctrl-C ends the kernels that still run.
    """
    for kernel in kernels.values():
        kernel.interrupted.clear()
    waiting = {name: kernel.submit(source) for name, kernel in kernels.items()}
    stopped = False
    while not all(each.done() for each in waiting.values()):
        try:
            time.sleep(0.01)
        except KeyboardInterrupt:
            for name, each in waiting.items():
                if not each.done():
                    kernels[name].stop() if stopped else kernels[name].interrupted.set()
            stopped = True
    return {name: each.result() for name, each in waiting.items()}, stopped

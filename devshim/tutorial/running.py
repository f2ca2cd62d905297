"""Run a page on frameworks: each in a kernel of its environment, two at a time.

The kernels talk through sockets in a temporary folder, and end with the run, even if it fails or is interrupted.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devshim.registry import discovery
from devshim.registry.processes import describe_exit
from devshim.tutorial import cache, kernel_environment, launching
from devshim.tutorial.front_matter import library
from devshim.tutorial.outputs import cell_record, message_of, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.tutorial.environments import Environment
    from devshim.tutorial.page import Cell, Page
    from devshim.tutorial.record import CellRecord, Record

__all__ = ["JOBS", "TIMEOUT", "Watcher", "run"]

JOBS = 2
"""The number of frameworks that run at a time."""
TIMEOUT = 300
"""The seconds after which a cell has failed."""
_STARTING = 180
_SLOWEST = ("tensorflow", "torch", "paddle", "jax")
"""The frameworks that take longest to start; they go first, so that the last one to finish is a quick one."""


class Watcher:
    """An object that is notified of the progress of a run; this class ignores it."""

    def started(self, framework: str) -> None:
        """Note that a framework starts."""

    def cell(self, framework: str, cell: Cell, record: CellRecord) -> None:
        """Note that a cell is done."""

    def finished(self, framework: str, record: Record) -> None:
        """Note that a framework is done."""


def run(
    page: Page,
    environments: Mapping[str, Environment],
    watcher: Watcher,
    jobs: int = JOBS,
    timeout: float = TIMEOUT,
    real: bool = False,
    native_names: bool = False,
) -> dict[str, Record]:
    """Run a page on frameworks, and return their records in the order of `environments`.

    With ``native_names``, the framework's own names for GPUs mean the simulated ones, as in ``devshim run``. A cell
    that fails ends the run of its framework, and the cells after it are skipped. Complete runs are cached.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the kernels have ended.
    """
    names = sorted(environments, key=lambda name: _SLOWEST.index(name) if name in _SLOWEST else len(_SLOWEST))
    library("nbclient")

    async def all_of_them(folder: str) -> dict[str, Record]:
        gate = asyncio.Semaphore(jobs)
        task = asyncio.current_task()
        if task is not None and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

        async def one(name: str) -> Record:
            async with gate:
                return await _Run(page, environments[name], Path(folder), watcher, timeout, real, native_names).run()

        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    with tempfile.TemporaryDirectory(prefix="devshim-", dir=launching.short_folder()) as folder:
        try:
            done = asyncio.run(all_of_them(folder))
        except asyncio.CancelledError:  # SIGTERM, which is treated as Ctrl-C is
            raise KeyboardInterrupt from None
    return {name: done[name] for name in environments}


class _Run:
    """One framework's run of a page."""

    def __init__(
        self,
        page: Page,
        environment: Environment,
        folder: Path,
        watcher: Watcher,
        timeout: float,
        real: bool,
        native_names: bool,
    ) -> None:
        self._page, self._environment, self._watcher, self._real = page, environment, watcher, real
        self._native_names = native_names
        self._timeout = timeout
        self._name = environment.framework
        self._cells = page.cells_of(self._name)
        self._notebook = cache.notebook_of(page, environment, real)
        self._done: list[CellRecord] = []
        self._folder = folder / self._name
        self._log = self._folder / "log"

    async def run(self) -> Record:
        """Run the page, and return the record; only an interrupt is raised."""
        begun = time.perf_counter()
        self._watcher.started(self._name)
        facts: dict[str, Any] = {"version": self._environment.version, "devshim": "", "python": "", "simulated": False}
        problem = None
        self._folder.mkdir()
        client = self._client()
        try:
            facts.update(await self._start(client))
            await self._run_cells(client)
        except _EndedError as error:
            problem = str(error)
        finally:
            await _end(client)
        title = discovery.title_of(self._name)
        facts.update(title=title, seconds=round(time.perf_counter() - begun, 2), problem=problem)
        record = record_of(self._page, self._name, facts, self._done)
        if record.ok:
            cache.store(self._page, self._notebook, facts)
        self._watcher.finished(self._name, record)
        return record

    def _client(self) -> Any:
        kernel = launching.manager_of(self._environment, self._folder, "AsyncKernelManager")
        setup = library("nbformat").v4.new_code_cell(
            launching.setup_code(self._name, self._page.gpus, self._real, self._native_names)
        )
        cells = library("nbformat").v4.new_notebook(cells=[setup, *self._notebook.cells])
        return library("nbclient").NotebookClient(
            cells,
            km=kernel,
            timeout=self._timeout,
            startup_timeout=_STARTING,
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(kernel_environment.working_folder(self._page.path, self._folder))}},
        )

    async def _start(self, client: Any) -> dict[str, Any]:
        """Start the kernel and the framework; return the versions that the kernel sends."""
        cell = client.nb.cells[0]
        with self._log.open("wb") as log:
            variables = kernel_environment.variables(self._folder, self._real, self._environment.python)
            await self._step(self._launch(client, env=variables, stdout=log, stderr=log), client, _STARTING)
        await self._step(client.async_execute_cell(cell, 0, store_history=False), client, _STARTING, cell)
        return message_of(cell.outputs)

    async def _launch(self, client: Any, **options: Any) -> None:
        await client.async_start_new_kernel(**options)
        await client.async_start_new_kernel_client()

    async def _run_cells(self, client: Any) -> None:
        for number, cell in enumerate(self._cells, 1):
            ran = client.nb.cells[number]
            try:
                await self._step(client.async_execute_cell(ran, number), client, self._timeout, None)
            except _EndedError as error:
                ran.outputs.append(_as_output(error))
            record = cell_record(cell, ran.outputs, self._cells)
            self._done.append(record)
            self._watcher.cell(self._name, cell, record)
            if record.status == "failed":
                return

    async def _step(self, work: Any, client: Any, seconds: float, setup: Any = ...) -> None:
        """Await a step; what ends the run becomes an `_EndedError`."""
        errors = library("nbclient.exceptions")
        try:
            await work
        except errors.CellExecutionError as error:
            if setup is not None:
                raise _EndedError("StartError", f"{error.evalue}") from error
        except errors.CellTimeoutError as error:
            raise _EndedError("TimeoutError", f"not done after {seconds:g} s; --timeout sets the limit") from error
        except (errors.DeadKernelError, RuntimeError, OSError) as error:
            if _is_cancelled():  # nbclient takes the cancellation of its task for a dead kernel
                raise asyncio.CancelledError from error
            raise _EndedError("KernelError", await self._how_it_died(client, error)) from error

    async def _how_it_died(self, client: Any, error: Exception) -> str:
        code = await client.km.provisioner.poll() if client.km.has_kernel else None
        how = str(error) if code is None else f"the kernel {describe_exit(code)}"
        if code == -signal.SIGKILL:
            how += ", which Linux does if memory runs out"
        return "\n".join([how, *launching.last_lines(self._log)])


class _EndedError(Exception):
    """The end of a run, apart from an error that a cell raises."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def _as_output(error: _EndedError) -> Any:
    nbformat = library("nbformat")
    return nbformat.v4.new_output("error", ename=error.name, evalue=str(error), traceback=[str(error)])


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and bool(getattr(task, "cancelling", int)())  # Python 3.10 has no such method


async def _end(client: Any) -> None:
    """End a kernel and the processes of its group, even if it is busy."""
    kernel = client.km
    group = launching.group_of(kernel)  # after the shutdown, it is not known
    with suppress(Exception):
        if client.kc is not None:
            client.kc.stop_channels()
    with suppress(Exception):
        await kernel.shutdown_kernel(now=True)
    launching.kill_group(group)

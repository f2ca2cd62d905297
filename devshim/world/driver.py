"""The launcher's process: ``python -m devshim.world.driver DESCRIPTOR FOLDER``, started by `devshim.launch`.

It reads a job from standard input, and writes events to a pipe. If standard input ends, because the caller was
interrupted or has ended, it ends the job, and removes the folder if no other process does.
"""

from __future__ import annotations

import _thread
import gc
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError, WorldError
from devshim.world import sessions

if TYPE_CHECKING:
    from devshim.world.control import ControlProcess
    from devshim.world.job import Job

__all__ = ["main"]

_ENDING = 15.0
"""Seconds that the end of a job may take."""
_AGAIN = 2.0
_LEAVING = 12.0
"""Seconds that the end of the ranks may take if the cluster has ended: Ray may wait for it."""


def main(descriptor: int, folder: Path) -> None:
    """Run one job."""
    os.set_inheritable(descriptor, False)
    job = pickle.load(sys.stdin.buffer)  # from the process that started this one
    events, lock = os.fdopen(descriptor, "wb"), threading.Lock()

    caller = os.getppid()
    ended, gone = threading.Event(), threading.Event()
    control: ControlProcess | None = None

    def notify(*event: Any) -> None:
        with lock:
            try:
                pickle.dump(event, events)
                events.flush()
            except BrokenPipeError:  # the caller has ended, or no longer listens
                gone.set()
                time.sleep(0 if ended.is_set() else _ENDING)  # until `_leave_with_caller` interrupts

    def send(error: DevshimError) -> None:
        notify("error", type(error).__name__, error.problem, error.hint, _facts(error))

    def interrupt(*_: Any) -> None:
        if not ended.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, lambda *_: gone.set())  # sent by the kernel when the caller has ended
    threading.Thread(target=_leave_with_caller, args=(ended, gone), daemon=True).start()
    threading.Thread(target=_read_to_the_end, args=(gone,), daemon=True).start()
    try:
        from devshim.world import restarts
        from devshim.world.control import ControlProcess

        address = _connect(job, folder)
        signal.signal(signal.SIGTERM, lambda *_: gone.set())  # Ray has set a handler that prints
        control = ControlProcess(address, lambda: _leave_cluster(ended, control, send))
        control.watch()
        results = restarts.run(job, notify, control)
        ended.set()
        notify("done", results)
    except KeyboardInterrupt:
        ended.set()
        if control and control.is_lost:
            send(control.error())
    except DevshimError as error:
        ended.set()
        send(error)
    except Exception as error:
        ended.set()
        send(_unexpected(error))
    finally:
        ended.set()
        is_lost = control is not None and control.is_lost
        _shut_down(is_lost)
        if os.getppid() != caller:  # it was killed
            shutil.rmtree(folder, ignore_errors=True)
        if is_lost:
            os._exit(1)  # Ray would wait for the cluster


def _connect(job: Job, folder: Path) -> str:
    """Connect to the cluster of a job, or start one, and return the address of its control process."""
    from devshim.world import cluster

    if job.cluster is None:
        cluster.start_own(folder)
    else:
        cluster.connect(job.cluster, job.start_timeout)
    return cluster.control_address()


def _unexpected(error: Exception) -> WorldError:
    """Print the traceback of an error that is not devshim's, and return one that names it."""
    import traceback

    traceback.print_exception(error)
    return WorldError(f"the launcher failed: {type(error).__name__}: {error}", None)


def _facts(error: DevshimError) -> dict[str, Any]:
    return {key: value for key, value in vars(error).items() if key not in ("problem", "hint", "args")}


def _read_to_the_end(gone: threading.Event) -> None:
    sys.stdin.buffer.read()
    gone.set()


def _leave_with_caller(ended: threading.Event, gone: threading.Event) -> None:
    """Interrupt the main thread when the caller has ended, until that succeeds: Python ignores it in a destructor."""
    gone.wait()
    until = time.monotonic() + _ENDING
    while not ended.is_set() and time.monotonic() < until:
        _thread.interrupt_main()
        time.sleep(_AGAIN)
    time.sleep(_ENDING)
    os._exit(1)  # it is stuck: ending it ends every process that it started


def _leave_cluster(ended: threading.Event, control: ControlProcess | None, send: Callable[..., None]) -> None:
    """End the job after the end of its cluster: interrupt the main thread, or end this process if Ray blocks it."""
    if ended.is_set() or control is None:
        return
    _thread.interrupt_main()
    if not ended.wait(_LEAVING):
        send(control.error())
        os._exit(1)


def _shut_down(is_lost: bool) -> None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and not is_lost:
        ray.shutdown()
    if os.getsid(0) == os.getpid():
        sessions.end(os.getpid())
    gc.freeze()  # Python would search Ray's modules for garbage several times before it ends


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

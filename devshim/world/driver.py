"""The launcher's process: ``python -m devshim.world.driver DESCRIPTOR FOLDER``, started by `devshim.launch`.

It reads a job from standard input, and writes events to a pipe. If standard input ends, because the caller was
interrupted or has gone, it ends the job.
"""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from devshim.errors import DevshimError, WorldError

__all__ = ["main"]


def main(descriptor: int, folder: Path) -> None:
    """Run one job."""
    os.set_inheritable(descriptor, False)
    job = pickle.load(sys.stdin.buffer)  # from the process that started this one
    events, lock = os.fdopen(descriptor, "wb"), threading.Lock()

    def tell(*event: Any) -> None:
        with lock:
            pickle.dump(event, events)
            events.flush()

    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    ended = threading.Event()
    threading.Thread(target=_leave_with_caller, args=(ended,), daemon=True).start()
    try:
        from devshim.world import cluster, watching

        if job.cluster is None:
            cluster.start_own(folder)
        else:
            cluster.connect(job.cluster)
        results = watching.run(job, tell)
        ended.set()
        tell("done", results)
    except KeyboardInterrupt:
        pass
    except DevshimError as error:
        ended.set()
        tell("error", type(error).__name__, error.problem, error.hint, _facts(error))
    except Exception as error:
        import traceback

        ended.set()
        traceback.print_exc()
        tell("error", WorldError.__name__, f"the launcher failed: {type(error).__name__}: {error}", None, {})
    finally:
        _shut_down()


def _facts(error: DevshimError) -> dict[str, Any]:
    return {key: value for key, value in vars(error).items() if key not in ("problem", "hint", "args")}


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _leave_with_caller(ended: threading.Event) -> None:
    """Interrupt the main thread when the caller has gone; Ray has a SIGTERM handler of its own, which prints."""
    sys.stdin.buffer.read()
    if not ended.is_set():
        _thread.interrupt_main()


def _shut_down() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

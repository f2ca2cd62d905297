"""Tests of `prefetch` that are not in the kit: signals, the end of the process, references, and other frameworks."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.runtime import prefetching


def test_ctrl_c_while_the_loop_waits(python: Callable[..., str]) -> None:
    assert python("""
        import os, signal, threading, time
        import devshim as ds
        ds.use("numpy")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
        def loader():
            yield ds.zeros(1)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(1)
            yield ds.zeros(1)
        begun = time.perf_counter()
        try:
            for batch in ds.prefetch(loader(), "cpu"):
                pass
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begun < 4)
        time.sleep(1)
        print([each.name for each in threading.enumerate() if "devshim" in each.name])
    """).split("\n")[:2] == ["interrupted True", "[]"]


def test_a_forked_process_has_no_thread_of_the_loop(python: Callable[..., str]) -> None:
    assert python("""
        import os, signal, sys, time, warnings
        import numpy as np
        import devshim as ds
        ds.use("numpy")
        warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork, in a process with threads
        def loader():
            for i in range(5):
                yield np.full(1, i, "f4")
        ended = iter(ds.prefetch(loader(), "cpu"))
        assert len(list(ended)) == 5
        running, closed, dropped = (iter(ds.prefetch(loader(), "cpu")) for _ in range(3))
        assert [float(next(each)[0]) for each in (running, closed, dropped)] == [0, 0, 0]
        time.sleep(0.1)  # the thread has put batches into the queue
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            begun = time.perf_counter()
            for _ in range(2):
                try:
                    next(running)
                except ds.UnsupportedError as error:
                    print(str(error).partition(",")[0])
            closed.close()
            del dropped
            print(list(closed), list(ended), time.perf_counter() - begun < 2)
            print([float(x[0]) for x in ds.prefetch(loader(), "cpu")])
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        print([float(x[0]) for x in running])
    """).splitlines() == [
        "this iterator of ds.prefetch was made before os.fork",
        "this iterator of ds.prefetch was made before os.fork",
        "[] [] True",
        "[0.0, 1.0, 2.0, 3.0, 4.0]",
        "[1.0, 2.0, 3.0, 4.0]",
    ]


def test_a_signals_handler_may_close_the_iterator_anywhere(python: Callable[..., str]) -> None:
    """Like a signal handler, a trace function runs in the same thread, between two lines."""
    assert (
        python("""
        import faulthandler, sys
        import devshim as ds
        from devshim.runtime import prefetching
        ds.use("numpy")
        faulthandler.dump_traceback_later(60, exit=True)
        ended = 0
        for at in range(1, 31):
            running = iter(ds.prefetch((ds.zeros(1) for _ in range(3)), "cpu"))
            lines = 0
            def trace(frame, event, arg):
                global lines, ended
                if frame.f_code.co_filename != prefetching.__file__:
                    return None
                lines += event == "line"
                if lines == at and event == "line":
                    running.close()
                    ended += 1
                return trace
            sys.settrace(trace)
            for _ in range(4):
                next(running, None)
            sys.settrace(None)
        print(ended > 10, end="")
    """)
        == "True"
    )


def test_the_process_ends_in_the_middle_of_a_loop(python: Callable[..., str]) -> None:
    assert (
        python("""
        import devshim as ds
        ds.use("numpy")
        running = iter(ds.prefetch((ds.zeros(1) for _ in range(100)), "cpu"))
        next(running)
        print("done", end="")
    """)
        == "done"
    )


def test_a_batch_is_released_with_its_last_use() -> None:
    running = iter(ds.prefetch(([np.full(3, i)] for i in range(5)), "cpu"))
    first = next(running)
    dead = weakref.ref(first[0])
    del first
    next(running)
    gc.collect()
    assert dead() is None
    running.close()


def test_a_generator_of_the_caller_stays_open() -> None:
    """As after a plain loop: what was not loaded ahead can still be iterated."""
    numbers = iter(range(10))
    batches = ([np.full(1, i)] for i in numbers)
    for _ in ds.prefetch(batches, "cpu", depth=2):
        break
    rest = [int(x[0]) for (x,) in batches]
    assert rest == list(range(rest[0], 10))
    assert rest[0] <= 4


def test_the_loop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that hangs delays the end of the loop for a moment; its thread ends with it."""
    monkeypatch.setattr(prefetching, "PATIENCE", 0.2)
    goes_on = threading.Event()

    def loader() -> Iterator[Any]:
        yield np.zeros(1)
        goes_on.wait(30)
        yield np.zeros(1)

    running = iter(ds.prefetch(loader(), "cpu"))
    next(running)
    running.close()
    (thread,) = [each for each in threading.enumerate() if each.name == "devshim-prefetch"]
    goes_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_each_iteration_begins_in_the_callers_thread() -> None:
    """A loader may draw a seed there, or refuse to be iterated, with the loop's own traceback."""

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            threads.append(threading.current_thread())
            return iter([np.zeros(1)])

        def __len__(self) -> int:
            return 1

    threads: list[threading.Thread] = []
    ahead = ds.prefetch(Loader(), "cpu")
    assert [len(list(ahead)), len(list(ahead)), len(ahead)] == [1, 1, 1]
    assert threads == [threading.current_thread()] * 2


def test_sequences_without_iter_are_loaders() -> None:
    class Rows:
        def __getitem__(self, index: int) -> Any:
            if index > 2:
                raise IndexError
            return np.full(1, index)

    rows: Any = Rows()
    assert [int(x[0]) for x in ds.prefetch(rows, "cpu")] == [0, 1, 2]


def test_text_and_unknown_objects_pass_through() -> None:
    ds.simulate(1)

    class Sample:
        def __init__(self) -> None:
            self.x = np.zeros(2)

    sample = Sample()
    rows = [{"names": np.array(["a", "b"]), "times": np.array(["2020-01-01"], "datetime64[D]"), "n": 3}, "alone", 7]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ds.NotMovedWarning)
        found = list(ds.prefetch([*rows, sample], "gpu"))
    assert found[0]["names"] is rows[0]["names"]  # type: ignore[index]
    assert found[1:] == ["alone", 7, sample]


@pytest.mark.parametrize("kind", [list, tuple])
def test_small_batches_in_memory_need_no_thread(kind: Callable[[Any], Any]) -> None:
    running = iter(ds.prefetch(kind([{"x": ds.zeros(2)}, {"x": ds.ones(2)}]), "cpu"))
    assert "devshim-prefetch" not in [each.name for each in threading.enumerate()]
    assert [float(batch["x"][0]) for batch in running] == [0, 1]
    assert list(running) == []


@pytest.mark.parametrize(("source", "device"), [("generator", "cpu"), ("large", "cpu"), ("small", "gpu")])
def test_what_takes_time_to_load_or_copy_has_a_thread(source: str, device: str) -> None:
    ds.simulate(1)
    batches: dict[str, Any] = {
        "generator": (ds.zeros(2) for _ in range(4)),
        "large": [ds.zeros(1 << 20)] * 4,
        "small": [ds.zeros(2)] * 4,
    }
    running = iter(ds.prefetch(batches[source], device))
    next(running)
    assert "devshim-prefetch" in [each.name for each in threading.enumerate()]
    running.close()


def test_an_error_in_a_batch_in_memory_comes_once() -> None:
    ds.simulate(1, faults=ds.Fault("gpu:0", "copy"))
    x = ds.zeros(2, device="gpu")
    running = iter(ds.prefetch([[ds.zeros(2)], [x], [x]], "cpu"))
    assert len(next(running)) == 1
    with pytest.raises(ds.DevshimError):
        next(running)
    assert list(running) == []


def test_an_array_that_occurs_twice_is_copied_once() -> None:
    ds.simulate(1)
    x = np.arange(3.0)
    with ds.transfers() as log:
        ((first, (second,)),) = ds.prefetch([(x, [x])], "gpu")
    assert first is second
    assert log.count == 1


def test_swapped_arguments() -> None:
    with pytest.raises(ds.DeviceSpecError, match="prefetch"):
        ds.prefetch("gpu:1", [np.zeros(1)])  # type: ignore[arg-type]
    assert repr(ds.prefetch([], "cpu")) == "<prefetch of [] to cpu, depth 2>"


def test_an_interrupted_worker_passes_any_error_on() -> None:
    def loader() -> Iterator[Any]:
        yield np.zeros(1)
        raise SystemExit(3)

    running = iter(ds.prefetch(loader(), "cpu"))
    next(running)
    with pytest.raises(SystemExit):
        next(running)


def test_a_timers_error_does_not_hide_the_blocks(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use("fakeframe")
    stops = []

    def start(self: Any, device: ds.Device) -> Callable[[], float]:
        def stop() -> float:
            stops.append(device)
            raise RuntimeError("the device is gone")

        return stop

    monkeypatch.setattr(type(fake), "start_timer", start, raising=False)
    with pytest.raises(KeyError), ds.timer("gpu:1"):
        raise KeyError
    with pytest.raises(RuntimeError, match="gone"), ds.timer("gpu:1"):
        pass
    assert stops == [ds.gpu(1)] * 2


def test_the_last_batch_survives_the_end_in_another_thread() -> None:
    """One thread has taken the last batch, and before it returns, another one takes the end and closes."""
    queue = prefetching._Queue(2)
    waiting = queue._waiting
    queue.put("batch", 7)
    queue.put("end", None)

    class Between:
        def get(self) -> Any:
            found = waiting.get()
            queue._waiting = waiting
            assert queue.take() == ("end", None)
            queue.stop()
            return found

    queue._waiting = Between()  # type: ignore[assignment]
    assert queue.take() == ("batch", 7)
    assert queue.take() == ("end", None)

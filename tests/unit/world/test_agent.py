"""Tests of the agent of a host, without Ray: what a rank has started ends with it, and with the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devshim.world.agent import Agent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties a rank to its agent on Linux alone")

RANK = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(child.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
{end}
"""
ENDS = {"kill": "os.kill(os.getpid(), 9)", "exit": "sys.exit(3)", "return": ""}
AGENT = """
import sys, time
from devshim.world.agent import Agent
agent = Agent("127.0.0.1", 60.0)
agent.start({0: {"RANK": "0"}}, {}, sys.argv[1:], b"", None, ".")
time.sleep(1000)
"""


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Yield an agent of this process, and end its ranks."""
    made = Agent("127.0.0.1", 60.0)
    yield made
    made.stop()


def news_until(kind: str, agent: Agent) -> tuple[list[tuple[object, ...]], int]:
    """Return the news up to the first of a kind, or of a minute, and the number of answers."""
    news: list[tuple[object, ...]] = []
    answers, until = 0, time.monotonic() + 60
    while kind not in (each[0] for each in news) and time.monotonic() < until:
        news += agent.news(5, answers)
        answers += 1
    return news, answers


def ended(process: int) -> bool:
    """Wait until a process has ended, for a minute; return False if it has not."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # the second if it ends between opening and reading
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", ENDS)
def test_what_a_rank_has_started_ends_with_it(agent: Agent, how: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK.format(end=ENDS[how]), str(tmp_path / "child")]
    agent.start({0: {"RANK": "0"}}, {}, command, b"", None, ".")
    news, _ = news_until("end", agent)
    (end,) = (each for each in news if each[0] == "end")
    assert end[2] == {"kill": -signal.SIGKILL, "exit": 3, "return": 0}[how]
    assert ended(int((tmp_path / "child").read_text()))


def test_what_a_rank_has_started_ends_if_the_agent_is_killed(tmp_path: Path) -> None:
    rank = [sys.executable, "-c", RANK.format(end="time.sleep(1000)"), str(tmp_path / "child")]
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path)}  # its folder goes with that of Ray
    with subprocess.Popen([sys.executable, "-c", AGENT, *rank], env=environment) as process:
        while not (tmp_path / "child").exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    assert ended(int((tmp_path / "child").read_text()))


def test_a_second_call_starts_no_rank_twice(agent: Agent, tmp_path: Path) -> None:
    program = "import os, sys, time; open(f'{sys.argv[1]}/{os.getpid()}', 'w').close(); time.sleep(1000)"
    command = [sys.executable, "-c", program, str(tmp_path)]
    for _ in range(2):
        agent.start({0: {"RANK": "0"}}, {}, command, b"", None, ".")
    until = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)  # in which a second one would start
    assert len(list(tmp_path.iterdir())) == 1
    assert list(agent.where()) == [0]


LEAVES = """
import os, threading, time
from devshim.world import heartbeat
heartbeat.begin()
threading._register_atexit(time.sleep, 0.3)
class Slow:
    def __del__(self, sleep=time.sleep): sleep(3.5)
slow = Slow()
"""


def test_a_program_that_has_ended_is_not_silent(agent: Agent) -> None:
    agent.start({0: {"RANK": "0"}}, {}, [sys.executable, "-c", LEAVES], b"", None, ".")
    news, _ = news_until("end", agent)
    assert "silent" not in (each[2] for each in news if each[0] == "state")


GOES_ON = """
import signal, time
from devshim.world import heartbeat
from devshim.world.steps import Steps
steps = Steps()
heartbeat.begin(steps)
steps.number = 6
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
while not ended:
    time.sleep(0.01)
steps.number = 300
time.sleep(1000)
"""


def test_the_steps_of_a_job_are_those_before_its_end(agent: Agent) -> None:
    agent.start({0: {"RANK": "0"}}, {}, [sys.executable, "-c", GOES_ON], b"", None, ".")
    until = time.monotonic() + 60
    while agent.where()[0].get("step") != 6 and time.monotonic() < until:
        time.sleep(0.05)
    assert agent.stop() == {0: 6}


RAISES = """
import atexit, time
from devshim.world import heartbeat
heartbeat.begin()
atexit.register(time.sleep, 1000)
time.sleep(3); int("x")  # long enough for a heartbeat on this line, on a busy machine, too
"""


def test_a_rank_whose_process_goes_on_after_an_exception_is_reported(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Agent.__module__], "_ENDING", 1.0)
    agent.start({0: {"RANK": "0"}}, {}, [sys.executable, "-c", RAISES], b"", None, ".")
    news, _ = news_until("raised", agent)
    (raised,) = (each for each in news if each[0] == "raised")
    assert raised[1] == 0
    assert str(raised[2]).rstrip().endswith("ValueError: invalid literal for int() with base 10: 'x'")
    assert raised[3] == "<string>:6 in <module>"


WAITS = """
import time
from devshim.world import heartbeat
from devshim.world.steps import Steps
steps = Steps()
heartbeat.begin(steps)
with steps.start("start of the ranks of torch"):
    time.sleep(1000)
"""


def test_a_rank_that_waits_in_a_collective_is_reported_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Agent.__module__], "WAITS", 0.5)
    agent.start({0: {"RANK": "0"}}, {}, [sys.executable, "-c", WAITS], b"", None, ".")
    news, answers = news_until("waits", agent)
    news += agent.news(2, answers)
    ((_, rank, report),) = (each for each in news if each[0] == "waits")
    assert isinstance(report, dict)
    assert (rank, report["step"], report["engine"]) == (0, 1, "starts")
    assert report["what"] == "start of the ranks of torch"


CLOSES = """
import os, sys, time
from devshim.world import heartbeat
from devshim.world.steps import Steps
steps = Steps()
heartbeat.begin(steps)
with steps.step("barrier"):
    time.sleep(1)
    os.closerange(3, 1000)
    files = [open(f"{sys.argv[1]}/{i}", "w") for i in range(8)]
    time.sleep(3)
print("over")
"""


def test_a_program_may_close_all_descriptors(agent: Agent, tmp_path: Path) -> None:
    """A file of the program may then have the number of the pipe for heartbeats."""
    agent.start({0: {"RANK": "0"}}, {}, [sys.executable, "-c", CLOSES, str(tmp_path)], b"", None, ".")
    news, _ = news_until("end", agent)
    (end,) = (each for each in news if each[0] == "end")
    assert end[2] == 0
    assert "silent" not in (each[2] for each in news if each[0] == "state")
    assert [path.read_text() for path in tmp_path.iterdir()] == [""] * 8


SHARED = """
import os, sys, time
from multiprocessing.shared_memory import SharedMemory
block = SharedMemory(create=True, size=1000)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(block.name)
os.rename(sys.argv[1] + ".new", sys.argv[1])
{end}
time.sleep(1000)
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)", "agent.stop()", "agent.kill()"])
def test_no_shared_memory_of_a_rank_is_left(agent: Agent, end: str, tmp_path: Path) -> None:
    """The resource tracker of multiprocessing is in the process group of the rank, and removes it."""
    program = [sys.executable, "-c", SHARED.format(end=end if end.startswith("os") else ""), str(tmp_path / "name")]
    other = None
    if end == "agent.kill()":
        other = subprocess.Popen([sys.executable, "-c", AGENT, *program])
    else:
        agent.start({0: {"RANK": "0"}}, {}, program, b"", None, str(tmp_path))
    until = time.monotonic() + 60
    while not (tmp_path / "name").exists() and time.monotonic() < until:
        time.sleep(0.02)
    block = Path("/dev/shm", (tmp_path / "name").read_text())
    try:
        if other is not None:
            other.kill()
            other.wait()
            while block.exists() and time.monotonic() < until:
                time.sleep(0.02)
        elif end == "agent.stop()":
            agent.stop()
        else:
            news_until("end", agent)
        assert not block.exists()
    finally:
        block.unlink(missing_ok=True)

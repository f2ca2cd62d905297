"""Tests of the heartbeat of a rank: the line of the program, and what it writes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import devshim_backends
import numpy as np
import pytest

import devshim as ds
from devshim.world import heartbeat
from devshim.world.steps import Steps


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("train.py", True),
        ("/home/me/devshim/train.py", True),
        ("<string>", True),
        (__file__, True),
        ("<frozen importlib._bootstrap>", False),
        (os.__file__, False),
        (np.__file__, False),
        (ds.__file__, False),
        (str(Path(devshim_backends.__path__[0], "_numpy", "backend.py")), False),
        ("/somewhere/dist-packages/torch/nn.py", False),
    ],
)
def test_what_belongs_to_the_program(file: str, expected: bool) -> None:
    assert heartbeat.is_program(file) is expected


def test_a_folder_with_installed_packages_is_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, installed = tmp_path / "own", tmp_path / "installed"
    own.mkdir()
    here = tmp_path / "here"  # where the program runs, even if packages are there
    for folder in (installed, here):
        (folder / "ray-2.60.0.dist-info").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*map(str, (own, installed, here, tmp_path / "missing")), *sys.path])
    heartbeat._own_folders.cache_clear()
    try:
        found = [heartbeat.is_program(str(folder / "ray" / "worker.py")) for folder in (own, installed, here)]
    finally:
        heartbeat._own_folders.cache_clear()
    assert found == [True, False, True]


def test_code_that_a_library_makes_is_not_the_program() -> None:
    @dataclass
    class Made:
        value: int

        def __post_init__(self) -> None:
            self.line = heartbeat.position(sys._getframe(1))  # the frame of the `__init__` that dataclass made

    assert Made.__init__.__code__.co_filename == "<string>"
    assert Made(1).line.endswith("in test_code_that_a_library_makes_is_not_the_program")


def test_a_program_without_a_file_has_lines() -> None:
    program = "import sys; from devshim.world import heartbeat\nprint(heartbeat.position(sys._getframe()))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "<string>:2 in <module>"


PROGRAM = """
import os, sys, time
os.environ["DEVSHIM_HEARTBEAT"] = f"{sys.argv[1]}:{os.getpid()}"
from devshim.world import heartbeat
from devshim.world.steps import Steps
from devshim.world.steps import Steps
steps = Steps()
heartbeat.begin(steps)
def work():
    with steps.step("barrier"):
        time.sleep(1.2)
work()
def engine():
    with steps.start("start"):
        time.sleep(1.2)
engine()
for _ in range(7):
    with steps.step("barrier"):
        pass
"""


def test_a_pause_does_not_count_towards_the_time_of_a_step() -> None:
    steps = Steps()
    with steps.step("barrier") as step:
        with steps.pause():
            assert steps.doing is None
            time.sleep(0.01)
        assert steps.doing is not None
        assert (steps.doing.number, steps.doing.what) == (1, "barrier")
        assert steps.doing.began >= step.began + 0.01
    with steps.pause():
        pass
    assert steps.doing is None


def test_a_change_is_written_at_once_and_the_last_step_at_the_end() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(writing)], pass_fds=[writing], check=False)
    os.close(writing)
    with os.fdopen(reading) as lines:
        reports = [json.loads(line) for line in lines]
    assert ended.returncode == 0
    inside = [each for each in reports if each["what"] == "barrier" and each["at"].startswith("<string>:")]
    assert {each["step"] for each in inside} == {1}
    assert {each["step"] for each in reports if each["what"] == "start"} == {2}  # that of the call it is a part of
    assert inside[0]["at"].endswith(" in work")
    assert max(each["seconds"] for each in inside) > 0.4
    assert {(each["what"], each["engine"]) for each in reports} >= {("barrier", ""), ("start", "starts")}
    last = {"step": 8, "what": None, "engine": "", "seconds": 0.0, "ends": True, "raised": "", "exit_at": ""}
    assert reports[-1] == last


ENDING = (
    PROGRAM.partition("def work")[0]
    + """
import atexit
atexit.register(time.sleep, 0.7)
time.sleep(0.3)
sys.exit(0)
"""
)


@pytest.mark.parametrize(("end", "raised"), [("sys.exit(0)", ""), ("sys.exit('no')", ""), ("int('x')", "ValueError")])
def test_a_program_that_has_ended_says_so_while_its_process_goes_on(end: str, raised: str) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    program = ENDING.replace("sys.exit(0)", f"try: int('y')\nexcept ValueError: pass\n{end}")
    subprocess.run([sys.executable, "-c", program, str(writing)], pass_fds=[writing], check=False)
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = [json.loads(line) for line in lines]
    assert found[0]["ends"] is False
    assert [(each["ends"], each["raised"]) for each in found[-2:]] == [(True, raised)] * 2
    assert found[-2]["at"].endswith(" in <module>")  # the last line of the program, which has ended
    line = f"<string>:{len(program.splitlines())} in <module>"
    assert found[-1]["exit_at"] == (line if end.startswith("sys.exit") else "")


def test_the_innermost_line_of_the_program_in_a_traceback_is_named() -> None:
    def leave() -> None:
        argparse.ArgumentParser().error("no --steps")

    with pytest.raises(SystemExit) as caught:
        leave()
    assert heartbeat.position_of(caught.value) == f"{Path(__file__).name}:{leave.__code__.co_firstlineno + 1} in leave"

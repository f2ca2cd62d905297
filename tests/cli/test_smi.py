"""Tests of `devshim smi`, and of ``nvidia-smi`` in programs of `devshim run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devshim.simulation import runs

if TYPE_CHECKING:
    from conftest import Invoke, Run

HOLD = """
import sys
import devshim as ds
ds.use("numpy")
held = ds.ones((1 << 20,), dtype="float32", device="gpu:1")
print("ready", flush=True)
sys.stdin.read()
"""
QUERY = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no other program of this user be listed; the path of a socket must be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program that uses 4 MiB on gpu:1."""
    command = [sys.executable, "-m", "devshim", "run", "--gpus", "3", "--memory", "1GiB", "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program
        program.kill()


def test_without_simulated_gpus_it_says_what_to_start(run: Run) -> None:
    done = run("smi")
    assert done.returncode == 9
    assert "Hint: start one with `devshim run --gpus 2 script.py`" in done.stderr
    assert done.stdout == ""


def test_the_environments_gpus_are_shown(run: Run) -> None:
    done = run("smi", DEVSHIM_SIMULATE_GPUS="2", DEVSHIM_SIMULATE_MEMORY="4GiB")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert [line.split()[1:4] for line in lines if "Simulated GPU" in line] == [
        ["0", "Simulated", "GPU"],
        ["1", "Simulated", "GPU"],
    ]
    assert done.stdout.count("0MiB /   4096MiB |      0%      Default |") == 2
    assert "(simulated)" in done.stdout
    assert "No running processes found" in done.stdout


def test_the_memory_of_a_running_program_is_shown(run: Run, started: subprocess.Popen[str]) -> None:
    done = run("smi", *QUERY)
    assert done.stdout == "0, 0\n1, 4\n2, 0\n"
    table = run("smi").stdout
    (row,) = [line for line in table.splitlines() if str(started.pid) in line]
    assert row.split()[1] == "1"
    assert row.endswith("4MiB |")
    apps = run("smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv").stdout.splitlines()
    assert apps[0] == "pid, process_name, used_gpu_memory [MiB]"
    assert apps[1].startswith(f"{started.pid}, python")
    assert apps[1].endswith(", 4 MiB")
    assert len(apps) == 2


def test_the_fields_of_a_running_programs_gpus_are_listed(run: Run, started: subprocess.Popen[str]) -> None:
    lines = run("smi", "-q").stdout.splitlines()
    assert lines[1] == "=============DEVSHIM-SMI LOG============="
    pairs = [tuple(part.strip() for part in line.split(" : ", 1)) for line in lines if " : " in line]
    assert {line.index(" : ") for line in lines if " : " in line} == {41}
    assert ("Attached GPUs", "3") in pairs
    assert [line for line in lines if line.startswith("GPU ")] == [f"GPU {i} (simulated)" for i in range(3)]
    assert [value for name, value in pairs if name == "GPU UUID"] == [
        f"GPU-64657673-6869-6d00-0000-00000000000{i}" for i in range(3)
    ]
    assert [value for name, value in pairs if name == "Used"] == ["0 MiB", "4 MiB", "0 MiB"]
    assert [value for name, value in pairs if name == "Process ID"] == [str(started.pid)]
    assert [value for name, value in pairs if name == "Processes"] == ["None", "None"]


def test_sections_of_one_gpu_are_listed(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_SIMULATE_GPUS", "2")
    monkeypatch.setenv("DEVSHIM_SIMULATE_MEMORY", "1GiB")
    lines = invoke("smi", "-q", "-d", "pids,MEMORY", "-i", "1").stdout.splitlines()
    assert [" ".join(line.split()) for line in lines[lines.index("GPU 1 (simulated)") - 1 :] if line] == [
        "Attached GPUs : 2",
        "GPU 1 (simulated)",
        "FB Memory Usage",
        "Total : 1024 MiB",
        "Reserved : 0 MiB",
        "Used : 0 MiB",
        "Free : 1024 MiB",
        "Processes : None",
    ]


def test_each_run_has_gpus_of_its_own(run: Run, started: subprocess.Popen[str]) -> None:
    inner = f"import subprocess, devshim; devshim.use('numpy'); subprocess.run(['nvidia-smi', *{QUERY}])"
    assert run("run", "--gpus", "1", "-c", inner).stdout == "0, 0\n"


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_program_that_has_ended_is_not_shown(run: Run, started: subprocess.Popen[str], end: str) -> None:
    folder = Path(os.environ["TMPDIR"]) / f"devshim-{os.getuid()}"
    assert len(list(folder.iterdir())) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    if end == "kill":
        started.send_signal(signal.SIGKILL)
    started.communicate("")
    assert len(list(folder.iterdir())) == (end == "kill")
    assert run("smi").returncode == 9
    assert list(folder.iterdir()) == []


def test_a_late_program_is_named(run: Run, started: subprocess.Popen[str]) -> None:
    started.send_signal(signal.SIGSTOP)
    try:
        done = run("smi", DEVSHIM_SIMULATE_GPUS="1")
    finally:
        started.send_signal(signal.SIGCONT)
    assert f"process {started.pid} did not answer in time" in done.stderr


def test_a_program_finds_nvidia_smi(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import shutil, subprocess\n"
        "import devshim as ds\n"
        "ds.use('numpy')\n"
        "x = ds.ones((1 << 18,), dtype='float32', device='gpu:0')\n"
        "print(shutil.which('nvidia-smi') is not None, flush=True)\n"
        "subprocess.run(['nvidia-smi', '-L'], check=True)\n"
        f"subprocess.run(['nvidia-smi', *{QUERY}], check=True)\n"
        "subprocess.run('nvidia-smi --query-gpu=gpu_name,temperature.gpu,memory.total --format=csv', shell=True)\n",
        encoding="utf-8",
    )
    done = run("run", "--gpus", "2", "--memory", "2GiB", "script.py")
    assert done.stdout == (
        "True\n"
        "GPU 0: Simulated GPU (UUID: GPU-64657673-6869-6d00-0000-000000000000)\n"
        "GPU 1: Simulated GPU (UUID: GPU-64657673-6869-6d00-0000-000000000001)\n"
        "0, 1\n1, 0\n"
        "name, temperature.gpu, memory.total [MiB]\n"
        "Simulated GPU, [N/A], 2048 MiB\n"
        "Simulated GPU, [N/A], 2048 MiB\n"
    )


def test_without_native_names_the_path_is_as_it_was(run: Run) -> None:
    code = "import os; print(os.environ['PATH'])"
    assert run("run", "--no-native-names", "-c", code).stdout.rstrip("\n") == os.environ["PATH"]


def test_a_forked_process_does_not_answer_for_its_parent(run: Run) -> None:
    code = (
        "import os, subprocess, warnings, devshim as ds; ds.use('numpy'); warnings.simplefilter('ignore')\n"
        "x = ds.ones((1 << 18,), dtype='float32', device='gpu:0')\n"
        "pid = os.fork()\n"
        f"if not pid: os._exit(subprocess.run(['nvidia-smi', *{QUERY}]).returncode)\n"
        "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert run("run", "--gpus", "1", "-c", code).stdout == "0, 1\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--query-gpu=index,colour", "--format=csv"], 2, 'Field "colour" is not a valid field to query.'),
        (["--query-gpu=index"], 2, "--format=csv"),
        (["--query-gpu=index", "--format=xml"], 2, "--format=csv"),
        (["--format=csv"], 2, "--query-gpu="),
        (["-i", "7"], 6, "No devices were found"),
        (["-d", "MEMORY"], 2, '"--display=" switch cannot be used without "-q"'),
        (["-q", "-d", "MEMORY,COLOUR"], 2, '"COLOUR" is not one of the sections MEMORY, '),
        (["-q", "-x"], 2, "No such option '-x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_it_cannot_answer_is_refused(run: Run, words: list[str], code: int, said: str) -> None:
    done = run("smi", *words, DEVSHIM_SIMULATE_GPUS="2")
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_one_gpu_is_chosen_by_index_or_uuid(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_SIMULATE_GPUS", "3")
    for name in ("2", "GPU-64657673-6869-6d00-0000-000000000002"):
        assert invoke("smi", "-i", name, "--query-gpu=index", "--format=csv,noheader").stdout == "2\n"


def test_smi_repeats_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devshim", "smi", "-L", "-l", "0.1"]
    environment = {**os.environ, "DEVSHIM_SIMULATE_GPUS": "1"}
    # A program in the background of a shell ignores the signal, and so do the programs that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)
    with program:
        assert program.stdout is not None
        first, second = program.stdout.readline(), program.stdout.readline()
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=30)
    assert first == second
    assert first.startswith("GPU 0: Simulated GPU")
    assert program.returncode == 0


def test_a_folder_that_others_may_read_is_an_error(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program would not answer there, and a list without it would be wrong."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(runs, "_folders", lambda: [str(tmp_path)])
    done = invoke("smi")
    assert done.exit_code == 1
    said = done.output.replace("\n", " ")
    assert f"programs answer in the folder {tmp_path}, which is not private" in said
    tmp_path.chmod(0o700)
    assert "which is not private" not in invoke("smi").output

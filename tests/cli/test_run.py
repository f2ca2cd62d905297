"""Tests of `devshim run`: a program on simulated GPUs, otherwise run as Python runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from devshim.cli._groups import ProgramCommand
from devshim.cli._startup import sitecustomize as startup
from devshim.cli.app import app
from devshim.cli.run import _DRIVERS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

SAID = "devshim: 2 simulated GPUs: real data, computed on the CPU; real GPUs are hidden\n"
PRINTS = """
import os, sys
main = sys.modules["__main__"]
print(sys.argv, sys.path, sys.flags, sys.orig_argv[0], os.getcwd(), __name__, sorted(vars(main)))
print(getattr(main, "__file__", None), getattr(main, "__spec__", None) is None, main.__package__)
"""
CARDS = "import devshim as ds; ds.use('numpy'); print(ds.device_count(), ds.memory('gpu:0').total)"


HIDING = "\n" if any(map(os.path.exists, _DRIVERS)) else "None\n"
"""The value of CUDA_VISIBLE_DEVICES in a program: empty on a machine with real GPUs, which it hides."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return the folder of a script, a module, and a runnable folder, all with the same text."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    for name in ("script.py", "folder/__main__.py", "package/__main__.py", "package/module.py"):
        (tmp_path / name).write_text(PRINTS, encoding="utf-8")
    return tmp_path


def python(cwd: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    "words",
    [
        ["script.py", "a", "--gpus", "7", "-m", "x", "--", "--help"],
        ["folder", "-c", "b"],
        ["-m", "package", "--memory=1"],
        ["-m", "package.module", "-h"],
        ["-mpackage", "-b"],
        ["-c", PRINTS, "--version", ""],
    ],
    ids=lambda words: " ".join(words[:2]) if words[1] != PRINTS else "-c",
)
def test_the_program_finds_what_it_finds_under_python(run: Run, program: Path, words: list[str]) -> None:
    plain, done = python(program, *words), run("run", "--gpus", "2", *words)
    assert plain.returncode == 0
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, SAID, 0)


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(5)",
        "import sys; sys.exit('sorry')",
        "def f():\n    raise ValueError('oops')\n\nf()",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "syntax error",
    ],
)
def test_a_program_ends_as_under_python(run: Run, tmp_path: Path, code: str) -> None:
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    plain, done = python(tmp_path, "script.py"), run("run", "script.py")
    assert plain.returncode != 0
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, SAID + plain.stderr)


def test_a_program_that_is_not_there_is_pythons_error(run: Run) -> None:
    done = run("run", "nothing.py")
    assert done.returncode == 2
    assert "can't open file" in done.stderr


def test_a_framework_has_its_cards_as_soon_as_it_is_imported(run: Run) -> None:
    """This is true for any code that imports it, even if it does not name devshim."""
    done = run("run", "-c", "import sys, numpy; print(sys.modules['devshim_backends._numpy.backend'].__name__)")
    assert done.stdout == "devshim_backends._numpy.backend\n", done.stderr
    plain = run("run", "-c", "import sys; print('numpy' in sys.modules)")
    assert plain.stdout == "False\n", "and none is imported for it"


@pytest.mark.parametrize(
    ("options", "variables", "reported"),
    [
        ([], {}, "2 None"),
        (["--gpus", "3", "--memory=4GiB"], {}, f"3 {4 * 2**30}"),
        ([], {"DEVSHIM_SIMULATE_GPUS": "5", "DEVSHIM_SIMULATE_MEMORY": "1KiB"}, "5 1024"),
        (["--gpus=1"], {"DEVSHIM_SIMULATE_GPUS": "5"}, "1 None"),
        (["-b", "np"], {}, "2 None"),
    ],
)
def test_the_cards_are_those_asked_for(run: Run, options: list[str], variables: dict[str, str], reported: str) -> None:
    done = run("run", *options, "-c", CARDS, **variables)
    assert done.stdout == f"{reported}\n", done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"devshim: {reported.split()[0]} simulated GPU")


@pytest.mark.parametrize(
    ("options", "variables"),
    [(["--like", "mps"], {}), (["--gpus=1"], {"DEVSHIM_SIMULATE_LIKE": "mps"})],
)
def test_the_gpus_are_like_those_of_a_platform(run: Run, options: list[str], variables: dict[str, str]) -> None:
    """A Mac has one GPU, so that is how many there are unless the program asks for another number."""
    code = "import devshim as ds; ds.use('numpy'); print(ds.devices('mps'), ds.describe('gpu').platform)"
    done = run("run", *options, "-c", code, **variables)
    assert done.stdout == "[Device('gpu', 0)] mps\n", done.stderr
    assert done.stderr.startswith("devshim: 1 simulated GPU like mps")


@pytest.mark.parametrize(
    ("visible", "names", "count"),
    [
        ("1", "--native-names", 1),
        ("3,0", "--native-names", 2),
        ("0,9,1", "--native-names", 1),
        ("-1", "--native-names", 0),
        ("1", "--no-native-names", 4),
        ("", "--native-names", 4),
    ],
)
def test_cuda_visible_devices_hides_simulated_gpus(run: Run, visible: str, names: str, count: int) -> None:
    """It hides GPUs under native names, like real ones; the variable hides no others, because it is about CUDA."""
    code = "import devshim as ds; ds.use('numpy'); print(ds.device_count())"
    done = run("run", "--gpus", "4", names, "-c", code, CUDA_VISIBLE_DEVICES=visible)
    assert done.stdout == f"{count}\n", done.stderr
    assert (f"(CUDA_VISIBLE_DEVICES hides {4 - count})" in done.stderr) == (count < 4)
    assert done.stderr.startswith("devshim: no GPU is visible, simulated or real (" if not count else "devshim: ")


@pytest.mark.parametrize("visible", ["-1", "9", "0,0", "GPU-0"])
def test_a_program_can_show_itself_gpus_that_were_hidden(run: Run, visible: str) -> None:
    """It reads the value that it was given, unless real GPUs have to be hidden; its processes inherit the value."""
    code = """
import os, subprocess, sys
child = "import devshim as ds; ds.use('numpy'); print(ds.device_count(), ds.try_gpu(), flush=True)"
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
subprocess.run([sys.executable, "-c", child])
subprocess.run([sys.executable, "-c", child], env={**os.environ, "CUDA_VISIBLE_DEVICES": "1,0"})
exec(child)
"""
    done = run("run", "--gpus=2", "--native-names", "-c", code.strip(), CUDA_VISIBLE_DEVICES=visible)
    given = visible if HIDING == "None\n" else "-1"
    assert done.stdout == f"{given}\n0 cpu\n2 gpu:0\n0 cpu\n", done.stderr


@pytest.mark.skipif(HIDING == "\n", reason="the variable hides the real GPUs of this machine")
def test_a_program_reads_the_value_that_chose_its_gpus(run: Run) -> None:
    """It keeps the value for its processes, and the numbers and UUIDs are those of the driver, which hides none."""
    code = """
import os, subprocess, sys
child = "import devshim as ds; ds.use('numpy'); print(ds.device_count(), flush=True)"
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
exec(child)
subprocess.run([sys.executable, "-c", child], env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,2,3"})
subprocess.run([sys.executable, "-m", "devshim", "smi", "-L"])
"""
    done = run("run", "--gpus=4", "--native-names", "-c", code.strip(), CUDA_VISIBLE_DEVICES="3,1")
    assert done.stdout.startswith("3,1\n2\n3\n"), done.stderr
    assert done.stdout.count("UUID: ") == 4
    assert "(CUDA_VISIBLE_DEVICES hides 2)" in done.stderr


def test_a_program_can_hide_gpus_from_itself_and_its_children(run: Run) -> None:
    """Before it imports the framework, as with real GPUs."""
    code = """
import os, subprocess, sys
child = "import devshim as ds; ds.use('numpy'); print(ds.device_count(), flush=True)"
os.environ["CUDA_VISIBLE_DEVICES"] = "2,1"
exec(child)
subprocess.run([sys.executable, "-c", child], env={**os.environ, "CUDA_VISIBLE_DEVICES": "3"})
"""
    assert run("run", "--gpus=4", "--native-names", "-c", code.strip()).stdout == "2\n1\n"


@pytest.mark.skipif(HIDING == "\n", reason="an empty variable hides the real GPUs of this machine")
def test_a_program_can_hide_all_gpus_with_an_empty_variable(run: Run) -> None:
    """As with real GPUs. The caller's own empty variable hides none: it is often set where there are no GPUs."""
    code = """
import os, subprocess, sys
child = "import devshim as ds; ds.use('numpy'); print(ds.device_count(), flush=True)"
subprocess.run([sys.executable, "-c", child], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
subprocess.run([sys.executable, "-c", child])
os.environ["CUDA_VISIBLE_DEVICES"] = ""
exec(child)
"""
    done = run("run", "--gpus=4", "--native-names", "-c", code.strip(), CUDA_VISIBLE_DEVICES="")
    assert done.stdout == "0\n4\n0\n", done.stderr


def test_two_gpus_of_a_mac_are_refused(run: Run) -> None:
    done = run("run", "--gpus", "2", "--like", "mps", "-c", "print(1)")
    assert done.returncode != 0
    assert "a machine of that platform has 1" in done.stderr


def test_the_backend_is_the_current_one(run: Run) -> None:
    done = run("run", "--backend", "numpy", "-c", "import devshim as ds; print(ds.framework().__name__, ds.gpu(1))")
    assert done.stdout == "numpy gpu:1\n"
    assert run("run", "-c", "import os; print(os.environ.get('DEVSHIM_BACKEND'))").stdout == "None\n"


CHILDREN = f"""
import multiprocessing, subprocess, sys

def report():
    {CARDS}

if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", {CARDS!r}], check=True)
    for how in ("spawn", "fork"):
        child = multiprocessing.get_context(how).Process(target=report)
        child.start()
        child.join()
    subprocess.run([sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"], check=True)
"""


def test_the_programs_own_processes_have_them_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CHILDREN, encoding="utf-8")
    done = run("run", "--gpus", "3", "script.py")
    assert done.stdout == "3 None\n" * 3 + HIDING, done.stderr
    assert done.stderr.count("simulated") == 1, "it is said once"


def test_a_sitecustomize_of_ones_own_is_run(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('own', __file__)", encoding="utf-8")
    path = os.pathsep.join([str(own), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["-c", "import sys; print(sys.path, sys.modules['sitecustomize'].__file__)"]
    plain = python(tmp_path, *words, env={**os.environ, "PYTHONPATH": path})
    done = run("run", *words, PYTHONPATH=path)
    assert plain.stdout.startswith("own ")
    assert done.stdout.removeprefix(plain.stdout.splitlines()[0] + "\n") == plain.stdout, (
        "devshim's own Python ran it, too"
    )


def test_a_python_without_devshim_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(startup, "find_spec", lambda name: None)
    startup.simulate()
    assert "devshim is not installed for" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["--gpus", "2"], ["--gpus", "0", "x.py"], ["--nonsense", "x.py"], ["--gpus=many", "x.py"]]
)
def test_wrong_usage_exits_with_2(run: Run, words: list[str]) -> None:
    done = run("run", *words)
    assert done.returncode == 2
    assert done.stderr.count("Error: ") == 1
    assert "Usage: devshim run [OPTIONS] SCRIPT | -m MODULE | -c CODE [ARGS]..." in done.stderr


def test_an_option_without_its_value_exits_with_2(run: Run) -> None:
    done = run("run", "--gpus")
    assert done.returncode == 2
    assert done.stderr == "Error: Option '--gpus' requires an argument.\n"


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--memory", "lots"], "memory is 'lots'"),
        (["--backend", "tocrh"], "no backend is called 'tocrh'"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_runs(run: Run, words: list[str], reported: str) -> None:
    done = run("run", *words, "-c", "print('ran')")
    assert done.returncode == 1
    assert done.stderr.startswith(f"devshim: {reported}")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["x.py", "--gpus", "3"], 0),
        (["--gpus", "3", "x.py", "--gpus"], 2),
        (["--gpus=3", "x.py"], 1),
        (["-b", "-m", "-m", "x"], 2),
        (["-mx"], 0),
        (["--memory", "1", "-"], 2),
        (["-bnumpy", "-c", "1"], 1),
        (["--gpus"], 1),
        (["--help"], 1),
    ],
)
def test_where_the_program_begins(words: list[str], at: int) -> None:
    command = app.commands["run"]
    assert isinstance(command, ProgramCommand)
    assert command.begin(words) == at


def test_ctrl_c_is_the_programs(tmp_path: Path) -> None:
    code = "import time\ntry:\n print('up', flush=True)\n time.sleep(60)\nexcept KeyboardInterrupt:\n print('down')"
    command = [sys.executable, "-m", "devshim", "run", "-c", code]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    # A shell's background jobs, such as a test run, ignore Ctrl-C.
    with subprocess.Popen(command, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "up\n"
        started.send_signal(signal.SIGINT)
        assert started.stdout.read() == "down\n"
    assert started.returncode == 0

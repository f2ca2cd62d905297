"""Tests of running a page in a real kernel with NumPy: the record, the cache, and each way in which a run can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devshim.cli import tutorial
from devshim.errors import DevshimError
from devshim.tutorial import environment_setup, page_template, record, running
from devshim.tutorial.page import Page, read
from devshim.tutorial.record import Record
from devshim.tutorial.session import Options, Outcome, outcome_of, read_page, refuse_same_records

FRONT = "---\ndevshim: {frameworks: [numpy], gpus: 2}\n---\n\n# Title\n\n"
CELLS = (
    "import sys\n\nopen('written.txt', 'w').close()\nprint('printed')\nprint('warned', file=sys.stderr)",
    "def move(x):\n    return ds.place(x, 'gpu:1')",
    "x = ds.ones((2, 3), dtype='float32', device='gpu:0')\ny = [move(x) for _ in range(3)]\ny[0]",
    ":tags: [raises-exception]\n\nds.place(x, 'gpu:7')",
    "from IPython.display import HTML, SVG\n\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\nHTML('<b>b</b>')",
    "with ds.transfers() as log:\n    ds.place(x, 'cpu')\nlog.records[0].site",
)


def write(path: Path, *cells: str) -> Path:
    blocks = [f"```{{code-cell}}\n{cell}\n```\n" for cell in cells]
    path.write_text(FRONT + "\n".join(blocks), encoding="utf-8")
    return path


def outcome(path: Path, **options: object) -> Outcome:
    chosen = Options(**options)  # type: ignore[arg-type]
    return outcome_of(read_page(path, chosen), chosen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def ran(folder: Path, cache_folder: Path) -> tuple[Page, Record]:
    """Return a page and the record of its run, which is written beside it."""
    path = write(folder / "page.md", *CELLS)
    os.environ["DEVSHIM_TUTORIAL_CACHE"] = str(cache_folder)
    found = outcome(path)
    assert found.ok, found
    assert found.unchanged == frozenset()
    return found.page, found.records["numpy"]


def test_the_record_has_versions_and_statuses(ran: tuple[Page, Record]) -> None:
    page, numpy = ran
    assert (numpy.framework, numpy.title, numpy.gpus, numpy.simulated, numpy.problem) == (
        "numpy",
        "NumPy",
        2,
        True,
        None,
    )
    assert numpy.python == ".".join(map(str, sys.version_info[:3]))
    assert [each.status for each in numpy.cells.values()] == ["ok", "ok", "ok", "raised", "ok", "ok"]
    assert numpy.is_of(page)
    assert record.load(record.path_of(page.path, "numpy")) == numpy


def test_what_a_cell_writes_is_not_left_beside_the_page(ran: tuple[Page, Record]) -> None:
    page, _ = ran
    assert not (page.path.parent / "written.txt").exists()


def test_outputs_are_recorded(ran: tuple[Page, Record]) -> None:
    first, _, shown, error, rich, ledger = ran[1].cells.values()
    assert first.stdout == "printed\n"
    assert [each["name"] for each in first.outputs] == ["stdout"]  # standard error has paths of this machine
    assert [each["output_type"] for each in shown.outputs] == ["execute_result"]
    assert str(error.error).startswith("DeviceNotFoundError: gpu:7 was asked for")
    assert ["image/svg+xml" in each["data"] for each in rich.outputs] == [True, False]
    assert rich.outputs[1]["data"]["text/html"] == "<b>b</b>"
    assert ledger.value is not None
    assert ledger.value["kind"] == "text"


def test_values_are_recorded(ran: tuple[Page, Record]) -> None:
    found = list(ran[1].cells.values())[2]
    tensor = {"kind": "tensor", "shape": [2, 3], "dtype": "float32", "count": 6, "numbers": [1.0] * 6}
    assert found.names["x"] == {**tensor, "device": "gpu:0"}
    assert found.names["y"] == {"kind": "list", "items": [{**tensor, "device": "gpu:1"}] * 3}
    assert found.value == {**tensor, "device": "gpu:1"}


def test_calls_have_their_place(ran: tuple[Page, Record]) -> None:
    page, numpy = ran
    definition, user = page.cells[1], page.cells[2]
    made, moved = [each for each in numpy.cells[user.id].calls if each.call in ("ones", "place")]
    assert (made.cell, moved.cell, made.times, moved.times) == (None, definition.id, 1, 3)
    assert (moved.device, moved.index) == ("gpu:1", 1)
    for call, source in ((made, user.source), (moved, definition.source)):
        assert call.span is not None
        lines = source.splitlines()
        if sys.version_info >= (3, 11):
            line, end, start, stop = call.span
            assert line == end
            text = lines[line - 1].encode()[start:stop].decode()
            assert text.startswith("ds.")
            assert text.endswith(")")
        else:
            assert "ds." in lines[call.span[0] - 1]


def test_nothing_runs_twice(ran: tuple[Page, Record], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, numpy = ran

    def fails(*args: object) -> None:
        pytest.fail("it ran")

    with monkeypatch.context() as patch:
        patch.setattr(running, "run", fails)
        beside = outcome(page.path)
        assert (beside.unchanged, beside.records) == ({"numpy"}, {"numpy": numpy})
        record.path_of(page.path, "numpy").unlink()
        cached = outcome(page.path)
        assert (cached.unchanged, cached.records) == ({"numpy"}, {"numpy": numpy})
        assert record.path_of(page.path, "numpy").is_file(), "the record is written again"
        assert outcome(page.path, recorded=True).ok


def test_what_has_changed_is_not_taken_from_the_cache(
    ran: tuple[Page, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Page] = []
    monkeypatch.setattr(running, "run", lambda page, *rest: runs.append(page) or {"numpy": ran[1]})
    outcome(ran[0].path, gpus=1)
    outcome(ran[0].path, fresh=True)
    monkeypatch.setattr("devshim.tutorial.cache.__version__", "9.9")
    outcome(ran[0].path)
    assert len(runs) == 3


def test_a_failure_ends_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "page.md", "x = 1", "y = 2\ny / 0", "z = 3")
    assert tutorial.run([path], Options()) == 1
    out = capsys.readouterr().out
    assert f"{path}:13: fails on NumPy\n    y / 0\n    ZeroDivisionError: division by zero" in out
    assert [line.split()[-1] for line in out.splitlines() if "z = 3" in line] == ["skipped"]
    assert not record.path_of(path, "numpy").exists(), "a failed run is not recorded"


def test_a_cell_that_never_ends_and_a_dead_kernel_leave_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    start = "import os, subprocess\np = subprocess.Popen(['sleep', '600'])"
    note = f"{start}\nopen({str(pids)!r}, 'a').write(f'{{p.pid}}\\n')"
    endless = write(tmp_path / "endless.md", f"{note}\nwhile True: pass")
    dead = write(tmp_path / "dead.md", f"{note}\nos.kill(os.getpid(), 9)")
    (cell,) = outcome(endless, timeout=1).records["numpy"].cells.values()
    assert (cell.status, cell.error) == ("failed", "TimeoutError: not done after 1 s; --timeout sets the limit")
    (cell,) = outcome(dead).records["numpy"].cells.values()
    killed = "KernelError: the kernel was killed by SIGKILL, which Linux does if memory runs out"
    assert (cell.status, cell.error) == ("failed", killed)
    assert_ended(pids, 2)


def assert_ended(pids: Path, count: int) -> None:
    """Assert that the processes whose numbers are in a file have ended, or are zombies."""
    numbers = pids.read_text(encoding="utf-8").split()
    assert len(numbers) == count
    deadline = time.monotonic() + 10
    while any(_runs(number) for number in numbers):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


def _runs(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = f"""
        import os, time
        with open({str(pids)!r}, 'w') as file:
            file.write(str(os.getpid()))
        time.sleep(600)"""
    path = write(tmp_path / "page.md", textwrap.dedent(source).strip())
    command = [sys.executable, "-m", "devshim", "tutorial", "run", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while not (pids.exists() and pids.read_text(encoding="utf-8")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "interrupted: the kernels have ended\n")
    assert_ended(pids, 1)


def test_a_cache_that_cannot_be_written_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "runs").write_text("a file where the cache would be a folder", encoding="utf-8")
    monkeypatch.setenv("DEVSHIM_TUTORIAL_CACHE", str(folder))
    found = outcome(write(tmp_path / "page.md", "x = 1"))
    assert found.ok
    assert record.path_of(tmp_path / "page.md", "numpy").is_file()


@pytest.mark.parametrize(
    "command", [lambda page: outcome(page), lambda page: environment_setup.create("numpy")], ids=["run", "env"]
)
def test_a_cache_that_cannot_be_created_is_an_error_that_names_it(
    command: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "file" / "cache"
    (tmp_path / "file").write_text("a file where the cache would be a folder", encoding="utf-8")
    monkeypatch.setenv("DEVSHIM_TUTORIAL_CACHE", str(folder))
    page = write(tmp_path / "page.md", "x = 1")
    with pytest.raises(DevshimError) as caught:
        command(page)
    assert caught.value.problem == f"the cache {folder} cannot be written: Not a directory"
    assert "DEVSHIM_TUTORIAL_CACHE" in str(caught.value.hint)


def test_pages_that_would_share_their_records_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "x = 1") for name in ("page.md", "page.py")]
    for function in (tutorial.run, tutorial.check):
        with pytest.raises(DevshimError, match=r"page.md and .*page.py would have the same records"):
            function(paths, Options())
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other" / "page.md", "x = 1")
    refuse_same_records([paths[0], other, paths[0]], None)
    with pytest.raises(DevshimError, match="the same records"):
        refuse_same_records([paths[0], other], tmp_path / "records")


def test_a_cell_that_prints_megabytes_is_recorded_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "page.md", "print('x' * 3_000_000)", "print('x')")
    assert tutorial.check([path], Options()) == 0
    assert f"{path}:8: 3.0 MB of output on NumPy; its record and the built pages contain all of it" in (
        out := capsys.readouterr().out
    )
    assert out.count("MB of output") == 1


def test_a_framework_that_does_not_start_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "page.md", "x = 1")
    found = outcome(path, real=True)
    assert not found.ok
    problem = found.records["numpy"].problem
    assert problem is not None
    assert problem.startswith("the page needs 2 GPUs, and numpy sees 0")


@pytest.mark.parametrize("suffix", [".md", ".py", ".ipynb"])
def test_a_new_page_runs(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"my-page{suffix}"
    page_template.write(path, ["numpy", "jax"])
    assert read(path).title == "My page"
    assert read(path).frameworks == ("numpy", "jax")
    assert tutorial.check([path], Options(frameworks=("numpy",))) == 0
    assert "raised" in capsys.readouterr().out


def test_printed_text_is_one_output_however_the_kernel_sends_it(folder: Path, cache_folder: Path) -> None:
    code = (
        "import sys, time\nprint('a', end='', flush=True)\ntime.sleep(0.5)\n"
        "print('warned', file=sys.stderr, flush=True)\n"
        "time.sleep(0.5)\nprint('b\\n')\ntime.sleep(0.5)\nprint('c')",
        "for i in range(4):\n    print(f'\\r{i} of 3', end='', flush=True)\n    time.sleep(0.2)\nprint('\\r\\nend')",
        "'\\ud800'",
        "{'\\ud800': 1}",
    )
    (made,) = outcome(write(folder / "printed.md", *code)).records.values()
    one, two, text, key = made.cells.values()
    assert (one.stdout, two.stdout) == ("ab\n\nc\n", "3 of 3\nend\n")
    assert [each["name"] for each in one.outputs] == ["stdout"]
    assert text.value == {"kind": "text", "value": "\\ud800"}
    assert key.value == {"kind": "dict", "items": {"\\ud800": {"kind": "number", "value": 1}}}


def test_commands_of_a_cell_are_those_of_its_environment(folder: Path, cache_folder: Path) -> None:
    code = (
        "import os, sys\n\nfound = !python -c 'import sys; print(sys.executable)'\n"
        "os.path.samefile(found[0], sys.executable)"
    )
    (made,) = outcome(write(folder / "commands.md", code)).records.values()
    assert next(iter(made.cells.values())).value == {"kind": "bool", "value": True}

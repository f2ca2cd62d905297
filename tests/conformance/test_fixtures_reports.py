"""Reports of tests in separate processes look like any others, even if a process dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest

pytest_plugins = ["pytester"]

NUMPY = "--devshim-backends=numpy"
BOTH = "--devshim-backends=numpy,toyframe"
ALL_SORTS = """
    def test_good(devshim_backend): print("heard", devshim_backend)
    def test_bad(devshim_backend):
        value = {"a": devshim_backend}
        print("printed", devshim_backend)
        assert value == {"a": "other"}
    def test_skipped(devshim_backend): pytest.skip("not today")
    @pytest.mark.xfail(raises=ZeroDivisionError, reason="known")
    def test_known(devshim_backend): 1 / 0
    @pytest.fixture
    def broken(): raise LookupError("no such thing")
    def test_error(devshim_backend, broken): pass
"""


def test_every_outcome_is_reported_as_always(project: Any) -> None:
    done = project(ALL_SORTS, BOTH, "-rA", "--durations=0", "-vv")
    done.assert_outcomes(passed=2, failed=2, skipped=2, xfailed=2, errors=2)
    assert done.ret == 1
    done.stdout.fnmatch_lines_random(
        [
            "E*- *'a': 'other',*",
            "printed toyframe",
            "heard numpy",
            "test_it.py:*: AssertionError",
            "*s call*test_it.py::test_good?numpy?",
            "SKIPPED ?2? test_it.py:*: not today",
            "XFAIL test_it.py::test_known?toyframe? - known",
            "ERROR test_it.py::test_error?numpy? - LookupError: no such thing",
            "FAILED test_it.py::test_bad?toyframe? - AssertionError: *",
        ]
    )


def test_the_xml_has_them_all(project: Any, pytester: Any) -> None:
    done = project(
        """
        def test_good(devshim_backend, record_property, tmp_path):
            record_property("where", tmp_path)
            assert tmp_path.is_dir()
        def test_bad(devshim_backend): assert False
        """,
        BOTH,
        "--junitxml=out.xml",
    )
    done.assert_outcomes(passed=2, failed=2)
    cases = {case.get("name"): case for case in ET.parse(pytester.path / "out.xml").iter("testcase")}
    assert set(cases) == {f"test_{how}[{name}]" for how in ("good", "bad") for name in ("numpy", "toyframe")}
    assert [name for name, case in cases.items() if case.find("failure") is not None] == [
        name for name in cases if "bad" in str(name)
    ]
    assert "test_good_numpy_" in str(cases["test_good[numpy]"].find("properties/property").get("value"))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-x"], {"passed": 1, "failed": 1}),
        (["--maxfail=2"], {"passed": 1, "failed": 1, "skipped": 1, "xfailed": 1, "errors": 1}),
        (["-k", "numpy and (good or skipped)"], {"passed": 1, "skipped": 1, "deselected": 8}),
        (["--deselect=test_it.py::test_bad", "-k", "bad or good"], {"passed": 2, "deselected": 8}),
        (["test_it.py::test_good[toyframe]"], {"passed": 1}),
    ],
)
def test_what_runs_is_decided_as_ever(project: Any, arguments: list[str], expected: dict[str, int]) -> None:
    assert project(ALL_SORTS, BOTH, *arguments).parseoutcomes() == expected


def test_the_last_failures_are_remembered(project: Any) -> None:
    project(ALL_SORTS, BOTH).assert_outcomes(passed=2, failed=2, skipped=2, xfailed=2, errors=2)
    again = project(ALL_SORTS, BOTH, "--lf", "-k", "not error")
    assert {key: n for key, n in again.parseoutcomes().items() if key != "deselected"} == {"failed": 2}


def test_a_process_that_dies_fails_the_test_it_ran(project: Any) -> None:
    done = project(
        """
        def test_before(devshim_backend): pass
        def test_dies(devshim_backend):
            print("lost", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        @pytest.fixture
        def deadly(): os._exit(3)
        def test_dies_in_setup(devshim_backend, deadly): pass
        def test_after(devshim_backend): pass
        """,
        NUMPY,
        "-v",
    )
    done.assert_outcomes(passed=2, failed=1, errors=1)
    assert done.ret == 1
    done.stdout.fnmatch_lines_random(
        [
            "The process of numpy was killed by SIGSEGV while it ran test_it.py::test_dies?numpy?.",
            "*Fatal Python error: Segmentation fault*",
            "The process of numpy ended with exit status 3 while it ran test_it.py::test_dies_in_setup?numpy?.",
            "test_it.py::test_after?numpy? PASSED*",
        ]
    )


def test_a_process_that_cannot_start_fails_every_test_of_its_backend(project: Any) -> None:
    done = project(
        """
        if os.environ.get("DEVSHIM_BACKEND") == "numpy":
            print("there is no hope", file=sys.__stderr__, flush=True)
            os._exit(7)
        def test_one(devshim_backend): pass
        def test_two(devshim_backend): pass
        def test_here(): pass
        """,
        BOTH,
        "-s",
    )
    done.assert_outcomes(passed=3, errors=2)
    done.stdout.fnmatch_lines(["The process of numpy ended with exit status 7 before it ran a test."])


def test_a_file_that_cannot_be_imported_there_says_why(project: Any) -> None:
    done = project(
        """
        if "DEVSHIM_BACKEND" in os.environ:
            raise ImportError("not in here")
        def test_one(devshim_backend): pass
        """,
        NUMPY,
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["The process of numpy does not find this test.", "*ImportError: not in here*"])


def test_a_process_that_dies_at_the_end_is_reported(project: Any) -> None:
    done = project(
        """
        import atexit
        if "DEVSHIM_BACKEND" in os.environ:
            atexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))
        def test_one(devshim_backend): pass
        """,
        NUMPY,
    )
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["devshim: the process of numpy was killed by SIGSEGV after its last test"])


def test_warnings_come_over(project: Any, pytester: Any) -> None:
    ini = pytester.path / "tox.ini"
    ini.write_text(ini.read_text().replace("filterwarnings = error", ""))
    done = project(
        """
        import warnings
        class OwnWarning(FutureWarning): pass
        def test_one(devshim_backend): warnings.warn("mind the gap", OwnWarning)
        """,
        NUMPY,
    )
    done.assert_outcomes(passed=1, warnings=1)
    done.stdout.fnmatch_lines(["test_it.py::test_one?numpy?", "*test_it.py:7: OwnWarning: mind the gap"])


def test_warnings_are_errors_there_too(project: Any) -> None:
    done = project("import warnings\ndef test_one(devshim_backend): warnings.warn('mind the gap')", NUMPY)
    done.assert_outcomes(failed=1)


def test_a_test_may_end_the_run(project: Any) -> None:
    source = """
        def test_one(devshim_backend): pytest.exit("enough", returncode=9)
        def test_two(devshim_backend): pass
    """
    done = project(source, NUMPY)
    assert done.ret == 9
    done.stdout.fnmatch_lines(["*Exit: enough*"])
    stopped = project(source.replace('pytest.exit("enough", returncode=9)', "pass"), NUMPY, "--stepwise")
    stopped.assert_outcomes(passed=2)
    asked = project(
        """
        def test_one(devshim_backend, request): request.session.shouldstop = "that is all"
        def test_two(devshim_backend): pass
        """,
        NUMPY,
    )
    asked.assert_outcomes(passed=1)
    asked.stdout.fnmatch_lines(["*that is all*"])


def test_a_test_out_of_time_says_where_it_was(project: Any) -> None:
    pytest.importorskip("pytest_timeout")
    source = """
        import time
        @pytest.mark.timeout(5)
        def test_slow(devshim_backend):
            time.sleep(60)  # here
        def test_next(devshim_backend): pass
    """
    done = project(source, NUMPY)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([">*time.sleep(60)  # here", "*Timeout (>5.0s) from pytest-timeout*"])
    hard = project(source, NUMPY, "--timeout-method=thread")
    hard.assert_outcomes(passed=1, failed=1)
    hard.stdout.fnmatch_lines(["The process of numpy ended with exit status 1 while it ran *test_slow?numpy?."])


def test_output_is_shown_at_once_where_it_is_not_captured(project: Any) -> None:
    done = project("def test_one(devshim_backend): print('said aloud')", NUMPY, "-s")
    done.assert_outcomes(passed=1)
    assert len(re.findall("test session starts", done.stdout.str())) == 1
    done.stdout.fnmatch_lines(["*said aloud*"])


def test_the_debugger_is_where_the_test_is(project: Any, pytester: Any) -> None:
    project("def test_one(devshim_backend):\n    value = 6\n    assert value == 5", NUMPY, "--collect-only")
    done = pytester.run(sys.executable, "-m", "pytest", NUMPY, "--pdb", stdin=b"p value * 7\nq\n")
    done.stdout.fnmatch_lines(["> *test_it.py(*)test_one()", "(Pdb) 42", "*Exit: Quitting debugger*"])


def _interruptible() -> None:
    """Let Ctrl-C reach a program: a shell's background jobs, such as a test run, ignore the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_run_leaves_no_process_behind(project: Any, pytester: Any) -> None:
    project("def test_one(devshim_backend): pass", NUMPY, "--collect-only")  # writes the ini file
    pytester.makepyfile(
        test_it="""
        import os, time
        def test_long(devshim_backend):
            with open("pid.part", "w") as file:
                file.write(str(os.getpid()))
            os.rename("pid.part", "pid.txt")
            time.sleep(100)
        """
    )
    command = [sys.executable, "-m", "pytest", NUMPY]
    run = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True, preexec_fn=_interruptible)
    try:
        until = time.monotonic() + 60
        while not (pytester.path / "pid.txt").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        reported, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == pytest.ExitCode.INTERRUPTED, reported
    with pytest.raises(ProcessLookupError):
        os.kill(int((pytester.path / "pid.txt").read_text()), 0)


def test_a_process_of_a_test_s_own_does_not_hold_the_run(project: Any, pytester: Any) -> None:
    """A process that a test has forked, and that outlives its parent, keeps the channel open."""
    done = project(
        """
        import time
        def test_dies(devshim_backend):
            child = os.fork()
            if child == 0:
                time.sleep(90)
                os._exit(0)
            with open("child.txt", "w") as file:
                file.write(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        def test_after(devshim_backend): pass
        """,
        NUMPY,
    )
    os.kill(int((pytester.path / "child.txt").read_text()), signal.SIGKILL)
    done.assert_outcomes(passed=1, failed=1)
    assert done.duration < 60


def test_pytest_xdist_shares_them_out(project: Any) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    done = project(ALL_SORTS, BOTH, "-n", "2", "-rA")
    done.assert_outcomes(passed=2, failed=2, skipped=2, xfailed=2, errors=2)

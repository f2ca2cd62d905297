"""The fixture `devshim_backend` in another project's tests: on which backends they run, and in which process."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["pytester"]

BOTH = "--devshim-backends=numpy,toyframe"
WHERE = """
    os.environ.setdefault("RUN", str(os.getpid()))

    def test_where(devshim_backend, record_property):
        x = ds.zeros(1)
        assert type(x).__module__.partition(".")[0] == devshim_backend == ds.framework().__name__
        assert str(os.getpid()) != os.environ["RUN"]
        assert devshim_backend == "toyframe" or "toyframe" not in sys.modules
"""


def outcomes(done: pytest.RunResult) -> dict[str, str]:
    """Return the tests of a verbose run by their names, with their outcomes."""
    lines = [line.split() for line in done.outlines if line.startswith("test_it.py::")]
    return {words[0].partition("::")[2]: words[1] for words in lines if len(words) > 1}


def test_each_backend_has_a_process_of_its_own(project: Any) -> None:
    done = project(WHERE, BOTH, "-v")
    assert outcomes(done) == {"test_where[numpy]": "PASSED", "test_where[toyframe]": "PASSED"}
    done.stdout.fnmatch_lines(["devshim backends: numpy, toyframe"])
    assert done.ret == 0


def test_without_a_wish_it_is_all_that_are_installed(project: Any) -> None:
    done = project(WHERE, "--collect-only", "-q")
    names = {line.partition("[")[2].rstrip("]") for line in done.outlines if "[" in line}
    assert {"numpy", "toyframe"} <= names
    assert "ghostframe" not in names
    assert "devshim backends" not in done.stdout.str(), "a project that does not ask gets no report"


@pytest.mark.parametrize(
    ("line", "arguments", "names"),
    [
        ("devshim_backends = toyframe", [], {"toyframe"}),
        ("devshim_backends = np, toyframe numpy", [], {"numpy", "toyframe"}),
        ("devshim_backends = toyframe", ["--devshim-backends=numpy"], {"numpy"}),
        ("devshim_backends = ghostframe", ["--devshim-backends=installed"], None),
    ],
)
def test_the_ini_file_may_ask(project: Any, pytester: Any, line: str, arguments: list[str], names: Any) -> None:
    ini = pytester.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\n{line}\n")
    done = project(WHERE, "--collect-only", "-q", *arguments)
    found = {each.partition("[")[2].rstrip("]") for each in done.outlines if "[" in each}
    assert found == names if names is not None else {"numpy", "toyframe"} <= found - {"ghostframe"} == found


def test_a_backend_that_is_asked_for_and_missing_is_a_failure(project: Any) -> None:
    done = project(WHERE, "--devshim-backends=ghostframe,numpy", "-v")
    assert outcomes(done) == {"test_where[ghostframe]": "ERROR", "test_where[numpy]": "PASSED"}
    done.stdout.fnmatch_lines(["*was requested, but cannot be tested*", "*ghostframe is not installed*"])
    assert done.ret == 1


def test_a_name_of_no_backend_is_wrong_usage(project: Any) -> None:
    done = project(WHERE, "--devshim-backends=numpy,tocrh")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*no backend is called 'tocrh'*did you mean 'torch'*"])


def test_a_test_may_name_its_backends_itself(project: Any) -> None:
    done = project(
        """
        @pytest.mark.parametrize("devshim_backend", ["np", "ghostframe"], indirect=True)
        def test_own(devshim_backend):
            assert ds.framework().__name__ == devshim_backend == "numpy"

        @pytest.mark.parametrize(("devshim_backend", "size"), [("numpy", 3)], indirect=["devshim_backend"])
        @pytest.mark.parametrize("twice", [1, 2])
        def test_pairs(devshim_backend, size, twice):
            assert ds.zeros(size * twice).shape == (size * twice,)
        """,
        "-v",
        "--devshim-backends=toyframe",
    )
    assert outcomes(done) == {
        "test_own[np]": "PASSED",
        "test_own[ghostframe]": "ERROR",
        "test_pairs[1-numpy-3]": "PASSED",
        "test_pairs[2-numpy-3]": "PASSED",
    }


def test_fixtures_may_take_the_backend(project: Any) -> None:
    done = project(
        """
        @pytest.fixture(scope="session")
        def made(devshim_backend):
            with open(f"{devshim_backend}.txt", "a") as log:
                log.write("made ")
            yield ds.zeros(2)
            with open(f"{devshim_backend}.txt", "a") as log:
                log.write("gone ")

        def test_one(made): assert type(made).__module__ != "builtins"
        def test_other(made): assert ds.device_of(made) == ds.cpu()
        """,
        BOTH,
    )
    done.assert_outcomes(passed=4)
    for name in ("numpy", "toyframe"):
        with open(f"{name}.txt", encoding="utf-8") as log:
            assert log.read() == "made gone ", "once per process, and torn down there"


def test_other_tests_stay_where_they_are(project: Any, pytester: Any) -> None:
    mixed = """
        here = os.environ.setdefault("RUN", str(os.getpid()))

        @pytest.fixture(scope="module", autouse=True)
        def module():
            yield
            with open("log.txt", "a") as log:
                log.write(f"{__name__} {'here' if here == str(os.getpid()) else 'there'}\\n")

        def test_before(): assert str(os.getpid()) == here
        def test_inside(devshim_backend): assert str(os.getpid()) != here
        def test_after(): assert str(os.getpid()) == here
    """
    pytester.makepyfile(test_more="import os\ndef test_more(): assert str(os.getpid()) == os.environ['RUN']")
    done = project(mixed, "--devshim-backends=numpy", "test_it.py", "test_more.py")
    done.assert_outcomes(passed=4)
    assert sorted((pytester.path / "log.txt").read_text().splitlines()) == ["test_it here", "test_it there"]


def test_a_teardown_that_fails_behind_an_isolated_test_is_reported(project: Any) -> None:
    done = project(
        """
        @pytest.fixture(scope="module")
        def module():
            yield
            assert os.environ["RUN"] != str(os.getpid()), "torn down in the run"

        os.environ.setdefault("RUN", str(os.getpid()))
        def test_here(module): pass
        def test_there(devshim_backend): pass
        """,
        "--devshim-backends=numpy",
    )
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*AssertionError: torn down in the run*"])


def test_in_one_process_on_demand(project: Any) -> None:
    done = project(
        """
        here = os.environ.setdefault("RUN", str(os.getpid()))

        def test_here(devshim_backend, simulated_gpus):
            assert str(os.getpid()) == here
            assert ds.device_of(ds.zeros(1, device=simulated_gpus[1])) == ds.gpu(1)
            assert ds.framework().__name__ == "numpy"

        @pytest.fixture(scope="session", autouse=True)
        def before():
            ds.use("toyframe")
            yield
            assert ds.framework().__name__ == "toyframe", "the project's own choice is back"
        """,
        "--devshim-backends=numpy",
        "--devshim-in-process",
    )
    done.assert_outcomes(passed=1)


def test_it_stands_beside_the_conformance_kit(project: Any) -> None:
    done = project(
        """
        from devshim.testing import Conformance

        class TestNumpy(Conformance):
            backend = "numpy"

        def test_mine(devshim_backend, simulated_gpus):
            assert ds.device_count() == 2
        """,
        *("-p", "devshim.testing.plugin", "--devshim-gpus=3", BOTH, "-v"),
        *("-k", "test_mine or test_each_device_is_described"),
    )
    found = outcomes(done)
    assert set(found.values()) == {"PASSED"}
    assert {"test_mine[numpy]", "test_mine[toyframe]"} < set(found)
    assert sum(name.startswith("TestNumpy") for name in found) == 4

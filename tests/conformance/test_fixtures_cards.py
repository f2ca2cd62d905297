"""The fixture and the mark `simulated_gpus` in another project's tests, and their cost for other tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

NUMPY = "--devshim-backends=numpy"


def test_there_are_two_and_the_test_may_ask_for_others(project: Any) -> None:
    done = project(
        """
        def test_two(devshim_backend, simulated_gpus):
            first, second = simulated_gpus
            assert (first, second) == (ds.gpu(0), ds.gpu(1)) == tuple(ds.devices("gpu"))
            assert ds.describe(first).simulated
            assert repr(simulated_gpus) == "<2 simulated GPUs: gpu:0, gpu:1>"

        def test_call(devshim_backend, simulated_gpus):
            cards = simulated_gpus(3, memory="1KiB")
            assert cards is simulated_gpus
            assert cards == ds.devices("gpu") == [ds.gpu(0), ds.gpu(1), ds.gpu(2)]
            with pytest.raises(ds.OutOfMemoryError, match="gpu:2 is out of memory"):
                ds.zeros(1000, device=cards[2])
            assert simulated_gpus(1) == [ds.gpu(0)]
            assert ds.memory("gpu:0").total is None

        def test_faults(devshim_backend, simulated_gpus):
            simulated_gpus(2, faults=ds.Fault("gpu:1", "copy"))
            with pytest.raises(ds.DeviceFailedError, match="gpu:1"):
                ds.place(ds.zeros(3), "gpu:1")

        def test_nonsense(devshim_backend, simulated_gpus):
            with pytest.raises(ds.ArgumentError):
                simulated_gpus(-1)
            with pytest.raises(ds.ArgumentError, match="0 to 1024"):
                simulated_gpus(100_000)
            assert len(simulated_gpus) == ds.device_count() == 2
        """,
        NUMPY,
    )
    done.assert_outcomes(passed=4)


def test_by_mark_and_by_indirect_parametrization(project: Any) -> None:
    done = project(
        """
        @pytest.mark.simulated_gpus(4)
        def test_mark_alone(devshim_backend):
            assert ds.device_count() == 4

        @pytest.mark.simulated_gpus(gpus=3, memory="2KiB")
        def test_mark_and_fixture(devshim_backend, simulated_gpus):
            assert len(simulated_gpus) == 3
            assert ds.memory(simulated_gpus[0]).total == 2048

        @pytest.mark.parametrize("simulated_gpus", [1, 12, {"gpus": 2, "memory": 512}], indirect=True)
        def test_indirect(devshim_backend, simulated_gpus):
            assert len(simulated_gpus) == ds.device_count() in (1, 2, 12)
            assert ds.memory("gpu:0").total == (512 if len(simulated_gpus) == 2 else None)
            assert int(os.environ["DEVSHIM_SIMULATE_GPUS"]) == 12, "GPUs for all tests are simulated at the start"

        @pytest.mark.simulated_gpus
        class TestClass:
            def test_two(self, devshim_backend):
                assert ds.device_count() == 2
        """,
        NUMPY,
    )
    done.assert_outcomes(passed=6)


def test_what_was_simulated_before_is_back(project: Any) -> None:
    done = project(
        """
        @pytest.fixture(autouse=True)
        def numpy():
            with ds.using("numpy"):
                assert ds.device_count() == 0
                yield
                assert ds.device_count() == 0

        def test_calls(simulated_gpus):
            simulated_gpus(3)
            assert ds.device_count() == 3

        def test_that_fails(simulated_gpus):
            assert ds.device_count() == 0

        def test_without():
            pass

        def test_refused(simulated_gpus, monkeypatch):
            with pytest.raises(ds.ArgumentError):
                simulated_gpus(-1)

        @pytest.mark.simulated_gpus(-1)
        def test_refused_from_the_start():
            pass
        """,
    )
    done.assert_outcomes(passed=3, failed=1, errors=1)


def test_cards_are_simulated_from_the_start_and_for_those_tests_alone(project: Any) -> None:
    """Paddle and TensorFlow must know before they start; and real GPUs stay available to tests that do not simulate."""
    done = project(
        """
        def test_with(devshim_backend, simulated_gpus):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
            assert int(os.environ["DEVSHIM_SIMULATE_GPUS"]) >= 8
            assert os.environ["DEVSHIM_BACKEND"] == devshim_backend

        def test_without(devshim_backend):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
            assert "DEVSHIM_SIMULATE_GPUS" not in os.environ
            assert ds.device_count() == 0

        def test_with_again(devshim_backend, simulated_gpus):
            test_with(devshim_backend, simulated_gpus)

        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "5")
        """,
        NUMPY,
    )
    done.assert_outcomes(passed=3)


@pytest.mark.parametrize("fixtures", ["simulated_gpus", "devshim_backend, simulated_gpus"])
def test_a_variable_that_hides_all_gpus_does_so_with_native_names(
    project: Any, monkeypatch: pytest.MonkeyPatch, fixtures: str
) -> None:
    """In this process, and in the separate process of the tests of one backend."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    source = f"""
    @pytest.fixture(autouse=True)
    def numpy():
        with ds.using("numpy"):
            yield

    def test_gpus({fixtures}):
        assert len(simulated_gpus) == ds.device_count() == GPUS
    """
    for option, gpus in (("--devshim-native-names", 0), ("--tb=short", 2)):
        project(source.replace("GPUS", str(gpus)), NUMPY, option).assert_outcomes(passed=1)


COST = """
import sys
import pytest, pytest_timeout
before = set(sys.modules)
import devshim.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""


def test_a_project_that_does_not_use_it_loads_next_to_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "devshim.pytest_plugin" in loaded
    assert {name.partition(".")[0] for name in loaded} - {"contextvars", "_contextvars"} == {"devshim"}
    assert not {
        "devshim.testing.isolation",
        "devshim.contract.backend",
        "devshim.simulation.memory",
        "devshim.testing",
    } & set(loaded)


@pytest.mark.parametrize("option", ["--markers", "--fixtures", "--help"])
def test_pytest_reports_it(project: Any, option: str) -> None:
    reported = project("", option).stdout.str()
    expected = {
        "--markers": "@pytest.mark.simulated_gpus(gpus=2",
        "--fixtures": "devshim_backend [session scope]",
        "--help": "--devshim-backends=NAMES",
    }
    assert expected[option] in reported


def test_a_framework_without_simulated_gpus_is_left_out_unless_it_is_asked_for(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy has no simulated GPUs: it is skipped even if it is installed; if requested by name, its refusal is shown."""
    stub = Path(__file__).parents[1] / "stub_cupy" / "site"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(stub), *filter(None, [os.environ.get("PYTHONPATH")])]))
    code = """
        def test_with(devshim_backend, simulated_gpus):
            pass

        def test_without(devshim_backend):
            pass
    """
    found = project(code, "--collect-only", "-q").stdout.str()
    assert "test_without[cupy]" in found
    assert "test_with[numpy]" in found
    assert "test_with[cupy]" not in found
    assert "test_with[cupy]" in project(code, "--collect-only", "-q", "--devshim-backends=cupy").stdout.str()

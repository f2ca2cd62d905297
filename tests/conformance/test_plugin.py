"""The kit's pytest plugin: what counts as a failure, what is deselected, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).parent / "toy"
HEAD = """
import pytest
from devshim.testing import Conformance
from devshim.testing.values import feature

class TestMine(Conformance):
    backend = {backend!r}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Any:
    """Return the path of a new test module with a subclass of the kit."""

    def write(body: str, backend: str = "toyframe") -> Path:
        path = tmp_path / "test_mine.py"
        path.write_text(HEAD.format(backend=backend) + body)
        return path

    return write


def test_a_framework_that_is_named_and_missing_is_a_failure(mine: Any, run_kit: Any) -> None:
    done = run_kit(f"{mine('', 'ghostframe')}::TestMine::test_try_gpu_falls_back_to_the_host")
    assert done.returncode == 1, done.stdout
    assert "ghostframe is not installed" in done.stdout


def test_a_framework_that_is_neither_named_nor_there_is_reported(mine: Any, run_kit: Any) -> None:
    done = run_kit(mine("", "ghostframe").parent)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
    assert "not installed and not named, so not tested: ghostframe" in done.stdout


def test_a_skip_that_nothing_declares_is_a_failure(mine: Any, run_kit: Any) -> None:
    path = mine("    def test_lazy(self):\n        pytest.skip('some other day')\n")
    done = run_kit(f"{path}::TestMine::test_lazy")
    assert done.returncode == 1, done.stdout
    assert "a skip is a failure where the backend was asked for: some other day" in done.stdout


def test_a_declared_gap_is_a_skip_with_its_reason(mine: Any, run_kit: Any) -> None:
    done = run_kit("-rs", f"{mine('')}::TestMine::test_memory_policy_before_the_start")
    assert done.returncode == 0, done.stdout
    assert "declared gap: memory_policy (never): toyframe is a toy and has none" in done.stdout


def test_what_takes_three_cards_is_collected_where_there_are_three(run_kit: Any) -> None:
    toy = f"{TOY / 'on_toy.py'}::TestHealthy"
    assert run_kit("--devshim-gpus=2", "-m", "cards", toy).returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    done = run_kit("--devshim-gpus=3", "-m", "cards", toy)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_changed_global_state_is_a_failure(mine: Any, run_kit: Any) -> None:
    path = mine(
        "    state = []\n"
        "    def global_state(self):\n        return list(self.state)\n"
        "    def test_careless(self):\n        self.state.append(1)\n"
    )
    done = run_kit(f"{path}::TestMine::test_careless")
    assert done.returncode == 1, done.stdout
    assert "changed global state" in done.stdout


def test_hooks_that_are_not_written_leave_their_tests_out(mine: Any, run_kit: Any) -> None:
    done = run_kit("--collect-only", mine(""))
    assert "test_the_gradient_flag_is_kept" not in done.stdout
    assert "test_the_gradient_flows" in done.stdout


@pytest.mark.parametrize(
    ("gpus", "ids"), [(0, {"cpu"}), (2, {"cpu", "gpu:0", "gpu:1"}), (3, {"cpu", "gpu:0", "gpu:1", "gpu:2"})]
)
def test_there_are_as_many_cards_as_were_asked_for(mine: Any, run_kit: Any, gpus: int, ids: set[str]) -> None:
    done = run_kit(f"--devshim-gpus={gpus}", "-vv", f"{mine('')}::TestMine::test_each_device_is_described")
    assert done.returncode == 0, done.stdout
    assert {line.partition("[")[2].partition("]")[0] for line in done.stdout.splitlines() if " PASSED" in line} == ids


def test_real_cards_are_tested_on_demand_alone(mine: Any, run_kit: Any) -> None:
    tests = f"{mine('')}::TestMine::test_place_moves_a_tensor"
    assert run_kit("--collect-only", tests).returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    done = run_kit("-m", "gpu", tests)
    assert done.returncode == 1, done.stdout
    assert "toyframe has no GPUs of its own" in done.stdout


@pytest.mark.parametrize("cards", ["1", "2"])
def test_real_cards_are_tested_as_simulated_ones_are(run_kit: Any, cards: str) -> None:
    done = run_kit("-m", "gpu", "-rsf", f"{TOY / 'on_toy.py'}::TestHealthy", TOYFRAME_CARDS=cards)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) > 300
    assert ("this machine has one GPU" in done.stdout) is (cards == "1")


def test_results_are_counted_per_feature(mine: Any, run_kit: Any, tmp_path: Path) -> None:
    path = mine("    @feature('random')\n    def test_wrong(self):\n        assert False\n")
    tests = [f"{path}::TestMine::{test}" for test in ("test_wrong", "test_try_gpu_falls_back_to_the_host")]
    gap = f"{path}::TestMine::test_memory_policy_before_the_start"
    target = tmp_path / "folder" / "results.json"
    run_kit("--devshim-gpus=2", f"--devshim-results={target}", *tests, gap)
    (found,) = json.loads(target.read_text())
    assert (found["backend"], found["version"], found["devices"]) == ("toyframe", "1.0", "2 simulated GPUs")
    assert {name: [key for key, n in count.items() if n] for name, count in found["features"].items()} == {
        "random": ["failed"],
        "count": ["passed"],
        "memory_policy": ["gap"],
    }


def test_results_are_not_counted_in_several_processes(mine: Any, run_kit: Any, tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    done = run_kit("-n", "2", f"--devshim-results={tmp_path / 'results.json'}", mine(""))
    assert done.returncode == 4, done.stdout
    assert "leave out -n, or the results" in done.stderr

"""Tests of tours shown side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Invoke


@pytest.fixture
def record(invoke: Invoke, tmp_path: Path) -> dict[str, Any]:
    """Return the record of a tour on NumPy that passes."""
    path = tmp_path / "record.json"
    assert invoke("tour", "--backend", "numpy", "--json", path).exit_code == 0
    reported: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return reported


def _write(path: Path, reported: dict[str, Any], **changes: Any) -> Path:
    path.write_text(json.dumps({**reported, **changes}), encoding="utf-8")
    return path


def test_all_frameworks_stand_in_one_table(invoke: Invoke, record: dict[str, Any], tmp_path: Path) -> None:
    one = _write(tmp_path / "a.json", record)
    two = _write(tmp_path / "b.json", record, title="Another", version="3.0", simulated=False)
    result = invoke("compare", one, two)
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert result.stdout.count("np.array([1.0, 2.0, 3.0])") == 2
    assert "2 simulated  yes" in result.stdout
    assert "Another 3.0" in result.stdout
    assert "19 of 19 steps passed on Another 3.0 with 2 real GPUs." in result.stdout


def test_without_files_the_recorded_lines_of_all_frameworks_are_shown(invoke: Invoke) -> None:
    result = invoke("compare")
    assert result.exit_code == 0
    for line in ("torch.cuda.device_count()", "jax.device_put(", "tf.identity(", "as_in_ctx(", "_copy_to("):
        assert line in result.stdout
    assert all(title in result.stdout for title in ("PyTorch", "TensorFlow", "MXNet", "PaddlePaddle", "JAX"))


def test_one_step_that_does_not_hold_fails_it(invoke: Invoke, record: dict[str, Any], tmp_path: Path) -> None:
    wrong = [
        {**step, "holds": False, "result": "went astray"} if i == 3 else step for i, step in enumerate(record["steps"])
    ]
    result = invoke("compare", _write(tmp_path / "a.json", record), _write(tmp_path / "b.json", record, steps=wrong))
    assert result.exit_code == 1
    assert "went astray" in result.stdout
    assert "1 FAILED" in result.stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": [{}]}', "\x00"])
def test_what_is_no_record_is_refused(invoke: Invoke, tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    result = invoke("compare", path)
    assert result.exit_code == 1
    assert "is not a recorded tour" in result.stderr


def test_a_missing_file_is_named(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("compare", tmp_path / "none.json")
    assert result.exit_code == 1
    assert "none.json cannot be read" in result.stderr

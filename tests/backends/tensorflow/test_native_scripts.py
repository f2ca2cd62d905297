"""Programs that are written for real GPUs, run by `devshim run`: the names are TensorFlow's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_scripts import check_attributes, run, scripts


@pytest.mark.parametrize("script", scripts("tensorflow"), ids=lambda path: path.stem)
def test_the_program_prints_what_it_prints_on_real_gpus(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(script, *(("--memory", "1MiB") if script.stem == "refused" else ()))


def test_switching_off_restores_every_attribute() -> None:
    check_attributes("tensorflow")

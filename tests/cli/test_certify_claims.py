"""Tests that a claim becomes a result, and that results become a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.certify import driver, page
from devshim.certify.catalogue import claims_for
from devshim.certify.claims import Claim, Rate, Result, Setting, Skip, check, differences, expect, require_refusal
from devshim.certify.process_end import describe_end
from devshim.certify.report import Framework, Report
from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable

AT = Setting("numpy", 1)
CERTIFIED = Path(__file__).parents[2] / "docs/certified"


def result(function: Callable[[Setting], object], at: Setting = AT, cards: int = 1, real: bool = False) -> Result:
    return check(Claim("a.claim", "It is so.", function, cards, real), at)


def _raises(error: BaseException) -> Callable[[Setting], object]:
    def raising(at: Setting) -> object:
        raise error

    return raising


def test_a_claim_that_returns_passes_with_its_note() -> None:
    found = result(lambda at: f"{at.gpus} GPUs")
    assert (found.status, found.note, found.name, found.says) == ("PASS", "1 GPUs", "a.claim", "It is so.")


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (AssertionError("no"), "AssertionError: no"),
        (RuntimeError("CUDA error:\n  an illegal access"), "RuntimeError: CUDA error: an illegal access"),
        (DevshimError("It is false.", "type this"), "DevshimError: It is false."),
    ],
)
def test_whatever_a_claim_raises_is_its_failure(error: Exception, note: str) -> None:
    found = result(_raises(error))
    assert found.status == "FAIL"
    assert found.note.startswith(note)


def test_a_long_error_is_shortened() -> None:
    assert len(result(_raises(RuntimeError("x" * 10_000))).note) < 500


def test_ctrl_c_is_no_result() -> None:
    with pytest.raises(KeyboardInterrupt):
        result(_raises(KeyboardInterrupt()))


def test_skips_say_why() -> None:
    never = _raises(AssertionError("it was run"))
    assert result(never, cards=2).note == "needs 2 GPUs"
    assert result(never, Setting("numpy", 1, simulated=True), real=True).note == "needs a real GPU"
    assert result(_raises(Skip("no NVML"))).note == "no NVML"
    gap = result(_raises(ds.UnsupportedError("NumPy has no such thing: it is small", "use another")))
    assert (gap.status, gap.note[:10]) == ("SKIP", "declared: ")
    assert result(never, Setting("numpy", 1, simulated=True)).status == "FAIL"


def test_a_rate_is_a_number_with_its_unit_on_real_cards_alone() -> None:
    found = result(lambda at: Rate(25.14, "GB/s", 26.0, 1 << 30))
    assert (found.status, found.note) == ("RATE", "25.1 GB/s, native 26 GB/s (1024 MiB)")
    assert found.rate == {"value": 25.14, "unit": "GB/s", "native": 26.0, "nbytes": 1 << 30}
    assert result(lambda at: Rate(1.0, "s"), Setting("numpy", 1, simulated=True)).status == "SKIP"


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2e-8, "32 ns"), (4.5e-6, "4.5 us"), (0.0123, "12.3 ms"), (2.0, "2 s"), (0.999, "999 ms")]
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert str(Rate(seconds, "s")) == text


def test_expectations_hold_under_python_o() -> None:
    program = "from devshim.certify.claims import expect; expect(False, 'seen')"
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False)
    assert "Broken: seen" in done.stderr
    expect(True, "never")
    with pytest.raises(AssertionError, match="nothing was raised where ValueError was expected"):
        require_refusal(ValueError, lambda: None)


def test_ends_are_named() -> None:
    assert describe_end(-11, "") == "was killed by SIGSEGV"
    assert describe_end(3, "first\nlast line\n\n") == "ended with exit status 3; it wrote: last line"
    assert describe_end(-250, "") == "was killed by signal 250"


def test_the_end_of_a_process_shows_the_cause_and_not_the_list_of_calls() -> None:
    crash = """
    E1123 00:59:27.0   1 cuda.cc:1] a harmless line
    F1123 00:59:27.3   1 gpu_executable.cc:1062] Check failed: static_cast<bool>(module_handle)
    *** Check failure stack trace: ***
        @     0x7fa27c256ff4  absl::LogMessage::SendToLog()
        @     0x7fa293b58ba3  PyObject_Vectorcall
    """
    assert describe_end(-6, crash).endswith("gpu_executable.cc:1062] Check failed: static_cast<bool>(module_handle)")
    thrown = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
    assert describe_end(-6, thrown) == "was killed by SIGABRT; it wrote: what():  std::bad_alloc"
    python = 'Fatal Python error: Segmentation fault\n\nThread 0x7f (most recent call first):\n  File "x.py", line 1\n'
    assert describe_end(-11, python) == "was killed by SIGSEGV; it wrote: Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    ("found", "wanted", "text"),
    [
        ([1, 2, 3], [1, 2, 3], ""),
        ([1, 0, 0], [1, 2, 3], "2 of 3 values differ; the first, at 1, is 0, not 2"),
        ([[1, 2], [3, 5]], [[1, 2], [3, 4]], "1 of 4 values differ; the first, at (1, 1), is 5, not 4"),
        (7, 8, "1 of 1 values differ; the first, is 7, not 8"),
        ([1, 2], [1, 2, 3], "the shape is (2,), not (3,)"),
        ([], [], ""),
    ],
)
def test_differences_say_which_value_and_what_it_is(found: object, wanted: object, text: str) -> None:
    assert differences(found, wanted) == text


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow", "paddle", "mxnet"])
def test_claims_have_names_of_their_own_and_are_sentences(backend: str) -> None:
    claims = claims_for(Setting(backend, 2, others=("numpy",) if backend != "numpy" else ()))
    names = [claim.name for claim in claims]
    assert len(set(names)) == len(names)
    assert all(claim.says.endswith(".") for claim in claims if not claim.name.startswith("rates."))
    own = [claim for claim in claims if claim.name.startswith(f"{backend}.")]
    assert bool(own) is (backend != "numpy")
    assert all(claim.check.__doc__ or claim.name.startswith("convert.with_") for claim in claims)


def test_the_driver_is_not_started_by_asking() -> None:
    assert driver.contexts() in (None, [])


REPORT = Report(
    "570.86",
    ["NVIDIA H100", "NVIDIA H100"],
    simulated=False,
    quick=True,
    date="2026-01-02",
    frameworks=[
        Framework(
            "torch",
            "PyTorch",
            "2.13.0",
            2,
            results=[
                Result("tensors.naming", "It is so.", "PASS"),
                Result("memory.full", "A full card is an error.", "FAIL", "nothing was raised"),
                Result("rates.no_op", "`place` of a tensor that is there", "RATE", "31 ns, native 160 ns"),
            ],
        ),
        Framework("jax", "JAX", "0.10.2", 0, why="a CPU-only build"),
    ],
)


def test_the_page_lists_machines_with_failures_and_rates() -> None:
    made = page.page([REPORT])
    assert "No machine is certified yet" not in made
    assert "## 2 x NVIDIA H100, 2026-01-02" in made
    assert "| PyTorch 2.13.0 | 2 | 1 | 1 | 0 |" in made
    assert "**PyTorch fails** `memory.full`: A full card is an error. nothing was raised" in made
    assert "| `place` of a tensor that is there | 31 ns, native 160 ns |" in made
    assert "JAX" not in made, "what was not checked is no result"


def test_without_reports_the_page_says_so_and_what_to_type() -> None:
    made = page.page([])
    assert "**No machine is certified yet.**" in made
    assert "$ devshim certify --json certified.json" in made


def test_the_page_is_written_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target = tmp_path / "certified", tmp_path / "page.md"
    folder.mkdir()
    assert page.main(["--write", str(folder), str(target)]) == 0
    assert page.main(["--check", str(folder), str(target)]) == 0
    (folder / "a.json").write_text(REPORT.to_json(), encoding="utf-8")
    assert page.main(["--check", str(folder), str(target)]) == 1
    assert "nox -s certified" in capsys.readouterr().err
    assert page.main(["--write", str(folder), str(target)]) == 0
    assert page.main(["--check", str(folder), str(target)]) == 0
    assert page.main([]) == 2


def test_simulated_gpus_certify_no_machine(tmp_path: Path) -> None:
    simulated = Report(None, [], simulated=True, quick=False)
    (tmp_path / "a.json").write_text(simulated.to_json(), encoding="utf-8")
    with pytest.raises(SystemExit, match="certifies no machine"):
        page.main(["--write", str(tmp_path), os.devnull])


def test_the_committed_reports_name_no_card() -> None:
    """A report has no serial number of a machine; the UUID of a card is one."""
    texts = [path.read_text(encoding="utf-8") for path in CERTIFIED.glob("*.json")]
    assert texts
    assert not any(re.search(r"GPU-[0-9a-f]{8}", text) for text in texts)


def test_the_committed_page_is_that_of_the_committed_reports() -> None:
    assert page.main(["--check", str(CERTIFIED), str(CERTIFIED.parent / "real-cards.md")]) == 0

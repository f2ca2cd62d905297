"""`devshim certify`: check the claims of the documentation on this machine's GPUs, and measure rates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import devshim as ds
from devshim.certify import runs
from devshim.certify.claims import FAIL, PASS, RATE, SKIP, Result, Setting
from devshim.certify.report import Framework, Report
from devshim.cli import _machine
from devshim.cli._ask import Answer, ask, find_installed
from devshim.cli._console import Column, Grid, print_error, require_folder, say, show, spinner, write
from devshim.cli.doctor import cause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["main"]

_STYLES = {PASS: "green", FAIL: "bold red", SKIP: "yellow", RATE: "cyan"}

NO_CARD = 2
"""The exit code if there is no GPU to certify."""


def main(backend: str | None, only: str, quick: bool, simulate: bool, file: Path | None) -> int:
    """Check all claims and print the results; return 0, or 1 if a claim is false, or 2 if there is no GPU."""
    require_folder(file)
    infos = find_installed(backend)
    machine = _machine.look()
    answers = [Answer(info) for info in infos] if simulate else ask(infos, simulate=False)
    if not simulate and not any(answer.gpus for answer in answers):
        print_error(_no_gpu_error(machine, answers))
        return NO_CARD
    report = Report(machine.driver, [card.name for card in machine.cards], simulate, quick)
    for setting, answer in _settings(answers, Setting("", 0, simulate, quick, only=only)):
        _check_framework(setting, answer, report, file)
    _show_summary(report, file)
    return 1 if report.failed else 0


def _no_gpu_error(machine: _machine.Machine, answers: Sequence[Answer]) -> ds.DevshimError:
    """Return the error that says why there is no GPU, and what to type."""
    broken = [f" {answer.info.title} is broken: {answer.broken}." for answer in answers if answer.broken is not None]
    return ds.DevshimError(
        f"There is no GPU to certify. {cause(machine, answers)}{''.join(broken)}",
        "`devshim doctor` lists what was found; `devshim certify --simulate` tries the checks on simulated GPUs",
    )


def _settings(answers: Sequence[Answer], common: Setting) -> list[tuple[Setting, Answer]]:
    gpus = {answer.info.name: runs.CARDS if common.simulated else answer.gpus for answer in answers}
    found = []
    for answer in answers:
        name = answer.info.name
        others = tuple(other for other, count in gpus.items() if count and other != name)
        found.append((replace(common, backend=name, gpus=gpus[name], others=others), answer))
    return found


def _check_framework(at: Setting, answer: Answer, report: Report, file: Path | None) -> None:
    """Check one framework and print the results; write the report after each, so that an interrupt loses none."""
    found = Framework(at.backend, answer.info.title, answer.info.version, at.gpus)
    report.frameworks.append(found)
    if answer.broken is not None:
        found.results.append(Result("process", "The framework can be imported.", FAIL, answer.broken))
    elif not at.gpus:
        found.why = answer.why or "it sees no GPU"
        say(f"{found.title} is left out: {found.why}", "yellow")
    else:
        with spinner(f"checking {found.title}") as now:
            for result in runs.results(at):
                found.results.append(result)
                if file is not None:
                    write(file, report.to_json())
                now(f"checking {found.title}: {len(found.results)} done, last {result.name}")
    if file is not None:
        write(file, report.to_json())
    if found.results:
        _show(found, at.simulated)


def _show(found: Framework, simulated: bool) -> None:
    kind = "simulated GPU" if simulated else "GPU"
    title = f"{found.title} {found.version or ''} on {found.gpus} {kind}{'' if found.gpus == 1 else 's'}"
    columns = [Column("Result", no_wrap=True), Column("Claim"), Column("Seen")]
    grid = Grid(title, columns, styles=_STYLES)
    for result in found.results:
        claim = f"{result.says} ({result.name})" if result.status == FAIL else result.says
        grid.rows.append((result.status, claim, result.note))
    show(grid)
    say()


def _show_summary(report: Report, file: Path | None) -> None:
    for each in report.frameworks:
        if each.results:
            counts = ((PASS, "pass"), (FAIL, "fail"), (SKIP, "skipped"), (RATE, "rates"))
            counts_text = ", ".join(f"{each.count(status)} {word}" for status, word in counts)
            say(f"{each.title}: {counts_text}", "bold red" if each.count(FAIL) else "bold")
    if report.simulated:
        say("These GPUs were simulated: this tried the checks themselves, and certified no GPU.", "yellow")
    if file is not None:
        say(f"Written to {file}{': attach it to your report' if report.failed else ''}.")
    elif report.failed:
        say("For a report: devshim certify --json certified.json")

"""`devshim tutorial`: run pages on every framework, compare, and manage environments."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.cli import _check_report
from devshim.cli import _tutorial_view as view
from devshim.cli._console import Column, Grid, download_bar, print_error, require_folder, say, show, write
from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial import comparing, environment_setup, environments, page_template, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.tutorial.session import Options, Outcome

__all__ = ["check", "create", "list_environments", "new", "options", "run"]

_INTERRUPTED = 130


def options(
    frameworks: str | None,
    env: Sequence[str] | None,
    gpus: int | None,
    real: bool,
    timeout: float,
    jobs: int,
    rtol: float,
    fresh: bool,
    recorded: bool,
    records: Path | None,
) -> Options:
    """Return the options of a command line; they are checked later."""
    names = None if frameworks is None else tuple(each.strip() for each in frameworks.split(",") if each.strip())
    return session.Options(names, tuple(env or ()), gpus, real, timeout, jobs, rtol, fresh, recorded, records)


def run(pages: Sequence[Path], chosen: Options) -> int:
    """Run pages, and print a table for each; return the exit code."""
    session.refuse_same_records(pages, chosen.records)
    return _process_pages(pages, lambda path: _run_page(path, chosen).outcome.ok)


def check(pages: Sequence[Path], chosen: Options, json: Path | None = None) -> int:
    """Run pages, print a table for each, and where the frameworks differ; return the exit code.

    With ``json``, write the result there too; the file ``-`` means to print only that.
    """
    session.refuse_same_records(pages, chosen.records)
    require_folder(json)
    found: list[dict[str, Any]] = []
    alone = str(json) == "-"

    def one(path: Path) -> bool:
        done = _compare(path, chosen) if alone else _run_page(path, chosen)
        if json is not None:
            found.append(_check_report.of_page(done.outcome, done.report))
        return _is_good(done, quiet=alone)

    code = _process_pages(pages, one)
    if alone and code != _INTERRUPTED:
        print(_check_report.to_json(found), end="")
    elif json is not None and code != _INTERRUPTED:
        write(json, _check_report.to_json(found))
    return code


def _process_pages(pages: Sequence[Path], one: Callable[[Path], bool]) -> int:
    try:
        done = [one(path) for path in pages]
    except KeyboardInterrupt:
        say("interrupted: the kernels have ended", "bold red")
        return _INTERRUPTED
    return 0 if all(done) else 1


class _Done(NamedTuple):
    """The records of a page, and their comparison."""

    outcome: Outcome
    report: comparing.Report


def _compare(path: Path, chosen: Options) -> _Done:
    """Run a page, and print nothing."""
    page = session.read_page(path, chosen)
    outcome = session.outcome_of(page, chosen, None)
    return _Done(outcome, comparing.compare(page, outcome.records, chosen.rtol))


def _run_page(path: Path, chosen: Options) -> _Done:
    """Run a page, and print the table, the errors and the differences."""
    page = session.read_page(path, chosen)
    with view.live(page) as watcher:
        outcome = session.outcome_of(page, chosen, watcher)
        report = comparing.compare(page, outcome.records, chosen.rtol)
        watcher.compared(outcome, report)
    view.show_table(watcher)
    for error in outcome.problems.values():
        print_error(error)
    view.show_failures(outcome)
    view.show_differences(page, report)
    for sentence in outcome.large_outputs():
        say(sentence, "dim")
    return _Done(outcome, report)


def _is_good(done: _Done, quiet: bool) -> bool:
    outcome, report = done
    good = outcome.ok and not report.undeclared
    if good and len(outcome.records) > 1 and not quiet:
        say(f"{len(outcome.records)} frameworks agree in {len(report.cells)} cells", "green")
    if len(outcome.page.frameworks) == 1 and not quiet:
        say("with one framework, there is nothing to compare")
    return good


def new(path: Path, frameworks: str) -> int:
    """Write a page that runs; return the exit code."""
    page_template.write(path, [each.strip() for each in frameworks.split(",") if each.strip()])
    say(f"{path} is written; run it with: devshim tutorial check {path}")
    return 0


def create(frameworks: Sequence[str], extra: Sequence[str], python: Path | None) -> int:
    """Create environments; return the exit code."""
    names = [discovery.canonical_name(each) for each in frameworks]
    with _interruptible():
        for name in names:
            with download_bar(f"environment of {discovery.title_of(name)}") as (change, advance):
                made = environment_setup.create(name, extra, python, change, advance)
            say(f"{name}  {made.version}  Python {made.python_version}  {made.python.parent.parent}")
    return 0


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        msg = "interrupted: the environment is not complete, and was removed"
        raise DevshimError(msg, "create it again with the same command") from error


def list_environments(env: Sequence[str]) -> int:
    """Print the environment of each framework; return the exit code."""
    table = environments.read_configured(Path.cwd())
    found = environments.resolve(discovery.known_names(), environments.read_options(env), table)
    columns = [Column("framework"), Column("version"), Column("Python"), Column("from"), Column("environment", share=1)]
    grid = Grid("", columns)
    for name, each in found.items():
        if isinstance(each, DevshimError):
            grid.rows.append((name, "-", "", "", each.problem))
        else:
            grid.rows.append((name, each.version, each.python_version, each.origin, str(each.python)))
    show(grid)
    return 0

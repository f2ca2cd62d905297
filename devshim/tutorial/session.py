"""Get the records of a page's frameworks: from the record beside the page, from the cache, or by a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial import cache, environments, page, record, running
from devshim.tutorial.comparing import RTOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.tutorial.environments import Environment
    from devshim.tutorial.page import Page
    from devshim.tutorial.record import Record
    from devshim.tutorial.running import Watcher

__all__ = ["Options", "Outcome", "outcome_of", "read_page", "refuse_same_records"]

_LARGE = 1_000_000
"""The size of outputs, in characters, above which there is a note."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        frameworks: The frameworks, or None for those of the page.
        environments: The environments that the command line names, as ``torch=FOLDER``.
        gpus: The number of GPUs, or None for the page's.
        real: True to use real GPUs.
        timeout: The seconds after which a cell has failed.
        jobs: How many frameworks run at a time.
        rtol: The tolerance of numbers.
        fresh: True to also run what has not changed.
        recorded: True to run nothing, and use only the records.
        records: The folder of the records; None for the page's.
    """

    frameworks: tuple[str, ...] | None = None
    environments: tuple[str, ...] = ()
    gpus: int | None = None
    real: bool = False
    timeout: float = running.TIMEOUT
    jobs: int = running.JOBS
    rtol: float = RTOL
    fresh: bool = False
    recorded: bool = False
    records: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The records of a page.

    Attributes:
        page: The page.
        records: The record of each framework, in the order of the page.
        unchanged: The frameworks that did not run, because nothing has changed.
        problems: Why a framework has no record.
    """

    page: Page
    records: dict[str, Record]
    unchanged: frozenset[str] = frozenset()
    problems: dict[str, DevshimError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every framework has a complete record."""
        return not self.problems and all(each.ok for each in self.records.values())

    def large_outputs(self) -> list[str]:
        """Return a sentence for each cell with more than a megabyte of output: where, on which framework, how much."""
        found = []
        for cell in self.page.cells:
            sizes = {each.title: each.cells[cell.id].size for each in self.records.values() if cell.id in each.cells}
            title = max(sizes, key=sizes.__getitem__, default="")
            if title and sizes[title] > _LARGE:
                size = f"{sizes[title] / 1e6:.1f} MB of output on {title}"
                found.append(f"{self.page.where(cell)}: {size}; its record and the built pages contain all of it")
        return found


def refuse_same_records(pages: Sequence[Path], folder: Path | None) -> None:
    """Raise an error for pages whose records would be the same files: ``gpus.md`` and ``gpus.py`` in one folder.

    Raises:
        DevshimError: Two of the pages have the same records.
    """
    known: dict[Path, Path] = {}
    for path in pages:
        records = record.path_of(path, "", folder).parent.absolute()
        other = known.setdefault(records, path)
        if other.absolute() != path.absolute():
            msg = f"{other} and {path} would have the same records, {records}"
            raise DevshimError(msg, "rename one of them, or name a folder for the records of each: --records FOLDER")


def read_page(path: Path, options: Options) -> Page:
    """Read a page, with the frameworks and GPUs that options choose.

    Raises:
        DevshimError: The page is wrong, or does not have one of the frameworks.
    """
    found = page.read(path)
    names = [discovery.canonical_name(name) for name in options.frameworks or found.frameworks]
    for name in names:
        if name not in found.frameworks:
            msg = f"{path} is not for {name}: its frameworks are {', '.join(found.frameworks)}"
            raise DevshimError(msg, f"add {name} to frameworks in its front matter")
    chosen = tuple(name for name in found.frameworks if name in names)
    return replace(found, frameworks=chosen, gpus=found.gpus if options.gpus is None else options.gpus)


def outcome_of(page: Page, options: Options, watcher: Watcher | None = None) -> Outcome:
    """Return the records of a page's frameworks; run those that have changed, and save their records.

    A framework without an environment keeps its record if the page's code has not changed since.
    """
    if options.recorded:
        return _read_recorded(page, page.frameworks, {}, replace(options, environments=()))
    named = environments.read_options(options.environments)
    table = environments.read_configured(page.path.absolute().parent)
    resolved = environments.resolve(page.frameworks, named, table)
    usable = {name: each for name, each in resolved.items() if not isinstance(each, DevshimError)}
    missing = {name: each for name, each in resolved.items() if isinstance(each, DevshimError)}
    known = {} if options.fresh else _find_unchanged(page, usable, options)
    changed = {name: each for name, each in usable.items() if name not in known}
    new = _run(page, changed, options, watcher) if changed else {}
    for name, each in {**known, **new}.items():
        _save(page, name, each, options)
    kept = _read_recorded(page, tuple(missing), missing, options)
    found = {**known, **new, **kept.records}
    records = {name: found[name] for name in page.frameworks if name in found}
    return Outcome(page, records, frozenset([*known, *kept.records]), kept.problems)


def _run(page: Page, changed: dict[str, Environment], options: Options, watcher: Watcher | None) -> dict[str, Record]:
    how = options.jobs, options.timeout, options.real
    return running.run(page, changed, watcher or running.Watcher(), *how)


def _find_unchanged(page: Page, usable: dict[str, Environment], options: Options) -> dict[str, Record]:
    found = {name: cache.find(page, each, options.real, options.records) for name, each in usable.items()}
    return {name: each for name, each in found.items() if each is not None}


def _save(page: Page, name: str, made: Record, options: Options) -> None:
    """Write a complete record, unless the same one is there; a failed run leaves the earlier record."""
    path = record.path_of(page.path, name, options.records)
    if made.ok and not (path.is_file() and path.read_text(encoding="utf-8") == made.to_json()):
        made.save(path)


def _read_recorded(page: Page, names: Sequence[str], reasons: dict[str, DevshimError], options: Options) -> Outcome:
    """Return the stored records of frameworks; a problem for each that has none of the page's code."""
    found: dict[str, Record] = {}
    problems: dict[str, DevshimError] = {}
    explicit = environments.read_options(options.environments)  # one that is named on the command line must exist
    for name in names:
        path = record.path_of(page.path, name, options.records)
        each = record.load(path)
        if each is not None and each.is_of(page) and name not in explicit:
            found[name] = each
        else:
            why = "is of an earlier version of the page" if each is not None else "does not exist"
            problem = DevshimError(f"the record {path} {why}", f"devshim tutorial run {page.path}")
            problems[name] = reasons.get(name, problem)
    return Outcome(page, found, frozenset(found), problems)

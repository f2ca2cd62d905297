"""`devshim tutorial build`: write pages and notebooks from the records of tutorials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.cli._console import print_error, say
from devshim.cli._watching import watch
from devshim.errors import DevshimError
from devshim.registry.discovery import title_of
from devshim.tutorial import environments, session
from devshim.tutorial.front_matter import library

if TYPE_CHECKING:
    from devshim.tutorial.building.slots import Shown
    from devshim.tutorial.session import Options
    from devshim.tutorial.transpiler.verifying import Verdict

__all__ = ["main"]


def main(
    pages: Sequence[Path],
    output: Path,
    formats: str,
    native_notebooks: bool,
    frameworks: str | None,
    env: Sequence[str],
    records: Path | None,
    recorded: bool,
    watched: bool = False,
) -> int:
    """Build pages, and print what was written, once or at each change; return the exit code."""
    library("libcst")  # first: its absence has its own error
    from devshim.tutorial.building import files

    wanted = files.read_formats(formats)
    names = None if frameworks is None else tuple(each.strip() for each in frameworks.split(",") if each.strip())
    options = session.Options(names, tuple(env), recorded=recorded, records=records)

    def build(path: Path) -> bool:
        return _build(path, output, wanted, native_notebooks, options)

    _refuse_same_names(pages)
    if watched:
        return watch(pages, build)
    done = [build(path) for path in pages]
    return 0 if all(done) else 1


def _refuse_same_names(pages: Sequence[Path]) -> None:
    """Raise an error for pages of the same name: the files of one would replace those of the other."""
    known: dict[str, Path] = {}
    for path in pages:
        other = known.setdefault(path.stem, path)
        if other.absolute() != path.absolute():
            msg = f"{other} and {path} have the same name, and so would the files that are built from them"
            raise DevshimError(msg, "build them with two commands, and give each its own --output")


def _build(path: Path, output: Path, formats: Sequence[str], native_notebooks: bool, options: Options) -> bool:
    from devshim.tutorial.building import files
    from devshim.tutorial.building.slots import Shown

    page = session.read_page(path, options)
    outcome = session.outcome_of(page, options)
    for name, error in outcome.problems.items():
        print_error(DevshimError(f"{path} is built without {title_of(name)}: {error.problem}", error.hint))
    for name, record in outcome.records.items():
        for cell in page.cells_of(name):
            done = record.cells.get(cell.id)
            if done is not None and done.status == "failed":
                say(f"{page.where(cell)}: on {record.title}: {done.error}", "red")
    for sentence in outcome.large_outputs():
        say(sentence, "dim")
    shown = Shown(page, outcome.records)
    written = files.write(shown, output, formats)
    good = outcome.ok
    if native_notebooks:
        more, fine = _write_native(shown, output, options)
        written, good = [*written, *more], good and fine
    say(f"{path}: wrote {len(written)} files: {', '.join(str(each) for each in written)}")
    return good


def _write_native(shown: Shown, output: Path, options: Options) -> tuple[list[Path], bool]:
    """Write the notebooks in own code, and print what was translated, and how the check ended."""
    from devshim.tutorial.building import files

    names = [name for name in shown.records if shown.translated[name] is not None]
    verdicts = {} if options.recorded else _verify(shown, names, options)
    for name in names:
        _report(shown, name, verdicts.get(name))
    good = not any(each.failed for each in verdicts.values())
    return files.write_native(shown, output, verdicts, names), good


def _verify(shown: Shown, names: Sequence[str], options: Options) -> dict[str, Verdict]:
    from devshim.tutorial.transpiler import verifying

    table = environments.read_configured(shown.page.path.absolute().parent)
    found = environments.resolve(names, environments.read_options(options.environments), table)
    usable = {name: each for name, each in found.items() if not isinstance(each, DevshimError)}
    return verifying.run(shown, usable, fresh=options.fresh)


def _report(shown: Shown, name: str, verdict: Verdict | None) -> None:
    translated = shown.translated[name]
    assert translated is not None
    page, title = shown.page, title_of(name)
    cells = page.cells_of(name)
    count = f"{title} in its own code: {translated.done} calls translated"
    if verdict is None:
        say(f"{count}, not checked")
    elif verdict.failed:
        say(f"{count}; the notebook fails on simulated GPUs", "red")
    else:
        same = len(cells) - len(verdict.differences)
        say(f"{count}; {same} of {len(cells)} cells give the same results on simulated GPUs", "green")
    for cell, left in zip(cells, translated.left, strict=True):
        for each in left:
            say(f"  {page.where(cell)}: line {each.line}: {each.name} is left: {each.reason}")
    if verdict is None:
        return
    for cell in verdict.failed:
        record = verdict.record.cells.get(cell.id)
        reason = (record.error if record is not None else None) or verdict.record.problem or "it did not run"
        say(f"  {page.where(cell)}: {reason}", "red")
    for cell, found in verdict.differences.items():
        say(f"  {page.where(cell)}: {found[0]}")

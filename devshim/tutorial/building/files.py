"""Write the files of a built page: MyST, HTML, and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.errors import DevshimError
from devshim.tutorial.building import html, myst, notebooks
from devshim.tutorial.building.slots import Shown

if TYPE_CHECKING:
    from devshim.tutorial.transpiler.verifying import Verdict

__all__ = ["FORMATS", "read_formats", "write", "write_native"]

FORMATS = ("md", "html", "ipynb")
"""MyST for Sphinx, a self-contained page, and a notebook for each framework."""


def read_formats(text: str) -> tuple[str, ...]:
    """Return the formats that a text with commas names.

    Raises:
        DevshimError: It names another one.
    """
    names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for name in names:
        if name not in FORMATS:
            msg = f"{name!r} is not a format of built pages"
            raise DevshimError(msg, f"the formats are {', '.join(FORMATS)}")
    return names


def write(shown: Shown, folder: Path, formats: Iterable[str]) -> list[Path]:
    """Write a page in formats to a folder, and return the files.

    Raises:
        DevshimError: A file cannot be written, or would replace the page itself.
    """
    stem = shown.page.path.stem
    texts: dict[str, str] = {}
    if "md" in formats:
        _prepare(folder, shown, f"{stem}.md")
        texts[f"{stem}.md"] = myst.page(shown, myst.files_in(folder, stem))
    if "html" in formats:
        texts[f"{stem}.html"] = html.page(shown)
    if "ipynb" in formats:
        texts.update((f"{stem}-{name}.ipynb", notebooks.neutral(shown, name)) for name in shown.frameworks)
    return _write(shown, folder, texts)


def write_native(shown: Shown, folder: Path, verdicts: Mapping[str, Verdict], frameworks: Sequence[str]) -> list[Path]:
    """Write the notebooks in own code, with the outputs of their check, and return the files."""
    texts = {}
    for name in frameworks:
        translated = shown.translated[name]
        if translated is not None:
            ran = verdicts[name].record.cells if name in verdicts else {}
            text = notebooks.native(shown, name, translated, ran)
            texts[f"{shown.page.path.stem}-{name}-own-words.ipynb"] = text
    return _write(shown, folder, texts)


def _write(shown: Shown, folder: Path, texts: Mapping[str, str]) -> list[Path]:
    found = []
    for name, text in texts.items():
        _prepare(folder, shown, name)
        path = folder / name
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error
        found.append(path)
    return found


def _prepare(folder: Path, shown: Shown, name: str) -> None:
    """Make the folder, and refuse to write over the page."""
    if (folder / name).resolve() == shown.page.path.resolve():
        msg = f"{folder / name} is the page itself"
        raise DevshimError(msg, "name another folder: devshim tutorial build PAGE --output site")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(path: Path, error: OSError) -> DevshimError:
    return DevshimError(f"{path} cannot be written: {error.strerror}", "name another folder with --output")

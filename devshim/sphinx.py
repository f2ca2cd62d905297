"""A Sphinx extension that shows tutorials which run on several frameworks, with tabs that switch together.

Add it to the extensions of ``conf.py``, with ``myst_parser``::

    extensions = ["myst_parser", "devshim.sphinx"]

A Markdown page whose front matter has an entry ``devshim`` is shown with the outputs of its records, which
``devshim tutorial run PAGE`` writes beside it. The build runs no code, and needs no framework. A record that is missing
or outdated is a warning that names the command to run. With ``devshim_tutorial_execute = True`` in ``conf.py``, the
build runs what is missing or old. It loads ``sphinx_design``, whose tabs the pages use.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devshim._version import __version__
from devshim.errors import DevshimError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from devshim.tutorial.page import Page
    from devshim.tutorial.record import Record

__all__ = ["setup"]

_HEADER = re.compile(r"\A---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_STYLES = Path(__file__).parent / "tutorial" / "building" / "static"


def setup(app: Sphinx) -> dict[str, Any]:
    """Set up the extension."""
    app.setup_extension("sphinx_design")
    app.add_config_value("devshim_tutorial_execute", False, "env", bool)
    app.connect("builder-inited", _add_styles)
    app.connect("source-read", _show)
    app.add_css_file("devshim-tutorial.css")
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}


def _add_styles(app: Sphinx) -> None:
    app.config.html_static_path.append(str(_STYLES))


def _show(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace a tutorial by its page with outputs."""
    header = _HEADER.match(source[0])
    path = Path(str(app.env.doc2path(docname)))
    if path.suffix != ".md" or header is None or re.search(r"^devshim\s*:", header[1], re.MULTILINE) is None:
        return
    from devshim.tutorial import page as pages
    from devshim.tutorial.front_matter import library

    try:
        library("libcst")
        from devshim.tutorial.building import myst
        from devshim.tutorial.building.slots import Shown

        page = pages.parse(path, source[0])
        records = _records(app, docname, page)
        source[0] = _front_matter(page) + myst.page(Shown(page, records), myst.embed)
    except DevshimError as error:
        _warn(docname, str(error))


def _records(app: Sphinx, docname: str, page: Page) -> dict[str, Record]:
    """Return the records of a page; warn of those that are missing or old, or run them if the build may."""
    from devshim.tutorial import record

    for name in page.frameworks:
        app.env.note_dependency(str(record.path_of(page.path, name)))
    records = record.load_all(page)
    old = [name for name, each in records.items() if not each.is_of(page)]
    missing = [name for name in page.frameworks if name not in records]
    if old + missing and app.config.devshim_tutorial_execute:
        return _run(page)
    for names, state in ((missing, "no record of {}"), (old, "outdated records of {}")):
        if names:
            command = f"devshim tutorial run {os.path.relpath(page.path)} --frameworks {','.join(names)}"
            _warn(docname, f"{page.path.name} has {state.format(', '.join(names))}: run: {command}")
    return records


def _run(page: Page) -> dict[str, Record]:
    from devshim.tutorial import session

    outcome = session.outcome_of(page, session.Options())
    for error in outcome.problems.values():
        raise error
    return outcome.records


def _front_matter(page: Page) -> str:
    """Return the page's front matter without the entries that only devshim reads."""
    from devshim.tutorial.front_matter import library

    return f"---\n{library('yaml').safe_dump(page.metadata)}---\n\n" if page.metadata else ""


def _warn(docname: str, message: str) -> None:
    from sphinx.util import logging

    logging.getLogger(__name__).warning(message, location=docname, type="devshim", subtype="tutorial")

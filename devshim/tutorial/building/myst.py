"""The page as MyST for Sphinx: tab-sets of sphinx-design that switch together, and keep the reader's choice.

Only backtick fences are used, so that no extension of MyST is needed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from devshim.registry.discovery import title_of
from devshim.tutorial.building.outputs import Output
from devshim.tutorial.building.slots import Shown, Tab, TabGroup
from devshim.tutorial.page import Text

__all__ = ["embed", "files_in", "page"]

Picture = Callable[[Output], str]
"""Returns the MyST of a picture."""
GROUP = "framework"
"""The name of the group of tabs, and of the parameter in the page's address."""


def page(shown: Shown, picture: Picture) -> str:
    """Return a page as MyST.

    Args:
        shown: The page with its records.
        picture: What to write for a picture: `embed`, or that of `files_in`.
    """
    found = []
    for part in shown.blocks():
        if isinstance(part, Text):
            found.append(part.source if part.frameworks is None else _text_tabs(part, shown.frameworks))
        else:
            found.append(_block(part, picture))
    return "\n\n".join(each.strip("\n") for each in found if each.strip()) + "\n"


def embed(part: Output) -> str:
    """Return a picture as HTML that contains it."""
    return _fence("{raw} html", f'<img class="devshim-output" alt="output of the code above" src="{part.uri}">')


def files_in(folder: Path, stem: str) -> Picture:
    """Return a function that writes pictures to files of a folder, named by their content."""

    def write(part: Output) -> str:
        suffix = {"image/svg+xml": "svg", "image/jpeg": "jpg"}.get(part.kind, part.kind.partition("/")[2])
        name = f"{stem}-{hashlib.sha256(part.data).hexdigest()[:10]}.{suffix}"
        folder.joinpath(name).write_bytes(part.data)
        return f"![output of the code above]({name})"

    return write


def _block(block: TabGroup, picture: Picture) -> str:
    found = [] if block.source is None else [_code(block.source, "python", "devshim-code")]
    common = block.common
    if common is not None:
        found.append(_outputs(common, picture))
    tabs = [(tab.framework, _tab(tab, picture, common is None)) for tab in block.tabs]
    if any(body for _, body in tabs):
        found.append(_tabs(tabs))
    return "\n\n".join(each for each in found if each)


def _tab(tab: Tab, picture: Picture, with_outputs: bool) -> str:
    found = []
    if tab.source is not None:
        found.append(_code(tab.source, "python", "devshim-code"))
    if tab.native:
        caption = f":caption: {title_of(tab.framework)} code" if tab.source is None else ""
        found.append(_code("\n".join(tab.native), "python", "devshim-native", caption))
    if with_outputs:
        found.append(_outputs(tab.parts, picture))
    return "\n\n".join(each for each in found if each)


def _text_tabs(text: Text, frameworks: Iterable[str]) -> str:
    return _tabs([(name, text.source) for name in frameworks if name in (text.frameworks or ())])


def _tabs(items: list[tuple[str, str]]) -> str:
    inner = max(_longest_fence(body) for _, body in items)
    found = []
    for name, body in items:
        text = f":sync: {name}\n\n{body or '*Nothing is shown.*'}"
        found.append(_fence(f"{{tab-item}} {title_of(name)}", text, inner + 1))
    options = f":sync-group: {GROUP}\n:class: devshim-tabs\n\n"
    return _fence("{tab-set}", options + "\n\n".join(found), inner + 2)


def _outputs(parts: Iterable[Output], picture: Picture) -> str:
    return "\n\n".join(_output(part, picture) for part in parts)


def _output(part: Output, picture: Picture) -> str:
    if part.kind in ("text", "error"):
        return _code(part.text, "text", "devshim-error" if part.kind == "error" else "devshim-output")
    if part.kind == "html":
        return _fence("{raw} html", f'<div class="devshim-html">\n{part.text}\n</div>')
    if part.kind == "markdown":
        return part.text
    return picture(part)


def _code(text: str, language: str, name: str, *options: str) -> str:
    head = "\n".join([f":class: {name}", *filter(None, options)])
    return _fence(f"{{code-block}} {language}", f"{head}\n\n{text}")


def _fence(head: str, body: str, length: int = 0) -> str:
    fence = "`" * max(length, _longest_fence(body) + 1, 3)
    return f"{fence}{head}\n{body}\n{fence}"


def _longest_fence(text: str) -> int:
    return max((len(each) for each in re.findall(r"`{3,}", text)), default=2)

"""The page as one HTML file, which needs nothing else: its styles, scripts and pictures are in it.

Without JavaScript, the frameworks follow each other, each under its name.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from devshim.registry.discovery import title_of
from devshim.tutorial.building.outputs import Output
from devshim.tutorial.building.slots import Shown, Tab, TabGroup
from devshim.tutorial.front_matter import library
from devshim.tutorial.page import Text

__all__ = ["page"]

_HERE = Path(__file__).parent
_NOTES = ("note", "tip", "hint", "important", "warning", "caution", "attention", "danger", "seealso", "admonition")


def page(shown: Shown) -> str:
    """Return a page as HTML."""
    writer = _Writer(shown.page.path.parent)
    body = "\n".join(writer.part(part, shown) for part in shown.blocks())
    buttons = "".join(
        f'<button type="button" data-framework="{escape(name)}" aria-pressed="false">{escape(title_of(name))}</button>'
        for name in shown.frameworks
    )
    css, script = (_HERE.joinpath(f"tutorial.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(shown.page.title)}</title>
<link rel="icon" href="data:,">
<style>
{css}</style>
</head>
<body>
<nav class="picker" aria-label="Framework of all tabs">{buttons}</nav>
<main>
{body}
</main>
<script>
{script}</script>
</body>
</html>
"""


class _Writer:
    """Turns the parts of a page into HTML.

    Args:
        folder: The folder of the page, in which its pictures are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._markdown = _parser()
        self._pygments = library("pygments"), library("pygments.lexers"), library("pygments.formatters")

    def part(self, part: Text | TabGroup, shown: Shown) -> str:
        if isinstance(part, TabGroup):
            return self._block(part)
        if part.frameworks is None:
            return self._text(part.source)
        names = [name for name in shown.frameworks if name in part.frameworks]
        return _tabs([(name, self._text(part.source)) for name in names])

    def _block(self, block: TabGroup) -> str:
        found = [] if block.source is None else [self._code(block.source, "code")]
        common = block.common
        if common is not None:
            found.append(self._outputs(common))
        tabs = [(tab.framework, self._tab(tab, common is None)) for tab in block.tabs]
        if any(body for _, body in tabs):
            found.append(_tabs(tabs))
        return "\n".join(found)

    def _tab(self, tab: Tab, with_outputs: bool) -> str:
        found = [] if tab.source is None else [self._code(tab.source, "code")]
        if tab.native:
            caption = f"{title_of(tab.framework)} code" if tab.source is None else ""
            found.append(self._code("\n".join(tab.native), "native", caption))
        if with_outputs:
            found.append(self._outputs(tab.parts))
        return "\n".join(each for each in found if each)

    def _code(self, text: str, name: str, caption: str = "") -> str:
        pygments, lexers, formatters = self._pygments
        colored = pygments.highlight(text, lexers.PythonLexer(), formatters.HtmlFormatter(nowrap=True))
        note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return f'<figure class="{name}">{note}<pre tabindex="0">{colored.rstrip()}</pre></figure>'

    def _outputs(self, parts: Iterable[Output]) -> str:
        return "\n".join(self._output(part) for part in parts)

    def _output(self, part: Output) -> str:
        if part.kind in ("text", "error"):
            name = "output" if part.kind == "text" else "error"
            return f'<figure class="{name}"><pre tabindex="0">{escape(part.text)}</pre></figure>'
        if part.kind == "html":
            return f'<figure class="output"><div class="scroll" tabindex="0">{part.text}</div></figure>'
        if part.kind == "markdown":
            return f'<figure class="output">{self._text(part.text)}</figure>'
        return f'<figure class="output"><img alt="output of the code above" src="{part.uri}"></figure>'

    def _text(self, source: str) -> str:
        parts = []
        for note, text in _notes(source):
            found = self._markdown.render(text)
            parts.append(f"<aside><strong>{escape(note)}</strong>\n{found}</aside>" if note else found)
        return re.sub(r'(<img[^>]*?src=")([^":]+)(")', self._embed, "\n".join(parts))

    def _embed(self, match: re.Match[str]) -> str:
        """Return an image whose file is in the page's folder with the file in it."""
        path = self._folder / match[2]
        if not path.is_file():
            return match[0]
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        return f"{match[1]}data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}{match[3]}"


def _tabs(items: list[tuple[str, str]]) -> str:
    panels = [
        f'<section class="panel" data-framework="{escape(name)}"><h4>{escape(title_of(name))}</h4>\n'
        f"{body or '<p><em>Nothing is shown.</em></p>'}\n</section>"
        for name, body in items
    ]
    return '<div class="tabs">\n' + "\n".join(panels) + "\n</div>"


def _notes(source: str) -> Iterable[tuple[str, str]]:
    """Yield the pieces of a text as (kind of note, text); the kind is empty for the text between notes."""
    rest = 0
    pattern = rf"^(`{{3,}}|:{{3,}})\{{({'|'.join(_NOTES)})\}}[ \t]*([^\n]*)\n(.*?)^\1[ \t]*$"
    for match in re.finditer(pattern, source, re.DOTALL | re.MULTILINE):
        yield "", source[rest : match.start()]
        title = match[3].strip() if match[2] == "admonition" else match[2]
        body = re.sub(r"\A(:[\w-]+:[^\n]*\n)+", "", match[4])
        yield title, body if match[2] == "admonition" else f"{match[3]}\n\n{body}"
        rest = match.end()
    yield "", source[rest:]


def _parser() -> Any:
    """Return a parser of Markdown with tables and formulas; a formula is shown as TeX."""
    parser = library("markdown_it").MarkdownIt("commonmark", {"html": True}).enable("table")
    dollarmath = library("mdit_py_plugins.dollarmath").dollarmath_plugin
    return parser.use(dollarmath, renderer=lambda text, _: f'<code class="math">{escape(text)}</code>')

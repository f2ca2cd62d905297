"""Draw the two diagrams of the page for maintainers from the page's own tables.

``python docs/internals/diagrams.py`` writes ``layers.svg`` and ``copy.svg``; a test compares them with the tables. They
are plain files, because a browser without network, GitHub and the documentation must all show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
WIDTH, ROW, BOX = 860, 46, 30
"""Pixels: the width of a diagram, the distance between two rows, and the height of a box."""
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'font-family="sans-serif" font-size="13" role="img">\n<title>{title}</title>\n'
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>\n'
    '<rect width="100%" height="100%" fill="#fff"/>\n'
)


def _box(x: float, y: float, width: float, text: str, fill: str) -> str:
    middle = f'x="{x + width / 2:g}" y="{y + BOX / 2 + 5:g}" text-anchor="middle" fill="#111"'
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{BOX}" rx="5" fill="{fill}" stroke="#777"'
    return f"<rect {shape}/>\n<text {middle}>{escape(text)}</text>\n"


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="#444" marker-end="url(#end)"/>\n'


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="#444">{escape(text)}</text>\n'


def _drawing(title: str, height: float, parts: Iterable[str]) -> str:
    return _HEAD.format(title=escape(title), width=WIDTH, height=f"{height:g}") + "".join(parts) + "</svg>\n"


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head and without code marks."""
    section = page.partition(f"\n## {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None, f"there is no table below {heading!r}"
    table = lines[0].replace("`", "").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def layers(page: str) -> str:
    """Return the diagram of the layers: a row for each, with a box for each package."""
    rows = _rows(page, "The layers")
    parts = [_arrow(24, 20, 24, len(rows) * ROW - 6), _label(34, 14, "imports run down")]
    for row, (number, packages, _) in enumerate(rows):
        y, x = 22.0 + row * ROW, 70.0
        parts.append(_label(38, y + 20, number))
        for name in packages.split(", "):
            width = 18 + 8.0 * len(name)
            parts.append(_box(x, y, width, name, "#dbe9f6"))
            if name in ("contract", "devices", "errors"):
                parts.append(_arrow(WIDTH - 170, y + BOX / 2, x + width + 4, y + BOX / 2))
            x += width + 10
    top = 22.0 + (len(rows) - 4) * ROW
    parts.append(_box(WIDTH - 170, top, 160, "the adapters", "#fde5c8"))
    parts.append(_label(WIDTH - 166, top + BOX + 16, "loaded by the registry,"))
    parts.append(_label(WIDTH - 166, top + BOX + 32, "by name"))
    parts.append(f'<path d="M{WIDTH - 170},{top + BOX} V{len(rows) * ROW - 9}" stroke="#444"/>\n')
    return _drawing("The layers of devshim", len(rows) * ROW + 24, parts)


def copy(page: str) -> str:
    """Return the diagram of the life of a copy: a step below the other, each with the ways in which it can end."""
    rows = _rows(page, "The life of a copy")
    parts = []
    for row, (step, module, ends) in enumerate(rows):
        y = 14.0 + row * ROW
        parts.append(_box(10, y, 360, step, "#dbe9f6"))
        if module:
            parts.append(_label(380, y + 20, module))
        if row + 1 < len(rows):
            parts.append(_arrow(190, y + BOX, 190, y + ROW))
        if ends:
            fill = "#d8f0d8" if "returns" in ends else "#f8d9d6"
            parts.append(_arrow(WIDTH - 320, y + BOX / 2, WIDTH - 288, y + BOX / 2))
            parts.append(_box(WIDTH - 286, y, 276, ends.replace("; otherwise", ", or"), fill))
    return _drawing("The life of a copy", len(rows) * ROW + 14, parts)


DRAWINGS = {"layers.svg": layers, "copy.svg": copy}

if __name__ == "__main__":
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw(text), encoding="utf-8")

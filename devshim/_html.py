"""The HTML of the objects that a notebook displays: tables, bars and badges.

Requirements of this module:

* Every text is escaped here, so a parameter that is called ``<b>`` is shown, and is not a tag. Only `Markup`, which
  this module makes, is used as it is.
* A notebook may be light or dark, and may drop style sheets and scripts (GitHub, VS Code). So there are only ``style``
  attributes, text has the notebook's own colour, and lines and bars are half transparent.
* An output is saved in the notebook, so it is small: long tables are cut, and the last row shows how much is missing.

It imports nothing of devshim, and is loaded when a notebook first displays an object.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = ["Markup", "badge", "bars", "block", "code", "columns", "image", "join", "note", "size", "table"]

MOST_ROWS = 40
"""Rows of a table; a last row counts the rest."""
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = "padding:2px 10px 2px 0;vertical-align:top;background:none"
_COLOURS = ("#4c8bf5", "#f29c38", "#34a853", "#a259d9", "#e2574c", "#00a3a3", "#b8860b", "#8a8f98")
"""The colours of devices in a bar; they are readable on white and on black."""


class Markup(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def size(nbytes: float) -> str:
    """Return a number of bytes with a unit: ``1.5 MiB``."""
    for unit in UNITS:
        if nbytes < 1024 or unit == UNITS[-1]:
            break
        nbytes /= 1024
    return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"


def _text(value: object) -> str:
    return value if isinstance(value, Markup) else escape(str(value))


def join(*parts: object) -> Markup:
    """Return parts one after the other, with spaces between them."""
    return Markup(" ".join(_text(part) for part in parts if part != ""))


def block(*parts: object) -> str:
    """Return an output of a cell: its parts, one below the other."""
    inside = "".join(f"<div>{_text(part)}</div>" for part in parts if part != "")
    return f'<div style="overflow-x:auto;line-height:1.4;font-size:13px">{inside}</div>'


def badge(text: str) -> Markup:
    """Return a short text in a frame, such as ``simulated``."""
    style = "border:1px solid rgba(217,119,6,.8);border-radius:8px;padding:0 6px;font-size:11px;white-space:nowrap"
    return Markup(f'<span style="{style}">{_text(text)}</span>')


def code(text: str) -> Markup:
    """Return text as source code; its lines are not wrapped."""
    return Markup(f'<pre style="margin:2px 0;background:none;white-space:pre-wrap">{_text(text)}</pre>')


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], right: Collection[int] = (), title: object = ""
) -> Markup:
    """Return a table.

    Args:
        head: The names of the columns; empty for a table without them.
        rows: The cells, each text or `Markup`.
        right: The numbers of the columns that are aligned to the right.
        title: A line above the table.
    """
    listed = list(rows)
    names = "".join(_cell("th", name, i in right, ' scope="col"') for i, name in enumerate(head))
    shown = "".join(_row(row, right) for row in listed[:MOST_ROWS])
    if len(listed) > MOST_ROWS:
        shown += f'<tr><td colspan="{len(listed[0])}">and {len(listed) - MOST_ROWS} more rows</td></tr>'
    top = f'<thead><tr style="border-bottom:{_LINE}">{names}</tr></thead>' if head else ""
    caption = f'<div style="margin:4px 0 2px">{_text(title)}</div>' if title else ""
    return Markup(
        f'{caption}<table style="border-collapse:collapse;margin:2px 0;font-size:inherit">'
        f"{top}<tbody>{shown}</tbody></table>"
    )


def _row(cells: Sequence[object], right: Collection[int]) -> str:
    return f"<tr>{''.join(_cell('td', cell, i in right) for i, cell in enumerate(cells))}</tr>"


def _cell(tag: str, text: object, right: bool, more: str = "") -> str:
    side = "right" if right else "left"
    return f'<{tag}{more} style="text-align:{side};{_CELL}">{_text(text)}</{tag}>'


def bars(amounts: Sequence[tuple[object, int, str]], whole: int | None = None) -> Markup:
    """Return a bar that is divided in proportion to some amounts, and below it what its colours mean.

    Args:
        amounts: For each part its name, its amount, and the amount as text.
        whole: The amount of the whole bar; without it, the sum of the parts.
    """
    total = whole or sum(amount for _, amount, _ in amounts) or 1
    parts, legend = "", []
    for i, (name, amount, text) in enumerate(amounts):
        colour = _COLOURS[i % len(_COLOURS)]
        share = min(100.0, 100 * amount / total)
        parts += f'<div style="width:{share:.2f}%;background:{colour};opacity:.85"></div>'
        square = f'<span style="color:{colour}" aria-hidden="true">&#9632;</span>'
        legend.append(f"<span>{square} {_text(name)} {_text(text)}</span>")
    bar = f"display:flex;height:10px;max-width:480px;margin:4px 0;border:{_LINE};border-radius:3px;overflow:hidden"
    below = "display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px"
    return Markup(f'<div style="{bar}" aria-hidden="true">{parts}</div><div style="{below}">{"".join(legend)}</div>')


def columns(parts: Sequence[tuple[object, Sequence[object]]]) -> Markup:
    """Return titles with their contents, side by side, or one below the other on a narrow page."""
    style = "flex:1 1 16rem;min-width:0;overflow-x:auto;border-top:3px solid rgba(128,128,128,.5);padding:2px 4px"
    shown = ""
    for title, contents in parts:
        inside = "".join(_text(each) for each in contents)
        shown += f'<section style="{style}"><strong style="font-size:12px">{_text(title)}</strong>{inside}</section>'
    return Markup(f'<div style="display:flex;flex-wrap:wrap;gap:12px">{shown}</div>')


def note(text: str, colour: str = "inherit") -> Markup:
    """Return a line of small text with a bar of a colour next to it."""
    style = f"border-left:3px solid {colour};padding-left:6px;margin:4px 0;font-size:12px;white-space:pre-wrap"
    return Markup(f'<div style="{style}">{_text(text)}</div>')


def image(kind: str, data: str) -> Markup:
    """Return a picture whose data is in base64."""
    return Markup(
        f'<img alt="" style="max-width:100%" src="data:{escape(kind)};base64,{escape("".join(data.split()))}">'
    )

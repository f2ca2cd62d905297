"""The parts of a cell's outputs that a page shows: text, errors, pictures and HTML, in the order of the cell."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devshim.tutorial.outputs import ANSI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Output", "parts_of"]

_PICTURES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Characters that are not valid in HTML or Markdown."""
_DATES = re.compile(r"<dc:date>[^<]*</dc:date>|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Output:
    """A part of a cell's output.

    Attributes:
        kind: ``"text"``, ``"error"``, ``"html"``, ``"markdown"``, or a picture's type such as ``"image/png"``.
        text: Its text; for a picture that is not SVG, the data in base 64.
    """

    kind: str
    text: str

    @property
    def data(self) -> bytes:
        """The file of a picture."""
        return self.text.encode() if self.kind == "image/svg+xml" else base64.b64decode(self.text)

    @property
    def uri(self) -> str:
        """The picture as an address that contains it."""
        return f"data:{self.kind};base64,{base64.b64encode(self.data).decode()}"


def parts_of(outputs: Iterable[Mapping[str, Any]]) -> tuple[Output, ...]:
    """Return what outputs in the format of nbformat 4 show; text that follows text becomes one part.

    What a program writes to standard error is left out: it names files and times of the machine.
    """
    found: list[Output] = []
    for output in outputs:
        for part in _parts(output):
            if found and part.kind == found[-1].kind == "text":
                found[-1] = Output("text", f"{found[-1].text}\n{part.text}")
            else:
                found.append(part)
    return tuple(found)


def _parts(output: Mapping[str, Any]) -> Iterable[Output]:
    kind = output["output_type"]
    if kind == "stream":
        text = _plain(output["text"])
        if output["name"] == "stdout" and text:
            yield Output("text", text)
    elif kind == "error":
        yield Output("error", _plain(f"{output['ename']}: {output['evalue']}"))
    else:
        part = _richest_form(output.get("data", {}))
        if part is not None:
            yield part


def _richest_form(data: Mapping[str, Any]) -> Output | None:
    """Return the richest form of a result that a page can show."""
    for kind in _PICTURES:
        if kind in data:
            text = _join(data[kind])
            return Output(kind, _DATES.sub("", text) if kind == "image/svg+xml" else "".join(text.split()))
    for kind, name in (("text/html", "html"), ("text/markdown", "markdown"), ("text/latex", "markdown")):
        if kind in data:
            return Output(name, _join(data[kind]).strip())
    text = _plain(_join(data.get("text/plain", "")))
    return Output("text", text) if text else None


def _join(text: Any) -> str:
    return text if isinstance(text, str) else "".join(text)


def _plain(text: Any) -> str:
    return _CONTROLS.sub("", ANSI.sub("", _join(text))).rstrip("\n").rstrip()

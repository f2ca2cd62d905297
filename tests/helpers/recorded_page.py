"""A page for four frameworks with records that were written by hand: nothing runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from devshim.tutorial.page import Page, read
from devshim.tutorial.record import Call, CellRecord, Record, path_of

__all__ = ["PIXEL", "text", "write"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel."""
PAGE = """\
---
author: someone
devshim:
  frameworks: [torch, tensorflow, jax, numpy]
  gpus: 2
---

# Devices

Text with `code` and $x^2$.

```{note}
A note with <b>.
```

```{code-cell}
ds.device_count()
```

```{code-cell}
X = ds.ones((2, 3), device="gpu:1")  # there
X
```

```{code-cell}
:tags: [raises-exception]

ds.place(X, "gpu:7")
```

```{code-cell}
:frameworks: torch

import torch
```

```{code-cell}
:frameworks: jax, numpy

fence = '''
```'''
```

```{code-cell}
show(X)
```
"""


def text(value: str, kind: str = "text/plain") -> dict[str, object]:
    """Return the output of a cell's value."""
    return {"output_type": "execute_result", "data": {kind: value}, "metadata": {}, "execution_count": None}


def write(folder: Path, *frameworks: str) -> Page:
    """Write a page and the records of its frameworks to a folder, and return the page."""
    path = folder / "devices.md"
    path.write_text(PAGE, encoding="utf-8")
    page = read(path)
    for name in frameworks or page.frameworks:
        record(page, name).save(path_of(path, name))
    return page


def record(page: Page, framework: str) -> Record:
    """Return the record of a framework; the cell that shows X prints the framework's name."""
    error = {"output_type": "error", "ename": "DeviceNotFoundError", "evalue": "there is no gpu:7", "traceback": []}
    outputs: dict[str, tuple[dict[str, object], ...]] = {
        "ds.device_count()": (text("2"),),
        "X = ": ({"output_type": "stream", "name": "stderr", "text": "/home/x"}, text(f"\x1b[1mones of {framework}")),
        "ds.place": (error,),
        "show": (
            text(PIXEL, "image/png"),
            text("<table><tr><td>1</td></tr></table>", "text/html"),
            text('<svg xmlns="http://www.w3.org/2000/svg"></svg>', "image/svg+xml"),
        ),
    }
    tensor = {"kind": "tensor", "shape": [2, 3], "dtype": "float32", "device": "gpu:1", "numbers": [1.0] * 6}
    cells = {}
    for cell in page.cells_of(framework):
        shown = next((value for start, value in outputs.items() if cell.source.startswith(start)), ())
        made = CellRecord("raised" if shown == (error,) else "ok", outputs=tuple(shown))
        if cell.source.startswith("X = "):
            call = Call("ones", "ones((2, 3))", (1, 1, 4, 35), "gpu:1")
            made = replace(made, value=tensor, names={"X": tensor}, calls=(call,))
        cells[cell.id] = made
    return Record(framework, framework, "1", "0.1.0", "3.11", 2, True, page.digest(framework), cells=cells)

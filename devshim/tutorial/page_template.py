"""Write a page to start from: it runs on every framework, and shows each kind of cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.errors import DevshimError
from devshim.registry import discovery
from devshim.tutorial.front_matter import FORMATS, library, page_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["template", "write"]

_MYST = """\
---
devshim:
  frameworks: [{frameworks}]
  gpus: 2
---

# {title}

Write text in Markdown, and code in cells. A cell runs on every framework, in an environment of its
own, and `ds` is devshim. The value of the last line is the cell's output, and must be the same on
every framework: shape, dtype, device and numbers.

```{{code-cell}}
x = ds.asarray([1.0, 2.0, 3.0], dtype="float32", device="gpu:1")
print(ds.device_of(x))
x
```

## A cell for one framework

A cell with `frameworks` runs only on the frameworks that it names. Neighbours for other frameworks
are alternatives.

{own}
```{{code-cell}}
y = double(x)
y
```

## An error

A cell that raises an error has the tag `raises-exception`. The text of the error must be the same
on every framework.

```{{code-cell}}
:tags: [raises-exception]

ds.place(x, "gpu:7")
```

## A difference

A cell whose results may differ has the tag `differs`: each framework draws its own random numbers.

```{{code-cell}}
:tags: [differs]

ds.random.seed(0)
ds.random.uniform(size=(3,), dtype="float32")
```
"""
_OWN = """\
```{{code-cell}}
:frameworks: {names}

def double(x):
    return {code}
```
"""
_FUNCTIONS = {
    "torch": "x.mul(2)",
    "tensorflow": "x + x",
    "jax": "x.at[:].multiply(2)",
    "paddle": "x.scale(2)",
}
"""A framework's own way to double a tensor; the others add it to itself."""


def template(title: str, frameworks: Sequence[str]) -> str:
    """Return the text of a MyST page."""
    cells = [_OWN.format(names=name, code=_FUNCTIONS[name]) for name in frameworks if name in _FUNCTIONS]
    others = [name for name in frameworks if name not in _FUNCTIONS]
    if others:
        cells.append(_OWN.format(names=", ".join(others), code="x + x"))
    return _MYST.format(frameworks=", ".join(frameworks), title=title, own="\n".join(cells))


def write(path: Path, frameworks: Sequence[str]) -> None:
    """Write a page to start from.

    Raises:
        DevshimError: The file exists, or cannot be written, or a framework is unknown.
    """
    if path.suffix not in FORMATS:
        raise page_error(path, None, "a page is a .md, .py or .ipynb file", "write, for example: gpus.md")
    if path.exists():
        raise page_error(path, None, "the file exists already", "give another name, or remove it")
    names = list(dict.fromkeys(discovery.canonical_name(name) for name in frameworks))
    if not names:
        msg = "a page needs a framework"
        raise DevshimError(msg, "write, for example: --frameworks torch,jax")
    text = template(path.stem.replace("-", " ").replace("_", " ").capitalize(), names)
    if path.suffix != ".md":
        text = _convert(text, path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "name a file in another folder"
        raise page_error(path, None, f"the file cannot be written: {error.strerror}", hint) from error


def _convert(text: str, suffix: str) -> str:
    jupytext = library("jupytext")
    notebook = jupytext.reads(text, fmt=FORMATS[".md"])
    notebook.metadata.pop("jupytext", None)
    if suffix == ".py":
        notebook.metadata["jupytext"] = {
            "notebook_metadata_filter": "devshim",
            "cell_metadata_filter": "frameworks,tags",
        }
    else:
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return str(jupytext.writes(notebook, fmt=FORMATS[suffix]))

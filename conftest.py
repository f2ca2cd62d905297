"""Runs the examples in README.md and docs/ (``pytest README.md docs``), where sybil is installed.

Each page runs in one namespace, on two simulated cards where its backend can simulate: a page of
``docs/frameworks/`` on its own framework, one that says ``<!-- runs on torch -->`` on that, every other page on NumPy.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

if find_spec("sybil") is not None:
    from sybil import Sybil
    from sybil.document import Document
    from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

    def begin(document: dict[str, Any]) -> None:
        import devshim as ds

        ds.use(document["backend"])
        if "simulate" not in _gaps(document["backend"]):
            ds.simulate(gpus=2)

    def end(document: dict[str, Any]) -> None:
        """Drop what the page made: the next one finds its cards empty. A compiler takes away what it hid there."""
        for name in [name for name in document if not name.startswith("__")]:
            del document[name]

    def _gaps(backend: str) -> Any:
        from devshim import _registry

        return _registry.gaps(backend)

    class Page(Document):
        """A page that knows which framework it is about."""

        def __init__(self, text: str, path: str) -> None:
            super().__init__(text, path)
            folder, _, name = path.rpartition("/")
            framework = folder.endswith("docs/frameworks") and name != "index.md"
            said = re.match(r"<!-- runs on ([a-z]+) -->", text)
            self.namespace["backend"] = name.removesuffix(".md") if framework else said[1] if said else "numpy"

    pytest_collect_file = Sybil(
        parsers=[PythonCodeBlockParser(), SkipParser()],
        patterns=["README.md", "docs/*.md", "docs/frameworks/*.md"],
        document_types={".md": Page},
        setup=begin,
        teardown=end,
    ).pytest()

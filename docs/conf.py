"""Sphinx: MyST pages, and the API reference out of the docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sphinx.util import logging

import devshim

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "devshim"
author = "The devshim developers"
copyright = "2026, The devshim developers"
release = devshim.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["_build", "conftest.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]  # the fence that GitHub draws, too
default_role = "py:obj"  # what docstrings put between single backticks

html_theme = "furo"
html_title = f"devshim {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False
autodoc_mock_imports = ["torch", "tensorflow", "paddle", "mxnet", "jax", "cupy"]
nitpicky = False


def colons_make_no_type(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon for a type: what we return and hold is annotated."""
    texts = [at + 1 for at, line in enumerate(lines[:-1]) if line.strip() == "Returns:"]
    for at in [0] if what == "attribute" else texts:
        text = lines[at].lstrip()
        lines[at] = f"{lines[at].removesuffix(text)}: {text}"


def all_is_documented(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that the API reference leaves out."""
    known = env.domains.python_domain.objects
    for name in devshim.__all__:
        if f"devshim.{name}" not in known and name != "__version__":
            logging.getLogger(__name__).warning("devshim.%s is public, and not in docs/api.md", name)


def setup(app: Sphinx) -> None:
    """Put both in their places; napoleon's own look at a docstring has priority 500."""
    app.connect("autodoc-process-docstring", colons_make_no_type, priority=400)
    app.connect("env-check-consistency", all_is_documented)

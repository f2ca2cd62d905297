"""Sphinx: MyST pages, and the API reference out of the docstrings."""

from __future__ import annotations

import sys
from inspect import getmodule, unwrap
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util import logging

import devshim
from devshim import errors
from devshim._lazy import LAZY

if TYPE_CHECKING:
    from sphinx import addnodes
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "devshim"
author = "The devshim developers"
copyright = "2026, The devshim developers"
release = devshim.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    "sphinx.ext.intersphinx",
    *("sphinx_copybutton", "sphinx_design", "sphinxext.opengraph"),
    "devshim.sphinx",  # the tutorials
]
exclude_patterns = ["_build", "conftest.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
default_role = "py:obj"  # what docstrings put between single backticks

html_theme = "furo"
html_title = f"devshim {release}"
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_additional_pages = {"404": "404.html"}
templates_path = ["_templates"]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

copybutton_prompt_text = "$ "
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # outputs are not copied
ogp_site_name = "devshim"
ogp_social_cards = {"enable": False}  # drawing them needs Matplotlib

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False
autodoc_mock_imports = ["torch", "tensorflow", "paddle", "mxnet", "jax", "cupy"]
autosummary_generate = False
nitpicky = True
nitpick_ignore = [
    ("py:class", name)
    for name in ("T", "P", "R", "P.args", "P.kwargs", "devshim.tensors.gradients.T", "devshim.world.world.T")
]
"""Type variables, which are documented nowhere."""
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "_inventories/python.inv"),
    "numpy": ("https://numpy.org/doc/stable", "_inventories/numpy.inv"),
}
"""The inventories list what the docstrings mention, and are part of this project: the build needs no network."""
SHORT = {
    "np.ndarray": "numpy.ndarray",
    "AbstractContextManager": "contextlib.AbstractContextManager",
    "ModuleType": "types.ModuleType",
    "PathLike": "os.PathLike",
    "SimpleNamespace": "types.SimpleNamespace",
    "UserList": "collections.UserList",
    "Ranks": "devshim.World",
    "Backend.alignment": "devshim.backend.Backend.alignment",
    "Backend.copy_to": "devshim.backend.Backend.copy_to",
}
"""Names as the source imports them -> their full names."""


def colons_make_no_type(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon for a type: what we return and hold is annotated."""
    texts = [at + 1 for at, line in enumerate(lines[:-1]) if line.strip() == "Returns:"]
    for at in [0] if what == "attribute" else texts:
        text = lines[at].lstrip()
        lines[at] = f"{lines[at].removesuffix(text)}: {text}"


def all_is_documented(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that the API reference leaves out."""
    known = env.domains.python_domain.objects
    for name in devshim.__all__:
        if f"devshim.{name}" not in known and name != "__version__":
            logging.getLogger(__name__).warning("devshim.%s is public, and on no page in docs/api", name)


def module_of(app: Sphinx, module: str, name: str) -> str | None:
    """Return the module whose source defines a name: public names carry the module `devshim` instead."""
    try:
        found = unwrap(attrgetter(name)(sys.modules[module]))
    except (AttributeError, KeyError):
        return None
    first = name.partition(".")[0]
    home = LAZY.get(first) if module == "devshim" else None
    if home is None and first in errors.__all__:
        home = "devshim.errors.types"
    inside = vars(found).values() if isinstance(found, type) else ()
    codes = [each.__code__ for each in map(unwrapped, (found, *inside)) if hasattr(each, "__code__")]
    defined = [each.__name__ for each in map(getmodule, codes) if each is not None]
    return home or next(iter(defined), None)


def unwrapped(member: Any) -> Any:
    """Return the function of a property, method or wrapper."""
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return unwrap(member) if callable(member) else member


def complete_name(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element) -> Any:
    """Resolve names that docstrings and signatures write without their module: those of devshim, and some imported."""
    target = node["reftarget"] = SHORT.get(node["reftarget"], node["reftarget"])
    domain = env.domains.python_domain
    full = target if target.startswith("devshim.") else f"devshim.{target.removeprefix('ds.')}"
    if node.get("refdomain") != "py" or full not in domain.objects:
        return None  # another extension may resolve it
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, content)


def mark_wide_tables(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Mark tables of many columns, which the style sheet lets scroll below a sticky head."""
    for group in doctree.findall(nodes.tgroup):
        if group["cols"] > 5 and isinstance(group.parent, nodes.table):
            group.parent["classes"].append("wide")


def level_captions(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the captions of the sidebar, which are headings, the level that screen readers need."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> None:
    """Connect the functions above; napoleon processes a docstring at priority 500."""
    app.connect("autodoc-process-docstring", colons_make_no_type, priority=400)
    app.connect("env-check-consistency", all_is_documented)
    app.connect("missing-reference", complete_name, priority=400)  # before intersphinx
    app.connect("viewcode-follow-imported", module_of)
    app.connect("doctree-resolved", mark_wide_tables)
    app.connect("html-page-context", level_captions, priority=900)

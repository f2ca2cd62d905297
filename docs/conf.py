"""Sphinx: MyST pages, and the API reference out of the docstrings."""

from __future__ import annotations

import devshim

project = "devshim"
author = "The devshim developers"
copyright = "2026, The devshim developers"
release = devshim.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "conftest.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"devshim {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_mock_imports = ["torch", "tensorflow", "paddle", "mxnet", "jax"]
nitpicky = False

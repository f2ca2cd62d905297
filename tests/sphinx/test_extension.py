"""Tests of `devshim.sphinx`: a site with a tutorial, from records that were written by hand."""

from __future__ import annotations

import io
from pathlib import Path

import recorded_page
from sphinx.application import Sphinx

CONF = 'extensions = ["myst_parser", "devshim.sphinx"]\nroot_doc = "devices"\n'


def build(folder: Path) -> tuple[str, str]:
    """Build the site, and return the page and the warnings."""
    folder.joinpath("conf.py").write_text(CONF)
    warnings, out = io.StringIO(), folder / "out"
    app = Sphinx(str(folder), str(folder), str(out), str(out), "html", status=None, warning=warnings)
    app.build()
    return out.joinpath("devices.html").read_text(), warnings.getvalue()


def test_a_page_is_shown_with_its_records(tmp_path: Path) -> None:
    recorded_page.write(tmp_path)
    page, warnings = build(tmp_path)
    assert warnings == ""
    assert page.count('data-sync-id="jax"') == 4
    assert "DeviceNotFoundError: there is no gpu:7" in page
    assert "devshim-tutorial.css" in page
    assert tmp_path.joinpath("out", "_static", "devshim-tutorial.css").is_file()


def test_a_missing_and_an_old_record_are_warnings_with_the_command(tmp_path: Path) -> None:
    page = recorded_page.write(tmp_path, "torch", "jax", "numpy")
    page.path.write_text(page.path.read_text().replace("import torch", "import torch as t"))
    html, warnings = build(tmp_path)
    assert "devices.md has no record of tensorflow: run: devshim tutorial run" in warnings
    assert "--frameworks tensorflow" in warnings
    assert "devices.md has outdated records of torch" in warnings
    assert 'data-sync-id="jax"' in html


def test_a_wrong_page_is_a_warning(tmp_path: Path) -> None:
    page = recorded_page.write(tmp_path)
    page.path.write_text(page.path.read_text().replace("gpus: 2", "gpus: many"))
    assert "gpus must be a number from 0 to 64" in build(tmp_path)[1]

"""Tests of built pages and notebooks, from records that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import recorded_page

from devshim.cli import building
from devshim.errors import DevshimError
from devshim.tutorial.building import files, html, myst, notebooks
from devshim.tutorial.building.outputs import Output, parts_of
from devshim.tutorial.building.slots import Shown, TabGroup
from devshim.tutorial.record import load_all


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    page = recorded_page.write(tmp_path)
    return Shown(page, load_all(page))


def block(shown: Shown, start: str) -> TabGroup:
    """Return the block whose code starts so."""
    found = [each for each in shown.blocks() if isinstance(each, TabGroup) and (each.source or "").startswith(start)]
    return found[0]


def test_an_output_that_all_share_is_shown_once(shown: Shown) -> None:
    assert block(shown, "ds.device_count").common == (Output("text", "2"),)
    assert myst.page(shown, myst.embed).count("devshim-output\n\n2\n") == 1


def test_outputs_that_differ_are_in_tabs(shown: Shown) -> None:
    found = block(shown, "X = ")
    assert found.common is None
    assert found.tabs[0].parts == (Output("text", "ones of torch"),)
    assert found.tabs[1].parts == (Output("text", "ones of tensorflow"),)


def test_native_lines_have_the_names_of_the_author(shown: Shown) -> None:
    lines = {tab.framework: list(tab.native) for tab in block(shown, "X = ").tabs}
    assert lines["torch"] == ['X = torch.ones((2, 3), device="cuda:1")  # there']
    assert lines["tensorflow"] == ['with tf.device("/GPU:1"):', "    X = tf.ones((2, 3))"]
    assert lines["numpy"] == ["ones((2, 3))"]  # what explain says, because NumPy has no own GPUs


def test_a_function_is_defined_where_it_is_used_first(shown: Shown) -> None:
    lines = {tab.framework: list(tab.native) for tab in block(shown, "ds.device_count").tabs}
    assert lines["tensorflow"][0] == "def gpus():"
    assert lines["tensorflow"][-1] == "len(gpus())"


def test_a_cell_of_one_framework_has_its_code_in_a_tab(shown: Shown) -> None:
    (own,) = [each for each in shown.blocks() if isinstance(each, TabGroup) and each.source is None]
    assert own.tabs[0].source == "import torch"
    assert [tab.framework for tab in own.tabs] == ["torch", "jax", "numpy"]


def test_the_tabs_of_the_page_for_sphinx_belong_together(shown: Shown) -> None:
    text = myst.page(shown, myst.embed)
    assert text.count("{tab-set}") == text.count(":sync-group: framework") == 4
    assert text.count(":sync: jax") == 4
    assert "author" not in text


def test_fences_are_longer_than_those_in_the_code(shown: Shown) -> None:
    text = myst.page(shown, myst.embed)
    assert "````{code-block} python\n:class: devshim-code\n\nfence = '''\n```'''\n````" in text


def test_pictures_tables_and_errors_survive(shown: Shown, tmp_path: Path) -> None:
    text = myst.page(shown, myst.files_in(tmp_path, "devices"))
    assert "<table><tr><td>1</td></tr></table>" in text
    assert "DeviceNotFoundError: there is no gpu:7" in text
    (png,), (svg,) = tmp_path.glob("devices-*.png"), tmp_path.glob("devices-*.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert f"]({png.name})" in text
    assert f"]({svg.name})" in text


def test_colors_and_standard_error_are_not_shown() -> None:
    stream = {"output_type": "stream", "name": "stderr", "text": "warning"}
    assert parts_of([stream, recorded_page.text("\x1b[31mred\x1b[0m")]) == (Output("text", "red"),)


def test_the_html_page_is_one_file(shown: Shown) -> None:
    text = html.page(shown)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.count('data-framework="jax" aria-pressed') == 1
    assert text.count('class="panel" data-framework="jax"') == 4
    assert f"data:image/png;base64,{recorded_page.PIXEL}" in text
    assert "<aside><strong>note</strong>" in text
    assert '<code class="math">x^2</code>' in text


def test_a_picture_of_the_author_is_in_the_html_page(tmp_path: Path) -> None:
    page = recorded_page.write(tmp_path)
    tmp_path.joinpath("a.png").write_bytes(b"picture")
    page.path.write_text(page.path.read_text().replace("Text with", "![a](a.png) text with"))
    found = recorded_page.read(page.path)
    assert '<img src="data:image/png;base64,cGljdHVyZQ==" alt="a"' in html.page(Shown(found, load_all(found)))


def test_a_notebook_starts_by_itself(shown: Shown) -> None:
    found = json.loads(notebooks.neutral(shown, "jax"))
    setup, *rest = ["".join(cell["source"]) for cell in found["cells"]]
    assert setup.startswith("%pip install -q devshim\n")
    assert 'ds.use("jax")' in setup
    assert "ds.simulate(gpus=2)" in setup
    assert "import torch" not in rest
    assert notebooks.neutral(shown, "jax") == notebooks.neutral(shown, "jax")


def test_a_notebook_is_valid_and_has_outputs(shown: Shown) -> None:
    import nbformat

    found = nbformat.reads(notebooks.neutral(shown, "torch"), as_version=4)
    nbformat.validate(found)
    assert [cell.outputs[0].output_type for cell in found.cells if cell.get("outputs")] == [
        *("execute_result", "stream", "error", "execute_result")
    ]


def test_a_notebook_in_own_code(shown: Shown) -> None:
    translated = shown.translated["torch"]
    assert translated is not None
    found = json.loads(notebooks.native(shown, "torch", translated, {}))
    sources = ["".join(cell["source"]) for cell in found["cells"]]
    assert sources[0] == "import torch"
    assert 'X = torch.ones((2, 3), device="cuda:1")  # there\nX' in sources


def test_a_call_in_a_function_of_another_cell_is_translated_there(tmp_path: Path) -> None:
    page = recorded_page.write(tmp_path)
    records = load_all(page)
    first, second = page.cells[:2]
    ran = recorded_page.Call("place", "x.to()", (1, 1, 0, 20), "gpu:7", cell=page.cells[2].id)
    cells = records["torch"].cells
    cells[second.id] = recorded_page.replace(cells[second.id], calls=(*cells[second.id].calls, ran))
    assert Shown(page, records).own_source(page.cells[2], "torch") == 'X.to("cuda:7")'
    assert first.source == "ds.device_count()"


def test_without_records_the_code_is_shown(tmp_path: Path) -> None:
    page = recorded_page.write(tmp_path)
    text = myst.page(Shown(page, {}), myst.embed)
    assert "ds.device_count()" in text
    assert ":sync: torch" in text


def test_the_files(shown: Shown, tmp_path: Path) -> None:
    written = files.write(shown, tmp_path / "site", files.FORMATS)
    assert {path.name for path in written} == {
        *("devices.md", "devices.html", "devices-torch.ipynb", "devices-tensorflow.ipynb"),
        *("devices-jax.ipynb", "devices-numpy.ipynb"),
    }
    assert files.write_native(shown, tmp_path / "site", {}, ("torch", "numpy")) == [
        tmp_path / "site" / "devices-torch-own-words.ipynb"
    ]


def test_the_page_is_not_written_over(shown: Shown, tmp_path: Path) -> None:
    with pytest.raises(DevshimError, match="is the page itself"):
        files.write(shown, tmp_path, ("md",))


def test_a_folder_that_is_a_file(shown: Shown, tmp_path: Path) -> None:
    with pytest.raises(DevshimError, match="cannot be written: File exists"):
        files.write(shown, shown.page.path, ("html",))


def test_formats_are_checked() -> None:
    assert files.read_formats("html, md") == ("html", "md")
    with pytest.raises(DevshimError, match="'pdf' is not a format"):
        files.read_formats("pdf")


def test_a_page_shows_no_control_codes() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]8;;https://a.b\x1b\\link\x1b]8;;\x1b\\ \x00\ud800."
    assert parts_of([{"output_type": "stream", "name": "stdout", "text": text}]) == (Output("text", "red link ."),)


def test_pages_of_the_same_name_are_refused(tmp_path: Path) -> None:
    pages = [tmp_path / "page.md", tmp_path / "other" / "page.py"]
    with pytest.raises(DevshimError, match="have the same name"):
        building.main(pages, tmp_path / "site", "md", False, None, [], None, True)

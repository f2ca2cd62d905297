"""Tests of a notebook in JupyterLab, with a real server, kernel and browser: ``pytest tests/jupyter_lab``.

The browser is Chromium, which is installed apart: ``DEVSHIM_CHROMIUM`` names it, or it is found on the path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from devshim.testing.ports import free_port

CELLS = [
    "import devshim as ds\nds.use('numpy')\nds.simulate(2, memory='1GiB')\n%load_ext devshim",
    "%devices",
    "x = ds.ones((256, 256), device='gpu:1')\nwith ds.transfers() as log:\n    y = ds.place({'<b>': x}, 'gpu:0')\nlog",
    "ds.placement_of({'net': {'<b>': x}, 'head': y['<b>']})",
    "ds.memory('gpu:1')",
    "%%frameworks numpy --env numpy=here\nz = ds.ones(2, device='gpu:1')\nprint('<i>', ds.device_of(z))",
    "",
]
SECONDS = 30_000
"""Milliseconds that a step may take."""


def notebook() -> dict[str, Any]:
    """Return a notebook in the format of a file."""
    kinds = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**kinds, "id": f"cell-{i}", "source": source} for i, source in enumerate(CELLS)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the notebook in a server that ends with the tests."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "page.ipynb").write_text(json.dumps(notebook()), encoding="utf-8")
    port = free_port()
    options = {
        "--ServerApp.port": port,
        "--ServerApp.root_dir": folder,
        "--IdentityProvider.token": "",
        "--ServerApp.open_browser": False,
        "--LabApp.news_url": "",
    }
    here = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "IPYTHONDIR": folder / "ipython",
    }
    here["DEVSHIM_TUTORIAL_CACHE"] = folder / "cache"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--allow-root",
        *(f"{key}={value}" for key, value in options.items()),
    ]
    with (folder / "log").open("w") as log:
        variables = {**os.environ, **{name: str(path) for name, path in here.items()}}
        server = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    try:
        started(server, f"http://127.0.0.1:{port}/api", folder / "log")
        yield f"http://127.0.0.1:{port}/lab/tree/page.ipynb?reset"
    finally:
        server.terminate()
        server.wait(20)


def started(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the server answers."""
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(log.read_text())


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    """Yield the page of the notebook, all of whose cells have run."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium.path(), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1440, "height": 1400})
        opened.set_default_timeout(SECONDS)
        opened.goto(address)
        opened.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        opened.get_by_role("button", name=re.compile("Idle")).wait_for()  # in the status bar
        opened.get_by_role("menuitem", name="Run", exact=True).click()
        opened.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        expect(output(opened, 5)).to_contain_text("gpu:1", timeout=SECONDS)
        yield opened
        browser.close()


def output(page: Page, number: int) -> Any:
    """Return the output of a cell."""
    return page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-Cell-outputArea")


def test_the_table_of_devices(page: Page) -> None:
    rows = output(page, 1).locator("tbody tr")
    assert [text.split()[0] for text in rows.all_inner_texts()] == ["cpu", "gpu:0", "gpu:1"]
    assert output(page, 1).get_by_text("simulated", exact=True).count() == 2


def test_a_log_is_a_matrix_and_names_the_cell(page: Page) -> None:
    shown = output(page, 2)
    assert shown.locator("table").count() == 2
    expect(shown).to_contain_text("In [3]:3")
    expect(shown).to_contain_text("512.0 KiB")


def test_a_placement_has_a_bar_in_proportion_and_no_tag_of_a_name(page: Page) -> None:
    shown = output(page, 3)
    expect(shown).to_contain_text("net")
    assert shown.locator("b").count() == 0
    parts = shown.locator("div[style*='width:50.00%']")
    assert [part.bounding_box()["width"] > 200 for part in parts.all()] == [True, True]


def test_memory_is_a_bar(page: Page) -> None:
    expect(output(page, 4)).to_contain_text("used 512.0 KiB of 1.0 GiB")


def test_frameworks_are_columns(page: Page) -> None:
    shown = output(page, 5)
    expect(shown.locator("section strong")).to_have_text("NumPy")
    expect(shown).to_contain_text("np.ones((2,))")
    expect(shown).to_contain_text("<i> gpu:1")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_dark_on_light_and_light_on_dark(page: Page, theme: str) -> None:
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).hover()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{theme}$")).click()
    light = "true" if "Light" in theme else "false"
    page.locator(f"body[data-jp-theme-light={light}]").wait_for(state="attached")
    read = "element => getComputedStyle(element).color.match(/\\d+/g).slice(0, 3).map(Number)"
    dark_text = {max(each.evaluate(read)) < 100 for each in output(page, 2).locator("td").all()}
    assert dark_text == {"Light" in theme}


def test_names_are_completed(page: Page) -> None:
    editor = page.locator(".jp-Notebook .jp-CodeCell").nth(len(CELLS) - 1).locator(".cm-content")
    editor.click()
    page.keyboard.type("ds.pla")
    page.keyboard.press("Tab")
    items = page.locator(".jp-Completer-item")
    items.first.wait_for()
    names = " ".join(items.all_inner_texts()).split()
    assert {"place", "placement_of"} <= {*names}

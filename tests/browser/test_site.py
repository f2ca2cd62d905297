"""The documentation in a browser: every page at two widths, tabs, copy buttons, links and accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_modules" not in path.parts)
WIDTHS = (1440, 420)
HOME = "index.html"
TABS = "start/install.html"
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
LINKS = "[...document.querySelectorAll('a[href]')].map(each => each.href)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
NOT_PAGES = ("genindex", "search", "404", "py-modindex")


@pytest.fixture(scope="module", params=WIDTHS)
def wide(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """Open a window of each width, which the pages share."""
    context = browser.new_context(viewport={"width": request.param, "height": 1000})
    yield context.new_page()
    context.close()


def test_there_are_pages() -> None:
    assert {HOME, TABS, "api.html", "support.html", "404.html"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_reports_no_error(wide: Page, site: str, name: str) -> None:
    errors: list[str] = []
    page = wide.context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("response", lambda response: errors.append(response.url) if response.status >= 400 else None)
    page.goto(site + name, wait_until="load")
    overflow = page.evaluate(OVERFLOW)
    page.close()
    assert overflow <= 0, "the page scrolls sideways"
    assert [each for each in errors if "ERR_INTERNET" not in each and "ERR_NAME" not in each] == []


@pytest.mark.parametrize("name", [each for each in PAGES if not each.startswith(NOT_PAGES)])
def test_a_page_has_no_serious_fault_of_accessibility(wide: Page, site: str, name: str) -> None:
    wide.goto(site + name, wait_until="load")
    found = Axe().run(wide, options=AXE)["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in serious] == []


def test_links_between_pages_lead_somewhere(page: Page, site: str) -> None:
    anchors: dict[str, set[str]] = {}
    links: dict[str, list[str]] = {}
    for name in PAGES:
        page.goto(site + name, wait_until="domcontentloaded")
        anchors[name] = set(page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)"))
        links[name] = page.evaluate(LINKS)
    broken = []
    for name, found in links.items():
        for link in found:
            parts = urlsplit(link)
            target = unquote(parts.path.lstrip("/"))
            if not link.startswith(site):
                continue
            there = (SITE / target).is_file() or target == ""
            if not there or (parts.fragment and target in anchors and unquote(parts.fragment) not in anchors[target]):
                broken.append(f"{name}: {link.removeprefix(site)}")
    assert broken == []


def shown(page: Page, text: str) -> None:
    """Check that the selected tab of every set has this label."""
    expect(page.locator(".sd-tab-set > input:checked + label").first).to_have_text(text)
    labels = page.locator(".sd-tab-set > input:checked + label").all_inner_texts()
    assert set(labels) == {text}


def test_tabs_stay_in_step_across_pages_and_reloads(page: Page, site: str) -> None:
    page.goto(site + HOME)
    shown(page, "PyTorch")
    page.locator(".sd-tab-set > label", has_text="TensorFlow").first.click()
    shown(page, "TensorFlow")
    expect(page.get_by_text('with tf.device("/GPU:1")')).to_be_visible()
    page.reload()
    shown(page, "TensorFlow")
    page.goto(site + TABS)
    shown(page, "TensorFlow")


def test_the_address_selects_a_framework(page: Page, site: str) -> None:
    page.goto(site + HOME + "?framework=jax")
    shown(page, "JAX")
    page.goto(site + TABS)
    shown(page, "JAX")


def test_a_button_copies_a_command_without_its_prompt(page: Page, site: str) -> None:
    page.goto(site + HOME)
    block = page.locator("div.highlight-console:visible").first
    block.hover()
    block.locator("button.copybtn").click()
    assert page.evaluate("navigator.clipboard.readText()").split("\n")[0] == "pip install devshim"


def test_a_button_copies_the_code_that_is_shown(page: Page, site: str) -> None:
    page.goto(site + HOME)
    block = page.locator("div.highlight-python:visible").first
    block.hover()
    block.locator("button.copybtn").click()
    assert page.evaluate("navigator.clipboard.readText()").strip() == block.locator("pre").inner_text().strip()
    assert page.locator("div.highlight-text button.copybtn").count() == 0


def test_the_source_of_a_public_name_is_linked(page: Page, site: str) -> None:
    pages = {"place": "placing", "Device": "devices", "transfers": "transfers", "OutOfMemoryError": "errors"}
    for name, topic in pages.items():
        page.goto(f"{site}api/{topic}.html")
        link = page.locator(f"dt[id='devshim.{name}'] a.reference.internal:has(.viewcode-link)")
        assert "_modules/devshim/" in str(link.first.get_attribute("href")), name


def test_an_old_link_to_a_name_leads_to_its_page(page: Page, site: str) -> None:
    page.goto(site + "api.html#devshim.place")
    page.wait_for_url("**/api/placing.html#devshim.place")


def test_dark_pages_are_dark(browser: Browser, site: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(site + HOME)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"
    context.close()

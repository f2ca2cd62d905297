"""The documentation in a browser: every page at two widths, tabs, copy buttons, links and accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_modules" not in path.parts)
WIDTHS = (1440, 420)
HOME = "index.html"
TABS = "start/install.html"
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
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
def test_a_page_fits_and_has_no_error_and_no_serious_fault_of_accessibility(wide: Page, site: str, name: str) -> None:
    errors: list[str] = []
    page = wide.context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith((site, "data:")) else errors.append(request.url))
    page.on("response", lambda response: errors.append(response.url) if response.status >= 400 else None)
    page.goto(site + name, wait_until="load")
    overflow = page.evaluate(OVERFLOW)
    found = [] if name.startswith(NOT_PAGES) else Axe().run(page, options=AXE)["violations"]
    page.close()
    assert overflow <= 0, "the page scrolls sideways"
    assert errors == [], "errors, and what the page loads from elsewhere"
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in serious] == []


class _Links(HTMLParser):
    """The links of a page, and the places in it to which links may lead."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed((SITE / name).read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.anchors.add(named.get("id") or "")
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))


def test_links_between_pages_lead_somewhere() -> None:
    sources = [*PAGES, *(path.relative_to(SITE).as_posix() for path in SITE.glob("_modules/**/*.html"))]
    pages = {name: _Links(name) for name in sources}
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(urljoin(f"http://site/{name}", link))
            target = unquote(parts.path.lstrip("/"))
            if parts.netloc != "site":
                continue
            anchor = unquote(parts.fragment)
            there = (SITE / target).is_file() or target == ""
            if not there or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{name}: {link}")
    assert len(pages) > 100
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

"""The fixtures of the browser: a server of the built site, and a headless Chromium."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import chromium
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"


class _Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Serve the built site, and return its address."""
    if not (SITE / "index.html").is_file():
        pytest.fail(f"{SITE} has no site: build it with `nox -s site`, or with sphinx-build")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the Chromium of this machine, without a window."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium.path(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open an empty page with a clipboard, and forget its storage afterwards."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context.new_page()
    context.close()

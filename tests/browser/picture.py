"""Draw the pictures of README.md, Home and a tutorial of the built site, 1,440 pixels wide.

python tests/browser/picture.py docs/_static
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
import chromium

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = {"home.png": "index.html", "tutorial.png": "tutorials/use-gpu.html?framework=jax"}


def main(target: Path) -> None:
    """Write the pictures to a folder."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for name, address in PAGES.items():
            page.goto(f"{SITE.as_uri()}/{address}")
            page.screenshot(path=target / name)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

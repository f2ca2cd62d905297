"""Draw the picture of README.md: Home of the built site, 1,440 pixels wide.

python tests/browser/picture.py docs/_static/home.png
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HOME = Path(__file__).parents[2] / "docs" / "_build" / "html" / "index.html"


def main(target: Path) -> None:
    """Write the picture."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("this needs the program `chromium` on the path: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(HOME.as_uri())
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

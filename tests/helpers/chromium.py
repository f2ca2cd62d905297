"""Find the Chromium that drives the tests of the site and of JupyterLab: Playwright brings none."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def path() -> str:
    """Return the path of Chromium: that in DEVSHIM_CHROMIUM, or the first on the path."""
    found = os.environ.get("DEVSHIM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise SystemExit("this needs Chromium: apt-get install chromium, or set DEVSHIM_CHROMIUM to its path")
    return found

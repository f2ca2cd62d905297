"""Record the coverage of devshim: ``python tests/coverage/record.py REPORT docs/coverage.json``.

REPORT is what ``coverage json`` writes; `nox -s coverage` calls both.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path, PurePath
from typing import Any

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def share(counts: Mapping[str, int]) -> float:
    """Return the covered share of lines and branches together, in percent."""
    total = counts["num_statements"] + counts["num_branches"]
    return round(100 * (counts["covered_lines"] + counts["covered_branches"]) / total, 1) if total else 100.0


def package_of(path: str) -> str:
    """Return the package that a file belongs to, such as ``devshim/trees``; ``devshim`` for a module directly in it."""
    parts = PurePath(path).parts
    return "/".join(parts[parts.index("devshim") :][:-1][:2])


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that are recorded: the total, and the share of each package."""
    packages: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, entry in report["files"].items():
        for name in COUNTS:
            packages[package_of(path)][name] += entry["summary"][name]
    total = {name: sum(counts[name] for counts in packages.values()) for name in COUNTS}
    return {
        "what": "lines and branches, without cli, certify and testing, that the fast unit tests and the NumPy kit run",
        "measured": datetime.now(timezone.utc).date().isoformat(),
        "percent": share(total),
        **total,
        "packages": {name: share(counts) for name, counts in sorted(packages.items())},
    }


if __name__ == "__main__":
    found = summary(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['percent']}% of lines and branches are covered")

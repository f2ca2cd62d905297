"""The record of a mutation run, and the page with the number of mutants that the tests kill."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

HEAD = """# Mutation testing

`nox -s mutants` makes small faults in the neutral half of devshim, one at a time, and runs the tests that reach the
faulty line: `tests/unit`, and the conformance kit on two simulated GPUs of NumPy. A fault that no test notices
survives. A test that fails counts only if it passes without the fault.

This page is generated from {total} faults, drawn at random with seed {seed} from the {possible} that can be made,
and judged on {date}.

**{killed} of {total} faults were killed ({share:.1f}%).**{before}

| file | killed | survived |
|---|---|---|
{rows}
"""

BEFORE = """ Before tests were written for those that survived, {first} were ({share:.1f}%):
a fault outside this sample is more likely to survive than one in it."""


def record(outcome: dict[str, Any]) -> str:
    """Return an outcome as JSON, a result on each line."""
    results = ",\n".join(f"  {json.dumps(each)}" for each in outcome["results"])
    head = json.dumps({**outcome, "results": []}, indent=1)
    return head.replace('"results": []', f'"results": [\n{results}\n ]') + "\n"


def page(outcome: dict[str, Any]) -> str:
    """Return the page of an outcome, in Markdown."""
    results = outcome["results"]
    total = Counter(each["path"] for each in results)
    alive = Counter(each["path"] for each in results if each["fate"] == "survived")
    rows = "\n".join(f"| `{path}` | {total[path] - alive[path]} | {alive[path]} |" for path in sorted(total))
    killed = len(results) - sum(alive.values())
    share = 100 * killed / max(len(results), 1)
    first = sum(each.get("first", each["fate"]) == "killed" for each in results)
    before = BEFORE.format(first=first, share=100 * first / max(len(results), 1)) if first != killed else ""
    text = HEAD.format(**outcome, killed=killed, total=len(results), share=share, rows=rows, before=before)
    survivors = [each for each in results if each["fate"] == "survived"]
    if survivors:
        text += "\n## Survivors\n\n| where | change | line | why |\n|---|---|---|---|\n"
        for each in survivors:
            where, line = f"{each['path']}:{each['line']}", each["text"].replace("|", "\\|")
            text += f"| `{where}` | {each['change']} | `{line}` | {each['reason'] or 'not looked into'} |\n"
    return text

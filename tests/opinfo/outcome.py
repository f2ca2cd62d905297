"""The output of the operators' results, and their comparison with the known outcome."""

from __future__ import annotations

from typing import Any

from known import ALLOWED, KNOWN


def show(reports: list[dict[str, Any]], max_causes: int) -> None:
    """Print each failure with its causes, and the counts."""
    for report in reports:
        if causes := report["causes"]:
            print(f"{report['operator']}: {KNOWN.get(report['operator'], 'NOT KNOWN')}")
            print(*(f"    {cause}" for cause in causes[:max_causes]), sep="\n")
    passed = [report for report in reports if not report["causes"]]
    parts: dict[str, int] = {}
    for report in reports:
        for part, count in report["passed"].items():
            parts[part] = parts.get(part, 0) + count
    print(f"samples: {sum(report['samples'] for report in reports)}; compared:", end=" ")
    print(", ".join(f"{part} {count}" for part, count in parts.items()), end="; ")
    print(f"refused by both host and GPU: {sum(report['refused'] for report in reports)}")
    print(f"refused because CUDA does not have the operator: {sum(report['not_on_cuda'] for report in reports)}")
    print(f"to the bit: {sum(not report['inexact'] for report in passed)}; the rest within PyTorch's own tolerances")
    print(f"{len(passed)} of {len(reports)}")


def unexpected(reports: list[dict[str, Any]]) -> list[str]:
    """Return how the outcome differs from the known one, one line each."""
    failed = {report["operator"] for report in reports if report["causes"]}
    examined = {report["operator"] for report in reports}
    sampled = {report["operator"] for report in reports if report["samples"]}
    differences = [f"{name} fails, and is not known to" for name in sorted(failed - set(KNOWN))]
    differences += [f"{name} is known to fail, and passes" for name in sorted(examined & set(KNOWN) - failed)]
    differences += [f"{name} has no samples" for name in sorted(examined - failed - sampled)]
    if len(failed) > ALLOWED:
        differences.append(f"{len(failed)} operators fail, and {ALLOWED} may")
    return differences

"""Mutants that survive, and why no test has to kill them."""

from __future__ import annotations

SURVIVORS: dict[tuple[str, str, str], str] = {}
"""File, line of source and change -> the reason why the mutant behaves as the original does."""

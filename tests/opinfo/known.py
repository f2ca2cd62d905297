"""What is known about operators before they are examined."""

from __future__ import annotations

UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""Operators whose values nobody has set: only where, how large and of which dtype the result is can be compared."""

KNOWN: dict[str, str] = {}
"""Operators that fail, each with its cause.  One that passes after all, and one that fails unlisted, fail the exam."""

ALLOWED = 2
"""How many may fail."""

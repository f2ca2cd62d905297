"""Mutants that survive, and why no test has to kill them."""

from __future__ import annotations

SURVIVORS: dict[tuple[str, str, str], str] = {
    (
        "devshim/tensors/stacking.py",
        '_KINDS = {"bool": 0, "uint": 1, "int": 1, "bfloat": 2, "float": 2, "complex": 3}',
        "3 -> 4",
    ): "only the order counts, and complex is the last either way",
    (
        "devshim/registry/argument_hints.py",
        "close = get_close_matches(value[:40].lower(), options, 1)",
        "40 -> 41",
    ): "the options are short words, to which no text of 40 characters is close",
    (
        "devshim/simulation/memory.py",
        "self._inconsistent = False",
        "False -> True",
    ): "the next update adds up the same allocations again, and gets the same sum",
}
"""File, line of source and change -> the reason why the mutant behaves like the original."""

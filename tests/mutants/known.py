"""Mutants that survive, and why no test has to kill them."""

from __future__ import annotations

_AS_FALSE = "None is as false as False, and the callers ask for nothing else"

SURVIVORS: dict[tuple[str, str, str], str] = {
    (
        "devshim/_stacking.py",
        '_KINDS = {"bool": 0, "uint": 1, "int": 1, "bfloat": 2, "float": 2, "complex": 3}',
        "3 -> 4",
    ): "only the order counts, and complex is the last either way",
    ("devshim/_settled.py", "return False", "return None"): _AS_FALSE,
    ("devshim/_hidden.py", "return False", "return None"): _AS_FALSE,
    (
        "devshim/_cards.py",
        "self._split = False",
        "False -> True",
    ): "the next look adds up what is held once more, and gets the same sum",
}
"""File, line of source and change -> the reason why the mutant behaves as the original does."""

"""Placing a tensor where it already is, querying its device, and reading it: the most frequent calls of a program."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from benchmarks.session import Rival, Session

CALLS = {
    "place, there already": "place(x, d)",
    "place, there already, non_blocking": "place(x, d, non_blocking=True)",
    "place, there already, copy=None": "place(x, d, copy=None, non_blocking=False)",
    "place, there already, copy=False": "place(x, d, copy=False)",
}


@pytest.mark.parametrize("case", CALLS)
def test_place_there_already(benchmark: Any, session: Session, case: str) -> None:
    """No data moves, so only the call's overhead remains."""
    names = {"x": ds.ones((4, 4), dtype="float32")}
    rivals = [Rival(statement, statement, target) for statement, target in session.native.moves.items()]
    if case == next(iter(CALLS)):
        rivals += session.peers_with("place", names)
    session.versus(benchmark, "place", case, CALLS[case], rivals, names)


def test_place_by_attribute(benchmark: Any, session: Session) -> None:
    """The usual spelling: Python looks the name up in the module each time, because other names load lazily."""
    names = {"x": ds.ones((4, 4), dtype="float32")}
    rivals = [Rival("place(x, d)", "place(x, d)")]
    session.versus(benchmark, "place", "place, there already, through the module", "ds.place(x, d)", rivals, names)


def test_place_spelled(benchmark: Any, session: Session) -> None:
    """A device given by name costs the parsing of the name, in the framework and in devshim."""
    rivals = [Rival(statement, statement) for statement in session.native.spelled]
    names = {"x": ds.ones((4, 4), dtype="float32")}
    session.versus(benchmark, "place", "place, there already, a device's name", "place(x, 'cpu')", rivals, names)


def test_device_of(benchmark: Any, session: Session) -> None:
    """Compared with the framework's own attribute, which on TensorFlow is a string and not always correct."""
    names = {"x": ds.ones((4, 4), dtype="float32")}
    rivals = [Rival(statement, statement, target) for statement, target in session.native.where.items()]
    rivals += session.peers_with("where", names)
    session.versus(benchmark, "device_of", "device_of", "device_of(x)", rivals, names)


def test_read_by_numpy(benchmark: Any, session: Session) -> None:
    """The values in host memory, shared: this can also be compared with libraries without devices."""
    names = {"x": ds.ones((4, 4), dtype="float32")}
    rivals = session.peers_with("host", names)
    if rivals:
        session.versus(benchmark, "read", "to_numpy, shared", "to_numpy(x, copy=False)", rivals, names)

"""Tests that the native lines that ship with devshim equal those that the tour shows now on this framework."""

from __future__ import annotations

import os

import devshim as ds
from devshim.cli import records, tour

BACKEND = os.environ.get("DEVSHIM_BACKEND", "numpy")


def test_the_record_is_what_the_tour_shows() -> None:
    if BACKEND == "numpy":  # it has one device: the record of another framework is shown with it
        assert BACKEND not in records.frameworks()
        return
    title = ds.backends()[BACKEND].title
    shown = tour.Tour(BACKEND, title, None, cards=2, simulated=True, note=None, declared=None)
    with ds.using(BACKEND), ds.simulate(2):
        found = {step.name: tour.run_step(step, shown).native for step in tour.chapter()}
    found = {name: [records.without_folder(line) for line in lines] for name, lines in found.items()}
    assert records.lines(BACKEND) == found, "run `nox -s tour`, which records it again"
    assert records.title(BACKEND) == title


def test_every_framework_has_a_record_of_every_step() -> None:
    steps = [step.name for step in tour.chapter()]
    assert set(records.frameworks()) == {"jax", "mxnet", "paddle", "tensorflow", "torch"}
    for name in records.frameworks():
        assert list(records.lines(name)) == steps

"""Tests that the published native lines are those that `explain` records now."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("native_lines")))

import native_lines

PAGE = native_lines.RECORD.with_name("from-your-framework.md")


def test_the_published_lines_are_those_recorded_now() -> None:
    published = json.loads(native_lines.RECORD.read_text(encoding="utf-8"))
    assert native_lines.differences(native_lines.recorded(), published) == []
    assert PAGE.read_text(encoding="utf-8") == native_lines.page(published)


def test_a_line_that_has_changed_is_found() -> None:
    published = json.loads(native_lines.RECORD.read_text(encoding="utf-8"))
    changed = copy.deepcopy(published)
    changed["jax"]["lines"]["ds.device_of(x)"] = ["x.where"]
    del changed["paddle"]
    assert native_lines.differences(published, published) == []
    found = native_lines.differences(published, changed)
    assert found[0] == "jax: ds.device_of(x)"
    assert {each.partition(":")[0] for each in found} == {"jax", "paddle"}

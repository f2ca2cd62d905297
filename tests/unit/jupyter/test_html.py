"""Tests of the HTML that a notebook displays, here without a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

import devshim as ds
from devshim import _html

VOID = {"br"}
HOSTILE = "<script>alert('&')</script>"


class Checked(HTMLParser):
    """The text and the tags of a piece of HTML, all of whose tags must be closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.tags, self._open = "", list[str](), list[str]()
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._open += [tag] * (tag not in VOID)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


@pytest.fixture(autouse=True)
def _cards() -> None:
    ds.simulate(2, memory="1GiB")


def checked(value: Any) -> Checked:
    return Checked(value._repr_html_())


def log() -> ds.TransferLog:
    with ds.transfers() as found:
        ds.place(ds.copy(ds.ones((100, 100), dtype="float64"), "gpu:1"), "gpu:0")
    return found


def lines() -> list[str]:
    with ds.explain(file=None) as found:
        ds.ones(3, device="gpu:1")
    return found


MADE: dict[str, Callable[[], Any]] = {
    "Device": lambda: ds.gpu(1),
    "DeviceInfo": lambda: ds.describe("gpu:1"),
    "MemoryInfo": lambda: ds.memory("gpu:1"),
    "Placement": lambda: ds.placement_of({"a": ds.ones(3, device="gpu:1")}),
    "TransferLog": log,
    "explain": lines,
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_displayed_is_small_and_has_no_style_sheet_or_script(name: str) -> None:
    source = MADE[name]()._repr_html_()
    assert not {"script", "style", "link", "img"} & {*Checked(source).tags}
    assert "color:#" not in re.sub(r'<span style="color:#[^>]*aria-hidden="true">', "", source), "for light and dark"
    assert len(source) < 6000


@pytest.mark.parametrize("name", [name for name in MADE if name not in ("MemoryInfo", "explain")])
def test_simulated_gpus_are_labelled(name: str) -> None:
    assert "simulated" in checked(MADE[name]()).text
    assert "simulated" in checked(MADE["Placement"]()).text


def test_real_devices_are_not() -> None:
    ds.simulate(0)
    assert "simulated" not in checked(ds.gpu(1)).text + checked(ds.cpu()).text


def test_text_is_escaped_everywhere() -> None:
    made = [
        _html.block(HOSTILE, _html.join(HOSTILE, _html.badge(HOSTILE)), _html.code(HOSTILE)),
        _html.block(_html.table([HOSTILE], [[HOSTILE]], title=HOSTILE), _html.bars([(HOSTILE, 1, HOSTILE)])),
        ds.placement_of({HOSTILE: {"w": ds.ones(2)}, "a": ds.ones(2)})._repr_html_(),
    ]
    for source in made:
        found = Checked(source)
        assert "script" not in found.tags
        assert HOSTILE in re.sub(" +", " ", found.text)


def test_a_long_table_is_cut() -> None:
    found = Checked(_html.table(["n"], [[i] for i in range(100)]))
    assert found.tags.count("tr") == 1 + 40 + 1
    assert "and 60 more rows" in found.text


# ---------------------------------------------------------------------- each class
def test_a_placement_shows_modules_and_bytes_per_device() -> None:
    x, y = ds.ones((256, 4), dtype="float32", device="gpu:1"), ds.ones(2, dtype="float32")
    found = checked(ds.placement_of({"net": {"w": x, "b": x}, "head": {"w": y}, "<b>": y}))
    assert "module device tensors size" in found.text
    assert re.search(r"net gpu:1 +simulated +2 8.0 KiB", found.text)
    assert re.search(r"head cpu +1 8 B", found.text)
    assert re.search(r"<b> cpu +1 8 B", found.text)
    assert re.search(r"cpu +16 B .*gpu:1 +simulated +8.0 KiB", found.text)


def test_a_placement_of_many_modules_shows_those_above_them() -> None:
    layers = {f"layer{i}": {"weight": "cpu", "bias": "gpu:0"} for i in range(50)}
    paths = {f"net.{name}.{leaf}": place for name, each in layers.items() for leaf, place in each.items()}
    found = checked(ds.Placement({**paths, "other": "cpu"}, default="gpu:1"))
    assert "layer" not in found.text
    assert re.search(r"net cpu +50", found.text)
    assert re.search(r"net gpu:0 +simulated +50", found.text)
    assert "(everything else)" in found.text
    assert "51 tensors" in found.text


def test_an_empty_placement_and_an_empty_log_say_so() -> None:
    assert "nothing" in checked(ds.Placement({})).text
    assert "no transfers" in checked(ds.TransferLog()).text


def test_a_log_is_a_matrix_and_lines() -> None:
    found = checked(log())
    assert "from \\ to cpu gpu:0 gpu:1" in found.text
    assert re.search(r"cpu +78.1 KiB", found.text)
    assert re.search(r"test_html.py:\d+", found.text)
    assert "2 copies" in found.text


def test_memory_is_a_bar_and_where_unknown_a_table() -> None:
    held = ds.ones(1 << 20, dtype="float64", device="gpu:0")
    assert "width:0.78%" in ds.memory("gpu:0")._repr_html_()
    assert "of 1.0 GiB" in checked(ds.memory(ds.device_of(held))).text
    assert "total unknown" in checked(ds.MemoryInfo(used=5)).text


def test_a_device_is_displayed_without_starting_a_framework(python: Callable[..., str]) -> None:
    assert (
        python("""
        import sys
        import devshim as ds
        assert "devshim._html" not in sys.modules
        print("gpu" in ds.gpu(1)._repr_html_(), {"numpy", "torch", "html.parser"} & {*sys.modules})
    """).strip()
        == "True set()"
    )


def test_lines_are_a_list_as_before() -> None:
    found = lines()
    assert found == [*found]
    assert repr(found) == repr([*found])
    assert found[0] in checked(found).text


# ---------------------------------------------------------------------- repr
def test_blocks_say_what_they_are_and_their_state() -> None:
    assert repr(ds.on("cuda:1")) == "on('gpu:1')"
    assert repr(ds.using("numpy")) == "using('numpy')"
    assert repr(ds.guard("error", device_to_host="allow")) == "guard('error', device_to_host='allow')"
    assert repr(ds.guard("warn", host_to_device="warn")) == "guard('warn')"


def test_recording_blocks_say_whether_they_are_open() -> None:
    block, explained = ds.transfers(), ds.explain(file=None)
    assert repr(block) == "<transfers: not entered, 0 copies, 0 bytes>"
    assert repr(explained) == "<explain: closed, 0 lines>"
    with block, explained:
        ds.copy(ds.ones(2, dtype="float32"), "gpu:1")
        assert repr(block) == "<transfers: open, 1 copy, 8 bytes>"
        assert repr(explained).startswith("<explain: open, ")
    assert repr(block) == "<transfers: ended, 1 copy, 8 bytes>"

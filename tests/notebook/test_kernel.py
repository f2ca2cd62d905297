"""Tests of the output of a notebook, in a real kernel: ``pytest tests/notebook``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

Shown = list[tuple[str, Any]]
"""The output of a cell: the type of each message, and its text. The parts of one stream are joined."""
Cell = Callable[[str], Shown]

BEGIN = """
import logging, sys
import devshim as ds
ds.use("numpy")
ds.simulate(gpus=2)
with ds.transfers() as log:
    x = ds.copy(ds.ones((2, 3), dtype="float32"), "gpu:1")
"""


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    """Yield a function that runs a cell, and returns its output."""
    manager, client = start_new_kernel(kernel_name="python3")
    shown: Shown = []

    def hear(message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":  # the kernel sends what was written so far every 200 ms, also inside a line
            name, text = content["name"], content["text"]
            if shown and shown[-1][0] == name:
                text = shown.pop()[1] + text
            shown.append((name, text))
        elif kind in ("execute_result", "display_data"):
            shown.append((kind, content["data"]))
        elif kind == "error":
            shown.append((kind, content["evalue"]))

    def run(source: str) -> Shown:
        shown.clear()
        client.execute_interactive(source, timeout=120, output_hook=hear)
        return list(shown)

    try:
        assert run(BEGIN) == [], "nothing is displayed that no line asks for"
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def value(cell: Cell, expression: str) -> str:
    """Return the text of an expression in the kernel, which displays nothing else."""
    ((kind, data),) = cell(expression)
    assert kind == "execute_result"
    return str(ast.literal_eval(data["text/plain"]))


@pytest.mark.parametrize("text", ["repr(log)", "str(log)", "f'{log}'", "'%s' % log"])
def test_the_table_of_transfers_is_text(cell: Cell, text: str) -> None:
    lines = value(cell, text).splitlines()
    assert lines[0].split() == ["from", "to", "copies", "tensors", "size", "ms", "line"]
    assert lines[1].split()[:7] == ["cpu", "gpu:1", "(simulated)", "1", "1", "24", "B"]
    assert lines[2].split()[:5] == ["all", "1", "1", "24", "B"]


def test_the_table_of_transfers_is_displayed_as_the_last_line_of_a_cell(cell: Cell) -> None:
    ((kind, data),) = cell("log")
    assert (kind, data["text/plain"]) == ("execute_result", value(cell, "repr(log)"))


def test_it_is_printed_and_logged(cell: Cell) -> None:
    assert cell("print(log)") == [("stdout", value(cell, "repr(log)") + "\n")]
    ((kind, text),) = cell("logging.getLogger('mine').warning('%s', log)")
    assert kind == "stderr"
    assert "gpu:1 (simulated)" in text


@pytest.mark.parametrize(
    ("expression", "has"),
    [
        ("ds.placement_of({'a': x})", "a           gpu:1 (simulated)  24 bytes"),
        ("ds.Placement({'*.bias': 'cpu'}, default='gpu:1')", "(everything else)  gpu:1 (simulated)"),
        ("ds.simulate(gpus=2)", "2 simulated GPUs"),
        ("ds.describe('gpu:1')", "simulated=True"),
        ("ds.memory('gpu:1')", "MemoryInfo(total="),
        ("ds.MetricLog('gpu:1')", "<MetricLog on gpu:1: 0 values"),
        ("log.records[0]", "Transfer(source=Device('cpu'), target=Device('gpu', 1), bytes=24"),
        ("ds.gpu(1)", "Device('gpu', 1)"),
        ("ds.Fault('gpu:1', 'copy')", "Fault('gpu:1', 'copy', at=1)"),
    ],
)
def test_what_has_a_repr_of_ours_shows_it(cell: Cell, expression: str, has: str) -> None:
    ((kind, data),) = cell(expression)
    assert kind == "execute_result"
    assert has in data["text/plain"]
    assert has in value(cell, f"repr({expression})")


def test_text_that_the_kernel_sends_in_parts_is_one_output(cell: Cell) -> None:
    late = "import time\nprint('one', end='', flush=True)\ntime.sleep(0.5)\nprint(' line')"
    assert cell(late) == [("stdout", "one line\n")]


def test_native_lines_are_printed(cell: Cell) -> None:
    ((kind, text),) = cell("with ds.explain():\n    y = ds.place(x, 'cpu')")
    assert kind == "stdout"
    assert len(text.splitlines()) == 1


def test_an_error_says_what_it_says_elsewhere(cell: Cell) -> None:
    shown = cell("ds.place(x, 'gpu:7')")
    assert [kind for kind, _ in shown] == ["error"]
    assert "gpu:7" in shown[0][1]
    assert "\n\nHint: " in shown[0][1]


def test_commands_write_to_a_cell_as_they_write_elsewhere(cell: Cell) -> None:
    """Called in the kernel's own process, they write text, and complaints to standard error."""
    ((kind, text),) = cell("from devshim.cli import _console; _console.say('hello', 'bold')")
    assert (kind, text) == ("stdout", "hello\n")
    shown = cell("_console.print_error(ds.DevshimError('what is true', 'what to type'))")
    assert {kind for kind, _ in shown} == {"stderr"}
    written = re.sub(r"\x1b\[[0-9;]*m", "", "".join(text for _, text in shown))  # a notebook shows colours
    assert written == "devshim: what is true\nHint: what to type\n"
    assert cell("with _console.spinner('slowly') as change: change('more slowly')") == []


def test_commands_of_a_notebook_move_no_cursor(cell: Cell) -> None:
    """`!devshim devices` has its own terminal; a notebook shows its colours, and nothing else."""
    shown = "".join(text for _, text in cell("!{sys.executable} -m devshim devices --backend numpy"))
    assert "NumPy" in shown
    assert "\u2500" in shown, "it is drawn as on a terminal"
    assert set(re.findall(r"\x1b\[[0-9;?]*([A-Za-z])", shown)) == {"m"}
    assert "\r" not in shown.replace("\r\n", "")


def test_a_ledger_names_the_cell_and_its_line(cell: Cell) -> None:
    ((_, data),) = cell("y = 1\nwith ds.transfers() as found:\n    y = ds.copy(x, 'cpu')\nfound")
    number = value(cell, "str(len(In) - 2)")
    assert f"In [{number}]:3" in data["text/plain"]
    assert f"In [{number}]:3" in data["text/html"]


def test_a_ledger_names_the_cell_of_a_function(cell: Cell) -> None:
    cell("def mine():\n    return ds.copy(x, 'cpu')")
    number = value(cell, "str(len(In) - 2)")
    thread = "import threading\ndef work():\n    global found\n    with ds.transfers() as found:\n        mine()"
    cell(f"{thread}\nt = threading.Thread(target=work); t.start(); t.join()")
    assert value(cell, "found.records[0].site") == f"In [{number}]:2"


def test_a_refusal_names_the_cell(cell: Cell) -> None:
    shown = cell("\nwith ds.guard('error'):\n    x.tolist()")
    number = value(cell, "str(len(In) - 2)")
    assert f"(an implicit transfer) at In [{number}]:3" in shown[-1][1]


def test_an_error_of_a_rank_names_the_cell(cell: Cell) -> None:
    cell("\ndef convert(text):\n    return int(text)")
    number = value(cell, "str(len(In) - 2)")
    shown = cell("def job():\n    import devshim as ds\n    return convert('x')\nds.launch(job, ranks_per_host=2)")
    (text,) = [text for kind, text in shown if kind == "error"]
    assert "ended with exit status 1: ValueError: " in text
    assert f", at In [{number}]:3 in convert" in text
    late = "def job():\n    import os, time\n    if os.environ['RANK'] == '1':\n        time.sleep(100)"
    shown = cell(f"{late}\n    ds.world().barrier()\nds.launch(job, ranks_per_host=2, timeout=2)")
    (text,) = [text for kind, text in shown if kind == "error"]
    number = value(cell, "str(len(In) - 2)")
    assert f"has not made this call, and is at In [{number}]:4 in job" in text


@pytest.mark.parametrize(
    "expression",
    [
        "ds.gpu(1)",
        "ds.describe('gpu:1')",
        "ds.memory('gpu:1')",
        "ds.placement_of({'<a>': x})",
        "log",
        "ds.TransferLog()",
    ],
)
def test_html_is_displayed_beside_the_text(cell: Cell, expression: str) -> None:
    ((kind, data),) = cell(expression)
    assert kind == "execute_result"
    assert data["text/html"].startswith("<div")
    assert "<a>" not in data["text/html"]


def test_magics_are_loaded_used_and_unloaded(cell: Cell) -> None:
    assert cell("%load_ext devshim") == []
    ((kind, text),) = cell("%load_ext devshim")
    assert (kind, "already loaded" in text) == ("stdout", True)
    ((_, data),) = cell("%devices")
    assert "gpu:1 (simulated)" in data["text/plain"]
    assert "<table" in data["text/html"]
    assert cell("%use numpy")[0][1].startswith("NumPy ")
    assert cell("%simulate 3") == [("stdout", "3 simulated GPUs\n")]
    assert value(cell, "str(ds.device_count())") == "3"
    assert cell("%simulate 2") == [("stdout", "2 simulated GPUs\n")]
    written = "".join(text for _, text in cell("%use numppy"))
    assert "UsageError" in written
    assert "Hint: " in written
    assert "Traceback" not in written
    assert cell("%reload_ext devshim") == []
    assert cell("%unload_ext devshim") == []
    assert "not found" in "".join(text for _, text in cell("%devices"))


def test_the_magics_work_in_a_task_of_a_cell(cell: Cell) -> None:
    cell("%load_ext devshim")
    assert cell("import asyncio\nawait asyncio.sleep(0)\n%simulate 2") == [("stdout", "2 simulated GPUs\n")]
    cell("%unload_ext devshim")


def test_a_long_copy_is_one_output_that_is_updated_and_emptied(cell: Cell) -> None:
    lower = "from devshim.transfers import progress\nprogress.LIMIT, progress._EVERY, limit = 64, 0, progress.LIMIT\n"
    shown = cell(f"{lower}moved = ds.place([ds.ones(64) for i in range(4)], 'gpu:1')\nprogress.LIMIT = limit")
    ((kind, data),) = shown
    assert kind == "display_data"
    assert data["text/plain"].startswith("devshim: copy 0 B of 2.0 KiB")
    assert "width:0.00%" in data["text/html"]
    assert cell("moved = ds.place(moved, 'cpu')") == []

"""Plain English: the share of lines that match a pattern, and that the patterns see what they are about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import prose

MOST = 0.5
"""Of a hundred lines of prose, how many may match a pattern: the share in four well-kept projects is 0.2 to 0.6."""

BAD = {
    "shall": "where each tensor shall be",
    "anew": "compiled anew each time",
    "mend": "an adapter mends that",
    "Else, as a sentence's first word": "It returns the tensor. Else it copies.",
    "whoever, nobody, whom": "nobody asked for it",
    "stands, for is": "the words stand there",
    "is none, is no X": "a name is none",
    "of NumPy's": "an array of NumPy's",
    "by itself, for natively": "what the framework does by itself",
    "without a word": "it moves without a word",
    "the like": "lists, dicts and the like",
    "in the place of": "put in the place of another",
    "for ever": "kept for ever",
    "told, unasked": "a copy that nobody was told of",
    "hear, heard": "a log hears of it",
    "room, house, floor, for parts of the code": "the rooms of an adapter",
    "all the same, for nevertheless": "it is complete all the same",
    "Have X done, as an opening": '"""Have copies counted.',
    "What, Whether, Who, Where, as a docstring's opening": '"""Whether a tensor is there.',
    "Do so": "Do so where no compiler reads",
    "at all, as emphasis": "nothing at all",
}
GOOD = ("Return True if a tensor is on the device.", "This is no longer needed.", "`shall` is code.", "Hold the lock.")

NOT_READ = "devshim/testing/"
"""Its strings are programs, and names of cases."""


@pytest.mark.parametrize("name", prose.PATTERNS)
def test_a_pattern_sees_what_it_is_about(name):
    assert name in prose.faults(BAD[name])


@pytest.mark.parametrize("line", GOOD)
def test_plain_lines_pass(line):
    assert prose.faults(line) == []


def test_docstrings_and_comments_are_prose_and_code_is_not():
    source = 'def f():\n    """Anew.\n\n    More."""\n    return "shall"  # mend\n'
    assert [line for _, line in prose.of_python(source)] == ['"""Anew.', "", 'More."""', "mend"]
    page = "# Title\n\n```python\nshall\n```\ntext"
    assert [line for _, line in prose.of_page(page)] == ["# Title", "", "text"]


def test_few_lines_are_not_plain():
    """If this fails, run `python tests/prose` for the lines."""
    lines = [line for path in prose.files() for _, line in prose.prose(path)]
    wrong = [line for line in lines if prose.faults(line)]
    assert len(lines) > 10_000
    assert 100 * len(wrong) / len(lines) < MOST


def test_a_message_is_read_and_a_docstring_is_not():
    source = (
        'def f():\n    """Nobody reads this one here."""\n    raise E(f"nobody asked for {x}, so no", "two words")\n'
    )
    ((number, text),) = prose.messages(source)
    assert (number, text) == (3, "nobody asked for {}, so no")
    assert prose.message_faults(text) == ["whoever, nobody, whom"]
    assert prose.message_faults("cannot keep the promise «x»") == ["« or »"]


def test_messages_are_plain():
    """The messages of devshim and its adapters, without those of NOT_READ."""
    paths = [path for path in prose.files(["devshim", "backends"]) if path.suffix == ".py"]
    paths = [path for path in paths if not str(path.relative_to(prose.ROOT)).startswith(NOT_READ)]
    wrong = [
        f"{path.relative_to(prose.ROOT)}:{number}: {text} ({fault})"
        for path in paths
        for number, text in prose.messages(path.read_text(encoding="utf-8"))
        for fault in prose.message_faults(text)
    ]
    assert len(paths) > 100
    assert wrong == []

"""The judge of mutants: it runs tests that reach a fault, and counts a failure only if they pass without the fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mutate import Mutant
from select_tests import SUITES, by_line, collected, pytest

LIMIT = 900.0
"""Seconds for the tests of one suite on one mutant; a single test has `select_tests.EACH`."""
MOST = 80
"""The most tests of one suite that judge a line: half are the first that run it, half are spread over the rest."""
Lines = Mapping[tuple[str, int], Sequence[str]]


@dataclass(frozen=True)
class Selection:
    """The tests that judge each line.

    Attributes:
        lines: Suite -> file and line -> its tests.
        chosen: Suite -> tests that judge every line instead, or None.
        named: File -> the tests of `tests/unit` that are named after it: some run it in separate processes.
    """

    lines: Mapping[str, Lines]
    chosen: Mapping[str, Sequence[str]] | None = None
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def judges(self, mutant: Mutant) -> Iterator[tuple[str, list[str]]]:
        """Yield the tests that run a mutant's line; if none is known to run it, those of its file."""
        if self.chosen is not None:
            found = {suite: list(tests) for suite, tests in self.chosen.items()}
        else:
            found = {suite: list(lines.get((mutant.path, mutant.line), ())) for suite, lines in self.lines.items()}
            if not any(found.values()):
                found = {suite: _of_file(lines, mutant.path) for suite, lines in self.lines.items()}
                more = self.named.get(mutant.path, ())
                found["neutral"] = list(dict.fromkeys([*found.get("neutral", ()), *more]))
        yield from ((suite, _some(tests)) for suite, tests in found.items() if tests)


def _some(tests: list[str]) -> list[str]:
    """Return these tests, or a selection of them for a line that nearly every test runs."""
    first, rest = tests[: MOST // 2], tests[MOST // 2 :]
    return first + rest[:: -(-len(rest) // (MOST // 2)) or 1]


def _of_file(lines: Lines, name: str) -> list[str]:
    return list({test: None for (path, _), tests in lines.items() if path == name for test in tests})


def select(trees: Sequence[Path], folder: Path, chosen: Sequence[str] | None) -> Selection:
    """Return the tests that judge each line; every copy of the checkout keeps the bytecode of their imports."""
    if chosen:
        return Selection(
            {}, {suite: [test for test in chosen if test.startswith(SUITES[suite][1][0])] for suite in SUITES}
        )
    with ThreadPoolExecutor(len(trees)) as pool:
        there = {suite: set.union(*pool.map(collected, trees, [suite] * len(trees))) for suite in SUITES}
    stored = [folder / f"{suite}.coverage" for suite in SUITES]
    with ThreadPoolExecutor(min(len(trees), len(SUITES))) as pool:  # never two at the same time in one tree
        found = list(pool.map(by_line, (trees[0], trees[-1]), SUITES, stored))
    lines = {
        suite: {line: [test for test in tests if test in there[suite]] for line, tests in by.items()}
        for suite, by in zip(SUITES, found, strict=True)
    }
    files = {path for by in lines.values() for path, _ in by}
    return Selection(lines, named={path: _named_after(path, there["neutral"]) for path in files})


def _named_after(path: str, tests: Iterable[str]) -> list[str]:
    """Return the tests of a file of the package, by name: test_parsing.py is about parsing.py."""
    return sorted(test for test in tests if f"/test_{Path(path).stem}.py::" in test)


class Judge:
    """The judge of mutants in one copy of the checkout."""

    def __init__(self, tree: Path, selection: Selection) -> None:
        self.tree, self.selection = tree, selection
        self._sound: set[tuple[str, tuple[str, ...]]] = set()

    def killer(self, mutant: Mutant) -> str:
        """Return the test that fails with a mutant and passes without it, or an empty text."""
        found = (self._killer(mutant, suite, tests) for suite, tests in self.selection.judges(mutant))
        return next(filter(None, found), "")

    def _killer(self, mutant: Mutant, suite: str, tests: list[str]) -> str:
        while tests:
            with self._made(mutant):
                failed = self._first_failure(suite, tests)
            if not failed:
                return ""
            upto = tests[: tests.index(failed) + 1] if failed in tests else tests
            without = self._without(suite, upto)
            if not without:
                return failed
            if without not in tests:
                raise SystemExit(f"{without} fails without a mutant:\n{suite}: {' '.join(upto)}")
            tests = [test for test in tests if test != without]
        return ""

    def _without(self, suite: str, tests: list[str]) -> str:
        """Return the first of these tests that fails without a mutant, or an empty text."""
        if (suite, tuple(tests)) in self._sound:
            return ""
        failed = self._first_failure(suite, tests)
        if not failed:
            self._sound.add((suite, tuple(tests)))
        return failed

    def _first_failure(self, suite: str, tests: list[str]) -> str:
        status, printed = pytest(self.tree, suite, tests, limit=LIMIT)
        if not status:
            return ""
        named = re.findall(r"^(?:FAILED|ERROR) (.+)$", printed, re.MULTILINE)
        found = [test for test in tests for line in named if line == test or line.startswith(f"{test} - ")]
        other = named[0].partition(" - ")[0] if named else f"pytest's exit status {status}"
        return max(found, key=len, default=other)

    @contextmanager
    def _made(self, mutant: Mutant) -> Iterator[None]:
        file = self.tree / mutant.path
        original = file.read_bytes()
        file.write_bytes(mutant.source(original))
        try:
            yield
        finally:
            file.write_bytes(original)

"""Tests of the pages: they name the frameworks of their examples, and the runner runs what is printed there."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devshim import errors

(ROOT,) = [folder for folder in Path(__file__).parents if (folder / "docs" / "api.md").is_file()]
RUNNER = ROOT / "tests" / "pages" / "page.py"
PAGE: dict[str, Any] = runpy.run_path(str(RUNNER))
DIFFERENTIATING = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
OF_ONE = {
    "docs/guides/models.md": ["torch"],
    "docs/guides/gradients.md": DIFFERENTIATING,
    "docs/guides/models-keras.md": ["tensorflow", "torch", "jax"],
    "docs/guides/models-jax.md": ["jax"],
    "docs/reference/errors.md": ["numpy"],
} | {
    f"docs/frameworks/{name}.md": [name] for name in ("torch", "tensorflow", "mxnet", "paddle", "jax", "cupy", "numpy")
}
"""Pages about the functions of one framework, about errors, whose texts name it, about Keras, which shows with three
frameworks what models.md shows, or about gradients, which NumPy does not have."""


def pages() -> list[str]:
    """Return every page with examples."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found if PAGE["blocks"](path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages())
def test_a_page_runs_on_two_frameworks_or_says_why_not(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    names = PAGE["frameworks"](text)
    if page in OF_ONE:
        assert names == OF_ONE[page]
    else:
        assert {"numpy", "torch"} <= set(names)
    assert "invisible" not in text
    assert "skip: next" not in text


def test_every_block_of_the_readme_can_be_pasted_alone() -> None:
    for block in PAGE["blocks"]((ROOT / "README.md").read_text(encoding="utf-8")):
        assert block.code.lstrip().startswith("import ")
        assert len(PAGE["frameworks"](block.code)) == 6


EXAMPLE = """
# A page

```python
import devshim as ds

ds.use("jax")  # or "numpy", "torch"
x = 1
```

Words.

```python
print(x, ds.framework().__name__)
LAST
```

```console
$ not python
```
"""


SHOWN = """
<!-- output -->
```text
1 nu...
```
"""


def paste(tmp_path: Path, last: str, *arguments: str, output: str = SHOWN) -> subprocess.CompletedProcess[str]:
    page = tmp_path / "page.md"
    page.write_text((EXAMPLE + output).replace("LAST", last))
    command = [sys.executable, str(RUNNER), str(page), "numpy", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_runner_pastes_the_blocks_one_after_the_other(tmp_path: Path) -> None:
    done = paste(tmp_path, "assert __name__ == '__main__'")
    assert (done.returncode, done.stdout) == (0, "1 numpy\n"), done.stderr
    assert PAGE["frameworks"](EXAMPLE) == ["jax", "numpy", "torch"]


def test_the_runner_says_which_line_of_the_page_fails(tmp_path: Path) -> None:
    done = paste(tmp_path, "assert x == 2")
    assert done.returncode == 1
    assert 'page.md", line 15, in <module>\n    assert x == 2' in done.stderr


def test_a_block_alone_knows_nothing_of_those_before(tmp_path: Path) -> None:
    assert "NameError: name 'x' is not defined" in paste(tmp_path, "", "2").stderr


@pytest.mark.parametrize("output", [SHOWN, SHOWN.replace("output", "output of numpy"), SHOWN.replace("1 nu...", "...")])
def test_an_output_on_the_page_is_compared(tmp_path: Path, output: str) -> None:
    assert paste(tmp_path, "", output=output).returncode == 0


def test_an_output_of_another_framework_is_not_compared(tmp_path: Path) -> None:
    other = SHOWN.replace("output", "output of torch").replace("1 nu...", "2")
    assert paste(tmp_path, "", output=other).returncode == 0


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (SHOWN.replace("1", "2"), "and the page shows\n2 nu..."),
        (SHOWN.replace("1 nu...", "1"), "and the page shows\n1\n"),
        ("", "prints, and the page does not show it:\n1 numpy"),
    ],
)
def test_another_output_or_none_is_an_error(tmp_path: Path, output: str, error: str) -> None:
    done = paste(tmp_path, "", output=output)
    assert done.returncode == 1
    assert "OutputError: the block at line 14 prints" in done.stderr
    assert error in done.stderr


def test_outputs_are_written_into_the_page(tmp_path: Path) -> None:
    for output in ("", SHOWN):
        assert paste(tmp_path, "", "--write", output=output).returncode == 0
        assert SHOWN.replace("nu...", "numpy").strip() in (tmp_path / "page.md").read_text()


@pytest.mark.slow
def test_a_file_of_tests_is_run_by_pytest(tmp_path: Path) -> None:
    code = "def test_it(devshim_backend):\n    assert devshim_backend == 'VALUE'\n"
    test = f"<!-- a file of tests -->\n\n```python\n{code}```\n"
    for value, status in (("numpy", 0), ("torch", 1)):
        (tmp_path / "page.md").write_text(test.replace("VALUE", value))
        command = [sys.executable, str(RUNNER), str(tmp_path / "page.md"), "numpy"]
        assert subprocess.run(command, capture_output=True).returncode == status


def test_the_page_of_errors_has_each_class() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    bases = {"DevshimError", "DeviceError", "BackendError"}
    assert sorted(re.findall(r"^### (\w+)", text, re.MULTILINE)) == sorted({*errors.__all__} - bases)
    assert all(f"`ds.{name}`" in text for name in bases)

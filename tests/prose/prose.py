"""Prose in this project, and the patterns that plain English avoids.

``python tests/prose`` prints each line that matches one, and the share of such lines; with paths, such as
``python tests/prose devshim/trees``, it reads those files alone. Prose is a docstring, a comment, or a line of a
page; code in a page is not.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
LEFT_OUT = (
    "CHANGELOG.md",
    "docs/mutants",
    "docs/support.md",
    "docs/conversions.md",
    "docs/array-api.md",
    "tests/prose/",
)
FRAMEWORKS = "NumPy|PyTorch|TensorFlow|MXNet|Paddle|PaddlePaddle|JAX|CuPy|Keras|Python|CUDA|devshim|NVIDIA|Gluon"

PATTERNS: Mapping[str, str] = {
    "shall": r"\bshall\b",
    "anew": r"\banew\b",
    "mend": r"\b[Mm]end(s|ed|ing)?\b",
    "Else, as a sentence's first word": r"(^|[.:;] )Else\b|[;:] else\b",
    "whoever, nobody, whom": r"\b([Ww]hoever|[Nn]obody|[Ww]hom)\b",
    "stands, for is": r"\bstands? (in|there|here|beside|around|under|above|below|behind|before|alone|by)\b",
    "is none, is no X": r"\b(is|are|was|were) (none\b|no (?!longer|more|less|fewer|other|such|need|way|reason)[a-z])",
    "of NumPy's": rf"\bof ({FRAMEWORKS})'s\b",
    "by itself, for natively": r"\bby (itself|themselves)\b",
    "without a word": r"\bwithout a word\b",
    "the like": r"\bthe like\b",
    "in the place of": r"\bin the place of\b",
    "for ever": r"\bfor ever\b",
    "told, unasked": r"\b([Tt]old|[Uu]nasked|[Uu]ntold)\b",
    "hear, heard": r"\b([Hh]ears?|[Hh]eard)\b",
    "room, house, floor, for parts of the code": r"\b([Rr]ooms?|[Hh]ouses?|[Ff]loors?)\b",
    "all the same, for nevertheless": r"\ball the same\b",
    "Have X done, as an opening": r"^(\"\"\")?Have \w+",
    "What, Whether, Who, Where, as a docstring's opening": r'^"""(What|Whether|Who|Whom|Where|Which)\b',
    "Do so": r"\bDo so\b|\b[Dd]oes so\b|\blikewise\b",
    "at all, as emphasis": r"\bat all\b",
}
"""What a pattern is about -> the pattern."""
_ANY = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}


def files(chosen: Iterable[str] = ()) -> list[Path]:
    """Return the files of the project that hold prose, or those below some paths."""
    words = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *chosen]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if name.endswith((".py", ".md")) and not name.startswith(LEFT_OUT)]


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of docstrings and comments, with their numbers; a docstring's first with its quotes."""
    for node in ast.walk(ast.parse(source)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and type(child.value.value) is str:
                lines = source.splitlines()[child.lineno - 1 : child.end_lineno]
                yield from ((child.lineno + i, line.strip()) for i, line in enumerate(lines))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are not code, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line.strip()


def prose(path: Path) -> list[tuple[int, str]]:
    """Return the lines of prose of a file, without empty ones."""
    text = path.read_text(encoding="utf-8")
    lines = of_python(text) if path.suffix == ".py" else of_page(text)
    return [(number, line) for number, line in lines if re.search(r"\w", line)]


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of at least four words that are not docstrings, with their numbers; `{}` is a value."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and type(node.value) is str and id(node) not in skipped:
            text = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 4:
            yield node.lineno, text


def message_faults(text: str) -> list[str]:
    """Return what is wrong with a message: the patterns of prose, and quotation marks that Python does not have."""
    plain = re.sub(rf"\b[Tt]here (is|are) no(ne)?\b|\bof ({FRAMEWORKS})'s (?=\w)", "", text)
    return faults(plain) + ["« or »"] * bool(re.search("[«»]", text))


def faults(line: str) -> list[str]:
    """Return what is wrong with a line: the names of the patterns that it matches; what is quoted as code is not."""
    plain = re.sub(r"`+[^`]*`+|«[^»]*»", "", line)
    return [name for name, pattern in _ANY.items() if pattern.search(plain)]

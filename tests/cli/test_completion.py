"""Tests of the Tab key: the words that may follow, and the scripts in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from devshim.cli.app import app


def follow(words: list[str], incomplete: str) -> set[str]:
    """Return the words that may follow, and ``<file>`` where the shell offers files."""
    found = ShellComplete(app, {}, "devshim", "_DEVSHIM_COMPLETE").get_completions(words, incomplete)
    return {each.value if each.type == "plain" else f"<{each.type}>" for each in found}


@pytest.mark.parametrize(
    ("words", "incomplete", "some", "none"),
    [
        ([], "", {"tour", "devices", "cluster", "tutorial"}, {"--backend"}),
        (["devices"], "-", {"--backend", "-b", "--json"}, {"tour"}),
        (["devices", "--json"], "-", {"--backend"}, {"--json"}),
        (["devices", "-b"], "", {"torch", "numpy"}, {"--json"}),
        (["tutorial"], "", {"new", "run", "check", "build", "env"}, {"tour"}),
        (["tutorial", "env"], "", {"create", "list"}, {"new"}),
        (["run", "--gpus", "2"], "-", {"--memory", "--native-names"}, {"--gpus"}),
        (["run", "--gpus", "2"], "", {"<file>"}, {"--gpus"}),
        (["run", "script.py"], "", {"<file>"}, set()),
        (["tour", "--json"], "out", {"<file>"}, set()),
        (["completion"], "", {"bash", "zsh", "fish"}, set()),
    ],
)
def test_what_may_follow(words: list[str], incomplete: str, some: set[str], none: set[str]) -> None:
    found = follow(words, incomplete)
    assert some <= found
    assert not none & found


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `devshim` is this one, in an empty folder with one file."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "devshim"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m devshim "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


BASH = """
eval "$(devshim completion bash)"
COMP_WORDS=({words}); COMP_CWORD={last}
_devshim_completion devshim
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("devshim dev", ["devices"]),
        ("devshim devices --b", ["--backend"]),
        ("devshim devices -b ten", ["tensorflow"]),
        ("devshim tutorial env c", ["create"]),
    ],
)
def test_bash_completes(commands: dict[str, str], line: str, found: list[str]) -> None:
    words = line.split()
    program = BASH.format(words=" ".join(words), last=len(words) - 1)
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, env=commands, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_accepts_its_script(commands: dict[str, str], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    script = subprocess.run(
        ["devshim", "completion", shell], capture_output=True, text=True, env=commands, timeout=60, check=True
    )
    subprocess.run([shell, "-n"], input=script.stdout, text=True, timeout=60, check=True)

"""Tests of the Tab key: the words that may follow, and the scripts in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devshim.cli.app import app
from devshim.cli.completion import follow, script


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        ([], {"tour", "devices", "cluster", "--version", "--help"}, {"--backend"}),
        (["devices"], {"--backend", "-b", "--json"}, {"tour"}),
        (["devices", "--json"], {"--backend"}, {"--json"}),
        (["devices", "-b"], {"torch", "numpy"}, {"--json"}),
        (["tutorial"], {"new", "run", "check", "build", "env"}, {"tour"}),
        (["tutorial", "env"], {"create", "list"}, {"new"}),
        (["run", "--gpus", "2"], {"--memory", "--native-names"}, {"--gpus"}),
        (["completion"], {"bash", "zsh", "fish"}, set()),
    ],
)
def test_what_may_follow(words: list[str], some: set[str], none: set[str]) -> None:
    found = set(follow(app, words))
    assert some <= found
    assert not none & found


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["run", "--memory"], ["run", "script.py"], ["run", "-m", "module", "--x"], ["tour", "--json"]],
)
def test_a_file_or_the_unknown_follows(words: list[str]) -> None:
    assert follow(app, words) == []


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
_devshim
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
        ("devshim tour --json out", [""]),
    ],
)
def test_bash_completes(commands: dict[str, str], line: str, found: list[str]) -> None:
    words = line.split()
    program = BASH.format(words=" ".join(words), last=len(words) - 1)
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, env=commands, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == found


ZSH = """
autoload -Uz compinit; compinit -u -D
_files() {{ print files }}
compadd() {{ shift; found=(${{(M)@:#${{words[CURRENT]}}*}}); (( $#found )) && print -l -- $found }}
eval "$(devshim completion zsh)"
words=({words}); CURRENT={last}
[[ $_comps[devshim] == _devshim ]] && _devshim
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="this machine has no zsh")
@pytest.mark.parametrize(
    ("line", "some"), [("devshim dev", "devices"), ("devshim devices -b ten", "tensorflow"), ("devshim run x", "files")]
)
def test_zsh_completes(commands: dict[str, str], line: str, some: str) -> None:
    """Outside its editor zsh has no `compadd` and `_files`: these stand-ins keep the words that begin as typed."""
    words = line.split()
    program = ZSH.format(words=" ".join(words), last=len(words))
    done = subprocess.run(["zsh", "-fc", program], capture_output=True, text=True, env=commands, timeout=60, check=True)
    assert done.stderr == ""
    assert some in done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_accepts_its_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    subprocess.run([shell, "-n"], input=script(shell), text=True, timeout=60, check=True)

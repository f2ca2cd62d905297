"""Run functions in a new interpreter, for claims about what happens before a framework has started, or may crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from devshim.certify.claims import Broken, Setting, Skip
from devshim.certify.process_end import describe_end

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fresh"]

PATIENCE = 150
"""Seconds after which a new interpreter is stopped."""


def fresh(function: Callable[[Setting], Any], at: Setting, **variables: str) -> Any:
    """Return the result of a function in a new interpreter.

    Args:
        function: A function of a module; its result must be representable in JSON.
        at: Its argument.
        variables: Further environment variables.

    Raises:
        Broken: The function raised, or the interpreter died.
        Skip: The function raised it.
    """
    command = [sys.executable, "-m", "devshim.certify._fresh", function.__module__, function.__name__]
    command.append(at.to_json())
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        msg = f"a new process did not end within {PATIENCE} seconds"
        raise Broken(msg) from None
    if done.returncode or not done.stdout:
        msg = f"a new process {describe_end(done.returncode, done.stderr)}"
        raise Broken(msg)
    answer = json.loads(done.stdout)
    if "skipped" in answer:
        raise Skip(answer["skipped"])
    if "raised" in answer:
        msg = f"in a new process: {answer['raised']}"
        raise Broken(msg)
    return answer["returned"]

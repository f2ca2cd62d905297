"""`python -m devshim.cli._touch NAME DEVICE`: copy one number to a device and back, in a separate process.

A GPU that is counted may still fail at first use: the driver is too old for the build, the GPU is in an error state,
or the build has no kernels for its architecture. Some of these failures crash the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import devshim as ds
from devshim.registry import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.cli._ask import Answer

__all__ = ["failures", "main", "touch"]

PATIENCE = 180
"""The seconds that one copy may take, including the framework's import."""

_AT_ONCE = 3


def failures(answers: Sequence[Answer]) -> list[str]:
    """Return a sentence for each GPU of each framework for which the first copy fails."""
    pairs = [(answer.info, each["device"]) for answer in answers for each in answer.devices if each["device"] != "cpu"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = pool.map(lambda pair: touch(pair[0].name, pair[1]), pairs)
        return [
            f"{info.title} counts {device}, but copying a number to it fails: {problem}"
            for (info, device), problem in zip(pairs, problems, strict=True)
            if problem is not None
        ]


def touch(name: str, device: str, environment: dict[str, str] | None = None) -> str | None:
    """Return what is wrong with a device, or None.

    Args:
        name: The framework.
        device: The device, such as ``"gpu:1"``.
        environment: The environment of the process; without it, the current one without simulated GPUs.
    """
    if environment is None:
        environment = {key: value for key, value in os.environ.items() if key != "DEVSHIM_SIMULATE_GPUS"}
    command = [sys.executable, "-m", "devshim.cli._touch", name, device]
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"it did not end within {PATIENCE} seconds"
    if not done.returncode:
        return None
    if done.returncode < 0:
        return f"the process {processes.describe_exit(done.returncode)}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"the process {processes.describe_exit(done.returncode)}"


def main(name: str, device: str) -> int:
    """Copy one number to a device and back; in case of a failure, the last line of standard error says why."""
    ds.use(name)
    with suppress(ds.DevshimError):  # most frameworks have no such setting, and do not need it
        ds.memory_policy("grow")  # a test must not take a whole GPU
    try:
        found = ds.to_numpy(ds.place(ds.asarray([3.0], dtype="float32", device="cpu"), device)).tolist()
    except Exception as error:  # any exception of a framework is the answer
        problem = error.problem if isinstance(error, ds.DevshimError) else f"{type(error).__name__}: {error}"
        print(" ".join(problem.split()), file=sys.stderr)
        return 1
    if found != [3.0]:
        print(f"it came back as {found[0]} instead of 3.0", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The process of a Ray node in place of its own for metrics and for environments, neither of which a job needs.

``python idle_helper.py --session-dir=FOLDER --node-id=NODE PORT...`` reports that these ports are not in use, as Ray's
own process for metrics does without its libraries, and waits until its node has ended. If the node ends before this
process has read its number, the wait ends when the folder is removed. The node starts only when the ports are
reported, and ends if this process ends. It imports little: each of Ray's own processes takes 0.45 s of processor time.
"""

from __future__ import annotations

import os
import sys
import time

__all__: list[str] = []

_LOOK = 0.5


def main(words: list[str]) -> None:
    """Report the ports, and wait for the end of the process that started this one, or of its session."""
    parent = os.getppid()
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    for port in (word for word in words if not word.startswith("--")):
        path = os.path.join(options["session-dir"], f"{port}_{options['node-id']}")
        with open(f"{path}.new", "w") as file:
            file.write("-1")
        os.replace(f"{path}.new", path)  # the node reads the file as soon as it exists
    while os.getppid() == parent and os.path.isdir(options["session-dir"]):
        time.sleep(_LOOK)


if __name__ == "__main__":
    main(sys.argv[1:])

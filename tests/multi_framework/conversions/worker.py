"""Converts what it is told on standard input, and answers each conversion with a line of JSON.

The first line says that it is ready.  It is a process of its own, because a conversion that goes wrong may end the
process: what was answered so far tells which one did.  A line of input is a source, a target, and the number of the
cell to begin with.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

from cells import Task
from judge import judge
from sides_more import sides

import devshim as ds


def main(simulated: bool) -> None:
    """Answer until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a framework prints must not come between the answers
    warnings.simplefilter("ignore")
    if simulated:
        ds.simulate(gpus=2)
    found = sides()
    os.write(answers, b"ready\n")
    for line in sys.stdin:
        source, target, begin = line.split()
        task = Task(source, target, simulated)
        for number, cell in enumerate(task.cells()):
            if number >= int(begin):
                os.write(answers, json.dumps(judge(task, cell, found)).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1] == "simulated")

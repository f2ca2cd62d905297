"""A process that runs the conversions named on standard input, and answers each with a line of JSON.

The first line reports that it is ready. It is a separate process, because a wrong conversion may crash it: the answers
until then show which one did. A line of input is a source, a target, and the number of the first cell to run.
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
    os.dup2(2, 1)  # a framework's output must not mix with the answers
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

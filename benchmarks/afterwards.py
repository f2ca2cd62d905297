"""A program that times imports in a process that has a framework: ``afterwards.py FRAMEWORK TURNS MODULE...``.

It prints the seconds of this many imports of devshim in this process, each from scratch. Then, for each module, it
prints the times of devshim and of the module in turn, each in a fork: most libraries can be imported only once, and a
framework takes too long to import for each of them. An import in a fork is slower than a normal one (its pages are
copied), so only the ratios are useful.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings

SLOW = 0.1
"""An import that takes this many seconds or more is measured only three times."""


def timed(module: str) -> float:
    """Return the processor time of an import in seconds."""
    importlib.invalidate_caches()
    begun = time.thread_time()
    __import__(module)
    return time.thread_time() - begun


def start() -> float:
    """Return the seconds of an import of devshim as if it had not been imported here."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "devshim"]:
        del sys.modules[name]
    return timed("devshim")


def forked(module: str) -> float:
    """Return the seconds of an import in a fork of this process."""
    there, back = os.pipe()
    child = os.fork()
    if not child:
        os.write(back, repr(timed(module)).encode())
        os._exit(0)
    os.close(back)
    with os.fdopen(there) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return float(output)


def main() -> None:
    """Measure and print."""
    framework, turns, *modules = sys.argv[1:]
    warnings.simplefilter("ignore")
    __import__(framework)
    pairs = {}
    for module in [module for module in modules if module not in sys.modules]:  # TensorFlow imports Keras itself
        slow = forked(module) > SLOW  # this also writes the bytecode files
        pairs[module] = [(forked("devshim"), forked(module)) for _ in range(3 if slow else int(turns))]
    start()
    print(json.dumps({"devshim": [start() for _ in range(int(turns))], "pairs": pairs}))


if __name__ == "__main__":
    main()

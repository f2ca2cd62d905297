"""Tests of Ctrl-C at any moment: the memory counts of simulated GPUs stay exact, and no interrupt is lost."""

from __future__ import annotations

import os
import sys
from typing import ClassVar

import pytest

from devshim.testing.base import HARDWARE
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature

STORM = '''
import gc, random, signal, subprocess, sys, time
from collections import Counter
import numpy as np

SENDER = """
import os, random, signal, sys, time
while sys.stdin.buffer.read(1):
    time.sleep(random.random() * 0.003)
    os.kill(os.getppid(), signal.SIGINT)
"""
signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the sender, which inherits it
sender = subprocess.Popen([sys.executable, "-S", "-c", SENDER], stdin=subprocess.PIPE, bufsize=0)
signal.signal(signal.SIGINT, signal.default_int_handler)

dropped = []
def hook(unraisable):
    if unraisable.exc_type is KeyboardInterrupt:  # in a finalizer or a callback, which cannot pass it on
        dropped.append(getattr(unraisable.object, "__qualname__", type(unraisable.object).__qualname__))
sys.unraisablehook = hook

ds.use(name)
ds.simulate(gpus=2)
kept = []

class Ring:
    pass

def work():
    x = ds.from_numpy(np.ones(1000, "float32"), "gpu:0")
    ring = Ring()
    ring.itself, ring.tensor = ring, ds.run(lambda a: a + a, ds.place(x, "gpu:1"))
    ds.to_numpy(ring.tensor)
    if len(kept) < 20:
        kept.append(ds.copy(x, "gpu:1"))
    elif random.random() < 0.1:
        kept.clear()

def work_until_interrupted():  # CPython 3.13 leaves a loop's backward jump out of the try around it, so call a function
    before, end = len(dropped), time.monotonic() + 5
    sender.stdin.write(b"!")
    while time.monotonic() < end and len(dropped) == before:
        work()

for _ in range(3):
    work()
gc.set_threshold(100)
seen = lost = 0
for _ in range(times):
    try:
        work_until_interrupted()
        lost += 1
    except KeyboardInterrupt:
        seen += 1
sender.stdin.close()
sender.wait()
gc.collect()
for device, there in (("gpu:0", 0), ("gpu:1", len(kept) * 4096)):
    ds.synchronize(device)
    assert ds.memory(device).used == there, (device, ds.memory(device).used, there)
assert seen + lost == times and lost == len(dropped), (seen, lost, Counter(dropped))
assert set(dropped) <= set(swallowing), Counter(dropped)
'''


class InterruptTests(SubprocessKit):
    """A few hundred real interrupts, each sent after the previous one has arrived.

    Attributes:
        swallowing: The framework's own finalizers and callbacks in Python, by ``__qualname__``, that lose an interrupt
            which arrives inside them. The adapter cannot replace them; its `limits` list them, too.
    """

    swallowing: ClassVar[tuple[str, ...]] = ()
    interrupts: ClassVar[int] = 300

    @pytest.mark.fresh
    @feature("simulate", "simulate_memory")
    def test_ctrl_c_at_any_moment(self) -> None:
        """Exactly the live tensors are counted after any interrupt, and an interrupt inside a finalizer is not lost."""
        if os.name != "posix":
            pytest.skip(f"{HARDWARE}one process cannot interrupt another here")
        if (3, 14) <= sys.version_info < (3, 15):  # devshim cannot prevent it: any lock of any program stays locked
            pytest.skip(f"{HARDWARE}Ctrl-C at the entry of a lock leaves it locked (python/cpython#148874)")
        self.without_gpus(f"times, swallowing = {self.interrupts}, {self.swallowing}\n{STORM}")

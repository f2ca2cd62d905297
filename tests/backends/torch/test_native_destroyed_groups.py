"""Process groups that a program for NCCL has destroyed, which gloo's threads may still be using."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, tempfile, time, warnings, weakref, torch.distributed as dist
warnings.simplefilter("ignore")

def begin(backend):
    dist.init_process_group(backend, init_method=f"file://{folder}/{time.monotonic()}", rank=0, world_size=1)
    return weakref.ref(dist.group.WORLD)

def exist(*groups):
    gc.collect()
    return [group() is not None for group in groups]

with tempfile.TemporaryDirectory() as folder:
    own = begin("gloo")
    dist.destroy_process_group()
    world, part, host = begin("nccl"), weakref.ref(dist.new_group()), weakref.ref(dist.new_group(backend="gloo"))
    dist.destroy_process_group(part())
    print(exist(own, world, part))
    dist.destroy_process_group()
    print(exist(world, part, host))
    time.sleep(1.1)
    last = begin("nccl")
    print(exist(world, part, last))
    dist.destroy_process_group()
"""


def test_a_destroyed_group_lives_until_its_threads_are_idle() -> None:
    """If C++ frees a group with the model that used it, and a thread of gloo is busy, the process hangs."""
    command = [sys.executable, "-m", "devshim", "run", "--gpus", "1", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[False, True, True]", "[True, True, False]", "[False, False, True]"]

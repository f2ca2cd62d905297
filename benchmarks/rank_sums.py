"""The time of `world.all_reduce_` and of the framework's own collective, in one run of two ranks on loopback.

    python -m benchmarks.rank_sums torch [--engine portable] [--sizes 4 1048576 67108864] [--rounds 21]

Both take turns in the same processes. The raw time is that of the engine's own sum of a flat float32 tensor, without
devshim's comparison of the ranks and its copies. Prints the best and the median of each, and their ratios, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIZES = (4, 2**20, 2**26)
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "2", "OMP_NUM_THREADS": "1"}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return how long a call takes, and how long the threads of this process computed in it, in seconds.

    The second depends less on what else the machine does.
    """
    start, computed = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - computed


def rank(framework: str, sizes: list[int], rounds: int) -> None:
    """Measure in one rank; rank 0 prints."""
    import numpy as np

    import devshim as ds
    from devshim.world.trees import tensor_of

    ds.use(framework)
    world = ds.world()
    world.all_reduce_([ds.zeros(1, dtype="float32")])
    raw = world.native._engine
    rows = []
    for nbytes in sizes:
        values = np.random.default_rng(world.rank).normal(size=nbytes // 4).astype("float32")
        backend = world.native.backend
        ours, theirs = [], []
        for _ in range(rounds + 2):
            box = [ds.from_numpy(values)]  # before the ranks meet: one may take longer for it
            if raw is not None:
                flat = tensor_of(backend, values, ds.cpu())
                raw.max_ints([0])  # both start together
                theirs.append(timed(lambda flat=flat: raw.reduce_flat(flat, "sum")))
                raw.max_ints([0])
            else:
                world.barrier()
            ours.append(timed(lambda box=box: world.all_reduce_(box)))
        rows.append(row(nbytes, ours[2:], theirs[2:]))
    if world.rank == 0:
        print(json.dumps({"framework": framework, "sums": world.native.describe(), "rows": rows}))


def row(nbytes: int, ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the best and the median in milliseconds, of the time and of the computing time, and the ratios.

    ``pairs_ms`` is the median of the ratios of one round each: what else the machine does is nearly the same in both.
    """
    found: dict[str, Any] = {"bytes": nbytes}
    for i, name in enumerate(("ms", "cpu_ms")):
        mine, raw = ([each[i] for each in times] for times in (ours, theirs))
        found[name] = [round(min(mine) * 1e3, 3), round(median(mine) * 1e3, 3)]
        if raw:
            found[f"raw_{name}"] = [round(min(raw) * 1e3, 3), round(median(raw) * 1e3, 3)]
            found[f"pairs_{name}"] = round(median(one / other for one, other in zip(mine, raw, strict=True)), 3)
            found[f"ratio_{name}"] = [round(min(mine) / min(raw), 3), round(median(mine) / median(raw), 3)]
    return found


def main() -> None:
    """Start two ranks of this file, with torchrun's variables, and print what rank 0 prints."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("framework")
    parser.add_argument("--engine", default="native", choices=("native", "portable"))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank(options.framework, options.sizes, options.rounds)
        return
    sys.exit(ranks([sys.executable, "-m", "benchmarks.rank_sums", *sys.argv[1:]], options.ranks, options.engine))


def ranks(command: list[str], size: int, engine: str) -> int:
    """Run a command in several ranks on loopback, and return the worst status."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    shared = {**os.environ, **QUIET, **job, "DEVSHIM_ENGINE": engine}
    started = [
        subprocess.Popen(command, cwd=ROOT, env={**shared, "RANK": str(number), "LOCAL_RANK": str(number)})
        for number in range(size)
    ]
    return max(abs(each.wait()) for each in started)


if __name__ == "__main__":
    main()

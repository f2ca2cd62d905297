"""The time of a training step of two ranks on loopback: `world.all_reduce_` of the gradients, and PyTorch's own DDP.

    python -m benchmarks.rank_training [--rows 64] [--rounds 61]

Both take turns in the same processes, with the same LeNet, loss and optimizer of PyTorch. DDP sums while it computes
the gradients, on gloo. Prints the best and the median of a step, and their ratios, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from benchmarks.rank_sums import ranks, row, timed


def rank(rows: int, rounds: int, wide: int) -> None:
    """Measure in one rank; rank 0 prints."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import devshim as ds

    ds.use("torch")
    world = ds.world()
    address = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 7}"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=address, rank=world.rank, world_size=world.size)
    torch.set_num_threads(1)

    def lenet() -> Any:
        torch.manual_seed(0)
        first = [nn.Conv2d(1, 6 * wide, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)]
        second = [nn.Conv2d(6 * wide, 16 * wide, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()]
        third = [nn.Linear(400 * wide, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
        return nn.Sequential(*first, *second, *third)

    ours, theirs = lenet(), DistributedDataParallel(lenet())
    optimizers = [torch.optim.SGD(each.parameters(), 0.03, 0.9) for each in (ours, theirs)]
    torch.manual_seed(world.rank)
    images, labels = torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))

    def step(model: Any, optimizer: Any, sums: bool) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        if sums:
            world.all_reduce_([[x.grad for x in model.parameters()]], "mean")
        optimizer.step()

    def alone() -> None:
        optimizers[0].zero_grad()
        nn.functional.cross_entropy(ours(images), labels).backward()

    seconds: list[list[tuple[float, float]]] = [[], [], []]
    for _ in range(rounds + 5):
        dist.barrier()
        seconds[0].append(timed(lambda: step(ours, optimizers[0], True)))
        dist.barrier()
        seconds[1].append(timed(lambda: step(theirs, optimizers[1], False)))
        dist.barrier()
        seconds[2].append(timed(alone))
    for x, y in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(x, y)
    if world.rank == 0:
        nbytes = sum(x.numel() * 4 for x in ours.parameters())
        found = row(nbytes, seconds[0][5:], seconds[1][5:])
        print(json.dumps({"rows": rows, **found, "gradients_alone": row(nbytes, seconds[2][5:], [])}))
    dist.destroy_process_group()


def main() -> None:
    """Start two ranks of this file, and print what rank 0 prints."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--wide", type=int, default=1, help="a factor for the number of channels")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank(options.rows, options.rounds, options.wide)
        return
    sys.exit(ranks([sys.executable, "-m", "benchmarks.rank_training", *sys.argv[1:]], 2, "native"))


if __name__ == "__main__":
    main()

"""Train a model with a static graph over two processes: the first backward pass finds the parameters not in use."""

import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(2, 1, bias=False)
        self.unused = nn.Linear(2, 1)

    def forward(self, x):
        return self.used(x)


def main(rank, world, store, when):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    torch.manual_seed(0)
    net = DistributedDataParallel(Net().cuda(), device_ids=[rank], static_graph=when == "in the constructor")
    if when == "later":
        net._set_static_graph()
    for _ in range(3):
        net.zero_grad()
        net(torch.full((1, 2), float(rank), device="cuda")).sum().backward()
    if rank == 0:
        print(when, net.module.used.weight.grad.tolist(), [p.grad is None for p in net.module.unused.parameters()])
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for when in ("in the constructor", "later"):
            mp.spawn(main, args=(2, f"file://{Path(folder) / when.replace(' ', '_')}", when), nprocs=2)
